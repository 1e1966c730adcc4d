"""Gangs before a new scheduler, and pods that end before the watch shows them: what is not known evicts nobody."""

import pytest

from aischeduler.model.actions import Action
from aischeduler.model.events import BindRefusal, BindRefused, Seen, gone
from aischeduler.model.gang import GangSource
from aischeduler.model.pod import Pod
from tests.build import a_node, a_pod, replace
from tests.checked_scheduler import answers
from tests.engine.session import Session, binds, evictions, nominations
from tests.engine.test_gangs import nodes, shown
from tests.gangs import a_gang, member, members

BY_LABELS = a_gang("g", 3, GangSource.LABELS)


def running(count: int) -> list[Pod]:
    """Return the first pods of the gang, each on its node."""
    pods = [a_pod(f"g-{turn}", cpu="2", node=f"n{turn}", created=10, started=20) for turn in range(count)]
    return [member(pod, BY_LABELS) for pod in pods]


def test_new_scheduler_keeps_a_gang_by_labels_below_its_minimum_beside_a_pod_that_is_as_old() -> None:
    waiting = member(a_pod("g-3", cpu="64", created=10), BY_LABELS)
    session = Session(*nodes(3), *running(2), waiting)
    session.decide()
    assert evictions(session.decide(seconds=600)) == {}


def test_new_scheduler_finishes_the_half_of_a_gang_at_once_where_it_fits() -> None:
    waiting = member(a_pod("g-2", cpu="2", created=10), BY_LABELS)
    session = Session(*nodes(3), *running(2), waiting)
    assert binds(session.decide()) == {"g-2": "n2"}


def test_new_scheduler_keeps_a_gang_of_an_object_that_lost_a_pod_after_its_start() -> None:
    first = member(a_pod("g-0", cpu="2", node="n0", created=10, started=20), "g")
    session = Session(*nodes(2), first, member(a_pod("g-1", cpu="64", created=500), "g"))
    session.tell(Seen(a_gang("g", 2)))
    session.decide()
    assert evictions(session.decide(seconds=61)) == {}


def test_new_scheduler_keeps_the_half_of_a_gang_and_finishes_it_when_room_comes() -> None:
    waiting = [member(a_pod(f"g-{turn}", cpu="2", created=10), BY_LABELS) for turn in (1, 2)]
    session = Session(*nodes(2), *running(1), *waiting)
    assert binds(session.decide()) == {}
    assert evictions(session.decide(seconds=600)) == {}
    session.see(a_node("more", cpu="2"))
    assert sorted(binds(session.decide())) == ["g-1", "g-2"]


def sent_together(*, created: int = 0) -> tuple[Session, list[Pod]]:
    """Return a session in which the three pods of a gang are sent to nodes, and none is shown there yet."""
    pods = [replace(pod, created_seconds=created) for pod in members("g", 3)]
    session = Session(*nodes(3), *pods)
    session.tell(Seen(a_gang("g", 3)))
    assert len(binds(session.decide())) == 3
    return session, pods


def test_gang_is_kept_of_which_a_pod_finished_before_the_watch_showed_it_on_its_node() -> None:
    session, pods = sent_together()
    on = binds(session.said)
    session.see(replace(pods[0], node_name=on["g-0"], phase="Succeeded"))
    shown(session, *pods[1:], started=5)
    session.decide()
    assert evictions(session.decide(seconds=600)) == {}


@pytest.mark.parametrize("first", [True, False])
def test_gang_is_kept_of_which_a_pod_is_gone_before_the_watch_showed_it_on_its_node(*, first: bool) -> None:
    session, pods = sent_together()
    if first:
        session.tell(gone(Pod, "uid-g-0"))
        session.decide()
    shown(session, *pods[1:], started=5)
    session.decide()
    if not first:
        session.tell(gone(Pod, "uid-g-0"))
    session.decide()
    assert evictions(session.decide(seconds=600)) == {}


def test_gang_is_kept_of_which_a_pod_ended_before_the_watch_showed_the_others_on_their_nodes() -> None:
    session, pods = sent_together()
    shown(session, pods[0])
    session.decide()
    session.tell(gone(Pod, "uid-g-0"))
    session.decide()
    shown(session, *pods[1:])
    session.decide()
    assert evictions(session.decide(seconds=600)) == {}


def test_gang_of_which_a_pod_was_deleted_before_its_binding_is_given_up() -> None:
    session, pods = sent_together()
    session.tell(BindRefused("uid-g-0", binds(session.said)["g-0"], BindRefusal.GONE, "not found"))
    shown(session, *pods[1:], started=5)
    session.decide()
    assert evictions(session.decide(seconds=61)) == {"g-1": "GangNotWhole", "g-2": "GangNotWhole"}


@pytest.mark.parametrize("ages", [(100, 10), (10, 100)])
def test_new_scheduler_takes_the_age_of_a_gang_by_labels_from_its_oldest_pod(ages: tuple[int, int]) -> None:
    old, young = a_gang("old", 4, GangSource.LABELS), a_gang("young", 2, GangSource.LABELS)
    on_nodes = [a_pod(f"old-{turn}", cpu="2", node=f"n{turn}", created=age) for turn, age in enumerate(ages)]
    successors = [a_pod(f"old-{turn}", cpu="2", created=200) for turn in (2, 3)]
    others = [a_pod(f"young-{turn}", cpu="2", created=50) for turn in (0, 1)]
    session = Session(*nodes(2), *(member(pod, old) for pod in (*on_nodes, *successors)))
    session.see(*(member(pod, young) for pod in others))
    session.decide()
    session.see(a_node("more", cpu="4"))
    assert sorted(binds(session.decide())) == ["old-2", "old-3"]


def evicted_before_units_are_formed(session: Session) -> dict[str, str]:
    """Return what the loop of the default pool evicts while the loop of no pool has no turn."""
    said: list[Action] = []
    for _ in range(10):
        actions = session.scheduler.decide("default", session.now, 1)
        session.tell(*answers(actions))
        said += actions
    return evictions(said)


def test_new_scheduler_evicts_no_pod_of_a_gang_before_it_knows_how_many_the_gang_can_spare() -> None:
    gang = a_gang("g", 2, GangSource.LABELS)
    on_nodes = [member(a_pod(f"g-{turn}", cpu="2", node=f"n{turn}", started=20), gang) for turn in range(3)]
    session = Session(*nodes(3), *on_nodes, a_pod("high", cpu="2", priority=9))
    assert evicted_before_units_are_formed(session) == {}
    assert len(evictions(session.decide())) == 1


def test_new_scheduler_evicts_no_pod_of_a_gang_before_it_knows_the_highest_priority_of_the_gang() -> None:
    gang = a_gang("g", 2, GangSource.LABELS)
    ranks = {"g-0": 0, "g-1": 10}
    on_nodes = [member(a_pod(name, cpu="2", node=f"n{name[-1]}", priority=rank), gang) for name, rank in ranks.items()]
    session = Session(*nodes(2), *on_nodes, a_pod("high", cpu="2", priority=9))
    assert evicted_before_units_are_formed(session) == {}
    assert evictions(session.decide()) == {}


def test_new_scheduler_waits_for_the_pods_that_leave_for_a_nominated_gang_and_evicts_no_other() -> None:
    gang = a_gang("g", 2, GangSource.LABELS)
    leaving = [a_pod(f"v{turn}", cpu="2", node=f"n{turn}", priority=5) for turn in (0, 1)]
    pods = [member(a_pod(f"g-{turn}", cpu="2", priority=9), gang) for turn in (0, 1)]
    session = Session(*nodes(3), *(replace(pod, terminating=True, grace_seconds=30) for pod in leaving))
    session.see(a_pod("less", cpu="2", node="n2"))
    session.see(*(replace(pod, nominated_node=f"n{turn}") for turn, pod in enumerate(pods)))
    said = session.decide() + session.decide(seconds=10)
    assert (evictions(said), nominations(said)) == ({}, {})
