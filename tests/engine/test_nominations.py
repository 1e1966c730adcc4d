"""Nominated nodes end with the claims: a waiting pod without claimed room shows none."""

import pytest

from aischeduler.model.events import BindRefusal, BindRefused, Seen, gone
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from tests.build import a_node, a_pod, replace
from tests.engine.session import Session, binds, nominations
from tests.gangs import a_gang, members

OLD = [a_pod(f"old-{turn}", cpu="2", node=f"n{turn}") for turn in range(3)]
CLEARED = {"g-0": "", "g-1": "", "g-2": ""}


def nominated_gang() -> Session:
    """Return a session in which a gang of three is nominated, and the watch shows it."""
    pods = members("g", 3, priority=9)
    session = Session(*(a_node(f"n{turn}", cpu="2") for turn in range(3)), *OLD, *pods)
    session.tell(Seen(a_gang("g", 3)))
    assert sorted(nominations(session.decide()).values()) == ["n0", "n1", "n2"]
    on = nominations(session.said)
    session.see(*(replace(pod, nominated_node=on[pod.name]) for pod in pods))
    assert nominations(session.decide()) == {}
    return session


def test_nominations_of_a_gang_end_when_its_minimum_is_raised() -> None:
    session = nominated_gang()
    session.tell(Seen(a_gang("g", 4)))
    assert nominations(session.decide()) == CLEARED


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
    session = nominated_gang()
    session.tell(*(gone(Node, f"n{turn}") for turn in range(3)), Seen(a_gang("g", 1)))
    assert nominations(session.decide(seconds=20)) == CLEARED
