import pytest

from aischeduler.model.selectors import (
    NAME_FIELD,
    NodeSelectorTerm,
    Operator,
    Requirement,
    SelectorError,
    label_requirement,
    label_selector,
    node_requirement,
    readable_requirement,
)


@pytest.mark.parametrize(
    ("operator", "values", "labels", "matches"),
    [
        (Operator.IN, ("a", "b"), {"k": "b"}, True),
        (Operator.IN, ("a",), {}, False),
        (Operator.NOT_IN, ("a",), {"k": "a"}, False),
        (Operator.NOT_IN, ("a",), {}, True),
        (Operator.EXISTS, (), {"k": ""}, True),
        (Operator.DOES_NOT_EXIST, (), {"k": ""}, False),
        (Operator.GT, ("3",), {"k": "4"}, True),
        (Operator.GT, ("3",), {"k": "x"}, False),
        (Operator.LT, ("3",), {"k": "-1"}, True),
        (Operator.LT, ("3",), {}, False),
    ],
)
def test_requirements_match_as_their_operators_say(
    operator: Operator, values: tuple[str, ...], labels: dict[str, str], matches: bool
) -> None:
    assert Requirement("k", operator, values).matches(labels) is matches


def test_an_empty_selector_matches_everything_and_an_empty_term_nothing() -> None:
    assert label_selector("spec.nodeSelector", {}, ()).matches({})
    assert not NodeSelectorTerm().matches("n", {})


def test_a_selector_is_shown_as_kubectl_accepts_it_and_a_long_one_is_cut() -> None:
    expressions = (
        Requirement("a", Operator.IN, ("x", "y")),
        Requirement("b", Operator.NOT_IN, ("x",)),
        Requirement("c", Operator.NOT_IN, ("x", "y")),
        Requirement("d", Operator.EXISTS),
        Requirement("e", Operator.DOES_NOT_EXIST),
        Requirement("f", Operator.IN, tuple("0123456789")),
    )
    text = "label=v,a in (x,y),b!=x,c notin (x,y),d,!e,f in (0,1,2,3,4,5,6,7 and 2 more)"
    assert str(label_selector("spec.nodeSelector", {"label": "v"}, expressions)) == text
    assert str(label_selector("spec.nodeSelector", {f"k{number}": "" for number in range(10)}, ())).endswith(
        "k7= and 2 more"
    )
    assert str(label_selector("spec.nodeSelector", {}, ())) == "{}"
    assert [str(Requirement("g", one, ("3",))) for one in (Operator.GT, Operator.LT)] == ["g>3", "g<3"]


def test_a_term_ands_labels_and_the_name() -> None:
    term = NodeSelectorTerm((Requirement("k", Operator.EXISTS),), (Requirement(NAME_FIELD, Operator.IN, ("n1",)),))
    assert term.matches("n1", {"k": "v"})
    assert not term.matches("n2", {"k": "v"})
    assert not term.matches("n1", {})


@pytest.mark.parametrize(
    ("key", "operator", "values", "says"),
    [
        ("k", "Maybe", ("v",), r"f\.operator: 'Maybe' is not one of In, "),
        ("bad key", "Exists", (), r"f\.key: 'bad key'"),
        ("k", "In", (), "needs at least one value"),
        ("k", "Exists", ("v",), "takes no values"),
        ("k", "In", ("not ok",), "'not ok' is not a label value"),
        ("k", "Gt", (), "needs at least one value"),
        ("k", "Lt", ("1", "2"), "exactly one value"),
    ],
)
def test_an_invalid_expression_is_refused_with_its_field(
    key: str, operator: str, values: tuple[str, ...], says: str
) -> None:
    with pytest.raises(SelectorError, match=says):
        node_requirement("f", key, operator, values)


@pytest.mark.parametrize("bound", ["many", "", "9.5", "-5", "+5", "9223372036854775808", "1_0", "٣"])
@pytest.mark.parametrize("operator", ["Gt", "Lt"])
def test_nothing_is_above_or_below_a_bound_that_is_no_integer_without_a_sign(operator: str, bound: str) -> None:
    requirement = node_requirement("f", "k", operator, (bound,))
    assert not any(requirement.matches({"k": value}) for value in ("0", "3", bound, "9223372036854775807"))
    with pytest.raises(SelectorError, match=r"^f\.values: .. takes exactly one integer$"):
        readable_requirement("f", "k", operator, (bound,))


def test_bounds_are_integers_of_64_bits() -> None:
    most = readable_requirement("f", "k", "Lt", ("9223372036854775807",))
    assert most.matches({"k": "9223372036854775806"})
    assert not most.matches({"k": "9223372036854775807"})
    assert not most.matches({"k": "-9223372036854775809"}), "it has more than 64 bits"
    assert readable_requirement("f", "k", "Lt", ("0" * 40 + "9",)).matches({"k": "8"})


def test_label_selectors_have_no_comparison() -> None:
    with pytest.raises(SelectorError, match=r"f\.operator: 'Gt' is not one of In, NotIn, Exists, DoesNotExist$"):
        label_requirement("f", "k", "Gt", ("1",))


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("a b", "c", r"^f\.matchLabels: 'a b' is not a label key"),
        ("team/x", "a b", r"^f\.matchLabels\.team/x: 'a b' is not a label value"),
    ],
)
def test_wrong_label_is_named_and_not_the_parts_of_an_expression(key: str, value: str, says: str) -> None:
    with pytest.raises(SelectorError, match=says):
        label_selector("f", {key: value}, ())
