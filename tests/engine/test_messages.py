"""The clauses on preemption and borrowing in the messages of waiting pods, whichever the pool tries first."""

import pytest

from aischeduler.model.pool import MakeRoomOrder, Pool
from tests.build import a_node, a_pod, a_pool, replace
from tests.engine.session import Session, reports

NO_VICTIMS = "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."


def pool(name: str, **fields: object) -> Pool:
    return replace(a_pool(name, labels={"pool": name}), **fields)


def told(first: MakeRoomOrder, borrowing: str) -> str:
    """Return the message of a pod that cannot preempt, with this clause on borrowing."""
    preempted_first = first is MakeRoomOrder.PREEMPT_THEN_BORROW
    clauses = (NO_VICTIMS, borrowing) if preempted_first else (borrowing, NO_VICTIMS)
    return " ".join(("0/1 nodes are available: 1 Insufficient cpu.", *clauses))


def waiting_in_a(first: MakeRoomOrder, **of_b: object) -> Session:
    """Return pool a, full with a pod that may not be evicted, and a waiting pod; b has one node of the same size."""
    session = Session(pool("a", make_room=first), pool("b", **of_b), a_pool("default", disable_sharing=True))
    session.see(a_node("na", cpu="2", labels={"pool": "a"}), a_node("nb", cpu="2", labels={"pool": "b"}))
    session.see(a_pod("own", cpu="2", pool="a", node="na", priority=9), a_pod("p", cpu="2", pool="a"))
    return session


@pytest.mark.parametrize("first", list(MakeRoomOrder))
def test_message_after_a_trip_has_the_clauses_of_preemption_and_borrowing(first: MakeRoomOrder) -> None:
    session = waiting_in_a(first)
    session.scheduler.decide("a", 0.0, 1)  # the pod is on its way to b
    session.see(a_pod("hb", cpu="2", pool="b"))
    assert reports(session.decide())["p"] == told(first, "borrowing: not sharing: default; no node fits: b.")


@pytest.mark.parametrize("first", list(MakeRoomOrder))
def test_updated_message_keeps_the_clause_of_preemption(first: MakeRoomOrder) -> None:
    session = waiting_in_a(first, disable_sharing=True)
    assert reports(session.decide())["p"] == told(first, "borrowing: not sharing: b, default.")
    session.see(pool("b", lending_limit={"cpu": 1}, generation=3))
    assert reports(session.decide(1))["p"] == told(first, "borrowing: not sharing: default; over its lending limit: b.")


@pytest.mark.parametrize("first", list(MakeRoomOrder))
def test_message_of_a_pod_of_the_only_pool_has_no_clause_of_borrowing(first: MakeRoomOrder) -> None:
    session = Session(a_pool("default", make_room=first), a_node("n", cpu="2"))
    session.see(a_pod("own", cpu="2", node="n", priority=9), a_pod("p", cpu="2"))
    assert reports(session.decide())["p"] == f"0/1 nodes are available: 1 Insufficient cpu. {NO_VICTIMS}"
