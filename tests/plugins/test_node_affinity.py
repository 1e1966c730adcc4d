"""Rows N7-N10 of kube-scheduler's own cases, the terms of a profile, and the comparison of numbers."""

import pytest

from aischeduler.model.selectors import NAME_FIELD, NodeSelectorTerm, Operator, PreferredSchedulingTerm
from aischeduler.plugins.node_affinity import ENFORCED_REASON, NAMES_REASON, REASON, NodeAffinity, NodeAffinityNames
from aischeduler.state.diagnosis import AFFINITY_CONFLICT, Diagnosis
from tests.build import a_node, a_pod, a_term, expression
from tests.plugins.table import a_table, passing, reasons, scores

AFFINITY = NodeAffinity()
NODES = (
    a_node("n1", labels={"zone": "a", "gen": "3"}),
    a_node("n2", labels={"zone": "b", "gen": "7"}),
    a_node("n3", labels={}),
)


def test_n7_node_selector_requires_every_label() -> None:
    assert passing(AFFINITY, a_pod(node_selector={"zone": "a", "gen": "3"}), a_table(*NODES)) == ["n1"]
    assert passing(AFFINITY, a_pod(node_selector={"zone": "a", "gen": "7"}), a_table(*NODES)) == []


def test_a_pod_without_requirements_runs_everywhere() -> None:
    assert passing(AFFINITY, a_pod(), a_table(*NODES)) == ["n1", "n2", "n3"]


def test_n8_terms_are_ored_and_their_expressions_anded() -> None:
    a = a_term(expression("zone", Operator.IN, "a"), expression("gen", Operator.GT, "5"))
    b = a_term(expression("zone", Operator.DOES_NOT_EXIST))
    assert passing(AFFINITY, a_pod(required=(a, b)), a_table(*NODES)) == ["n3"]


def test_no_term_and_an_empty_term_match_nothing() -> None:
    assert passing(AFFINITY, a_pod(required=()), a_table(*NODES)) == []
    assert passing(AFFINITY, a_pod(required=(a_term(),)), a_table(*NODES)) == []


def test_n9_match_fields_name_nodes() -> None:
    by_name = [a_term(fields=(expression(NAME_FIELD, Operator.IN, name),)) for name in ("n1", "n2", "gone")]
    assert passing(AFFINITY, a_pod(required=tuple(by_name)), a_table(*NODES)) == ["n1", "n2"]


def test_n10_preferred_weights_add_up() -> None:
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


def named(*names: str) -> NodeSelectorTerm:
    return a_term(fields=tuple(expression(NAME_FIELD, Operator.IN, name) for name in names))


def test_n9_terms_that_exclude_the_nodes_that_they_name_conflict_in_kube_schedulers_words() -> None:
    pod = a_pod(required=(named("n1", "n2"), named("n2", "n3")))
    assert passing(NodeAffinityNames(), pod, a_table(*NODES)) == []
    found = reasons(NodeAffinityNames(), pod, a_table(*NODES))
    assert found == {AFFINITY_CONFLICT: 3}
    assert Diagnosis(3, found).message == "0/3 nodes are available: pod affinity terms conflict."
    one_is_possible = a_pod(required=(named("n1", "n2"), named("n2")))
    assert passing(NodeAffinityNames(), one_is_possible, a_table(*NODES)) == ["n2"]


def test_names_of_nodes_that_do_not_exist_are_no_conflict() -> None:
    assert reasons(NodeAffinityNames(), a_pod(required=(named("gone"),)), a_table(*NODES)) == {NAMES_REASON: 3}


ADDED = NodeAffinity((a_term(expression("zone", Operator.IN, "a", "b")),))


def test_terms_of_the_profile_hold_for_every_pod() -> None:
    assert passing(ADDED, a_pod(), a_table(*NODES)) == ["n1", "n2"]
    assert passing(ADDED, a_pod(node_selector={"gen": "7"}), a_table(*NODES)) == ["n2"]
    assert passing(NodeAffinity(()), a_pod(), a_table(*NODES)) == []


def test_node_counts_for_the_terms_of_the_profile_first() -> None:
    asks = a_pod(node_selector={"gen": "7"})
    assert reasons(ADDED, asks, a_table(*NODES)) == {ENFORCED_REASON: 1, REASON: 1}
    assert reasons(ADDED, a_pod(), a_table(*NODES)) == {ENFORCED_REASON: 1}


def test_node_helps_only_pods_that_profile_and_pod_allow_there() -> None:
    asks = a_pod(node_selector={"gen": "7"})
    assert [ADDED.helps(asks.spec, node) for node in NODES] == [False, True, False]
    assert [ADDED.helps(a_pod().spec, node) for node in NODES] == [True, True, False]


def test_preferred_terms_of_the_profile_add_to_those_of_the_pod() -> None:
    rule = NodeAffinity(None, (PreferredSchedulingTerm(30, a_term(expression("zone", Operator.IN, "a"))),))
    assert scores(rule, a_pod(), a_table(*NODES)) == [100, 0, 0]
    own = (PreferredSchedulingTerm(60, a_term(expression("zone", Operator.IN, "b"))),)
    assert scores(rule, a_pod(preferred=own), a_table(*NODES)) == [50, 100, 0]


@pytest.mark.parametrize(
    ("operator", "bound", "passes"),
    [
        (Operator.GT, "3", ["n2", "n5"]),
        (Operator.LT, "7", ["n1", "n5"]),
        (Operator.GT, "-5", []),
        (Operator.GT, "0", ["n1", "n2", "n5"]),
        (Operator.LT, "many", []),
    ],
)
def test_numbers_are_compared_as_whole_numbers_and_other_labels_match_nothing(
    operator: Operator, bound: str, passes: list[str]
) -> None:
    others = (a_node("text", labels={"gen": "7b"}), a_node("none"), a_node("float", labels={"gen": "7.5"}))
    table = a_table(*NODES[:2], a_node("n5", labels={"gen": "5"}), *others)
    assert passing(AFFINITY, a_pod(required=(a_term(expression("gen", operator, bound)),)), table) == passes
