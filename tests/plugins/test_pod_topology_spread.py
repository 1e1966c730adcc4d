"""PodTopologySpread against cases of kube-scheduler, and against a count by hand."""

from collections import Counter
from collections.abc import Mapping
from random import Random  # noqa: TID251 - the generator is made from the seed

import numpy as np
import pytest

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import Plugins
from aischeduler.framework.runner import CrossRowAnswer, Runner
from aischeduler.model.node import Node, Taint
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.topology_spread import TopologySpreadConstraint
from aischeduler.plugins.node_affinity import NodeAffinity
from aischeduler.plugins.pod_topology_spread import MISSING_LABEL, REASON, PodTopologySpread, SpreadState
from aischeduler.state.label_index import Rows
from aischeduler.state.node_table import NodeTable
from tests import seeds
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


@pytest.mark.parametrize(("honors", "expected"), [(True, "ab"), (False, "")])
def test_node_that_the_pod_selects_not_is_no_domain_where_affinity_is_honored(honors: bool, expected: str) -> None:
    nodes = [a_node(name, labels={"node": name, "pick": "no" if name == "y" else "yes"}) for name in "aby"]
    constraint = spread("node", app="foo", honors_affinity=honors)
    pod = a_pod("asker", node_selector={"pick": "yes"}, topology_spread=(constraint,))
    assert fitting(nodes, placed({"a": 1, "b": 1}), pod) == expected


@pytest.mark.parametrize(("honors", "expected"), [(False, "y"), (True, "aby")])
def test_tainted_node_is_no_domain_where_taints_are_honored(honors: bool, expected: str) -> None:
    nodes = [a_node(name, labels={"node": name}, taints=(Taint("k"),) if name == "y" else ()) for name in "aby"]
    pod = a_pod("asker", topology_spread=(spread("node", app="foo", honors_taints=honors),))
    assert fitting(nodes, placed({"a": 1, "b": 1}), pod) == expected


def test_constraint_without_requirements_counts_no_pod() -> None:
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


def test_domains_of_another_pool_are_none_of_the_pod() -> None:
    pod = a_pod("asker", topology_spread=(spread("zone", app="foo"),))
    runner, rows = a_runner(zoned(), placed({"a": 1}), pod.spec)
    assert runner.passes(pod.spec, rows).tolist() == [False, False, True, True]
    runner.nodes.pool[rows[2:]] = 1
    runner.nodes.pool_version += 1
    assert runner.passes(pod.spec, rows).tolist() == [True, True, True, True]


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


def by_hand(nodes: list[Node], pods: Placed, pod: Pod) -> str:
    """Return the names of the fitting nodes, counted anew in plain Python."""
    keys = [one.topology_key for one in pod.spec.topology_spread]
    counted = [node for node in nodes if all(key in node.labels for key in keys)]
    fits = []
    for node in nodes:
        good = True
        for one in pod.spec.topology_spread:
            in_domain: Counter[str] = Counter({other.labels[one.topology_key]: 0 for other in counted})
            for other in counted:
                match = [labels for labels in pods.get(other.name, []) if labels.get("app") == _app(one)]
                in_domain[other.labels[one.topology_key]] += len(match)
            least = min(in_domain.values(), default=0) if len(in_domain) >= one.min_domains else 0
            value = node.labels.get(one.topology_key)
            good &= value is not None and in_domain[value] + one.selects_itself - least <= one.max_skew
        if good:
            fits.append(node.name)
    return "".join(fits)


def _app(one: TopologySpreadConstraint) -> str:
    assert one.selector is not None
    return one.selector.labels.requirements[0].values[0]


def some_domains(chance: Random) -> dict[str, str]:
    return {key: str(chance.randint(1, 3)) for key in ("zone", "rack") if chance.random() < 0.9}


def test_what_is_kept_of_a_class_equals_a_count_by_hand_after_any_changes() -> None:
    chance = Random(seeds.number("spread"))
    for _ in range(60):
        names = "abcdefgh"[: chance.randint(2, 8)]
        labels = {
            name: {key: str(chance.randint(1, 3)) for key in ("zone", "rack") if chance.random() < 0.9}
            for name in names
        }
        nodes = [a_node(name, labels=labels[name]) for name in names]
        keys = chance.sample(["zone", "rack"], chance.randint(1, 2))
        constraints = tuple(
            spread(
                key,
                app="foo",
                skew=chance.randint(1, 2),
                itself=chance.random() < 0.7,
                min_domains=chance.randint(1, 4),
            )
            for key in keys
        )
        pod = a_pod("asker", topology_spread=constraints)
        runner, rows = a_runner(nodes, {}, pod.spec)
        pods: Placed = {name: [] for name in names}
        there: list[tuple[str, Pod]] = []
        for step in range(40):
            if there and chance.random() < 0.4:
                name, gone = there.pop(chance.randrange(len(there)))
                pods[name].remove(dict(gone.labels))
                runner.nodes.remove(on_row(gone, runner.nodes.rows[name]))
            else:
                name = chance.choice(names)
                came = a_pod(f"p{step}", labels=chance.choice([FOO, BAR]))
                there.append((name, came))
                pods[name].append(dict(came.labels))
                runner.nodes.add(on_row(came, runner.nodes.rows[name]))
            mask = runner.passes(pod.spec, rows)
            found = "".join(node.name for node, fits in zip(nodes, mask, strict=True) if fits)
            assert found == by_hand(nodes, pods, pod)
