"""Borrowing: which pool lends, in which order, within which limits, and which pods its room wakes."""

import pytest

from aischeduler.engine.agenda import CHECKS_MAX
from aischeduler.model.events import Seen, gone
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Namespace, Pool
from tests.build import a_node, a_pod, a_pool, a_taint, replace
from tests.engine.session import Session, binds, evictions, reports


def pool(name: str, **fields: object) -> Pool:
    """Return a pool of the nodes whose label has its name."""
    return replace(a_pool(name, labels={"pool": name}), **fields)


def session_of(*pools: Pool, **nodes: tuple[str, str]) -> Session:
    """Return a session with these pools, and nodes as name=(pool, cpu)."""
    session = Session(*pools)
    session.see(*(a_node(name, cpu=cpu, labels={"pool": owner}) for name, (owner, cpu) in nodes.items()))
    return session


@pytest.mark.parametrize(
    ("a", "b", "clause"),
    [
        ({"disable_borrowing": True}, {}, "its pool does not borrow"),
        ({}, {"disable_sharing": True}, "not sharing: b"),
        ({"borrowing_pools": ("c",)}, {}, "not in borrowingPools: b"),
        ({"borrowing_limit": {"cpu": 500}}, {}, "borrowing limit of cpu"),
        ({}, {"lending_limit": {"cpu": 500}}, "over its lending limit: b"),
    ],
)
def test_reason_of_a_refused_loan_names_the_field_that_forbids_it(
    a: dict[str, object], b: dict[str, object], clause: str
) -> None:
    session = session_of(pool("a", **a), pool("b", **b), b1=("b", "4"))
    session.see(a_pod("p", cpu="1", pool="a"))
    said = session.decide()
    assert binds(said) == {}
    assert clause in reports(said)["p"]
    session.see(replace(pool("a"), generation=2), replace(pool("b"), generation=2))
    assert binds(session.decide(11)) == {"p": "b1"}, "the field no longer forbids it"
    assert session.scheduler.net_saves() == 0


def test_limit_counts_only_what_it_names_and_is_free_again_when_a_loan_ends() -> None:
    session = session_of(pool("a"), pool("b", lending_limit={"cpu": 2000}), b1=("b", "8"))
    session.see(*(a_pod(f"p{i}", cpu="1", pool="a", created=i) for i in range(3)), a_pod("m", cpu="", pool="a"))
    assert set(binds(session.decide())) == {"p0", "p1", "m"}
    session.tell(gone(Pod, "uid-p0"))
    assert set(binds(session.decide(11))) == {"p2"}


def test_freed_borrowing_limit_allows_every_lender() -> None:
    session = session_of(pool("a", borrowing_limit={"cpu": 1000}), pool("b"), pool("c"), b1=("b", "1"), c1=("c", "1"))
    session.see(a_pod("p0", cpu="1", pool="a"), a_pod("p1", cpu="1", pool="a", created=1))
    assert binds(session.decide()) == {"p0": "b1"}
    session.see(a_pod("daemon", cpu="1", node="b1", scheduler_name="other"))
    session.tell(gone(Pod, "uid-p0"))
    assert binds(session.decide(11)) == {"p1": "c1"}, "although the node that p0 left is full"
    assert session.scheduler.net_saves() == 0


def test_borrower_is_woken_when_the_home_pods_that_blocked_the_loan_are_placed() -> None:
    session = session_of(pool("a"), pool("b"), b1=("b", "4"))
    session.see(a_pod("full", cpu="4", pool="b", node="b1", priority=9))
    session.see(a_pod("home", cpu="1", pool="b"), a_pod("p", cpu="3", pool="a"))
    assert binds(session.decide()) == {}
    session.tell(gone(Pod, "uid-full"))
    assert binds(session.decide(11)) == {"home": "b1", "p": "b1"}
    assert session.scheduler.net_saves() == 0


def test_freed_room_goes_to_borrowers_of_all_pools_by_their_order() -> None:
    session = session_of(pool("a"), pool("b"), pool("z"), b1=("b", "2"))
    session.see(a_pod("full", cpu="2", pool="b", node="b1", priority=9))
    session.see(a_pod("first-name", cpu="2", pool="a", priority=1), a_pod("urgent", cpu="2", pool="z", priority=5))
    session.decide()
    session.tell(gone(Pod, "uid-full"))
    assert binds(session.decide(11)) == {"urgent": "b1"}


def test_freed_room_wakes_as_many_pods_as_can_use_it_and_one_more() -> None:
    session = session_of(pool("a"), pool("b"), b1=("b", "10"))
    session.see(a_pod("full", cpu="10", pool="b", node="b1", priority=9))
    session.see(*(a_pod(f"p{i}", cpu="1", pool="a", created=i) for i in range(200)))
    session.decide()
    before = sum(session.scheduler.counters.attempts.values())
    session.tell(gone(Pod, "uid-full"))
    assert set(binds(session.decide(11))) == {f"p{i}" for i in range(10)}
    assert sum(session.scheduler.counters.attempts.values()) - before <= 25


def test_search_for_lenders_begins_again_where_its_pool_may_borrow_more_since_it_began() -> None:
    session = session_of(pool("a", borrowing_limit={"cpu": 2000}), pool("b"), pool("c"), b1=("b", "2"), c1=("c", "2"))
    session.scheduler.often = session.scheduler.closely = False
    session.see(*(a_pod(name, cpu="1", pool="a", node="b1") for name in ("one", "two")))
    classes = range(CHECKS_MAX + 6)
    elsewhere = (a_pod(f"p{n:03d}", cpu=f"{n + 1}m", pool="a", node_selector={"x": "y"}, created=9) for n in classes)
    session.see(a_pod("first", cpu="2", pool="a", created=2), *elsewhere)
    session.decide()
    session.tell(gone(Pod, "uid-one"))
    while (search := session.scheduler.cluster.deferred.look_at("a").seeking) is None or search.after is None:
        session.scheduler.decide("a", session.now, 1)
    session.see(a_pod("daemon", cpu="2", node="b1", scheduler_name="other"))
    session.tell(gone(Pod, "uid-two"))
    assert binds(session.decide()) == {"first": "c1"}
    session.scheduler.look(closely=True)


def test_pods_of_a_new_pool_on_nodes_of_the_default_pool_become_loans() -> None:
    session = session_of(n=("", "4"))
    session.see(a_pod("p", cpu="4", pool="new", node="n"), a_pod("same", cpu="4"))
    assert evictions(session.decide()) == {}
    session.see(pool("new"))
    assert session.scheduler.loans() == {("default", "new"): 1}
    assert evictions(session.decide(11)) == {"p": "Reclaimed"}
    session.tell(gone(Pool, "new"))
    assert session.scheduler.loans() == {}


def test_pod_from_a_namespace_that_its_pool_does_not_allow_waits_until_it_does() -> None:
    session = Session(a_pool("a", labels={"pool": "a"}, allowed_namespaces={"team": "a"}))
    session.see(a_node("n", labels={"pool": "a"}), a_pod("p", namespace="x", pool="a"))
    assert "allowedNamespaces" in reports(session.decide())["p"]
    session.tell(Seen(Namespace("x", {"team": "b"})))
    assert binds(session.decide()) == {}
    session.tell(Seen(Namespace("x", {"team": "a"})))
    assert binds(session.decide()) == {"p": "n"}


def test_of_a_hundred_edits_a_second_a_few_are_handled_and_the_last_one_counts() -> None:
    session = session_of(pool("a"), n=("a", "4"), m=("b", "4"))
    session.decide()
    moves = session.scheduler.cluster.nodes.pool_version
    for i in range(100):
        session.now += 0.01
        session.see(replace(a_pool("a", labels={"pool": "b" if i % 2 else "a"}), generation=i + 2))
    session.decide(1)
    assert session.scheduler.cluster.nodes.pool_version - moves <= 24
    assert [(s.name, s.nodes) for s in session.scheduler.summary()] == [("a", 1), ("default", 1)]
    session.see(a_pod("p", cpu="4", pool="a"))
    assert binds(session.decide()) == {"p": "m"}


def test_message_after_a_trip_has_the_reason_of_each_lender() -> None:
    session = session_of(pool("a"), pool("b"), b1=("b", "1"), d1=("", "1"))
    session.see(*(a_pod(f"p{i}", cpu="1", pool="a", created=i) for i in range(3)))
    said = session.decide()
    assert set(binds(said)) == {"p0", "p1"}
    assert reports(said)["p2"] == "no nodes available to schedule pods. borrowing: no node fits: b, default."


def test_reasons_of_parked_pods_follow_a_lender_that_stops_sharing_without_a_wake_up() -> None:
    session = session_of(pool("a"), pool("b"), b1=("b", "1"))
    session.see(*(a_pod(f"p{i}", cpu="4", pool="a", created=i) for i in range(3)))
    assert "no node fits: b, default" in reports(session.decide())["p2"]
    session.see(replace(pool("b"), disable_sharing=True, generation=2))
    said = reports(session.decide(1))
    assert {name: text.partition("borrowing: ")[2] for name, text in said.items()} == dict.fromkeys(
        ("p0", "p1", "p2"), "not sharing: b; no node fits: default."
    )


def test_first_node_of_a_pool_updates_the_reason_of_every_waiting_pod() -> None:
    session = session_of(pool("a", disable_borrowing=True))
    session.see(*(a_pod(f"p{i}", cpu="1", pool="a") for i in range(3)))
    session.decide()
    session.see(a_node("n", labels={"pool": "a"}, taints=(a_taint(),)))
    said = reports(session.decide(1))
    assert len(said) == 3
    assert all("1 node(s) had untolerated taint(s)" in text for text in said.values())


def test_deleted_node_with_a_loan_frees_the_limit_for_the_next_borrower() -> None:
    session = session_of(pool("a"), pool("b", lending_limit={"pods": 1}), b1=("b", "4"), b2=("b", "4"))
    session.see(a_pod("guest", cpu="1", pool="a", node="b1"), a_pod("next", cpu="1", pool="a"))
    assert binds(session.decide()) == {}
    session.tell(gone(Node, "b1"))
    assert binds(session.decide(11)) == {"next": "b2"}


def test_claims_do_not_count_as_pods_of_a_lender() -> None:
    """Both lenders have one pod; one also has a claim on a GPU, which the borrower does not request."""
    session = Session(pool("a"), pool("b"), pool("c"))
    session.see(a_node("nb", gpu=1, labels={"pool": "b"}), a_node("nc", gpu=1, labels={"pool": "c"}))
    for name in ("b", "c"):
        session.see(a_pod(f"low-{name}", cpu="", memory="", gpu=1, pool=name, node=f"n{name}", started=1))
    session.see(a_pod("high", cpu="", memory="", gpu=1, pool="b", priority=9, preempts=True))
    assert evictions(session.decide()) == {"low-b": "Preempted"}
    session.see(a_pod("borrower", pool="a"))
    assert binds(session.decide()) == {"borrower": "nb"}
