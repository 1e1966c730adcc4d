"""What terms of affinity read of pods, and the classes into which that divides them."""

from hypothesis import given
from hypothesis import strategies as st

from aischeduler.model.pod_affinity import CarriedKind, CarriedTerm
from aischeduler.model.selectors import Labels
from aischeduler.state.carried_terms import CarriedTerms
from tests.affinity_terms import term

SELECTORS = ["a=1", "a=1|2", "a!=1", "a", "!a", "b=1,a!=2", "", None]
TERMS = st.builds(
    lambda pods, names, among: CarriedTerm(CarriedKind.ANTI_AFFINITY, term("zone", pods, *names, among=among)),
    st.sampled_from(SELECTORS),
    st.sampled_from([("x",), ("y",), ("x", "y")]),
    st.sampled_from([None, None, "team=yes"]),
)
PODS = st.tuples(
    st.sampled_from(["x", "y", "z"]),
    st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", "2", "3", ""]), max_size=3),
)
NAMESPACES: dict[str, Labels] = {"x": {}, "y": {"team": "yes"}, "z": {"team": "no"}}


def selected(term: CarriedTerm, namespace: str, labels: Labels) -> bool:
    return term.term.selects(namespace, labels, NAMESPACES, unseen=True)


@given(st.lists(TERMS, unique=True, max_size=4), st.lists(TERMS, unique=True, max_size=4), st.lists(PODS, max_size=8))
def test_a_term_selects_all_pods_of_a_class_or_none(
    known: list[CarriedTerm], came: list[CarriedTerm], pods: list[tuple[str, dict[str, str]]]
) -> None:
    terms = CarriedTerms(NAMESPACES)
    for one in known:
        terms.add(one)
    new = terms.new_reads(came)
    classes: dict[object, list[tuple[str, Labels]]] = {}
    for namespace, labels in pods:
        read = terms.class_of(namespace, labels, new)
        classes.setdefault(None if read is None else (namespace, read), []).append((namespace, labels))
        for one in (*known, *came):
            of_class = read is not None and selected(one, namespace, dict(read))
            assert of_class == selected(one, namespace, labels), "a class stands for its pods"
    for alike in classes.values():
        for one in (*known, *came):
            assert len({selected(one, *pod) for pod in alike}) == 1
    for one in came:
        if one not in known:
            terms.add(one)
    assert [terms.class_of(*pod) for pod in pods] == [terms.class_of(*pod, new) for pod in pods]
    assert not terms.new_reads(came)


@given(st.lists(TERMS, unique=True, max_size=4))
def test_terms_that_are_gone_divide_nothing(known: list[CarriedTerm]) -> None:
    terms = CarriedTerms(NAMESPACES)
    for one in known:
        terms.add(one)
    for one in known:
        terms.drop(one)
    assert not terms.divide
    assert terms.class_of("x", {"a": "1"}) is None
