"""Faults of the first implementation of pools that only calls of the engine can rule out."""

from itertools import permutations

from aischeduler.model.actions import Bind, Evict
from aischeduler.model.events import (
    BindRefusal,
    BindRefused,
    EvictRefusal,
    EvictRefused,
    Seen,
    gone,
)
from aischeduler.model.names import CLUSTER, CPU
from aischeduler.model.pod import RUNNING, Pod
from aischeduler.model.pool import Pool
from tests.build import a_node, a_pod, a_pool, replace
from tests.engine.session import Session, binds


def pool(name: str, **fields: object) -> Pool:
    """Return a pool of the nodes whose label has its name."""
    return replace(a_pool(name, labels={"pool": name}), **fields)


def running(pod: Pod, node: str) -> Pod:
    return replace(pod, node_name=node, phase=RUNNING)


def cpu_used(session: Session) -> dict[str, int]:
    """Return the CPU in use per pool, in milli."""
    return {one.name: one.used[CPU] for one in session.scheduler.summary() if one.used[CPU]}


# Lost pods and leaks.


def test_pod_seen_before_its_node_counts_there_when_the_node_comes() -> None:
    session = Session(pool("a"), running(a_pod("early", cpu="3", pool="a"), "a1"))
    session.see(a_node("a1", cpu="4", labels={"pool": "a"}))
    session.see(a_pod("p", cpu="2", pool="a"), a_pod("q", cpu="1", pool="a"))
    assert binds(session.decide()) == {"q": "a1"}
    assert cpu_used(session) == {"a": 4000}


def test_pod_whose_bind_is_refused_after_its_pool_was_deleted_waits_in_the_default_pool_and_frees_its_room() -> None:
    session = Session(pool("a"), a_node("a1", cpu="4", labels={"pool": "a"}), a_pod("p", cpu="4", pool="a"))
    assert binds(session.decide()) == {"p": "a1"}
    session.tell(gone(Pool, "a"))
    session.tell(BindRefused("uid-p", "a1", BindRefusal.UNAVAILABLE, "no answer"))
    assert cpu_used(session) == {}
    assert binds(session.decide(20)) == {"p": "a1"}
    assert cpu_used(session) == {"default": 4000}


def test_pod_deleted_between_decision_and_answer_frees_its_room_although_its_pool_is_gone() -> None:
    session = Session(pool("a"), a_node("a1", cpu="4", labels={"pool": "a"}), a_pod("p", cpu="4", pool="a"))
    session.decide()
    session.tell(gone(Pool, "a"), gone(Pod, "uid-p"), BindRefused("uid-p", "a1", BindRefusal.GONE, "not found"))
    session.see(a_pod("q", cpu="4"))
    assert binds(session.decide()) == {"q": "a1"}


def test_recreated_pool_has_one_queue_with_every_pod_once() -> None:
    session = Session(pool("a"), *(a_pod(f"p{number}", pool="a", created=number) for number in range(5)))
    session.decide()
    session.tell(gone(Pool, "a"))
    session.see(pool("a"))
    session.see(a_node("a1", cpu="5", labels={"pool": "a"}))
    said = session.decide(20)
    assert [action.pod.name for action in said if isinstance(action, Bind)] == ["p0", "p1", "p2", "p3", "p4"]


def test_node_that_changes_pool_and_size_in_one_event_keeps_the_sums() -> None:
    session = Session(pool("a"), pool("b"), a_node("n", cpu="4", labels={"pool": "a"}))
    session.see(running(a_pod("p", cpu="1", pool="a"), "n"))
    session.see(a_node("n", cpu="16", labels={"pool": "b"}))
    found = {one.name: (one.nodes, one.allocatable[CPU], one.shared[CPU]) for one in session.scheduler.summary()}
    assert found == {"a": (0, 0, 0), "b": (1, 16_000, 1000), "default": (0, 0, 0)}


# Races.


def test_pools_that_decide_in_turns_never_overbook_shared_nodes() -> None:
    for order in permutations(["a", "b", "c"]):
        session = Session(pool("a"), pool("b"), pool("c"), a_node("c1", cpu="6", labels={"pool": "c"}))
        for name in ("a", "b", "c"):
            session.see(*(a_pod(f"{name}{number}", cpu="1", pool=name) for number in range(4)))
        bound: list[str] = []
        while session.scheduler.ready(session.now):
            for name in (*order, "default", CLUSTER):
                said = session.scheduler.decide(name, session.now, 1)
                bound += [action.pod.name for action in said if isinstance(action, Bind)]
        assert len(bound) == 6
        assert {"c0", "c1", "c2", "c3"} <= {*bound}, "home pods first"


# Reclaim is guaranteed.


def test_victim_that_could_not_be_evicted_causes_no_other_eviction_on_its_node() -> None:
    session = Session(pool("a"), pool("b"), a_node("a1", cpu="4", labels={"pool": "a"}))
    session.see(*(running(a_pod(f"b{number}", cpu="2", pool="b", created=number), "a1") for number in range(2)))
    session.see(a_pod("home", cpu="4", pool="a"))
    victims = [action.victim for action in session.decide() if isinstance(action, Evict)]
    assert {victim.name for victim in victims} == {"b0", "b1"}
    session.tell(gone(Pod, victims[0].uid))
    session.tell(EvictRefused(victims[1].uid, EvictRefusal.UNAVAILABLE, "no answer"))
    again = [action.victim.name for action in session.decide(30) if isinstance(action, Evict)]
    assert again == [victims[1].name]
    session.tell(gone(Pod, victims[1].uid))
    assert binds(session.decide(20)) == {"home": "a1"}


def test_retries_within_the_grace_of_a_victim_evict_no_more() -> None:
    session = Session(pool("a"), pool("b"))
    for number in range(3):
        session.see(a_node(f"a{number}", cpu="4", labels={"pool": "a"}))
        session.see(running(a_pod(f"b{number}", cpu="4", pool="b", priority=100), f"a{number}"))
    session.see(a_pod("home", cpu="4", pool="a"))
    (first,) = [action.victim for action in session.decide() if isinstance(action, Evict)]
    session.tell(Seen(replace(first, node_name=first.node_name, terminating=True, grace_seconds=3600)))
    for number in range(10):
        session.see(a_pod("other", cpu="1", pool="b", priority=number))
        assert [action for action in session.decide(60) if isinstance(action, Evict)] == []
    session.tell(gone(Pod, first.uid))
    assert binds(session.decide(20))["home"] == first.node_name


# Starvation and idleness.


# Ping-pong.


def test_pod_that_fits_nowhere_is_tried_a_few_times_an_hour() -> None:
    session = Session(*(pool(name) for name in ("a", "b", "c", "d")), a_pod("p", cpu="8", pool="a"))
    session.see(*(a_node(f"{name}1", cpu="4", labels={"pool": name}) for name in ("a", "b", "c", "d")))
    session.decide()
    before = sum(session.scheduler.counters.attempts.values())
    for _ in range(360):
        session.decide(10)
    assert sum(session.scheduler.counters.attempts.values()) - before <= 12 * 5


# Lender choice.


def test_choice_of_a_lender_does_not_depend_on_the_order_in_which_pools_and_nodes_came() -> None:
    chosen = set()
    for order in permutations(["b", "c", "d"]):
        session = Session(pool("a"))
        for name in (*order, "default"):
            session.see(pool(name), a_node(f"{name}1", cpu="8", labels={"pool": name}))
        session.see(a_pod("p", cpu="2", pool="a"))
        chosen.add(binds(session.decide())["p"])
    assert chosen == {"b1"}


def test_borrowers_that_come_together_spread_over_lenders() -> None:
    session = Session(pool("a"), *(pool(name) for name in ("b", "c", "d")))
    session.see(*(a_node(f"{name}1", cpu="8", labels={"pool": name}) for name in ("b", "c", "d")))
    session.see(*(a_pod(f"p{number}", cpu="2", pool="a") for number in range(6)))
    nodes = list(binds(session.decide()).values())
    assert sorted(nodes) == ["b1", "b1", "c1", "c1", "d1", "d1"]
