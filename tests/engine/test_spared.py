"""Pods that could not be evicted: who they are kept from, for how long, and what they cost the others."""

from dataclasses import replace

from aischeduler.model.events import EvictRefused, Spared
from tests.build import a_node, a_pod, a_pool
from tests.engine.session import Session, evictions

A, B, X = {"pool": "a"}, {"pool": "b"}, {"pool": "x"}


def two_pools(**of_a: object) -> Session:
    """Pools a and b; b owns nothing and borrows."""
    return Session(replace(a_pool("a", labels=A), **of_a), a_pool("b", labels=B))  # type: ignore[arg-type]


def test_spared_pod_of_another_pool_does_not_make_searches_be_forgotten() -> None:
    session = Session(
        a_pool("x", labels=X, disable_sharing=True), a_pool("default", disable_borrowing=True, disable_sharing=True)
    )
    session.see(a_node("nx", cpu="4", labels=X), a_pod("guest", cpu="4", node="nx", started=1))
    session.see(a_node("n", cpu="4"), a_pod("peer", cpu="4", priority=5, node="n", started=1))
    session.see(a_pod("owner", cpu="4", pool="x"))
    assert evictions(session.decide()) == {"guest": "Reclaimed"}
    session.tell(EvictRefused("uid-guest", Spared.BUDGET, "the budget"))
    session.decide()
    made = session.scheduler._cluster.searches.made
    session.see(*(a_pod(f"p{i}", cpu="4", priority=5) for i in range(9)))
    assert evictions(session.decide()) == {}
    assert session.scheduler._cluster.searches.made - made <= 2, "one for victims, one for a lender"


def test_search_that_found_only_a_spared_pod_is_made_again_when_it_is_spared_no_more() -> None:
    session = two_pools()
    session.see(a_node("n", cpu="4", labels=A), a_pod("guest", cpu="4", pool="b", node="n", started=1))
    session.see(a_pod("owner", cpu="4", pool="a"))
    assert evictions(session.decide()) == {"guest": "Reclaimed"}
    session.tell(EvictRefused("uid-guest", Spared.UNAVAILABLE, "x"))
    assert evictions(session.decide(29)) == {}
    assert evictions(session.decide(1)) == {"guest": "Reclaimed"}
    assert session.scheduler.net_saves() == 0


def test_spared_pod_stays_spared_when_something_else_about_it_changes() -> None:
    session = two_pools()
    session.see(a_node("n", cpu="4", labels=A), a_pod("guest", cpu="4", pool="b", node="n", started=1))
    session.see(a_pod("owner", cpu="4", pool="a"))
    assert evictions(session.decide()) == {"guest": "Reclaimed"}
    session.tell(EvictRefused("uid-guest", Spared.FORBIDDEN, "x"))
    session.see(a_pod("guest", cpu="4", pool="b", node="n", started=2, priority=3))
    session.see(a_pod("next", cpu="4", pool="a"))
    assert evictions(session.decide(20)) == {}
    session.see(a_pod("guest", cpu="3", pool="b", node="n", started=2, priority=3))
    assert evictions(session.decide(9)) == {}, "resized in place, it is counted anew"
