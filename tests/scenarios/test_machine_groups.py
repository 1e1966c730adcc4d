"""Machine groups: nodes that only the pods get that name their group, and who may name it."""

from aischeduler.model.names import MACHINE_GROUP_KEY
from tests.scenarios.stage import Stage

IN_VISION = {MACHINE_GROUP_KEY: "vision"}
CLOSED = "belonged to the machine group vision, which the pod does not name"
REFUSED = "may not name the machine group vision"
TEAM = {"matchLabels": {"team": "vision"}}


def test_pod_that_names_a_group_runs_there_only(stage: Stage) -> None:
    stage.node("big", cpu="64")
    stage.node("g", cpu="2", labels=IN_VISION)
    stage.pod("first", cpu="2", annotations=IN_VISION)
    stage.goes(first="g")
    stage.pod("second", cpu="2", annotations=IN_VISION)
    stage.waits("second", "1 node(s) didn't belong to the machine group vision", "1 Insufficient cpu")


def test_pod_that_names_no_group_never_runs_in_one(stage: Stage) -> None:
    stage.node("g", labels=IN_VISION)
    stage.pod("p", priority=100)
    stage.waits("p", f"1 node(s) {CLOSED}")


def test_node_that_leaves_its_group_takes_the_waiting_pod(stage: Stage) -> None:
    stage.node("g", labels=IN_VISION)
    stage.pod("p")
    stage.waits("p", CLOSED)
    stage.patch("Node", "g", {"metadata": {"labels": {MACHINE_GROUP_KEY: None}}})
    stage.goes(p="g")


def test_node_that_joins_the_group_takes_the_waiting_pod(stage: Stage) -> None:
    stage.node("n")
    stage.pod("p", annotations=IN_VISION)
    stage.waits("p", "1 node(s) didn't belong to the machine group vision")
    stage.patch("Node", "n", {"metadata": {"labels": IN_VISION}})
    stage.goes(p="n")


def test_group_may_have_nodes_in_several_pools(stage: Stage) -> None:
    stage.node("a1", pool="a", cpu="1", labels=IN_VISION)
    stage.node("b1", pool="b", cpu="1", labels=IN_VISION)
    stage.node("b2", pool="b", cpu="64")
    stage.pools("a", "b")
    stage.pod("first", pool="a", annotations=IN_VISION)
    stage.goes(first="a1")
    stage.pod("second", pool="a", annotations=IN_VISION)
    stage.goes(second="b1")


def test_no_pod_is_evicted_in_a_group_for_a_pod_that_does_not_name_it(stage: Stage) -> None:
    stage.node("g", pool="a", cpu="1", labels=IN_VISION)
    stage.pools("a", "b")
    stage.pod("borrower", pool="b", annotations=IN_VISION)
    stage.goes(borrower="g")
    stage.pod("owner", pool="a", priority=100)
    stage.waits("owner", CLOSED)
    stage.stays(lambda: stage.victims() == [])


def test_room_in_a_group_is_reclaimed_for_a_pod_that_names_it(stage: Stage) -> None:
    stage.node("g", pool="a", cpu="1", labels=IN_VISION)
    stage.pools("a", "b")
    stage.pod("borrower", pool="b", annotations=IN_VISION)
    stage.goes(borrower="g")
    stage.pod("owner", pool="a", annotations=IN_VISION)
    stage.evicts("borrower")
    stage.goes(owner="g")


def test_namespace_that_may_not_name_the_group_waits_until_it_has_the_label(stage: Stage) -> None:
    stage.namespace("speech", team="speech")
    stage.node("a1", pool="a", labels=IN_VISION)
    stage.pools("a", machineGroups=[{"name": "vision", "namespaceSelector": TEAM}])
    stage.pod("p", pool="a", namespace="speech", annotations=IN_VISION)
    stage.waits("p", REFUSED)
    stage.patch("Namespace", "speech", {"metadata": {"labels": {"team": "vision"}}})
    stage.goes(p="a1")


def test_rules_of_pools_add_up_and_hold_for_pods_of_every_pool(stage: Stage) -> None:
    stage.namespace("speech", team="speech")
    stage.node("b1", pool="b", labels=IN_VISION)
    stage.pools("a", machineGroups=[{"name": "vision", "namespaceSelector": TEAM}])
    stage.pools("b")
    stage.pod("p", pool="b", namespace="speech", annotations=IN_VISION)
    stage.waits("p", REFUSED)
    stage.set_pool("b", machineGroups=[{"name": "vision", "namespaceSelector": {"matchLabels": {"team": "speech"}}}])
    stage.goes(p="b1")


def test_rule_of_a_deleted_pool_is_gone(stage: Stage) -> None:
    stage.node("n", labels=IN_VISION)
    stage.pools("a", machineGroups=[{"name": "vision", "namespaceSelector": TEAM}])
    stage.pod("p", annotations=IN_VISION)
    stage.waits("p", REFUSED)
    stage.delete("Pool", "a")
    stage.goes(p="n")


def test_rule_of_the_configuration_says_who_may_name_a_group(stage: Stage) -> None:
    stage.restart_scheduler(machineGroups=[{"name": "vision", "namespaceSelector": TEAM}])
    stage.namespace("vision", team="vision")
    stage.node("n", labels=IN_VISION)
    stage.pod("stranger", annotations=IN_VISION)
    stage.pod("member", namespace="vision", annotations=IN_VISION)
    stage.goes(member="n")
    stage.waits("stranger", REFUSED)


def test_misspelt_group_gets_the_nearest_name_in_an_event(stage: Stage) -> None:
    stage.node("g", labels=IN_VISION)
    stage.pod("p", annotations={MACHINE_GROUP_KEY: "visoin"})
    stage.waits("p", "didn't belong to the machine group visoin")
    said = f"No node is in the machine group visoin (annotation {MACHINE_GROUP_KEY}). Did you mean vision?"
    stage.until(lambda: stage.events("p", "UnknownMachineGroup") == [said])


def test_text_that_cannot_be_a_group_holds_the_pod(stage: Stage) -> None:
    stage.node("n")
    stage.pod("p", annotations={MACHINE_GROUP_KEY: "no such group!"})
    stage.waits("p", f"metadata.annotations[{MACHINE_GROUP_KEY}]", "is not the name of a machine group")
