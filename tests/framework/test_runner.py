"""The kept results of classes never change a result."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aischeduler.engine.profile import default_profile
from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import Filter, PlacementRequest, Scores
from aischeduler.framework.runner import ProfileRunners, Runner, make_runner
from aischeduler.model.node import Node
from aischeduler.model.pod import HostPort, PodSpec
from aischeduler.model.pod_affinity import pod_affinity
from aischeduler.model.pool import PlacementStrategy
from aischeduler.model.selectors import NAME_FIELD, Operator, PreferredSchedulingTerm
from aischeduler.state.cards import Cards
from aischeduler.state.diagnosis import Diagnosis
from aischeduler.state.label_index import Mask, Rows
from aischeduler.state.node_table import NodeTable
from aischeduler.state.what_if import Trial
from tests.affinity_terms import term
from tests.build import a_node, a_pod, a_taint, a_term, expression, on_row, replace, spread, tolerates

PLUGINS = default_profile().plugins
NAMES = [f"n{i}" for i in range(6)]
ZONES = (PreferredSchedulingTerm(5, a_term(expression("zone", Operator.IN, "a"))),)
NAMED = tuple(a_term(fields=(expression(NAME_FIELD, Operator.IN, name),)) for name in ("n1", "n3", "gone"))
SPECS: list[PodSpec] = [
    a_pod(cpu="1", memory="1Gi").spec,
    a_pod(cpu="3", memory="1Gi", gpu=1).spec,
    a_pod(cpu="1", memory="4Gi", node_selector={"zone": "a"}).spec,
    a_pod(cpu="500m", memory="2Gi", preferred=ZONES, tolerations=(tolerates("soft"),)).spec,
    a_pod(cpu="1", memory="1Gi", required=NAMED, preferred=ZONES).spec,
]


def nodes() -> st.SearchStrategy[Node]:
    return st.builds(
        a_node,
        st.sampled_from(NAMES),
        cpu=st.sampled_from(["2", "8"]),
        memory=st.sampled_from(["4Gi", "16Gi"]),
        gpu=st.sampled_from([0, 2]),
        pods=st.sampled_from([2, 110]),
        labels=st.sampled_from([{}, {"zone": "a"}, {"zone": "b"}]),
        taints=st.sampled_from([(), (a_taint("hard"),), (a_taint("soft", "", "PreferNoSchedule"),)]),
        unschedulable=st.booleans(),
    )


def refused_one_by_one(spec: PodSpec, table: NodeTable) -> Diagnosis:
    """Return why each row by itself does not fit: the reason of the first filter that refuses it."""
    reasons = Counter[str]()
    rows = [row for row in sorted(table.rows.values()) if table.nodes[row] is not None]
    for row in rows:
        alone = NodeView(table, np.array([row], dtype=np.intp))
        refusing = [rule for rule in PLUGINS.filters if _refuses(rule, spec, alone)]
        if refusing:
            reasons.update(refusing[0].reasons(spec, alone))
    return Diagnosis(len(rows), reasons)


def _refuses(rule: Filter, spec: PodSpec, row: NodeView) -> bool:
    mask = rule.filter(spec, row)
    return mask is not None and not mask[0]


STEPS = st.one_of(
    nodes(),
    st.sampled_from(NAMES),
    st.tuples(st.sampled_from(SPECS), st.sampled_from(list(PlacementStrategy))),
)


def test_fit_with_other_amounts_equals_the_fit_of_a_table_with_these_amounts() -> None:
    table, pods = NodeTable(), [a_pod(cpu="1", memory="1Gi", gpu=1).spec, a_pod(cpu="2", memory="1Gi").spec]
    row, _ = table.see(a_node("n", cpu="4", memory="4Gi", gpu=2))
    runner, rows, states, expected = Runner(PLUGINS, table), np.array([row], dtype=np.intp), [], []
    asker = a_pod(cpu="2", memory="1Gi", gpu=1).spec
    for spec in pods:
        states.append(table.used[:, row].copy())
        expected.append(bool(runner.fits(asker, rows)[0]))
        table.add(on_row(spec, row))
    states.append(table.used[:, row].copy())
    expected.append(bool(runner.fits(asker, rows)[0]))
    assert expected == [True, True, False]
    assert runner.fits_using(asker, rows.repeat(3), np.stack(states, axis=1)).tolist() == expected


def test_amounts_alone_decide_for_a_pod_without_a_host_port() -> None:
    runner = Runner(PLUGINS, NodeTable())
    assert runner.by_amounts(a_pod(cpu="1").spec)
    assert not runner.by_amounts(a_pod(cpu="1", host_ports=(HostPort("TCP", 80),)).spec)


def test_the_order_of_names_breaks_ties_after_nodes_came_and_went() -> None:
    table, spec = NodeTable(), a_pod(cpu="1").spec
    table_rows = [table.see(a_node(f"n{number:02}"))[0] for number in range(40, 0, -1)]
    rows, ask, runner = (
        np.array(sorted(table_rows), dtype=np.intp),
        PlacementRequest(spec, PlacementStrategy.SPREAD),
        Runner(PLUGINS, table),
    )
    first = table.rows["n01"]
    assert runner.best(ask, rows) == (first, 40)
    stub = table.row("a-node-never-seen")
    table.add(on_row(spec, stub))
    table.touch(first)
    assert runner.best(ask, rows) == (first, 40)
    table.remove(on_row(spec, stub))
    table.release_stub(stub)
    table.touch(table.rows["n02"])
    assert runner.best(ask, rows) == (first, 40)


@settings(max_examples=75, deadline=None)
@given(st.lists(STEPS, min_size=5, max_size=40))
def test_kept_results_of_a_class_equal_new_results(
    steps: list[Node | str | tuple[PodSpec, PlacementStrategy]],
) -> None:
    table = NodeTable()
    runner = Runner(PLUGINS, table)
    for step in steps:
        if isinstance(step, Node):
            table.see(step)
        elif isinstance(step, str):
            if not (step in table.rows and table.used[table.column("pods"), table.rows[step]]):
                table.forget(step)
        else:
            spec, placement = step
            ask, rows = PlacementRequest(spec, placement), np.array(sorted(table.rows.values()), dtype=np.intp)
            best = look(runner, table, ask, rows)
            for row in rows[:: max(1, len(rows) // 3)].tolist():
                table.add(on_row(SPECS[0], row))
                version = table.version
                with Trial(table) as trial:
                    trial.place(on_row(spec, row))
                    look(runner, table, ask, rows)
                    with Trial(table) as inner:
                        inner.remove([on_row(spec, row)])
                        inner.place(on_row(spec, int(rows[0])))
                        look(runner, table, ask, rows)
                assert table.version == version
                look(runner, table, ask, rows)
                table.remove(on_row(SPECS[0], row))
            assert look(runner, table, ask, rows) == best
            if best is not None:
                table.add(on_row(spec, best[0]))


def look(runner: Runner, table: NodeTable, ask: PlacementRequest, rows: Rows) -> tuple[int, int] | None:
    """Return the best row after a check of every result against one of which nothing is kept."""
    best = runner.best(ask, rows)
    fresh = Runner(PLUGINS, table)
    assert best == fresh.best(ask, rows), "at the first look, of which nothing is remembered"
    assert best == fresh.best(ask, rows)
    assert best == fresh.best_of_few(ask, rows), "on all rows, also for a class that names its nodes"
    assert int(runner.passes(ask.spec, rows).sum()) == (best[1] if best else 0)
    assert int(runner.feasible(ask).sum()) == (best[1] if best else 0)
    if best is None:
        refused = runner.diagnose(ask, rows)
        assert refused == Runner(PLUGINS, table).diagnose(ask, rows)
        assert refused == refused_one_by_one(ask.spec, table)
    return best


def test_node_that_a_pod_names_is_taken_only_among_the_rows_that_count() -> None:
    table = NodeTable()
    rows = [table.see(a_node(name, cpu="4"))[0] for name in NAMES]
    runner, ask = (
        Runner(PLUGINS, table),
        PlacementRequest(a_pod(cpu="1", required=NAMED).spec, PlacementStrategy.SPREAD),
    )
    assert runner.best(ask, np.array(rows, dtype=np.intp)) == (table.rows["n1"], 2)
    assert runner.best(ask, np.array(rows[2:], dtype=np.intp)) == (table.rows["n3"], 1)
    assert runner.best(ask, np.array(rows[4:], dtype=np.intp)) is None


def test_equal_nodes_are_taken_in_the_order_of_their_names() -> None:
    table = NodeTable()
    for name in ("b", "c", "a"):
        table.see(a_node(name, cpu="4"))
    runner = Runner(PLUGINS, table)
    rows = np.array(sorted(table.rows.values()), dtype=np.intp)
    taken = []
    for _ in range(3):
        best = runner.best(PlacementRequest(a_pod(cpu="1").spec, PlacementStrategy.SPREAD), rows)
        assert best is not None
        table.add(on_row(a_pod(cpu="1").spec, best[0]))
        taken.append(table.names[best[0]])
    assert taken == ["a", "b", "c"]


def test_a_diagnosis_counts_each_node_for_the_first_rule_that_refuses_it() -> None:
    table = NodeTable()
    for name in ("a", "b"):
        table.see(a_node(name, cpu="1", taints=(a_taint(),)))
    for name in ("c", "d", "e"):
        table.see(a_node(name, cpu="1"))
    runner = Runner(PLUGINS, table)
    refused = runner.diagnose(
        PlacementRequest(a_pod(cpu="2").spec, PlacementStrategy.SPREAD),
        np.array(sorted(table.rows.values()), dtype=np.intp),
    )
    assert refused.message == ("0/5 nodes are available: 2 node(s) had untolerated taint(s), 3 Insufficient cpu.")


def test_no_nodes_have_a_message_of_their_own() -> None:
    runner = Runner(PLUGINS, NodeTable())
    refused = runner.diagnose(PlacementRequest(a_pod().spec, PlacementStrategy.SPREAD), np.array([], dtype=np.intp))
    assert refused.message == "no nodes available to schedule pods"


class Asked:
    """A static filter and a static score that count the rows about which they are asked."""

    name = "Asked"
    static = True
    weight = 1
    normalize = True
    reverse = False

    def __init__(self) -> None:
        self.rows: list[int] = []

    def filter(self, spec: PodSpec, at: NodeView) -> Mask | None:
        self.rows += at.rows.tolist()
        return None

    def score(self, ask: PlacementRequest, at: NodeView) -> Scores | None:
        self.rows += at.rows.tolist()
        return None

    def reasons(self, spec: PodSpec, at: NodeView) -> Counter[str]:
        return Counter()

    def helps(self, spec: PodSpec, node: Node) -> bool:
        return True


def test_labels_and_taints_of_one_node_that_change_have_rules_asked_about_that_node_alone() -> None:
    asked, table = Asked(), NodeTable()
    for name in NAMES:
        table.see(a_node(name, cpu="8", memory="16Gi", labels={"zone": "a"}))
    plugins = replace(PLUGINS, filters=(*PLUGINS.filters, asked), scores=(*PLUGINS.scores, asked))
    runner, rows = Runner(plugins, table), np.array(sorted(table.rows.values()), dtype=np.intp)
    ask = PlacementRequest(SPECS[2], PlacementStrategy.SPREAD)
    for _ in range(2):  # the second pod of a class has its results kept
        assert runner.best(ask, rows) == (table.rows["n0"], 6)
    for changed in ({"labels": {"zone": "b"}}, {"labels": {"zone": "a"}, "taints": (a_taint("hard"),)}):
        asked.rows.clear()
        row, _ = table.see(a_node("n0", cpu="8", memory="16Gi", **changed))
        assert runner.best(ask, rows) == (table.rows["n1"], 5)
        assert set(asked.rows) == {row}


def test_a_label_that_nothing_reads_leaves_the_domains_of_pods_as_they_are() -> None:
    table = NodeTable()
    for name in NAMES:
        table.see(a_node(name, cpu="8", labels={"zone": "a"}))
    away = pod_affinity(anti_required=(term("zone", "app=x"),))
    pod = a_pod("p", labels={"app": "x"}, pod_affinity=away, topology_spread=(spread("zone", app="x"),))
    runner = Runner(PLUGINS, table)
    table.pod_counts.use(pod.spec, runner.interest(pod.spec))
    before = [one.state for one in runner.prefiltered(pod.spec)]
    assert len(before) == 2
    table.see(a_node("n0", cpu="8", labels={"zone": "a", "time": "1"}))
    assert [one.state for one in runner.prefiltered(pod.spec)] == before
    table.see(a_node("n0", cpu="8", labels={"zone": "b", "time": "1"}))
    after = [one.state for one in runner.prefiltered(pod.spec)]
    assert all(new is not old for new, old in zip(after, before, strict=True))


def test_one_profile_has_a_plain_runner_and_several_ask_that_of_the_class() -> None:
    plugins, nodes = default_profile().plugins, NodeTable(Cards((), ()))
    assert type(make_runner(plugins, {}, nodes)) is Runner
    runner = make_runner(plugins, {"other": replace(plugins, filters=())}, nodes)
    assert type(runner) is ProfileRunners
    assert runner.plugins_of(a_pod("p").spec) is plugins
    assert runner.plugins_of(replace(a_pod("p").spec, profile="other")).filters == ()
