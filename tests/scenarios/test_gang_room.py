"""Room for gangs and room that gangs leave: preemption, taking back, borrowing whole and spanning pools."""

from typing import Any

import pytest

from aischeduler.model.gang import GANG_SPAN_KEY
from tests.gang_objects import gang_labels
from tests.scenarios.gangs import (
    group,
    grouped,
    labelled,
    members,
    nodes,
    places,
    says,
    start_together,
    until_phase,
    volcano_group,
    volcano_pods,
    waiting,
)
from tests.scenarios.stage import Stage

SPAN = {GANG_SPAN_KEY: "true"}


def runs(stage: Stage, name: str, count: int, **more: Any) -> None:
    """Create a gang of labels, and wait until all of them run."""
    labelled(stage, name, count, **more)
    stage.runs(*members(name, count))


# Preemption.


def test_gang_preempts_a_whole_gang_of_lower_priority(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    runs(stage, "low", 2)
    labelled(stage, "high", 2, priority=10)
    start_together(stage, "high-0", "high-1")
    stage.evicts("low-0", "low-1")
    stage.until(lambda: len(stage.events("low-0", "Preempted")) == 1)
    (note,) = stage.events("low-0", "Preempted")
    assert "its priority is higher than this pod's" in note


def test_gang_of_equal_priority_is_never_preempted(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    runs(stage, "first", 2)
    labelled(stage, "second", 2)
    stage.waits("second-0", "0 of the 2 pods that start together fit", "No preemption victims found")
    assert stage.victims() == []


def test_gang_below_its_minimum_goes_whole_for_one_pod(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    runs(stage, "low", 2)
    stage.pod("high", priority=10)
    stage.evicts("low-0", "low-1")
    places(stage, "high")


def test_all_room_that_a_lost_gang_leaves_counts(stage: Stage) -> None:
    nodes(stage, "n1", "n2", "n3")
    runs(stage, "low", 3)
    stage.node("n4", cpu="1")
    stage.pod("single", priority=5)
    stage.goes(single="n4")
    labelled(stage, "high", 3, priority=10)
    start_together(stage, *members("high", 3))
    stage.evicts(*members("low", 3))


def test_surplus_of_a_gang_goes_alone(stage: Stage) -> None:
    nodes(stage, "n1", "n2", "n3")
    runs(stage, "low", 3, minimum="2")
    stage.pod("high", priority=10)
    places(stage, "high")
    (victim,) = stage.victims()
    stage.goes_away(victim)
    stage.runs(*(pod for pod in [*members("low", 3), "high"] if pod != victim))


def test_single_pod_takes_the_lowest_priority_even_where_that_is_a_gang(stage: Stage) -> None:
    nodes(stage, "n1", "n2", "n3")
    runs(stage, "low", 2)
    stage.pod("single", priority=5)
    stage.runs("single")
    stage.pod("high", priority=10)
    stage.evicts("low-0", "low-1")
    places(stage, "high")


def test_surplus_of_one_gang_goes_before_all_of_another(stage: Stage) -> None:
    nodes(stage, "n1", "n2", "n3", "n4", "n5")
    runs(stage, "whole", 2)
    runs(stage, "large", 3, minimum="2")
    stage.pod("high", priority=10)
    places(stage, "high")
    (victim,) = stage.victims()
    assert victim.startswith("large-")


def test_single_pods_go_before_a_gang(stage: Stage) -> None:
    nodes(stage, "n1", "n2", "n3", "n4")
    runs(stage, "low", 2)
    stage.pods("single-0", "single-1", priority=5)
    stage.runs("single-0", "single-1")
    labelled(stage, "high", 2, priority=10)
    stage.evicts("single-0", "single-1")
    start_together(stage, "high-0", "high-1")


def test_gang_evicts_no_more_pods_than_it_needs_beside_free_room(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    stage.pods("old-0", "old-1")
    stage.runs("old-0", "old-1")
    nodes(stage, "n3")
    labelled(stage, "high", 2, priority=10)
    start_together(stage, "high-0", "high-1")
    assert len(stage.victims()) == 1


def head_and_worker(stage: Stage, *, priority: int = 0) -> None:
    """Create a gang whose first pod fits on every node, the second on a node with a GPU alone."""
    labels = gang_labels("g", "2")
    stage.pod("g-head", cpu="2", labels=labels, priority=priority)
    stage.pod("g-worker", gpu=1, labels=labels, priority=priority)


@pytest.mark.parametrize("cpu_node", ["n1", "n3"])
def test_head_of_a_gang_leaves_the_gpu_to_its_worker(stage: Stage, cpu_node: str) -> None:
    stage.node("n2", cpu="2", gpu=1)
    stage.node(cpu_node, cpu="2")
    head_and_worker(stage)
    assert places(stage, "g-head", "g-worker") == [cpu_node, "n2"]


def test_gang_that_fits_in_no_way_evicts_no_pod(stage: Stage) -> None:
    nodes(stage, "n1", "n2", "n3")
    stage.pods("low-0", "low-1")
    stage.pod("top", priority=20)
    stage.runs("low-0", "low-1", "top")
    labelled(stage, "high", 3, priority=10)
    stage.waits("high-0", "0 of the 3 pods that start together fit")
    assert stage.victims() == []


def test_gang_starts_in_one_decision_once_its_last_victim_is_gone(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    stage.pods("old-0", "old-1", held=True)
    stage.runs("old-0", "old-1")
    labelled(stage, "high", 2, priority=10)
    stage.evicts("old-0", "old-1")
    stage.release("old-0")
    stage.goes_away("old-0")
    stage.stays(lambda: waiting(stage, "high-0", "high-1"))
    stage.release("old-1")
    start_together(stage, "high-0", "high-1")


def test_gang_that_never_preempts_waits(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    runs(stage, "low", 2)
    labelled(stage, "polite", 2, priority=10, never_preempts=True)
    stage.waits("polite-0", "0 of the 2 pods that start together fit")
    assert stage.victims() == []


def test_gang_of_a_pool_without_preemption_waits(stage: Stage) -> None:
    nodes(stage, "a1", "a2", pool="a")
    stage.pools("a", disablePreemption=True)
    runs(stage, "low", 2, pool="a")
    labelled(stage, "high", 2, priority=10, pool="a")
    stage.waits("high-0", "0 of the 2 pods that start together fit")
    assert stage.victims() == []


def test_gang_that_a_budget_protects_stays_where_others_may_go(stage: Stage) -> None:
    nodes(stage, "n1", "n2", "n3", "n4")
    stage.pods("low-0", "low-1", labels=gang_labels("low") | {"guarded": "yes"})
    stage.pods("single-0", "single-1", priority=5)
    stage.runs("low-0", "low-1", "single-0", "single-1")
    stage.budget("all", min_available=2, guarded="yes")
    labelled(stage, "high", 2, priority=10)
    stage.evicts("single-0", "single-1")
    start_together(stage, "high-0", "high-1")


def test_role_at_its_minimum_stays_and_the_surplus_of_another_goes(stage: Stage) -> None:
    nodes(stage, "n1", "n2", "n3")
    volcano_group(stage, minimum=2, min_task_member={"driver": 1, "worker": 1})
    volcano_pods(stage, "driver-0", role="driver")
    volcano_pods(stage, "worker-0", "worker-1", role="worker")
    stage.runs("driver-0", "worker-0", "worker-1")
    stage.pod("high", priority=10)
    places(stage, "high")
    (victim,) = stage.victims()
    assert victim.startswith("worker-")


def test_preempted_gang_starts_whole_again_when_its_pods_come_back(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    group(stage)
    grouped(stage, "g-0", "g-1")
    until_phase(stage, "Running")
    stage.pod("high", priority=10)
    stage.evicts("g-0", "g-1")
    stage.goes_away("g-0")
    stage.goes_away("g-1")
    grouped(stage, "g-0", "g-1")
    until_phase(stage, "Pending")
    says(stage, "g-0", "1 of the 2 pods that start together fit")
    stage.delete("Pod", "high")
    start_together(stage, "g-0", "g-1")


def test_no_running_pod_is_moved_for_a_gang_of_equal_priority(stage: Stage) -> None:
    stage.node("n1", cpu="2")
    stage.node("n2", cpu="2")
    stage.pod("single-0", on="n1")
    stage.pod("single-1", on="n2")
    stage.runs("single-0", "single-1")
    labelled(stage, "g", 2, cpu="2")
    stage.waits("g-0", "0 of the 2 pods that start together fit")
    assert stage.victims() == []


# Borrowing and taking back.


def pools(stage: Stage, **counts: int) -> None:
    """Create pools with these numbers of nodes a1, a2, …, each for one pod; pools without nodes first borrow."""
    for pool, count in counts.items():
        nodes(stage, *(f"{pool}{turn + 1}" for turn in range(count)), pool=pool)
    stage.pools(*counts)


def test_gang_that_fits_at_home_borrows_nothing(stage: Stage) -> None:
    pools(stage, home=2, a=4)
    labelled(stage, "g", 2, pool="home")
    assert sorted(places(stage, "g-0", "g-1")) == ["home1", "home2"]


def test_gang_borrows_whole_at_one_lender(stage: Stage) -> None:
    pools(stage, home=1, a=1, b=2)
    labelled(stage, "g", 2, pool="home")
    start_together(stage, "g-0", "g-1")
    assert sorted(places(stage, "g-0", "g-1")) == ["b1", "b2"]


@pytest.mark.parametrize("span", ["", "false"])
def test_gang_that_may_not_span_waits_where_no_pool_holds_it_whole(stage: Stage, span: str) -> None:
    pools(stage, home=1, a=1, b=1)
    labelled(stage, "g", 2, pool="home", annotations={GANG_SPAN_KEY: span} if span else {})
    stage.waits("g-0", "1 of the 2 pods that start together fit")
    assert waiting(stage, "g-1")


def test_gang_that_may_span_starts_at_home_and_at_lenders_in_one_decision(stage: Stage) -> None:
    pools(stage, home=1, a=1, b=1)
    labelled(stage, "g", 3, pool="home", annotations=SPAN)
    start_together(stage, *members("g", 3))
    assert sorted(places(stage, *members("g", 3))) == ["a1", "b1", "home1"]


def test_pod_group_may_span_by_its_annotation(stage: Stage) -> None:
    pools(stage, home=1, a=1)
    group(stage, annotations=SPAN)
    grouped(stage, "g-0", "g-1", pool="home")
    start_together(stage, "g-0", "g-1")


def test_gang_that_may_span_keeps_to_the_borrowing_limit_of_its_pool(stage: Stage) -> None:
    nodes(stage, "home1", pool="home")
    nodes(stage, "a1", "a2", pool="a")
    stage.pools("home", borrowingLimit={"cpu": "1"})
    stage.pools("a")
    labelled(stage, "g", 3, pool="home", annotations=SPAN)
    says(stage, "g-0", "of the 3 pods that start together fit")
    stage.set_pool("home", borrowingLimit={"cpu": "2"})
    start_together(stage, *members("g", 3))


def test_lender_lends_a_gang_no_more_than_its_limit(stage: Stage) -> None:
    nodes(stage, "a1", "a2", pool="a")
    stage.pools("home")
    stage.pools("a", lendingLimit={"cpu": "1"})
    labelled(stage, "g", 2, pool="home")
    says(stage, "g-0", "of the 2 pods that start together fit")
    stage.set_pool("a", lendingLimit={"cpu": "2"})
    start_together(stage, "g-0", "g-1")


def test_lender_takes_back_the_room_of_one_pod_and_the_gang_goes_whole(stage: Stage) -> None:
    pools(stage, home=0, a=2)
    runs(stage, "g", 2, pool="home")
    stage.pod("owner", pool="a")
    stage.evicts("g-0", "g-1")
    places(stage, "owner")
    stage.until(lambda: stage.events("g-0", "Preempted") != [])
    assert "reclaimed lent room" in stage.events("g-0", "Preempted")[0]


def test_lender_takes_the_surplus_of_a_gang_first(stage: Stage) -> None:
    pools(stage, home=0, a=3)
    runs(stage, "g", 3, minimum="2", pool="home")
    stage.pod("owner", pool="a")
    places(stage, "owner")
    assert len(stage.victims()) == 1
    stage.pod("second", pool="a")
    stage.evicts(*members("g", 3))


def test_gang_that_spans_goes_whole_when_its_lender_takes_back(stage: Stage) -> None:
    pools(stage, home=1, a=1)
    runs(stage, "g", 2, pool="home", annotations=SPAN)
    stage.pod("owner", pool="a")
    stage.goes(owner="a1")
    stage.evicts("g-0", "g-1")


def test_gang_takes_back_lent_nodes_together(stage: Stage) -> None:
    pools(stage, a=2, home=0)
    stage.pods("borrower-0", "borrower-1", pool="home", priority=10)
    stage.runs("borrower-0", "borrower-1")
    labelled(stage, "g", 2, pool="a")
    start_together(stage, "g-0", "g-1")
    stage.evicts("borrower-0", "borrower-1")


def test_gang_that_borrowed_and_was_taken_back_waits_whole_until_its_lender_has_room(stage: Stage) -> None:
    pools(stage, home=0, a=2)
    runs(stage, "g", 2, pool="home")
    stage.pod("owner", pool="a")
    stage.evicts("g-0", "g-1")
    places(stage, "owner")
    stage.goes_away("g-0")
    stage.goes_away("g-1")
    labelled(stage, "g", 2, pool="home")
    says(stage, "g-0", "of the 2 pods that start together fit")
    stage.delete("Pod", "owner")
    start_together(stage, "g-0", "g-1")


def test_home_gang_that_waits_for_room_is_not_passed_by_a_borrowing_gang(stage: Stage) -> None:
    pools(stage, home=0, a=2)
    stage.pods("old-0", "old-1", pool="a")
    stage.runs("old-0", "old-1")
    labelled(stage, "guest", 2, pool="home", priority=10)
    labelled(stage, "own", 2, pool="a")
    says(stage, "own-0", "of the 2 pods that start together fit")
    stage.delete("Pod", "old-0")
    stage.delete("Pod", "old-1")
    start_together(stage, "own-0", "own-1")
    assert waiting(stage, "guest-0", "guest-1")
