"""MachineGroup: pods that name a group, pods that name none."""

import numpy as np
import pytest

from aischeduler.framework.node_view import NodeView
from aischeduler.model.names import MACHINE_GROUP_KEY
from aischeduler.plugins.machine_group import MachineGroup
from tests.build import a_node, a_pod
from tests.plugins.table import a_table, passing, reasons

GROUP = MachineGroup()
NODES = [
    a_node("n"),
    a_node("empty", labels={MACHINE_GROUP_KEY: ""}),
    a_node("s", labels={MACHINE_GROUP_KEY: "speech"}),
    a_node("v1", labels={MACHINE_GROUP_KEY: "vision"}),
    a_node("v2", labels={MACHINE_GROUP_KEY: "vision"}),
]


@pytest.mark.parametrize(
    ("group", "nodes"), [("", ["empty", "n"]), ("vision", ["v1", "v2"]), ("speech", ["s"]), ("other", [])]
)
def test_pod_passes_the_nodes_of_its_group_alone(group: str, nodes: list[str]) -> None:
    pod = a_pod(machine_group=group)
    assert passing(GROUP, pod, a_table(*NODES)) == nodes
    assert sorted(node.name for node in NODES if GROUP.helps(pod.spec, node)) == nodes


def test_reasons_name_the_groups() -> None:
    table = a_table(*NODES)
    assert reasons(GROUP, a_pod(), table) == {
        "node(s) belonged to the machine group vision, which the pod does not name": 2,
        "node(s) belonged to the machine group speech, which the pod does not name": 1,
    }
    assert reasons(GROUP, a_pod(machine_group="speech"), table) == {
        "node(s) didn't belong to the machine group speech": 4
    }


def test_groups_beyond_the_limit_share_a_reason() -> None:
    table = a_table(*(a_node(f"n{i}", labels={MACHINE_GROUP_KEY: f"g{i:02}"}) for i in range(20)))
    found = reasons(GROUP, a_pod(), table)
    assert found.total() == 20
    assert found["node(s) belonged to other machine groups, of which the pod names none"] == 4


def test_filter_has_nothing_to_do_in_a_cluster_without_groups() -> None:
    table = a_table(a_node("n"))
    assert GROUP.filter(a_pod().spec, NodeView(table, np.array([table.rows["n"]]))) is None
