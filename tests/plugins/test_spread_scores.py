"""The scores of PodTopologySpread: cases of kube-scheduler."""

import math
from collections.abc import Mapping

import numpy as np
import pytest
from msgspec.structs import replace

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import PlacementRequest, Plugins
from aischeduler.framework.runner import Runner
from aischeduler.model.node import Node
from aischeduler.model.pod import PodSpec
from aischeduler.model.pool import PlacementStrategy
from aischeduler.model.topology_spread import HOSTNAME, DefaultConstraint, DefaultSelector, TopologySpreadConstraint
from aischeduler.plugins.pod_topology_spread import PodTopologySpread
from aischeduler.plugins.spread_scores import SpreadScores
from aischeduler.state.node_table import NodeTable
from tests.build import a_node, a_pod, on_row, spread

FOO = {"app": "foo"}
BY_SYSTEM = PodTopologySpread()
ZONES = {"a": "zone1", "b": "zone1", "x": "zone2", "y": "zone2"}


def hosts(names: str, *, without: str = "") -> list[Node]:
    return [
        a_node(name, labels={"zone": ZONES[name]} | ({HOSTNAME: name} if name != without else {})) for name in names
    ]


def scored(
    nodes: list[Node], pods: Mapping[str, int], *rules: TopologySpreadConstraint, fit: str = "", claims: str = ""
) -> list[int]:
    """Return the scores of the nodes that fit, all without `fit`; `claims` is the node of an owner of a claim."""
    names = fit or "".join(node.name for node in nodes)
    return scores_of(a_pod(spread_preferences=rules).spec, nodes, pods, names, claims=claims)


def scores_of(
    spec: PodSpec,
    nodes: list[Node],
    pods: Mapping[str, int],
    names: str,
    *,
    claims: str = "",
    plugin: PodTopologySpread = BY_SYSTEM,
) -> list[int]:
    """Return the scores of the nodes of these names for a class."""
    table = NodeTable()
    for node in nodes:
        table.pool[table.see(node)[0]] = 0
    runner = Runner(Plugins((), (), (), cross_scores=(plugin,)), table)
    table.pod_counts.use(spec, runner.interest(spec))
    for name, number in pods.items():
        for one in range(number):
            table.add(on_row(a_pod(f"{name}-{one}", labels=FOO), table.rows[name]))
    if claims:
        table.pod_counts.add(a_pod("nominated", labels=FOO), table.rows[claims], claims=True)
    rows = np.array([table.rows[name] for name in names], dtype=np.intp)
    assert plugin.prefers(spec, table)
    state = plugin.prescore(PlacementRequest(spec, PlacementStrategy.SPREAD), table, None)
    assert isinstance(state, SpreadScores)
    return [int(one) for one in state.score(NodeView(table, rows))]


def over(key: str, skew: int = 1) -> TopologySpreadConstraint:
    return spread(key, app="foo", skew=skew)


@pytest.mark.parametrize(
    ("nodes", "pods", "rules", "fit", "expected"),
    [
        pytest.param(hosts("abxy"), {"a": 2, "b": 1, "y": 3}, (over(HOSTNAME),), "", [20, 60, 100, 0], id="T16"),
        pytest.param(
            hosts("abxy"), {"a": 2, "b": 1, "y": 3}, (over(HOSTNAME, 2),), "", [33, 66, 100, 16], id="T16, maxSkew 2"
        ),
        pytest.param(
            hosts("abxy"), {"a": 4, "b": 3, "x": 2, "y": 1}, (over(HOSTNAME, 3),), "", [44, 66, 77, 100], id="T17"
        ),
        pytest.param(
            hosts("abxy"), {"a": 4, "b": 2, "x": 1, "y": 3}, (over(HOSTNAME),), "abx", [33, 83, 100], id="T18"
        ),
        pytest.param(
            hosts("abxy", without="b"),
            {"a": 4, "b": 2, "x": 1, "y": 3},
            (over(HOSTNAME),),
            "abx",
            [16, 0, 100],
            id="T18, a node without the label",
        ),
        pytest.param(hosts("abxy"), {"a": 4, "b": 2, "x": 1, "y": 3}, (over("zone"),), "abx", [75, 75, 100], id="T19"),
        pytest.param(
            hosts("abxy"),
            {"a": 2, "b": 1, "x": 2, "y": 4},
            (over("zone"), over(HOSTNAME)),
            "ax",
            [100, 63],
            id="T20",
        ),
    ],
)
def test_scores_are_those_of_kube_scheduler(
    nodes: list[Node],
    pods: Mapping[str, int],
    rules: tuple[TopologySpreadConstraint, ...],
    fit: str,
    expected: list[int],
) -> None:
    assert scored(nodes, pods, *rules, fit=fit) == expected


def test_default_constraints_of_a_pod_of_a_service_score_as_constraints_of_its_own_do() -> None:
    """T17 by default: nodes without a zone are scored by those of the system, and not by those of a list."""
    selector = spread("zone", app="foo").selector
    assert selector is not None
    spec = replace(a_pod().spec, default_selector=DefaultSelector(selector, selects_itself=True))
    pods, nodes = {"a": 4, "b": 3, "x": 2, "y": 1}, hosts("abxy")
    by_host = PodTopologySpread((DefaultConstraint(HOSTNAME, 3),))
    assert scores_of(spec, nodes, pods, "abxy", plugin=by_host) == [44, 66, 77, 100]
    assert scores_of(spec, nodes, pods, "abxy") == [44, 66, 77, 100]
    both = PodTopologySpread((DefaultConstraint(HOSTNAME, 3), DefaultConstraint("rack", 5)))
    assert scores_of(spec, nodes, pods, "abxy", plugin=both) == [0, 0, 0, 0]


def test_nodes_without_pods_have_100_each() -> None:
    assert scored(hosts("ab"), {}, over(HOSTNAME)) == [100, 100]


def test_no_node_has_a_score_where_none_has_every_label() -> None:
    assert scored(hosts("ab"), {"a": 1}, over("rack")) == [0, 0]


def test_constraint_that_selects_no_pod_leaves_out_nodes_without_its_label() -> None:
    nothing = TopologySpreadConstraint(HOSTNAME, 2, None)
    assert scored(hosts("ab", without="b"), {"a": 3}, nothing) == [100, 0]


def test_owner_of_a_claim_does_not_count_in_scores() -> None:
    assert scored(hosts("ab"), {"a": 1, "b": 1}, over(HOSTNAME), claims="a") == [100, 100]


def test_no_sum_of_the_default_constraints_is_so_near_a_half_that_the_last_digits_of_a_logarithm_matter() -> None:
    """Go's logarithms differ between platforms, and from those here, by one unit in the last place."""
    numbers = np.arange(2000)
    for size in range(1, 5001):
        raw = numbers * math.log(size + 2)
        error = numbers * (math.ulp(math.log(size + 2)) * 4) + 1e-12
        assert (np.abs(raw - np.floor(raw) - 0.5) > error).all()
