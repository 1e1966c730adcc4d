"""The node on which the scheduler makes room: a criterion decides only among nodes that are equal by earlier ones."""

from tests.scenarios.stage import Stage

FULL = "4"


def two_nodes(stage: Stage) -> None:
    stage.node("a1", pool="a")
    stage.node("a2", pool="a")
    stage.pools("a", "b")


def test_node_with_the_fewest_budget_violations_is_chosen_first(stage: Stage) -> None:
    two_nodes(stage)
    stage.budget("keep", min_available=1, app="kept")
    stage.pod("kept", pool="a", cpu=FULL, on="a1", labels={"app": "kept"})
    stage.pod("plain", pool="a", cpu=FULL, on="a2", priority=5)
    stage.runs("kept", "plain")
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.goes(high="a2")
    assert stage.victims() == ["plain"]


def test_node_with_the_lowest_highest_priority_of_victims_is_chosen(stage: Stage) -> None:
    two_nodes(stage)
    stage.pod("v1", pool="a", cpu=FULL, on="a1", priority=5)
    stage.pods("v2", "v3", pool="a", cpu="2", on="a2", priority=4)
    stage.runs("v1", "v2", "v3")
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.goes(high="a2")
    assert sorted(stage.victims()) == ["v2", "v3"]


def test_borrower_counts_below_every_home_pod(stage: Stage) -> None:
    two_nodes(stage)
    stage.pod("home", pool="a", cpu=FULL, on="a1", priority=-100)
    stage.pod("borrower", pool="b", cpu=FULL, on="a2", priority=1000)
    stage.runs("home", "borrower")
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.goes(high="a2")
    assert stage.victims() == ["borrower"]


def test_node_with_the_lowest_sum_of_priorities_is_chosen(stage: Stage) -> None:
    two_nodes(stage)
    for name, node, priority in (("v1", "a1", 5), ("v2", "a1", 4), ("v3", "a2", 5), ("v4", "a2", 1)):
        stage.pod(name, pool="a", cpu="2", on=node, priority=priority)
    stage.runs("v1", "v2", "v3", "v4")
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.goes(high="a2")
    assert sorted(stage.victims()) == ["v3", "v4"]


def test_node_with_the_fewest_victims_is_chosen(stage: Stage) -> None:
    two_nodes(stage)
    stage.pods("v1", "v2", pool="a", cpu="2", on="a1")
    stage.pod("v3", pool="a", cpu=FULL, on="a2")
    stage.runs("v1", "v2", "v3")
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.goes(high="a2")
    assert stage.victims() == ["v3"]


def test_node_whose_victim_started_last_is_chosen(stage: Stage) -> None:
    two_nodes(stage)
    stage.pod("early", pool="a", cpu=FULL, on="a1")
    stage.runs("early")
    stage.let_pass(1.1)
    stage.pod("late", pool="a", cpu=FULL, on="a2")
    stage.runs("late")
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.goes(high="a2")
    assert stage.victims() == ["late"]
