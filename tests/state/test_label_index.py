from hypothesis import given
from hypothesis import strategies as st

from aischeduler.model.selectors import NAME_FIELD, NodeSelectorTerm, Operator, Requirement
from aischeduler.state.label_index import LabelIndex, RowIndex, term_mask

WIDTH = 8
LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["", "1", "2", "10", "x"]), max_size=3)
REQUIREMENTS = st.one_of(
    st.builds(
        Requirement,
        st.sampled_from("abc"),
        st.sampled_from([Operator.IN, Operator.NOT_IN]),
        st.lists(st.sampled_from(["", "1", "x"]), min_size=1).map(tuple),
    ),
    st.builds(Requirement, st.sampled_from("abc"), st.sampled_from([Operator.EXISTS, Operator.DOES_NOT_EXIST])),
    st.builds(Requirement, st.sampled_from("abc"), st.sampled_from([Operator.GT, Operator.LT]), st.just(("1",))),
)


@given(st.lists(st.tuples(st.integers(0, WIDTH - 1), LABELS), max_size=20), REQUIREMENTS)
def test_a_mask_equals_matching_the_labels_of_each_row(
    changes: list[tuple[int, dict[str, str]]], requirement: Requirement
) -> None:
    index = LabelIndex(WIDTH)
    labels: list[dict[str, str]] = [{} for _ in range(WIDTH)]
    for row, new in changes:
        index.change(row, labels[row], new)
        labels[row] = new
        assert index.mask(requirement).tolist() == [requirement.matches(have) for have in labels]


def test_a_built_mask_follows_its_rows() -> None:
    index: RowIndex[str] = RowIndex(4)
    index.put("v", 2)
    assert index.mask("v").tolist() == [False, False, True, False]
    index.drop("v", 2)
    assert not index.mask("v").any()
    assert index.values() == ()


def test_a_term_may_name_nodes_that_do_not_exist() -> None:
    index = LabelIndex(3)
    term = NodeSelectorTerm((), (Requirement(NAME_FIELD, Operator.IN, ("n1", "gone")),))
    assert term_mask(term, index, {"n0": 0, "n1": 1}).tolist() == [False, True, False]
    excluded = NodeSelectorTerm((), (Requirement(NAME_FIELD, Operator.NOT_IN, ("n1",)),))
    assert term_mask(excluded, index, {"n0": 0, "n1": 1}).tolist() == [True, False, True]
