"""The life of a gang: it starts whole, is late, is finished or given up, and shows its status."""

from collections import Counter

import pytest
from msgspec.structs import astuple

from aischeduler.model.actions import Bind, Evict
from aischeduler.model.events import (
    BindRefusal,
    BindRefused,
    Event,
    EvictRefusal,
    EvictRefused,
    Seen,
    gone,
)
from aischeduler.model.gang import Gang, GangPhase, GangSource
from aischeduler.model.node import Node
from aischeduler.model.pod import RUNNING, Pod
from tests.bench.arena import pool_name
from tests.bench.core import decide_all, see, world
from tests.build import a_node, a_pod, replace
from tests.engine.session import Session, binds, evictions, reports
from tests.gangs import a_gang, a_key, gang_statuses, member, members


def nodes(count: int, *, cpu: str = "2") -> list[Node]:
    return [a_node(f"n{number}", cpu=cpu) for number in range(count)]


def shown(session: Session, *pods: Pod, started: int = 0) -> None:
    """Let the watch show assumed pods on their nodes, as running."""
    on = {action.pod.uid: action.node for action in session.said if isinstance(action, Bind)}
    session.see(*(replace(pod, node_name=on[pod.uid], phase=RUNNING, started_seconds=started) for pod in pods))


@pytest.mark.parametrize("change", [Seen(a_gang("g", 5)), gone(Gang, *astuple(a_key("g")))], ids=["raised", "deleted"])
def test_minimum_that_changes_after_the_start_evicts_nothing(change: Event) -> None:
    pods = members("g", 2)
    session = Session(*nodes(2), *pods)
    session.tell(Seen(a_gang("g", 2)))
    session.decide()
    shown(session, *pods)
    session.decide()
    session.tell(change)
    assert evictions(session.decide(seconds=600)) == {}


def test_minimum_that_is_raised_before_the_bindings_are_shown_evicts_nothing() -> None:
    pods = members("g", 2)
    session = Session(*nodes(2), *pods)
    session.tell(Seen(a_gang("g", 2)))
    session.decide()
    session.tell(Seen(a_gang("g", 5)))
    session.decide()
    shown(session, pods[0])
    session.decide(seconds=2)
    shown(session, pods[1])
    assert evictions(session.decide(seconds=600)) == {}


def test_pod_that_is_sent_to_a_node_before_the_others_of_its_gang_finish_stays_there() -> None:
    pods, more = members("g", 2), member(a_pod("more", cpu="2"), "g")
    session = Session(*nodes(3), *pods)
    session.tell(Seen(a_gang("g", 2)))
    session.decide()
    shown(session, *pods)
    session.see(more)
    assert list(binds(session.decide())) == ["more"]
    session.tell(gone(Pod, "uid-g-0"), gone(Pod, "uid-g-1"))
    session.decide()
    shown(session, more)
    assert evictions(session.decide(seconds=61)) == {}


def test_gang_whose_binding_is_refused_is_finished_when_room_comes() -> None:
    session = Session(*nodes(2), *members("g", 2))
    session.tell(Seen(a_gang("g", 2)))
    bound = binds(session.decide())
    session.tell(BindRefused("uid-g-1", bound["g-1"], BindRefusal.UNAVAILABLE, "503"))
    assert list(binds(session.decide(seconds=2))) == ["g-1"]
    assert evictions(session.decide(seconds=600)) == {}


def half_of_a_gang() -> Session:
    """Return a session in which one pod of two is on a node, and the other was rejected for five minutes."""
    pods = members("g", 2)
    session = Session(*nodes(2), *pods)
    session.tell(Seen(a_gang("g", 2)))
    bound = binds(session.decide())
    session.tell(BindRefused("uid-g-1", bound["g-1"], BindRefusal.INVALID, "no", 300.0))
    shown(session, pods[0])
    session.decide()
    return session


def test_half_gang_is_given_up_after_a_minute_and_its_pods_on_nodes_are_evicted_once() -> None:
    session = half_of_a_gang()
    assert evictions(session.decide(seconds=59)) == {}
    said = session.decide(seconds=2)
    assert evictions(said) == {"g-0": "GangNotWhole"}
    evicted = next(action for action in said if isinstance(action, Evict))
    text = "too few pods of its gang are on nodes, and the others did not start"
    assert evicted.message == f"Evicted from node {evicted.node}: {text}"
    assert evictions(session.decide(seconds=30)) == {}


def test_half_gang_whose_other_pod_is_rejected_at_each_try_is_given_up_after_a_minute() -> None:
    pods = members("g", 2)
    session = Session(*nodes(2), *pods)
    session.tell(Seen(a_gang("g", 2)))
    bound = binds(session.decide())
    shown(session, pods[0])
    given_up = 0.0
    for second in range(75):
        if "g-1" in bound:
            session.tell(BindRefused("uid-g-1", bound["g-1"], BindRefusal.INVALID, "no"))
        said = session.decide(seconds=1)
        bound = binds(said)
        given_up = given_up or second * bool(evictions(said))
    assert 58 <= given_up <= 70


def half_of_a_gang_given_up() -> Session:
    """Return a session in which one pod of two leaves its node, for want of a node for the other; now there is one."""
    pods = members("g", 2)
    session = Session(*nodes(2), *pods)
    session.tell(Seen(a_gang("g", 2)))
    bound = binds(session.decide())
    session.tell(gone(Node, bound["g-1"]), BindRefused("uid-g-1", bound["g-1"], BindRefusal.UNAVAILABLE, "503"))
    shown(session, pods[0])
    session.decide()
    assert evictions(session.decide(seconds=61)) == {"g-0": "GangNotWhole"}
    session.see(*nodes(2))
    return session


def test_pod_of_a_half_gang_is_not_bound_beside_one_that_is_given_up() -> None:
    session = half_of_a_gang_given_up()
    assert binds(session.decide(seconds=2)) == {}
    session.tell(gone(Pod, "uid-g-0"))
    assert binds(session.decide(seconds=2)) == {}
    session.see(member(a_pod("again", cpu="2"), "g"))
    assert sorted(binds(session.decide())) == ["again", "g-1"]


def test_half_gang_whose_eviction_is_refused_is_finished() -> None:
    session = half_of_a_gang_given_up()
    session.decide()
    session.tell(EvictRefused("uid-g-0", EvictRefusal.UNAVAILABLE, "503"))
    assert list(binds(session.decide(seconds=2))) == ["g-1"]


def test_pod_that_is_deleted_before_its_gang_has_started_does_not_count_for_the_start() -> None:
    pods = members("g", 3)
    session = Session(*nodes(3), *pods)
    session.tell(Seen(a_gang("g", 3)))
    bound = binds(session.decide())
    session.tell(BindRefused("uid-g-2", bound["g-2"], BindRefusal.UNAVAILABLE, "503"))
    session.see(*(replace(pod, node_name=bound[pod.name], terminating=pod.name == "g-1") for pod in pods[:2]))
    assert binds(session.decide(seconds=2)) == {}
    session.see(member(a_pod("again", cpu="2"), "g"), a_node("more", cpu="2"))
    assert sorted(binds(session.decide())) == ["again", "g-2"]


def test_half_gang_is_given_up_only_after_a_fresh_view() -> None:
    session = half_of_a_gang()
    session.decide(seconds=61)
    kinds = [type(action).__name__ for action in session.said]
    assert kinds.index("Refresh") < kinds.index("Evict")


def test_status_follows_the_gang_from_pending_to_running() -> None:
    pods = members("g", 2)
    session = Session(*nodes(2), pods[0])
    session.tell(Seen(a_gang("g", 2)))
    phases = [gang_statuses(session.decide() and session.said)["g"].phase]
    session.see(pods[1])
    session.decide()
    phases.append(gang_statuses(session.said)["g"].phase)
    shown(session, *pods)
    session.decide()
    status = gang_statuses(session.said)["g"]
    assert [*phases, status.phase] == [GangPhase.PENDING, GangPhase.SCHEDULING, GangPhase.RUNNING]
    assert (status.min_member, status.members, status.placed, status.running) == (2, 2, 2, 2)


def test_pods_on_nodes_that_name_no_gang_any_more_go_one_by_one() -> None:
    session = Session(*nodes(2), *members("g", 2))
    session.tell(Seen(a_gang("g", 2)))
    session.decide()
    shown(session, *members("g", 2))
    session.decide()
    shown(session, *(replace(pod, gang=None) for pod in members("g", 2)))
    session.see(a_pod("high", cpu="2", priority=9))
    assert len(evictions(session.decide())) == 1


def test_gang_that_loses_a_pod_before_it_was_formed_again_has_started() -> None:
    pods = members("g", 2)
    session = Session(*nodes(2), *pods)
    session.tell(Seen(a_gang("g", 2)))
    session.decide()
    shown(session, *pods)
    session.tell(gone(Pod, "uid-g-1"))
    assert evictions(session.decide(seconds=61)) == {}


def test_pods_of_another_scheduler_do_not_count_and_the_reason_names_it() -> None:
    theirs = replace(member(a_pod("theirs"), "g"), scheduler_name="volcano")
    session = Session(*nodes(3), theirs, *members("g", 2))
    session.tell(Seen(a_gang("g", 3)))
    short = f"The gang {a_key('g')} waits for more pods: 2 of at least 3 exist."
    note = "1 pod(s) of another scheduler do not count: volcano."
    assert reports(session.decide())["g-0"] == f"{short} {note}"
    session.tell(gone(Pod, theirs.uid))
    assert reports(session.decide())["g-0"] == short


def test_gang_of_five_thousand_starts_whole_and_blocks_no_other_pool() -> None:
    there = world(1002, pools=2, cpu="20")
    pods = [a_pod(f"g-{turn}", cpu="2", pool=pool_name(0)) for turn in range(5000)]
    other = a_pod("other", cpu="2", pool=pool_name(1))
    see(there.scheduler, [other, *(member(pod, a_gang("g", 5000, GangSource.LABELS)) for pod in pods)])
    found = binds(decide_all(there.scheduler))
    assert found.keys() == {pod.name for pod in (other, *pods)}
    assert max(Counter(found.values()).values()) <= 10


def test_gang_whose_object_does_not_exist_is_late_after_ten_minutes_and_starts_once_it_does() -> None:
    session = Session(*nodes(2), *members("g", 2))
    unknown = "The PodGroup of scheduling.x-k8s.io default/g, which the pod names, does not exist."
    assert reports(session.decide())["g-0"] == unknown
    assert reports(session.decide(seconds=599)) == {}
    late = f"The gang {a_key('g')} did not start within 600 s."
    assert reports(session.decide(seconds=2))["g-0"] == f"{late} {unknown}"
    session.tell(Seen(a_gang("g", 2)))
    assert len(binds(session.decide())) == 2


def test_changed_gang_gets_its_time_again() -> None:
    session = Session(*nodes(1), *members("g", 2))
    session.tell(Seen(a_gang("g", 2, timeout=60)))
    session.decide()
    session.decide(seconds=61)
    assert gang_statuses(session.said)["g"].phase is GangPhase.FAILED
    session.tell(Seen(a_gang("g", 2, timeout=90)))
    session.decide(seconds=1)
    assert gang_statuses(session.said)["g"].phase is GangPhase.SCHEDULING
    session.decide(seconds=91)
    assert gang_statuses(session.said)["g"].phase is GangPhase.FAILED
