"""PodDisruptionBudgets: preferred when the scheduler deletes pods, honoured when it uses the Eviction API."""

from tests.scenarios.stage import Stage

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


def test_pod_that_a_budget_protects_costs_no_pod_beside_it(stage: Stage) -> None:
    stage.restart_scheduler(eviction="Evict")
    stage.node("a1", pool="a")
    stage.pools("a", "b")
    stage.pod("kept", pool="b", cpu="2", labels={"app": "kept"})
    stage.pod("free", pool="b", cpu="2")
    stage.runs("kept", "free")
    stage.budget("keep", min_available=1, app="kept")
    stage.pod("home", pool="a", cpu=FULL)
    stage.waits("home", "Disruption budgets forbid the eviction of 1 pod now.")
    assert stage.victims() == []
    stage.delete("PodDisruptionBudget", "keep")
    stage.goes(home="a1")


def test_pod_of_two_budgets_costs_no_pod_beside_it(stage: Stage) -> None:
    stage.restart_scheduler(eviction="Evict")
    stage.node("a1", pool="a")
    stage.pools("a", "b")
    stage.pod("kept", pool="b", cpu="2", labels={"app": "kept"})
    stage.pod("free", pool="b", cpu="2")
    stage.runs("kept", "free")
    stage.budget("one", min_available=0, app="kept")
    stage.budget("two", min_available=0, app="kept")
    stage.pod("home", pool="a", cpu=FULL)
    stage.waits("home", "Disruption budgets forbid the eviction of 1 pod now.")
    assert stage.victims() == []


def test_room_of_the_first_victim_of_a_budget_waits_for_the_home_pod(stage: Stage) -> None:
    stage.restart_scheduler(eviction="Evict")
    stage.node("a1", pool="a")
    stage.pools("a", "b")
    stage.job("borrowers", pool="b", cpu="2", completions=2, parallelism=2)
    stage.until(lambda: stage.jobs_nodes("borrowers") == {"a1": 2})
    stage.until(lambda: all(pod["status"]["phase"] == "Running" for pod in stage.all_pods()))
    stage.budget("keep", min_available=1, **{"job-name": "borrowers"})
    stage.pod("home", pool="a", cpu=FULL)
    stage.until(lambda: stage.jobs_nodes("borrowers") == {"a1": 1, "": 1})
    stage.stays(lambda: len(stage.victims()) == 1 and stage.jobs_nodes("borrowers")[""] == 1)
    stage.node("b1", pool="b", cpu="2")
    stage.goes(home="a1")
    assert len(stage.victims()) == 2, "the budget allowed the second when the successor of the first ran"
