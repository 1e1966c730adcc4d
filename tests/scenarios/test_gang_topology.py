"""Gangs whose pods start on nodes that are close to each other: levels, domains, and ranks on neighbours."""

import pytest

from tests.gang_objects import gang_labels, indexed_job_object
from tests.scenarios.gangs import (
    RACK,
    ZONE,
    group,
    grouped,
    job,
    labelled,
    members,
    nodes,
    places,
    pods_of_jobs,
    racks,
    says,
    start_together,
    topology,
    volcano_group,
    volcano_pods,
    waiting,
)
from tests.scenarios.stage import Stage

ONE_RACK = topology(f"Required:{RACK}")
FEW_RACKS = topology(f"Preferred:{RACK}")
INDEX = "batch.kubernetes.io/job-completion-index"


def racks_of(stage: Stage, *pods: str) -> list[str]:
    """Wait until these pods are on nodes, and return their racks."""
    return sorted({node.partition("-")[0] for node in places(stage, *pods)})


def test_required_level_keeps_the_gang_in_one_rack(stage: Stage) -> None:
    racks(stage, 2, 3, 2)
    labelled(stage, "g", 3, annotations=ONE_RACK)
    assert racks_of(stage, *members("g", 3)) == ["r1"]


def test_smallest_rack_that_is_large_enough_is_taken(stage: Stage) -> None:
    racks(stage, 3, 2)
    labelled(stage, "g", 2, annotations=ONE_RACK)
    assert racks_of(stage, "g-0", "g-1") == ["r1"]


def test_gang_that_no_rack_holds_waits_until_one_rack_grows(stage: Stage) -> None:
    racks(stage, 2, 2)
    labelled(stage, "g", 3, annotations=ONE_RACK)
    says(stage, "g-0", "2 of the 3 pods that start together fit", "didn't match the topology of the gang")
    stage.node("r1-2", cpu="1", labels={RACK: "r1"})
    assert racks_of(stage, *members("g", 3)) == ["r1"]


def test_node_without_the_label_of_a_required_level_takes_no_pod(stage: Stage) -> None:
    racks(stage, 1)
    stage.node("bare", cpu="8")
    labelled(stage, "g", 2, annotations=ONE_RACK)
    says(stage, "g-0", "of the 2 pods that start together fit")
    stage.patch("Node", "bare", {"metadata": {"labels": {RACK: "r9"}}})
    assert places(stage, "g-0", "g-1") == ["bare", "bare"]


@pytest.mark.parametrize("object_", ["PodGroup of Coscheduling", "PodGroup of Volcano", "Job"])
def test_object_of_the_group_says_its_topology_by_the_annotation(stage: Stage, object_: str) -> None:
    racks(stage, 1, 1, 2)
    pods = ["g-0", "g-1"]
    match object_:
        case "PodGroup of Coscheduling":
            group(stage, annotations=ONE_RACK)
            grouped(stage, *pods)
        case "PodGroup of Volcano":
            volcano_group(stage, annotations=ONE_RACK)
            volcano_pods(stage, *pods)
        case _:
            job(stage, indexed_job_object("g", namespace=stage.own("ns"), annotations=ONE_RACK))
            pods = pods_of_jobs(stage, 2)
    assert racks_of(stage, *pods) == ["r2"]


def test_preferred_level_takes_one_rack_where_one_is_enough(stage: Stage) -> None:
    racks(stage, 1, 1, 2)
    labelled(stage, "g", 2, annotations=FEW_RACKS)
    assert racks_of(stage, "g-0", "g-1") == ["r2"]


def test_preferred_level_takes_the_fewest_racks_and_never_holds_a_gang_back(stage: Stage) -> None:
    racks(stage, 1, 2, 1, 1)
    labelled(stage, "g", 3, annotations=FEW_RACKS)
    found = racks_of(stage, *members("g", 3))
    assert len(found) == 2
    assert "r1" in found


def test_two_levels_stay_in_the_required_zone_and_in_few_racks_of_it(stage: Stage) -> None:
    racks(stage, 2, 1, 2, 2)  # the zones have three and four nodes
    labelled(stage, "g", 4, annotations=topology(f"Required:{ZONE},Preferred:{RACK}"))
    assert racks_of(stage, *members("g", 4)) == ["r2", "r3"]
    labelled(stage, "h", 2, annotations=topology(f"Required:{ZONE},Preferred:{RACK}"))
    assert racks_of(stage, "h-0", "h-1") == ["r0"]


def test_two_required_levels_hold_both(stage: Stage) -> None:
    for name, rack, zone in (("a", "same", "z0"), ("b", "same", "z1"), ("c", "r2", "z1"), ("d", "r2", "z1")):
        stage.node(name, cpu="1", labels={RACK: rack, ZONE: zone})
    labelled(stage, "g", 2, annotations=topology(f"Required:{ZONE},Required:{RACK}"))
    assert sorted(places(stage, "g-0", "g-1")) == ["c", "d"]


def test_gang_takes_the_fewest_nodes_of_its_rack(stage: Stage) -> None:
    racks(stage, 3, cpu="2")
    labelled(stage, "g", 4, annotations=ONE_RACK)
    assert len(set(places(stage, *members("g", 4)))) == 2


def test_ranks_follow_each_other_from_node_to_node(stage: Stage) -> None:
    racks(stage, 2, cpu="2")
    for rank, name in ((3, "a"), (1, "b"), (0, "c"), (2, "d")):
        stage.pod(name, labels=gang_labels("g", "4") | {INDEX: str(rank)}, annotations=ONE_RACK)
    first, second, third, fourth = places(stage, "c", "b", "d", "a")
    assert first == second != third == fourth


def test_pod_that_comes_back_joins_the_rack_of_the_others(stage: Stage) -> None:
    racks(stage, 2, 3)
    labelled(stage, "g", 2, annotations=ONE_RACK)
    stage.runs("g-0", "g-1")
    node = stage.node_of("g-1")
    assert node.startswith("r0")
    stage.taint(node)
    stage.delete("Pod", "g-1")
    stage.goes_away("g-1")
    stage.pod("g-1", labels=gang_labels("g"), annotations=ONE_RACK)
    says(stage, "g-1", "0/5 nodes are available")
    stage.untaint(node)
    stage.goes(g_1=node)


def test_room_is_made_in_one_rack(stage: Stage) -> None:
    racks(stage, 2, 2)
    stage.pod("top", priority=20, on="r0-0")
    for node in ("r0-1", "r1-0", "r1-1"):
        stage.pod(f"old-{node}", on=node)
    stage.runs("top", "old-r0-1", "old-r1-0", "old-r1-1")
    labelled(stage, "g", 2, priority=10, annotations=ONE_RACK)
    stage.evicts("old-r1-0", "old-r1-1")
    assert racks_of(stage, "g-0", "g-1") == ["r1"]


def test_gang_with_a_required_level_borrows_one_rack_of_its_lender(stage: Stage) -> None:
    for node, rack in (("a1", "r0"), ("a2", "r1"), ("a3", "r1")):
        nodes(stage, node, pool="a", labels={RACK: rack})
    stage.pools("a", "home")
    labelled(stage, "g", 2, pool="home", annotations=ONE_RACK)
    assert sorted(places(stage, "g-0", "g-1")) == ["a2", "a3"]


def test_group_whose_level_is_dropped_while_it_waits_starts(stage: Stage) -> None:
    racks(stage, 1, 1)
    group(stage, annotations=ONE_RACK)
    grouped(stage, "g-0", "g-1")
    says(stage, "g-0", "1 of the 2 pods that start together fit")
    stage.patch("PodGroup.scheduling.x-k8s.io", "g", {"metadata": {"annotations": None}})
    start_together(stage, "g-0", "g-1")


def test_pods_beyond_the_minimum_stay_in_the_required_rack(stage: Stage) -> None:
    racks(stage, 2, 1)
    labelled(stage, "g", 3, minimum="2", annotations=ONE_RACK)
    assert racks_of(stage, "g-0", "g-1") == ["r0"]
    stage.waits("g-2", "0/3 nodes are available")
    assert waiting(stage, "g-2")


@pytest.mark.parametrize("level", ["Required", "Preferred"])
def test_gang_with_a_topology_waits_in_a_pool_without_nodes(stage: Stage, level: str) -> None:
    stage.pools("empty")
    labelled(stage, "g", 2, pool="empty", annotations=topology(f"{level}:{RACK}"))
    stage.waits("g-0", "no nodes available to schedule pods")
    stage.node("n1", pool="empty", cpu="2", labels={RACK: "r1"})
    start_together(stage, "g-0", "g-1")
