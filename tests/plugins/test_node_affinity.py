"""Rows N7-N10 of kube-scheduler's own cases."""

from aischeduler.model.selectors import NAME_FIELD, Operator, PreferredSchedulingTerm
from aischeduler.plugins.node_affinity import NAMES_REASON, REASON, NodeAffinity, NodeAffinityNames
from tests.build import a_node, a_pod, a_term, expression
from tests.plugins.table import a_table, passing, reasons, scores

AFFINITY = NodeAffinity()
NODES = (
    a_node("n1", labels={"zone": "a", "gen": "3"}),
    a_node("n2", labels={"zone": "b", "gen": "7"}),
    a_node("n3", labels={}),
)


def test_node_selector_requires_every_label() -> None:
    assert passing(AFFINITY, a_pod(node_selector={"zone": "a", "gen": "3"}), a_table(*NODES)) == ["n1"]
    assert passing(AFFINITY, a_pod(node_selector={"zone": "a", "gen": "7"}), a_table(*NODES)) == []


def test_a_pod_without_requirements_runs_everywhere() -> None:
    assert passing(AFFINITY, a_pod(), a_table(*NODES)) == ["n1", "n2", "n3"]


def test_terms_are_ored_and_their_expressions_anded() -> None:
    a = a_term(expression("zone", Operator.IN, "a"), expression("gen", Operator.GT, "5"))
    b = a_term(expression("zone", Operator.DOES_NOT_EXIST))
    assert passing(AFFINITY, a_pod(required=(a, b)), a_table(*NODES)) == ["n3"]


def test_no_term_and_an_empty_term_match_nothing() -> None:
    assert passing(AFFINITY, a_pod(required=()), a_table(*NODES)) == []
    assert passing(AFFINITY, a_pod(required=(a_term(),)), a_table(*NODES)) == []


def test_match_fields_name_nodes() -> None:
    by_name = [a_term(fields=(expression(NAME_FIELD, Operator.IN, name),)) for name in ("n1", "n2", "gone")]
    assert passing(AFFINITY, a_pod(required=tuple(by_name)), a_table(*NODES)) == ["n1", "n2"]


def test_preferred_weights_add_up() -> None:
    preferred = (
        PreferredSchedulingTerm(20, a_term(expression("zone", Operator.IN, "b"))),
        PreferredSchedulingTerm(20, a_term(expression("gen", Operator.EXISTS))),
    )
    assert scores(AFFINITY, a_pod(preferred=preferred), a_table(*NODES)) == [50, 100, 0]


def test_the_reason_is_kube_schedulers() -> None:
    assert reasons(AFFINITY, a_pod(node_selector={"zone": "x"}), a_table(*NODES)) == {REASON: 3}


def test_terms_that_all_name_nodes_exclude_other_nodes_first() -> None:
    names = NodeAffinityNames()
    both = a_term(expression("zone", Operator.IN, "b"), fields=(expression(NAME_FIELD, Operator.IN, "n1"),))
    other = a_term(fields=(expression(NAME_FIELD, Operator.IN, "n3"),))
    pod = a_pod(required=(both, other))
    assert passing(names, pod, a_table(*NODES)) == ["n1", "n3"]
    assert reasons(names, pod, a_table(*NODES)) == {NAMES_REASON: 1}
    assert passing(AFFINITY, pod, a_table(*NODES)) == ["n3"]


def test_a_term_without_names_excludes_no_node_first() -> None:
    by_label = a_term(expression("zone", Operator.IN, "b"))
    by_name = a_term(fields=(expression(NAME_FIELD, Operator.IN, "n3"),))
    other_way = a_term(fields=(expression(NAME_FIELD, Operator.NOT_IN, "n3"),))
    for required in (None, (), (by_label, by_name), (other_way,)):
        assert passing(NodeAffinityNames(), a_pod(required=required), a_table(*NODES)) == ["n1", "n2", "n3"]
