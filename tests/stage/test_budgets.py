"""PodDisruptionBudgets: preferred when the scheduler deletes pods, honoured when it uses the Eviction API."""

from tests.stage.stage import Stage

FULL = "4"


def a_kept_pod(stage: Stage, **more: object) -> None:
    """Let `kept` run on a1 of pool a, with a budget that allows no disruption."""
    stage.node("a1", pool="a")
    stage.pools("a")
    stage.pod("kept", pool="a", cpu=FULL, on="a1", labels={"app": "kept"})
    stage.runs("kept")
    stage.budget("keep", min_available=1, app="kept")


def test_pods_with_a_budget_are_spared_where_other_victims_suffice(stage: Stage) -> None:
    stage.node("a1", pool="a")
    stage.pools("a")
    stage.pod("kept", pool="a", cpu="2", labels={"app": "kept"})
    stage.pod("plain", pool="a", cpu="2", priority=5)
    stage.runs("kept", "plain")
    stage.budget("keep", min_available=1, app="kept")
    stage.pod("high", pool="a", cpu="2", priority=10)
    stage.goes(high="a1")
    assert stage.victims() == ["plain"]


def test_budget_does_not_stop_a_delete_where_there_is_no_other_victim(stage: Stage) -> None:
    a_kept_pod(stage)
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.goes(high="a1")
    assert stage.victims() == ["kept"]


def test_pod_whose_eviction_a_budget_refuses_keeps_running(stage: Stage) -> None:
    stage.restart_scheduler(eviction="Evict")
    a_kept_pod(stage)
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.waits("high")
    assert not stage.terminating("kept")
    assert stage.victims() == [], "a pod whose eviction is refused has no condition"


def test_eviction_that_a_budget_refuses_is_tried_on_the_next_node(stage: Stage) -> None:
    stage.restart_scheduler(eviction="Evict")
    a_kept_pod(stage)
    stage.node("a2", pool="a")
    stage.pod("plain", pool="a", cpu=FULL, on="a2", priority=5)
    stage.runs("plain")
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.goes(high="a2")
    assert not stage.terminating("kept")


def test_eviction_that_a_budget_allows_later_is_done_then(stage: Stage) -> None:
    stage.restart_scheduler(eviction="Evict")
    a_kept_pod(stage)
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.waits("high")
    stage.patch("PodDisruptionBudget", "keep", {"spec": {"minAvailable": 0}})
    stage.goes(high="a1")


def test_eviction_is_done_once_its_budget_is_deleted(stage: Stage) -> None:
    stage.restart_scheduler(eviction="Evict")
    a_kept_pod(stage)
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.waits("high")
    stage.delete("PodDisruptionBudget", "keep")
    stage.goes(high="a1")


def test_eviction_api_makes_room_where_no_budget_forbids_it(stage: Stage) -> None:
    stage.restart_scheduler(eviction="Evict")
    stage.node("a1", pool="a")
    stage.pools("a", "b")
    stage.pod("borrower", pool="b", cpu=FULL)
    stage.runs("borrower")
    stage.pod("home", pool="a", cpu=FULL)
    stage.goes(home="a1")
    assert stage.victims() == ["borrower"]
