"""Gangs before a new scheduler, which keeps their age, and nominations that end with the claims."""

from tests.gang_objects import POD_GROUP_LABEL, gang_labels
from tests.scenarios.gangs import GROUP, group, grouped, labelled, members, nodes, places, says, start_together, waiting
from tests.scenarios.stage import Stage


def test_successors_in_a_gang_of_labels_come_before_a_younger_gang_after_a_restart_whatever_their_names(
    stage: Stage,
) -> None:
    nodes(stage, "n1", "n2", "n3", "n4")
    labelled(stage, "old", 4)
    stage.runs(*members("old", 4))
    stage.let_pass(1.1)  # the age is in seconds
    labelled(stage, "young", 2)
    says(stage, "young-0", "0 of the 2 pods that start together fit")
    stage.let_pass(1.1)
    freed = ["old-2", "old-3"]
    closed = places(stage, *freed)
    for pod, node in zip(freed, closed, strict=True):
        stage.taint(node)
        stage.delete("Pod", pod)
        stage.goes_away(pod)
    stage.pods("a-0", "a-1", labels=gang_labels("old", "4"))
    says(stage, "a-0", "0 of the 2 pods that start together fit")
    stage.restart_scheduler()
    for node in closed:
        stage.untaint(node)
    start_together(stage, "a-0", "a-1")
    assert waiting(stage, "young-0", "young-1")


def a_nominated_gang(stage: Stage) -> None:
    """Let a gang of two be nominated to n1 and n2, whose pods are gone only when they are released."""
    nodes(stage, "n1", "n2")
    stage.pods("v1", "v2", held=True)
    stage.runs("v1", "v2")
    group(stage)
    grouped(stage, "g-0", "g-1", priority=10)
    stage.until_each(["g-0", "g-1"], lambda pod: stage.nominated(pod) != "")


def test_nomination_ends_when_another_pod_of_the_gang_is_deleted(stage: Stage) -> None:
    a_nominated_gang(stage)
    stage.delete("Pod", "g-1")
    stage.until(lambda: stage.nominated("g-0") == "")
    stage.release("v1", "v2")
    stage.pod("single", cpu="1")
    stage.runs("single")
    says(stage, "g-0", "1 of at least 2 exist")


def test_nominations_end_when_the_group_is_deleted(stage: Stage) -> None:
    a_nominated_gang(stage)
    stage.delete(GROUP, "g")
    stage.until_each(["g-0", "g-1"], lambda pod: stage.nominated(pod) == "")
    says(stage, "g-0", "which the pod names, does not exist")


def test_nomination_ends_when_the_pod_joins_a_gang_that_is_not_complete(stage: Stage) -> None:
    nodes(stage, "n1")
    stage.pod("v1", held=True)
    stage.runs("v1")
    stage.pod("single", priority=10)
    stage.until(lambda: stage.nominated("single") == "n1")
    group(stage)
    stage.patch("Pod", "single", {"metadata": {"labels": {POD_GROUP_LABEL: "g"}}})
    stage.until(lambda: stage.nominated("single") == "")
    says(stage, "single", "1 of at least 2 exist")


def test_new_scheduler_clears_the_nomination_of_a_pod_whose_gang_is_not_complete(stage: Stage) -> None:
    nodes(stage, "n1")
    labelled(stage, "g", 1, minimum="2")
    says(stage, "g-0", "1 of at least 2 exist")
    stage.patch("Pod", "g-0", {"status": {"nominatedNodeName": stage.own("n1")}}, "status")
    assert stage.nominated("g-0") == "n1"
    stage.restart_scheduler()
    stage.until(lambda: stage.nominated("g-0") == "")
