"""The filter of PodTopologySpread: cases of kube-scheduler, and pools."""

from collections.abc import Mapping

import numpy as np
import pytest

from aischeduler.framework.cross_rows import CrossRowAnswer
from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import Plugins
from aischeduler.framework.runner import Runner
from aischeduler.model.node import Node, Taint
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.topology_spread import TopologySpreadConstraint
from aischeduler.plugins.node_affinity import NodeAffinity
from aischeduler.plugins.pod_topology_spread import PodTopologySpread
from aischeduler.plugins.spread_filter import MISSING_LABEL, REASON, SpreadState
from aischeduler.state.label_index import Rows
from aischeduler.state.node_table import NodeTable
from tests.build import a_node, a_pod, on_row, spread

Placed = dict[str, list[dict[str, str]]]
"""Node -> the labels of the pods there."""
ZONES = {"a": "zone1", "b": "zone1", "x": "zone2", "y": "zone2"}
FOO, BAR, BOTH = {"app": "foo"}, {"app": "bar"}, {"app": "foo", "also": "bar"}


def zoned(*, without: str = "") -> list[Node]:
    """Return the nodes a and b of zone1, x and y of zone2, each with its name as the label node."""
    return [
        a_node(name, labels={"zone": zone} | ({"node": name} if name != without else {}))
        for name, zone in ZONES.items()
    ]


def hosts(*names: str) -> list[Node]:
    return [a_node(name, labels={"node": name}) for name in names]


def placed(counts: Mapping[str, int], labels: Mapping[str, str] = FOO) -> Placed:
    return {node: [dict(labels)] * number for node, number in counts.items()}


def a_runner(nodes: list[Node], pods: Placed, spec: PodSpec) -> tuple[Runner, Rows]:
    """Return a runner on a table of these nodes in one pool, with these pods, and the rows of the nodes."""
    table = NodeTable()
    for node in nodes:
        table.pool[table.see(node)[0]] = 0
    runner = Runner(Plugins((), (NodeAffinity(),), (), (PodTopologySpread(),)), table)
    table.pod_counts.use(spec, runner.interest(spec))
    for name, labels in pods.items():
        for number, one in enumerate(labels):
            table.add(on_row(a_pod(f"{name}-{number}", labels=one), table.rows[name]))
    return runner, np.array([table.rows[node.name] for node in nodes], dtype=np.intp)


def fitting(nodes: list[Node], pods: Placed, pod: Pod) -> str:
    """Return the names of the nodes that the pod fits on, joined."""
    runner, rows = a_runner(nodes, pods, pod.spec)
    mask = runner.passes(pod.spec, rows)
    return "".join(node.name for node, fits in zip(nodes, mask, strict=True) if fits)


def spreading(*constraints: TopologySpreadConstraint, selects: str = "", tolerates: bool = False) -> Pod:
    return a_pod("asker", node_selector={"node": selects} if selects else {}, topology_spread=constraints)


ABXY = hosts("a", "b", "x", "y")
CASES: list[tuple[str, list[Node], Placed, Pod, str]] = [
    ("T1", ABXY, placed({"a": 1, "b": 1, "y": 1}), spreading(spread("node", app="foo")), "x"),
    ("T2", ABXY, placed({"a": 2, "y": 1}), spreading(spread("node", app="foo", skew=2)), "bxy"),
    (
        "T3",
        zoned(),
        placed({"a": 2, "b": 1, "y": 3}),
        spreading(spread("zone", app="foo"), spread("node", app="foo")),
        "x",
    ),
    (
        "T3, no node",
        zoned(),
        placed({"a": 2, "b": 1, "x": 0, "y": 4}),
        spreading(spread("zone", app="foo"), spread("node", app="foo")),
        "",
    ),
    (
        "T4",
        zoned(),
        {"a": [FOO], "y": [BAR]},
        spreading(spread("zone", app="foo"), spread("node", app="bar")),
        "x",
    ),
    (
        "T5",
        zoned(),
        {"a": [FOO], "x": [BAR], "y": [BAR]},
        spreading(spread("zone", app="foo"), spread("node", app="bar")),
        "",
    ),
    (
        "T6: the pod is not one of those that the zone counts",
        zoned(),
        {"a": [FOO], "x": [BAR], "y": [BAR]},
        spreading(spread("zone", app="foo", itself=False), spread("node", app="bar")),
        "ab",
    ),
    (
        "T7",
        zoned(without="x"),
        placed({"a": 1, "y": 1}),
        spreading(spread("zone", app="foo"), spread("node", app="foo")),
        "b",
    ),
    (
        "T8",
        ABXY[:3],
        placed({"a": 2, "b": 2, "x": 1}),
        spreading(spread("node", app="foo", skew=2, min_domains=4)),
        "x",
    ),
    (
        "T8, fewer domains",
        ABXY[:3],
        placed({"a": 2, "b": 2, "x": 1}),
        spreading(spread("node", app="foo", skew=2, min_domains=2)),
        "abx",
    ),
    (
        "T9",
        zoned(),
        placed({"a": 1, "b": 1, "x": 1}),
        spreading(spread("zone", app="foo", skew=2, min_domains=3)),
        "xy",
    ),
    (
        "T9, one domain",
        zoned(),
        placed({"a": 1, "b": 1, "x": 1}),
        spreading(spread("zone", app="foo", skew=2, min_domains=1)),
        "abxy",
    ),
]


@pytest.mark.parametrize(("name", "nodes", "pods", "pod", "expected"), CASES, ids=[case[0] for case in CASES])
def test_nodes_are_those_of_kube_scheduler(name: str, nodes: list[Node], pods: Placed, pod: Pod, expected: str) -> None:
    assert fitting(nodes, pods, pod) == expected, name


def picked(name: str, *, honors_affinity: bool) -> tuple[list[Node], Pod]:
    """Return nodes, of which the pod selects all but this one, and the pod."""
    nodes = [a_node(one, labels={"node": one, "pick": "no" if one == name else "yes"}) for one in "aby"]
    rule = spread("node", app="foo", honors_affinity=honors_affinity)
    return nodes, a_pod("asker", node_selector={"pick": "yes"}, topology_spread=(rule,))


@pytest.mark.parametrize(
    ("honors", "expected"), [(True, "ab"), (False, "")], ids=["T10, affinity is honoured", "T10, affinity is ignored"]
)
def test_node_that_the_pod_selects_not_is_no_domain_where_affinity_is_honored(honors: bool, expected: str) -> None:
    nodes, pod = picked("y", honors_affinity=honors)
    assert fitting(nodes, placed({"a": 1, "b": 1}), pod) == expected


@pytest.mark.parametrize(
    ("honors", "expected"), [(False, "y"), (True, "aby")], ids=["T11, taints are ignored", "T11, taints are honoured"]
)
def test_tainted_node_is_no_domain_where_taints_are_honored(honors: bool, expected: str) -> None:
    """The filter of taints does not run here: with it, the tainted node y itself is refused."""
    nodes = [a_node(name, labels={"node": name}, taints=(Taint("k"),) if name == "y" else ()) for name in "aby"]
    pod = a_pod("asker", topology_spread=(spread("node", app="foo", honors_taints=honors),))
    assert fitting(nodes, placed({"a": 1, "b": 1}), pod) == expected


def test_constraint_without_requirements_counts_no_pod() -> None:
    """T12."""
    pod = a_pod("asker", topology_spread=(TopologySpreadConstraint("node", 1, None, selects_itself=True),))
    assert fitting(ABXY[:3], placed({"a": 2, "b": 1}), pod) == "abx"


def test_terminating_pods_and_pods_of_other_namespaces_are_not_counted() -> None:
    pod = a_pod("asker", topology_spread=(spread("node", app="foo"),))
    runner, rows = a_runner(ABXY[:2], {}, pod.spec)
    runner.nodes.add(on_row(a_pod("leaving", labels=FOO, terminating=True), int(rows[0])))
    runner.nodes.add(on_row(a_pod("elsewhere", labels=FOO, namespace="other"), int(rows[0])))
    assert runner.passes(pod.spec, rows).all()
    runner.nodes.add(on_row(a_pod("counted", labels=FOO), int(rows[0])))
    assert runner.passes(pod.spec, rows).tolist() == [False, True]


def in_pools(runner: Runner, pools: Mapping[int, Rows]) -> None:
    for pool, rows in pools.items():
        runner.nodes.pool[rows] = pool
    runner.nodes.pool_version += 1


def test_zone_in_which_the_pool_has_no_node_is_not_the_emptiest() -> None:
    pod = a_pod("asker", topology_spread=(spread("zone", app="foo"),))
    runner, rows = a_runner(zoned(), placed({"a": 1}), pod.spec)
    assert runner.passes(pod.spec, rows).tolist() == [False, False, True, True]
    in_pools(runner, {1: rows[2:]})
    assert runner.passes(pod.spec, rows).tolist() == [True, True, True, True]


def test_pod_on_a_node_of_another_pool_counts_in_its_zone() -> None:
    pod = a_pod("asker", topology_spread=(spread("zone", app="foo"),))
    runner, rows = a_runner(zoned(), placed({"b": 1}), pod.spec)
    in_pools(runner, {1: rows[[1]]})
    assert runner.passes(pod.spec, rows[[0, 2, 3]]).tolist() == [False, True, True]
    in_pools(runner, {2: rows[2:]})
    assert runner.passes(pod.spec, rows).tolist() == [True, True, True, True], "each pool has one zone"


def test_pod_on_a_node_of_another_pool_that_the_constraint_leaves_out_does_not_count() -> None:
    nodes, pod = picked("b", honors_affinity=True)
    nodes = [a_node(node.name, labels={**node.labels, "node": "same"}) for node in nodes[:2]]
    nodes.append(a_node("y", labels={"node": "other", "pick": "yes"}))
    runner, rows = a_runner(nodes, placed({"b": 3}), pod.spec)
    in_pools(runner, {1: rows[[1]]})
    assert runner.passes(pod.spec, rows[[0, 2]]).tolist() == [True, True]


def test_too_few_domains_are_those_of_the_pool() -> None:
    pod = a_pod("asker", topology_spread=(spread("zone", app="foo", min_domains=2),))
    runner, rows = a_runner(zoned(), placed({"a": 1, "x": 1}), pod.spec)
    assert runner.passes(pod.spec, rows).all()
    in_pools(runner, {1: rows[2:]})
    assert not runner.passes(pod.spec, rows).any()


def test_reason_tells_a_missing_label_from_a_skew() -> None:
    pod = a_pod("asker", topology_spread=(spread("zone", app="foo"), spread("node", app="foo")))
    runner, rows = a_runner(zoned(without="x"), placed({"a": 1}), pod.spec)
    assert dict(runner.refusals(pod.spec, rows).reasons) == {REASON: 2, MISSING_LABEL: 1}


def test_skew_counts_owners_of_claims_only_on_rows_that_nothing_else_refuses() -> None:
    pod = a_pod("asker", topology_spread=(spread("zone", app="foo", itself=False),))
    runner, rows = a_runner([*zoned(), a_node("z", labels={"zone": "zone3"})], placed({"a": 2, "x": 1}), pod.spec)
    for number, row in enumerate(rows[[1, 2]]):
        runner.nodes.pod_counts.add(a_pod(f"nominated-{number}", labels=FOO), int(row), claims=True)
    ((rule, at),) = runner.refused(pod.spec, rows)
    assert isinstance(rule, CrossRowAnswer)
    assert isinstance(rule.state, SpreadState)
    found = [(one.domain, one.matching, one.fewest) for skews in rule.state.skews(at) for one in skews]
    assert found == [("zone1", 2, 0), ("zone1", 2, 0), ("zone2", 2, 0), ("zone2", 2, 0)]
    assert rule.state.skews(NodeView(runner.nodes, rows[4:])) == [[]]
