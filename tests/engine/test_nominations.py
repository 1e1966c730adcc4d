"""Nominated nodes end with the claims: a waiting pod without claimed room shows none."""

import pytest
from msgspec.structs import astuple

from aischeduler.model.events import BindRefusal, BindRefused, Seen, gone
from aischeduler.model.gang import Gang, GangSource
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from tests.build import a_node, a_pod, replace
from tests.engine.session import Session, binds, nominations
from tests.gangs import a_gang, a_key, member, members

OLD = [a_pod(f"old-{turn}", cpu="2", node=f"n{turn}") for turn in range(3)]
CLEARED = {"g-0": "", "g-1": "", "g-2": ""}


def show_nominations(session: Session, pods: list[Pod]) -> None:
    """Let the watch show the nominated nodes that were written."""
    on = nominations(session.said)
    session.see(*(replace(pod, nominated_node=on.get(pod.name, "")) for pod in pods))


def nominated_gang(*, least: int = 3) -> tuple[Session, list[Pod]]:
    """Return a session in which a gang of three is nominated, and the watch shows it."""
    pods = members("g", 3, priority=9)
    session = Session(*(a_node(f"n{turn}", cpu="2") for turn in range(3)), *OLD, *pods)
    session.tell(Seen(a_gang("g", least)))
    assert sorted(nominations(session.decide()).values()) == ["n0", "n1", "n2"][:least]
    show_nominations(session, pods)
    assert nominations(session.decide()) == {}
    return session, pods


def test_nominations_of_a_gang_end_when_it_loses_a_pod() -> None:
    session, _ = nominated_gang()
    session.tell(gone(Pod, "uid-g-2"))
    assert nominations(session.decide()) == {"g-0": "", "g-1": ""}


def test_nominations_of_a_gang_end_when_its_object_is_deleted() -> None:
    session, _ = nominated_gang()
    session.tell(gone(Gang, *astuple(a_key("g"))))
    assert nominations(session.decide()) == CLEARED


def test_nominations_of_a_gang_end_when_its_minimum_is_raised() -> None:
    session, _ = nominated_gang()
    session.tell(Seen(a_gang("g", 4)))
    assert nominations(session.decide()) == CLEARED


def test_nomination_of_a_pod_ends_when_it_joins_a_gang_that_is_not_complete() -> None:
    pod = a_pod("single", cpu="2", priority=9)
    session = Session(a_node("n0", cpu="2"), OLD[0], pod)
    assert nominations(session.decide()) == {"single": "n0"}
    joined = replace(member(pod, a_gang("g", 2, GangSource.LABELS)), nominated_node="n0")
    session.see(joined)
    assert nominations(session.decide()) == {"single": ""}
    session.see(replace(joined, nominated_node=""))
    assert nominations(session.decide()) == {}


def test_nominations_that_a_new_scheduler_finds_at_an_incomplete_gang_end() -> None:
    pods = [replace(pod, nominated_node=f"n{turn}") for turn, pod in enumerate(members("g", 2))]
    session = Session(a_node("n0", cpu="2"), *pods)
    session.tell(Seen(a_gang("g", 3)))
    assert nominations(session.decide()) == {"g-0": "", "g-1": ""}


@pytest.mark.parametrize("gates", [(), ("later",)])
def test_nomination_that_a_new_scheduler_finds_at_a_pod_ends_once(gates: tuple[str, ...]) -> None:
    pod = replace(a_pod("single", cpu="2"), nominated_node="n1", gates=gates)
    session = Session(a_node("n0", cpu="1"), pod)
    said = session.decide()
    assert nominations(said) == {"single": ""}
    session.see(replace(pod, nominated_node=""))
    session.see(a_node("n1", cpu="1"))
    assert nominations(session.decide(seconds=20)) == {}


def test_nomination_ends_when_the_binding_is_refused_for_good() -> None:
    pod = a_pod("single", cpu="2", priority=9)
    session = Session(a_node("n0", cpu="2"), OLD[0], pod)
    session.decide()
    session.see(replace(pod, nominated_node="n0"))
    session.tell(gone(Pod, "uid-old-0"))
    assert binds(session.decide()) == {"single": "n0"}
    session.tell(BindRefused("uid-single", "n0", BindRefusal.INVALID, "no"))
    assert nominations(session.decide()) == {"single": ""}


def test_nominations_end_for_pods_that_wait_for_themselves_and_find_no_room() -> None:
    session, _ = nominated_gang()
    session.tell(*(gone(Node, f"n{turn}") for turn in range(3)), Seen(a_gang("g", 1)))
    assert nominations(session.decide(seconds=20)) == CLEARED
