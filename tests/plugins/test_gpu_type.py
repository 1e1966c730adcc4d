"""GpuType: named types, their order, and rare types."""

import pytest

from aischeduler.model.node import Node
from aischeduler.plugins.gpu_type import GpuType
from aischeduler.state.cards import Cards
from aischeduler.state.node_table import NodeTable
from tests.build import a_node, a_pod, a_pool
from tests.plugins.table import a_table, passing, reasons, scores

TYPE = GpuType()
PRODUCT = "nvidia.com/gpu.product"


def card(name: str, product: str, **labels: str) -> Node:
    return a_node(name, labels={PRODUCT: product, **labels})


NODES = (
    card("a", "NVIDIA-A100-SXM4-80GB"),
    card("b", "NVIDIA-A100-PCIE-40GB"),
    card("h", "NVIDIA-H200"),
    card("m", "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"),
    a_node("none"),
)


def rare_table(*rare: str) -> NodeTable:
    """Return a table of the nodes in which these types are rare everywhere."""
    table = NodeTable(Cards(rare=rare))
    for node in NODES:
        table.see(node)
    return table


@pytest.mark.parametrize(
    ("types", "nodes"),
    [
        ((), ["a", "b", "h", "m", "none"]),
        (("A100",), ["a", "b"]),
        (("A100-80GB",), ["a"]),
        (("A100-40GB", "H200"), ["b", "h"]),
        (("A100-MIG-1g.10gb",), ["m"]),
        (("V100",), []),
    ],
)
def test_pod_passes_the_nodes_of_the_types_that_it_names(types: tuple[str, ...], nodes: list[str]) -> None:
    pod = a_pod(gpu_types=types)
    assert passing(TYPE, pod, a_table(*NODES)) == nodes
    assert [node.name for node in NODES if TYPE.helps(pod.spec, node)] == nodes


def test_reason_names_the_types() -> None:
    found = reasons(TYPE, a_pod(gpu_types=("A100-80GB", "V100")), a_table(*NODES))
    assert found == {"node(s) didn't match the GPU type A100-80GB|V100": 4}


def test_preferred_types_exclude_no_node_and_score_by_their_place() -> None:
    pod = a_pod(gpu_types=("H200", "A100"), gpu_type_required=False)
    assert passing(TYPE, pod, a_table(*NODES)) == [node.name for node in NODES]
    assert scores(TYPE, pod, a_table(*NODES)) == [50, 50, 100, 0, 0]


@pytest.mark.parametrize(
    ("rare", "types", "nodes"),
    [
        ("A100", (), ["h", "none"]),
        ("A100", ("A100",), ["a", "b"]),
        ("A100", ("A100-SXM4-80GB",), ["a"]),
        ("A100", ("A100-MIG-1g.10gb",), ["m"]),
        ("A100-80GB", (), ["b", "h", "none"]),
        ("A100-80GB", ("A100",), ["b"]),
        ("A100-80GB", ("A100-80GB",), ["a"]),
        ("A100-MIG-1g.10gb", (), ["a", "b", "h", "none"]),
    ],
)
def test_rare_type_is_open_to_pods_that_name_it_or_something_narrower(
    rare: str, types: tuple[str, ...], nodes: list[str]
) -> None:
    assert passing(TYPE, a_pod(gpu_types=types), rare_table(rare)) == nodes


def test_preferred_type_does_not_open_another_rare_type() -> None:
    pod = a_pod(gpu_types=("A100",), gpu_type_required=False)
    assert passing(TYPE, pod, rare_table("H200")) == ["a", "b", "m", "none"]


def test_each_refused_node_counts_for_one_reason() -> None:
    found = reasons(TYPE, a_pod(), rare_table("A100", "H200"))
    assert found == {
        "node(s) had the rare GPU type A100, which the pod does not name": 3,
        "node(s) had the rare GPU type H200, which the pod does not name": 1,
    }
    found = reasons(TYPE, a_pod(gpu_types=("A100",)), rare_table("A100-80GB"))
    assert found == {
        "node(s) didn't match the GPU type A100": 3,
        "node(s) had the rare GPU type A100-80GB, which the pod does not name": 1,
    }


def test_types_of_a_pool_are_rare_on_its_nodes_alone_and_follow_them() -> None:
    table = a_table(card("n1", "NVIDIA-H200"), card("n2", "NVIDIA-H200"))
    table.pool[[table.rows["n1"], table.rows["n2"]]] = [3, 0]
    assert table.cards.see_pool(3, a_pool(rare_types=("H200",)))
    assert passing(TYPE, a_pod(), table) == ["n2"]
    table.pool[[table.rows["n1"], table.rows["n2"]]] = [0, 3]
    table.pool_version += 1
    assert passing(TYPE, a_pod(), table) == ["n1"]
    assert table.cards.see_pool(3, None)
    assert passing(TYPE, a_pod(), table) == ["n1", "n2"]


def test_rare_rows_are_lent_by_pools_that_say_so() -> None:
    table = a_table(card("n1", "NVIDIA-H200"), card("n2", "NVIDIA-H200"), card("n3", "NVIDIA-A100"))
    assert table.cards.not_lent(table) is None
    table.pool[[table.rows[name] for name in ("n1", "n2", "n3")]] = [1, 2, 1]
    table.cards.see_pool(1, a_pool(rare_types=("H200",)))
    table.cards.see_pool(2, a_pool(rare_types=("H200",), lend_rare_types=True))
    kept = table.cards.not_lent(table)
    assert kept is not None
    assert [name for name in ("n1", "n2", "n3") if kept[table.rows[name]]] == ["n1"]


def test_labels_of_other_discoveries_and_of_mixed_mig_count_too() -> None:
    koord = a_node("k", labels={"node.koordinator.sh/gpu-model": "A100-SXM4-80GB"})
    mixed = a_node(
        "x",
        labels={
            PRODUCT: "NVIDIA-A100-SXM4-80GB",
            "nvidia.com/mig-1g.10gb.product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb",
            "nvidia.com/mig-1g.10gb.count": "7",
        },
    )
    table = a_table(koord, mixed)
    assert passing(TYPE, a_pod(gpu_types=("A100-80GB",)), table) == ["k", "x"]
    assert passing(TYPE, a_pod(gpu_types=("A100-MIG-1g.10gb",)), table) == ["x"]
    assert table.cards.known(table)[:2] == ("A100", "A100-80GB")


def test_configured_label_replaces_the_others() -> None:
    table, rule = NodeTable(Cards(("example.com/card",))), GpuType(("example.com/card",))
    nodes = (a_node("n1", labels={"example.com/card": "Tesla V100"}), card("n2", "Tesla-V100"))
    for node in nodes:
        table.see(node)
    pod = a_pod(gpu_types=("V100",))
    assert passing(rule, pod, table) == ["n1"]
    assert [node.name for node in nodes if rule.helps(pod.spec, node)] == ["n1"]


def test_node_that_gets_other_cards_passes_by_them() -> None:
    table = a_table(a_node("n"))
    assert passing(TYPE, a_pod(gpu_types=("T4",)), table) == []
    table.see(card("n", "Tesla-T4"))
    assert passing(TYPE, a_pod(gpu_types=("T4",)), table) == ["n"]
    table.forget("n")
    assert table.cards.known(table) == ()
