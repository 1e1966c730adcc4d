"""Rows S1-S15 of kube-scheduler's own cases, by the strategies that a profile may set and by those of pools."""

import pytest

from aischeduler.model.pool import PlacementStrategy
from aischeduler.model.scoring import (
    ResourceWeight,
    ScoringStrategy,
    ShapePoint,
    StrategyType,
    on_curve,
)
from aischeduler.plugins.node_resources_fit import NodeResourcesFit
from aischeduler.state.node_table import NodeTable
from tests.build import a_node, a_pod
from tests.plugins.table import a_table, scores

FOO, BAR = "example.com/foo", "example.com/bar"
LEAST, MOST, CURVE = StrategyType
GROWING = (ShapePoint(0, 0), ShapePoint(100, 1))
FALLING = (ShapePoint(0, 10), ShapePoint(100, 0))
PLACED = NodeResourcesFit(("nvidia.com/gpu",))
"""Without a strategy of the profile, the placement of the pool decides."""


def strategy(kind: StrategyType, shape: tuple[ShapePoint, ...] = (), /, **weights: int) -> NodeResourcesFit:
    """Return the plugin with weights by resource; `foo` and `bar` are extended resources."""
    names = {"foo": FOO, "bar": BAR}
    resources = tuple(ResourceWeight(names.get(name, name), weight) for name, weight in weights.items())
    return NodeResourcesFit(("nvidia.com/gpu",), ScoringStrategy(kind, resources, shape))


def nodes(*sizes: tuple[int, int], used: tuple[tuple[int, int], ...] = ((0, 0), (0, 0))) -> NodeTable:
    """Return nodes of so much CPU (milli) and memory, with so much of them in use."""
    names = [chr(ord("a") + index) for index in range(len(sizes))]
    pods = tuple(
        a_pod(f"on-{name}", cpu=f"{cpu}m", memory=str(memory), node=name)
        for name, (cpu, memory) in zip(names, used, strict=True)
    )
    return a_table(
        *(a_node(name, cpu=f"{cpu}m", memory=str(memory)) for name, (cpu, memory) in zip(names, sizes, strict=True)),
        pods=pods,
    )


EMPTY = nodes((4000, 10000), (6000, 10000))


@pytest.mark.parametrize(
    ("row", "table", "pod", "weights", "least", "most"),
    [
        ("S1", EMPTY, (3000, 5000), (1, 1), [37, 50], [62, 50]),
        ("S2", EMPTY, (3000, 5000), (1, 2), [41, 50], [58, 50]),
        ("S3", nodes(*2 * ((10000, 20000),), used=((6000, 0), (6000, 5000))), (0, 0), (1, 1), [70, 57], [30, 42]),
        ("S4", nodes(*2 * ((10000, 20000),), used=((3000, 0), (3000, 5000))), (3000, 5000), (1, 1), [57, 45], [42, 55]),
        (
            "S5",
            nodes((10000, 20000), (10000, 50000), used=((3000, 0), (3000, 5000))),
            (3000, 5000),
            (1, 1),
            [57, 60],
            [42, 40],
        ),
        ("S6", nodes(*2 * ((4000, 10000),), used=((3000, 0), (3000, 5000))), (3000, 0), (1, 1), [50, 25], [50, 75]),
        ("S10", nodes((5000, 10000), (10000, 9000)), (5000, 9000), (1, 1), [5, 25], [95, 75]),
    ],
)
def test_cpu_and_memory_score_as_in_kube_scheduler(
    row: str,
    table: NodeTable,
    pod: tuple[int, int],
    weights: tuple[int, int],
    least: list[int],
    most: list[int],
) -> None:
    asks = a_pod(row, cpu=f"{pod[0]}m", memory=str(pod[1]))
    for kind, expected in ((LEAST, least), (MOST, most)):
        rule = strategy(kind, cpu=weights[0], memory=weights[1])
        for placement in PlacementStrategy:
            assert scores(rule, asks, table, placement) == expected
    if weights == (1, 1):
        assert scores(PLACED, asks, table, PlacementStrategy.SPREAD) == least
        assert scores(PLACED, asks, table, PlacementStrategy.PACK) == most


def test_s7_device_counts_only_for_pods_that_request_it() -> None:
    table = a_table(
        a_node("a", cpu="6000m", memory="10000"), a_node("b", cpu="6000m", memory="10000", extended={FOO: "4"})
    )
    for kind in (LEAST, MOST):
        rule = strategy(kind, cpu=1, memory=1, foo=1)
        assert scores(rule, a_pod(cpu="3000m", memory="5000"), table) == [50, 50]


def test_s8_device_that_is_requested_counts() -> None:
    table = a_table(
        a_node("a", cpu="6000m", memory="10000", extended={FOO: "4"}),
        a_node("b", cpu="6000m", memory="10000", extended={FOO: "10"}),
    )
    asks = a_pod(cpu="3000m", memory="5000", extended={FOO: "2"})
    assert scores(strategy(LEAST, cpu=1, memory=1, foo=1), asks, table) == [50, 60]
    assert scores(strategy(MOST, cpu=1, memory=1, foo=1), asks, table) == [50, 40]


def test_s9_container_without_requests_counts_as_a_small_one() -> None:
    two = tuple(a_pod(f"r{number}", cpu="", memory="", node="a") for number in range(2))
    table = a_table(*(a_node(name, cpu="250m", memory="1000Mi") for name in "ab"), pods=two)
    assert scores(strategy(LEAST, cpu=1, memory=1), a_pod(cpu="", memory=""), table) == [20, 70]
    assert scores(strategy(MOST, cpu=1, memory=1), a_pod(cpu="", memory=""), table) == [80, 30]
    assert scores(PLACED, a_pod(cpu="", memory=""), table) == [20, 70]


def test_s11_curve_rounds_the_mean() -> None:
    rule = strategy(CURVE, FALLING, cpu=1, memory=1)
    assert scores(rule, a_pod(cpu="3000m", memory="5000"), EMPTY) == [38, 50]


@pytest.mark.parametrize(("asks", "used", "expected"), [(2, 0, [2, 5]), (2, 2, [2, 10]), (4, 0, [5, 10])])
def test_s12_curve_of_a_device(asks: int, used: int, expected: list[int]) -> None:
    resident = a_pod("r", cpu="", memory="", extended={FOO: str(used)}, node="b")
    table = a_table(a_node("a", extended={FOO: "8"}), a_node("b", extended={FOO: "4"}), pods=(resident,) * bool(used))
    rule = strategy(CURVE, GROWING, foo=1)
    assert scores(rule, a_pod(cpu="", memory="", extended={FOO: str(asks)}), table) == expected


def test_s13_curve_of_two_devices_by_weight() -> None:
    table = a_table(
        a_node("a", extended={FOO: "8", BAR: "4"}),
        a_node("b", extended={FOO: "4", BAR: "8"}),
    )
    rule = strategy(CURVE, GROWING, foo=3, bar=5)
    assert scores(rule, a_pod(cpu="", memory="", extended={FOO: "2", BAR: "2"}), table) == [4, 3]


def test_s14_curve_is_flat_outside_its_ends() -> None:
    shape = (ShapePoint(10, 1), ShapePoint(90, 9))
    assert [on_curve(shape, percent) for percent in (0, 10, 15, 20, 89, 90, 110)] == [1, 1, 1, 2, 8, 9, 9]


def test_s15_curve_falls_as_go_cuts_numbers() -> None:
    shape = (ShapePoint(0, 2), ShapePoint(40, 10), ShapePoint(100, 0))
    assert [on_curve(shape, percent) for percent in (20, 30, 70)] == [6, 8, 5]
    assert on_curve(shape, 41) == 10


def test_resource_that_scores_nothing_on_a_curve_does_not_count_in_the_mean() -> None:
    rule = strategy(CURVE, GROWING, cpu=1, memory=1)
    table = a_table(a_node("a", cpu="10000m", memory="10000"), a_node("b", cpu="", memory=""))
    assert scores(rule, a_pod(cpu="10000m", memory="0"), table) == [10, 0]


def test_ephemeral_storage_counts_for_every_pod_and_pods_never_do() -> None:
    rule = NodeResourcesFit((), ScoringStrategy(LEAST, (ResourceWeight("ephemeral-storage"), ResourceWeight("pods"))))
    table = a_table(a_node("a", storage="100"), pods=(a_pod("r", extended={"ephemeral-storage": "40"}, node="a"),))
    assert scores(rule, a_pod(), table) == [60]


def test_gpu_pods_that_pack_prefer_the_node_with_fewer_free_gpus() -> None:
    table = a_table(
        a_node("empty", cpu="64", memory="512Gi", gpu=8),
        a_node("opened", cpu="64", memory="512Gi", gpu=8),
        pods=(a_pod("r", cpu="1", memory="1Gi", gpu=4, node="opened"), a_pod("c", cpu="60", gpu=0, node="empty")),
    )
    empty, opened = scores(PLACED, a_pod(cpu="1", memory="1Gi", gpu=1), table, PlacementStrategy.PACK)
    assert opened > empty


def test_a_node_without_cpu_is_scored_by_its_other_resources() -> None:
    table = a_table(a_node("n", cpu="", memory="10000"))
    assert scores(PLACED, a_pod(cpu="0", memory="5000"), table) == [50]
