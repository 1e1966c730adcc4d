"""Filter and score by free resources, without a strategy of a profile: the cases of GPU pods in pools."""

import pytest

from aischeduler.model.pool import PlacementStrategy
from aischeduler.plugins.node_resources_fit import NodeResourcesFit
from aischeduler.state.node_table import NodeTable
from tests.build import a_node, a_pod
from tests.plugins.table import a_table, passing, reasons, scores

FIT = NodeResourcesFit(("nvidia.com/gpu",))
EXT = "example.com/aaa"


def small_node(*, used_cpu: str = "0", used_memory: str = "0", used_ext: int = 0, pods: int = 110) -> NodeTable:
    resident = a_pod("resident", cpu=used_cpu, memory=used_memory, extended={EXT: str(used_ext)}, node="n")
    return a_table(a_node("n", cpu="10m", memory="20", pods=pods, extended={EXT: "5"}), pods=(resident,))


def test_a_pod_without_requests_fits_on_a_full_node() -> None:
    assert passing(FIT, a_pod(cpu="0", memory="0"), small_node(used_cpu="10m", used_memory="20")) == ["n"]


def test_every_short_resource_is_a_reason() -> None:
    table = small_node(used_cpu="10m", used_memory="20")
    assert reasons(FIT, a_pod(cpu="1m", memory="1"), table) == {"Insufficient cpu": 1, "Insufficient memory": 1}


def test_exactly_enough_is_enough() -> None:
    assert passing(FIT, a_pod(cpu="5m", memory="1"), small_node(used_cpu="5m", used_memory="19")) == ["n"]


def test_extended_resources_count() -> None:
    assert passing(FIT, a_pod(cpu="0", memory="0", extended={EXT: "3"}), small_node(used_ext=2)) == ["n"]
    assert reasons(FIT, a_pod(cpu="0", memory="0", extended={EXT: "4"}), small_node(used_ext=2)) == {
        f"Insufficient {EXT}": 1
    }


def test_a_resource_that_no_node_has_is_insufficient() -> None:
    unknown = a_pod(cpu="0", memory="0", extended={"example.com/bbb": "1"})
    assert reasons(FIT, unknown, small_node()) == {"Insufficient example.com/bbb": 1}


def test_a_node_takes_no_more_pods_than_it_allows() -> None:
    assert reasons(FIT, a_pod(cpu="0", memory="0"), small_node(pods=1)) == {"Too many pods": 1}


def two(first: tuple[int, int], second: tuple[int, int], *used: tuple[str, int, int]) -> NodeTable:
    """Return nodes a and b of so much CPU (milli) and memory, with pods (node, CPU milli, memory) on them."""
    nodes = [a_node(name, cpu=f"{cpu}m", memory=str(memory)) for name, (cpu, memory) in (("a", first), ("b", second))]
    pods = tuple(
        a_pod(f"u{i}", cpu=f"{cpu}m", memory=str(memory), node=node) for i, (node, cpu, memory) in enumerate(used)
    )
    return a_table(*nodes, pods=pods)


@pytest.mark.parametrize(
    ("table", "cpu", "memory", "least", "most"),
    [
        (two((4000, 10000), (6000, 10000)), 3000, 5000, [37, 50], [62, 50]),
        (
            two((10000, 20000), (10000, 20000), ("a", 3000, 0), ("b", 3000, 5000)),
            3000,
            5000,
            [57, 45],
            [42, 55],
        ),
    ],
)
def test_scores_are_those_of_kube_scheduler(
    table: NodeTable, cpu: int, memory: int, least: list[int], most: list[int]
) -> None:
    pod = a_pod(cpu=f"{cpu}m", memory=str(memory))
    assert scores(FIT, pod, table, PlacementStrategy.SPREAD) == least
    assert scores(FIT, pod, table, PlacementStrategy.PACK) == most


def test_a_container_without_requests_is_scored_as_a_small_one() -> None:
    table = a_table(a_node("n", cpu="250m", memory="1000Mi"))
    assert scores(FIT, a_pod(cpu="", memory=""), table) == [(60 + 80) // 2]


def test_gpu_pods_that_pack_prefer_the_node_with_fewer_free_gpus() -> None:
    table = a_table(
        a_node("empty", cpu="64", memory="512Gi", gpu=8),
        a_node("opened", cpu="64", memory="512Gi", gpu=8),
        pods=(a_pod("r", cpu="1", memory="1Gi", gpu=4, node="opened"), a_pod("c", cpu="60", gpu=0, node="empty")),
    )
    empty, opened = scores(FIT, a_pod(cpu="1", memory="1Gi", gpu=1), table, PlacementStrategy.PACK)
    assert opened > empty


def test_a_node_without_cpu_is_scored_by_its_other_resources() -> None:
    table = a_table(a_node("n", cpu="", memory="10000"))
    assert scores(FIT, a_pod(cpu="0", memory="5000"), table) == [50]
