"""The cases of kube-scheduler's queue, cache and messages (Q, C, M) by their names, on the engine.

Q1 and Q8 stand in tests/state/test_scheduling_queue.py, Q6 in tests/plugins/test_small_rules.py, and those of groups
(G1 to G4) in tests/scenarios/test_gang_starts.py. D1 and D2 (how many nodes are tried, and in which order) have no
counterpart: every node is tried.
"""

import pytest

from aischeduler.model.events import BindRefusal, BindRefused, Event, Seen, gone
from aischeduler.model.node import NO_SCHEDULE, Node, Taint
from aischeduler.model.pod import Pod
from aischeduler.model.pod_affinity import PodAffinityTerm, pod_affinity
from aischeduler.model.selectors import label_selector
from aischeduler.state.scheduling_queue import NET_SECONDS, Backoff
from tests.build import a_node, a_pod
from tests.engine.session import Session, binds, reports

HOST = "kubernetes.io/hostname"
DB = {"app": "db"}
NEAR_DB = pod_affinity(required=(PodAffinityTerm(HOST, label_selector("x", DB, ()), ("default",)),))
CLOSED = (Taint("dedicated", "x", NO_SCHEDULE),)


def test_backoff_doubles_with_every_refusal_up_to_its_limit() -> None:
    """Q2."""
    backoff = Backoff()
    assert [backoff.seconds(number) for number in range(6)] == [1, 2, 4, 8, 10, 10]


def test_event_moves_only_the_pods_that_it_can_help() -> None:
    """Q3: a node that is still too small wakes no pod."""
    session = Session(a_node("n", cpu="1"), a_pod("p", cpu="4"))
    session.decide()
    tried = session.scheduler.cluster.decisions
    session.see(a_node("m", cpu="2"))
    assert (binds(session.decide(20)), session.scheduler.cluster.decisions) == ({}, tried)
    session.see(a_node("m", cpu="4"))
    assert binds(session.decide()) == {"p": "m"}


def test_event_while_a_pod_is_being_bound_is_not_lost() -> None:
    """Q4: the Binding fails after a node came; the pod is tried again at once or after its backoff."""
    session = Session(a_node("n", cpu="1"), a_pod("p"))
    assert binds(session.decide()) == {"p": "n"}
    session.see(a_node("m", cpu="1"))
    session.tell(gone(Node, "n"), BindRefused("uid-p", "n", BindRefusal.STALE, "gone"))
    assert binds(session.decide(20)) == {"p": "m"}


def test_pod_that_waited_for_five_minutes_is_tried_again() -> None:
    """Q5."""
    session = Session(a_node("n", cpu="1"), a_pod("p", cpu="4"))
    session.decide()
    assert session.scheduler.waiting()["default"] == {"parked": 1}
    before = session.scheduler.cluster.decisions
    session.decide(NET_SECONDS + 1)
    assert session.scheduler.cluster.decisions == before + 1


def near_db(name: str = "p") -> Pod:
    return a_pod(name, cpu="100m", pod_affinity=NEAR_DB)


@pytest.mark.parametrize(
    ("given", "pod", "event"),
    [
        ((a_node("n", cpu="1"),), a_pod("p", cpu="4"), Seen(a_node("m", cpu="4"))),
        ((a_node("n", taints=CLOSED),), a_pod("p"), Seen(a_node("n"))),
        ((a_node("n", pods=1), a_pod("old", node="n", priority=9)), a_pod("p"), gone(Pod, "uid-old")),
        ((a_node("n", labels={HOST: "n"}),), near_db(), Seen(a_pod("db", labels=DB, node="n"))),
        (
            (a_node("n", labels={HOST: "n"}), a_pod("web", node="n")),
            near_db(),
            Seen(a_pod("web", labels=DB, node="n")),
        ),
        ((a_node("n"),), a_pod("p", node_selector={"disk": "ssd"}), Seen(a_node("n", labels={"disk": "ssd"}))),
        ((a_node("n", unschedulable=True),), a_pod("p"), Seen(a_node("n"))),
        ((a_node("n", cpu="500m"),), a_pod("p"), Seen(a_node("n", cpu="1"))),
        ((a_node("n", pods=0),), a_pod("p"), Seen(a_node("n", pods=1))),
    ],
    ids=[
        "node added",
        "taint removed",
        "pod gone",
        "affinity target added",
        "target relabelled",
        "label added",
        "uncordoned",
        "grown",
        "more pods allowed",
    ],
)
def test_waiting_pod_is_bound_once_an_event_makes_it_fit(given: tuple[object, ...], pod: Pod, event: Event) -> None:
    """Q7."""
    session = Session(*given, pod)  # type: ignore[arg-type]
    assert "p" not in binds(session.decide())
    session.tell(event)
    assert list(binds(session.decide(20))) == ["p"]
    assert session.scheduler.net_saves() == 0


def test_room_of_an_assumed_pod_that_is_deleted_is_free_at_once() -> None:
    """C1 and C2: the late answer of its Binding changes nothing."""
    session = Session(a_node("n", cpu="1"), a_pod("p"))
    session.decide()
    session.tell(gone(Pod, "uid-p"))
    session.see(a_pod("next"))
    assert binds(session.decide()) == {"next": "n"}
    session.tell(BindRefused("uid-p", "n", BindRefusal.TAKEN, "late"))
    assert binds(session.decide(20)) == {}


def test_pod_that_the_watch_shows_elsewhere_counts_there() -> None:
    """C1."""
    session = Session(a_node("n", cpu="1"), a_pod("p"))
    session.decide()
    session.see(a_node("m", cpu="1"), a_pod("p", node="m"), a_pod("next"))
    assert binds(session.decide()) == {"next": "n"}


def test_node_that_comes_again_with_another_size_has_that_size() -> None:
    """C3."""
    session = Session(a_node("n", cpu="4"), a_pod("p", node="n"))
    session.tell(gone(Node, "n"))
    session.see(a_node("n", cpu="2"), a_pod("two", cpu="2"), a_pod("one"))
    assert binds(session.decide()) == {"one": "n"}


def test_refused_binding_of_a_bound_pod_binds_it_no_second_time() -> None:
    """C4."""
    session = Session(a_node("n", cpu="2"), a_pod("p"))
    session.decide()
    session.see(a_pod("p", node="n"))
    session.tell(BindRefused("uid-p", "n", BindRefusal.TAKEN, "already bound"))
    assert binds(session.decide(20)) == {}
    session.see(a_pod("big", cpu="2"), a_pod("small"))
    assert binds(session.decide(20)) == {"small": "n"}


def test_reasons_are_counted_by_node_and_sorted_as_texts() -> None:
    """M1 and M3: a node that lacks two resources counts for both."""
    nodes = [a_node(f"small-{number}", cpu="1") for number in range(3)]
    closed = [a_node(f"closed-{number}", taints=CLOSED) for number in range(2)]
    session = Session(*nodes, *closed, a_pod("p", cpu="4"))
    said = reports(session.decide())["p"]
    assert "0/5 nodes are available: 2 node(s) had untolerated taint(s), 3 Insufficient cpu." in said
    session.see(a_pod("q", cpu="4", memory="64Ti"))
    said = reports(session.decide())["q"]
    assert "2 node(s) had untolerated taint(s), 3 Insufficient cpu, 3 Insufficient memory." in said


def test_cluster_without_nodes_says_so() -> None:
    """M2."""
    assert "no nodes available to schedule pods" in reports(Session(a_pod("p")).decide())["p"]
