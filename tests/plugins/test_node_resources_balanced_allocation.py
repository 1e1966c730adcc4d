"""Rows S16-S19 of kube-scheduler's own cases."""

from aischeduler.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from aischeduler.state.node_table import NodeTable
from tests.build import a_node, a_pod
from tests.plugins.table import a_table, scores

BALANCED = NodeResourcesBalancedAllocation()


def test_empty_nodes_of_two_sizes() -> None:
    table = a_table(a_node("a", cpu="4000m", memory="10000"), a_node("b", cpu="6000m", memory="10000"))
    assert scores(BALANCED, a_pod(cpu="3000m", memory="5000"), table) == [68, 75]


def nodes_in_use(*, cpu: str, memory: str) -> NodeTable:
    """Return two equal nodes with 3 CPU taken on each, and 5000 bytes on the second."""
    return a_table(
        a_node("a", cpu=cpu, memory=memory),
        a_node("b", cpu=cpu, memory=memory),
        pods=(
            a_pod("u1", cpu="3000m", memory="0", node="a"),
            a_pod("u2", cpu="3000m", memory="5000", node="b"),
        ),
    )


def test_used_nodes() -> None:
    table = nodes_in_use(cpu="10000m", memory="20000")
    assert scores(BALANCED, a_pod(cpu="3000m", memory="5000"), table) == [73, 74]


def test_a_pod_of_one_resource() -> None:
    table = nodes_in_use(cpu="6000m", memory="10000")
    assert scores(BALANCED, a_pod(cpu="3000m", memory="0"), table) == [62, 62]


def test_a_pod_that_requests_neither_is_not_scored() -> None:
    table = a_table(a_node("a", cpu="4", memory="10000"))
    assert scores(BALANCED, a_pod(cpu="0", memory="0"), table) == [0]
