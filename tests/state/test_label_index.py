from hypothesis import given
from hypothesis import strategies as st

from aischeduler.model.selectors import NAME_FIELD, NodeSelectorTerm, Operator, Requirement
from aischeduler.state.label_index import NO_VALUE, NUMBERS_MAX, READ_MAX, LabelIndex, RowIndex, term_mask

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


@given(st.lists(st.tuples(st.integers(0, WIDTH - 1), LABELS, st.sampled_from("abcd")), max_size=20))
def test_what_is_kept_of_labels_holds_for_its_version(changes: list[tuple[int, dict[str, str], str]]) -> None:
    index = LabelIndex(WIDTH)
    labels: list[dict[str, str]] = [{} for _ in range(WIDTH)]
    kept: dict[str, tuple[int, list[object]]] = {}
    for row, new, key in changes:
        index.change(row, labels[row], new)
        labels[row] = new
        for read, (version, values) in kept.items():
            if version == index.version:
                assert values == [have.get(read) for have in labels], read
        now, names = index.version, index.values(key)
        kept[key] = now, [None if at == NO_VALUE else names[at] for at in index.numbers(key).tolist()]


def test_a_label_that_nothing_read_changes_no_version() -> None:
    index = LabelIndex(WIDTH)
    index.change(0, {}, {"zone": "x", "time": "1"})
    numbers, version = index.numbers("zone"), index.version
    index.change(0, {"zone": "x", "time": "1"}, {"zone": "x", "time": "2"})
    assert index.version == version
    assert index.numbers("zone") is numbers
    index.change(0, {"zone": "x", "time": "2"}, {"zone": "y", "time": "2"})
    assert index.version == version + 1


def test_a_key_that_comes_changes_the_version_where_all_keys_were_listed() -> None:
    index = LabelIndex(WIDTH)
    index.change(0, {}, {"a": "1"})
    before, _ = index.version, index.keys()
    index.change(0, {"a": "1"}, {"a": "2"})
    assert index.version == before
    index.change(0, {"a": "2"}, {"a": "2", "b": "1"})
    assert index.version == before + 1


def test_keys_that_were_read_and_their_numbers_are_forgotten_at_a_limit_with_a_new_version() -> None:
    index = LabelIndex(WIDTH)
    for number in range(2 * READ_MAX):
        index.having_key(f"unique-{number}")
        index.numbers(f"unique-{number % (2 * NUMBERS_MAX)}")
    assert len(index._read) <= READ_MAX
    assert len(index._numbers) <= NUMBERS_MAX
    assert index.version > 0
