"""For which pods the scheduler evicts, and which pods it may evict."""

from typing import Any

import pytest

from tests.scenarios.stage import Stage

FULL = "4"


def a_full_pool(stage: Stage, **spec: Any) -> None:
    """Create pool a with one node, which `low` fills."""
    stage.node("a1", pool="a")
    stage.pools("a", **spec)
    stage.pod("low", pool="a", cpu=FULL)
    stage.runs("low")


def a_lent_pool(stage: Stage, *, priority: int = 0, **spec: Any) -> None:
    """Create pool a with one node, which a borrower of pool b fills."""
    stage.node("a1", pool="a")
    stage.pools("a", **spec)
    stage.pools("b")
    stage.pod("borrower", pool="b", cpu=FULL, priority=priority)
    stage.runs("borrower")
    assert stage.node_of("borrower") == "a1"


def test_home_pod_evicts_a_home_pod_of_lower_priority_and_the_victim_gets_an_event(stage: Stage) -> None:
    a_full_pool(stage)
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.goes(high="a1")
    assert stage.victims() == ["low"]
    stage.until(lambda: len(stage.events("low", "Preempted")) == 1)
    (note,) = stage.events("low", "Preempted")
    assert all(part in note for part in ("ns/high", "node a1", "pool a", "its priority is higher than this pod's")), (
        note
    )


def test_home_pod_reclaims_lent_room_whatever_the_priority_of_the_borrower(stage: Stage) -> None:
    a_lent_pool(stage, priority=1000)
    stage.pod("home", pool="a", cpu=FULL)
    stage.goes(home="a1")
    assert stage.victims() == ["borrower"]
    stage.until(lambda: len(stage.events("borrower", "Preempted")) == 1)
    (note,) = stage.events("borrower", "Preempted")
    assert all(part in note for part in ("ns/home", "node a1", "pool a", "reclaimed lent room")), note


def test_home_pod_of_equal_priority_is_never_evicted(stage: Stage) -> None:
    a_full_pool(stage)
    stage.pod("second", pool="a", cpu=FULL)
    stage.waits("second", "Insufficient cpu")
    assert stage.victims() == []


def test_scheduler_without_preemption_evicts_no_pod(stage: Stage) -> None:
    stage.restart_scheduler(disablePreemption=True)
    a_full_pool(stage)
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.waits("high", "Insufficient cpu")
    assert stage.victims() == []


def test_scheduler_without_preemption_reclaims_no_room(stage: Stage) -> None:
    stage.restart_scheduler(disablePreemption=True)
    a_lent_pool(stage)
    stage.pod("home", pool="a", cpu=FULL, priority=10)
    stage.waits("home", "Insufficient cpu")
    assert stage.victims() == []


def test_pool_without_preemption_evicts_neither_home_pods_nor_borrowers(stage: Stage) -> None:
    a_lent_pool(stage, disablePreemption=True)
    stage.node("a2", pool="a")
    stage.pod("low", pool="a", cpu=FULL)
    stage.goes(low="a2")
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.waits("high", "0/2 nodes are available: 2 Insufficient cpu.")
    assert stage.victims() == []


def test_pod_that_never_preempts_evicts_no_pod_and_reclaims_no_room(stage: Stage) -> None:
    a_lent_pool(stage)
    stage.node("a2", pool="a")
    stage.pod("low", pool="a", cpu=FULL)
    stage.goes(low="a2")
    stage.pod("polite", pool="a", cpu=FULL, priority=10, never_preempts=True)
    stage.waits("polite", "0/2 nodes are available: 2 Insufficient cpu.")
    assert stage.victims() == []


def test_borrower_evicts_no_pod_of_the_lender(stage: Stage) -> None:
    a_full_pool(stage)
    stage.pools("b")
    stage.pod("borrower", pool="b", cpu=FULL, priority=1000)
    stage.waits("borrower", "no nodes available to schedule pods")
    assert stage.victims() == []


def test_pod_of_another_scheduler_is_never_evicted(stage: Stage) -> None:
    stage.node("a1", pool="a")
    stage.pools("a")
    stage.pod("other", scheduler_name="other", node="a1", cpu=FULL)
    stage.runs("other")
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.waits("high", "Insufficient cpu")
    assert stage.victims() == []


@pytest.mark.parametrize("kind", ["daemon set", "mirror", "critical"])
def test_pod_that_belongs_to_its_node_or_to_the_system_is_never_evicted(stage: Stage, kind: str) -> None:
    stage.node("a1", pool="a")
    stage.pools("a", "b")
    kinds: dict[str, dict[str, Any]] = {
        "daemon set": {"owner": "DaemonSet"},
        "mirror": {"node": "a1", "annotations": {"kubernetes.io/config.mirror": "x"}},
        "critical": {"priority_class": "system-cluster-critical"},
    }
    stage.pod("stays", pool="b", cpu=FULL, **kinds[kind])
    stage.runs("stays")
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.waits("high", "Insufficient cpu")
    assert stage.victims() == []


def test_pod_waits_for_a_terminating_pod_and_evicts_no_other(stage: Stage) -> None:
    stage.node("a1", pool="a")
    stage.node("a2", pool="a")
    stage.pools("a")
    stage.pod("leaving", pool="a", cpu=FULL, on="a1", held=True)
    stage.pod("low", pool="a", cpu=FULL, on="a2")
    stage.runs("leaving", "low")
    stage.delete("Pod", "leaving")
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.until(lambda: stage.nominated("high") == "a1")
    stage.stays(lambda: stage.victims() == [])
    stage.release("leaving")
    stage.goes(high="a1")


def test_fewest_and_least_important_pods_are_evicted(stage: Stage) -> None:
    stage.node("a1", pool="a", cpu="8")
    stage.pools("a")
    stage.pod("p1", pool="a", cpu="2", priority=1)
    stage.pod("p2", pool="a", cpu="2", priority=2)
    stage.pod("p3", pool="a", cpu="4", priority=3)
    stage.runs("p1", "p2", "p3")
    stage.pod("high", pool="a", cpu="2", priority=10)
    stage.goes(high="a1")
    assert stage.victims() == ["p1"]


def test_borrowers_are_evicted_before_home_pods(stage: Stage) -> None:
    stage.node("a1", pool="a")
    stage.pools("a", "b")
    stage.pod("home", pool="a", cpu="2", priority=-5)
    stage.pod("borrower", pool="b", cpu="2", priority=1000)
    stage.runs("home", "borrower")
    stage.pod("high", pool="a", cpu="2", priority=10)
    stage.goes(high="a1")
    assert stage.victims() == ["borrower"]
