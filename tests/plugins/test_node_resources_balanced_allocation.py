"""Rows S16-S19 of kube-scheduler's own cases."""

import pytest

from aischeduler.model.names import CPU, MEMORY
from aischeduler.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from aischeduler.state.node_table import NodeTable
from tests.build import a_node, a_pod
from tests.plugins.table import a_table, scores

BALANCED = NodeResourcesBalancedAllocation()


def test_s16_empty_nodes_of_two_sizes() -> None:
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


def test_s17_used_nodes() -> None:
    table = nodes_in_use(cpu="10000m", memory="20000")
    assert scores(BALANCED, a_pod(cpu="3000m", memory="5000"), table) == [73, 74]


def test_s18_pod_of_one_resource() -> None:
    table = nodes_in_use(cpu="6000m", memory="10000")
    assert scores(BALANCED, a_pod(cpu="3000m", memory="0"), table) == [62, 62]


def test_s19_pod_that_requests_neither_is_not_scored() -> None:
    table = a_table(a_node("a", cpu="4", memory="10000"))
    assert scores(BALANCED, a_pod(cpu="0", memory="0"), table) == [0]


GPU, DISK = "nvidia.com/gpu", "ephemeral-storage"


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ((CPU, MEMORY), [75, 75]),
        ((CPU, MEMORY, GPU), [56, 75]),
        ((MEMORY, GPU), [55, 75]),
        ((GPU,), [75, 75]),
        ((CPU, MEMORY, DISK), [75, 75]),
    ],
)
def test_shares_of_the_configured_resources_are_compared(resources: tuple[str, ...], expected: list[int]) -> None:
    table = a_table(*(a_node(name, cpu="10", memory="100", gpu=gpu) for name, gpu in (("a", 10), ("b", 0))))
    pod = a_pod(cpu="1", memory="10", gpu=9)
    assert scores(NodeResourcesBalancedAllocation(resources), pod, table) == expected


def test_pod_that_requests_none_of_the_configured_resources_is_not_scored() -> None:
    table = a_table(a_node("a", cpu="4", memory="10000", gpu=4))
    assert scores(NodeResourcesBalancedAllocation((GPU,)), a_pod(cpu="1"), table) == [0]


@pytest.mark.parametrize("cpu", ["0", "1", "3"])
def test_cpu_and_memory_score_alike_however_they_are_configured(cpu: str) -> None:
    table = nodes_in_use(cpu="6000m", memory="10000")
    pod = a_pod(cpu=cpu, memory="3000")
    assert scores(NodeResourcesBalancedAllocation((MEMORY, CPU)), pod, table) == scores(BALANCED, pod, table)
