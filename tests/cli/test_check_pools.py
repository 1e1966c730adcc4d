"""Which selectors leave another pool no node of its own."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aischeduler.cli.check import implies
from aischeduler.model.selectors import LabelSelector, Operator, Requirement

KEYS, VALUES = ("a", "b"), ("x", "y", "z")
NAMED = st.lists(st.sampled_from(VALUES[:2]), min_size=1, unique=True).map(tuple)
REQUIREMENTS = st.one_of(
    st.builds(Requirement, st.sampled_from(KEYS), st.sampled_from([Operator.IN, Operator.NOT_IN]), NAMED),
    st.builds(Requirement, st.sampled_from(KEYS), st.sampled_from([Operator.EXISTS, Operator.DOES_NOT_EXIST])),
)
SELECTORS = st.lists(REQUIREMENTS, max_size=4).map(lambda found: LabelSelector(tuple(found)))
NODES = [
    {key: value for key, value in zip(KEYS, values, strict=True) if value}
    for values in itertools.product((*VALUES, ""), repeat=len(KEYS))
]
"""Every node that selectors over these keys and values can tell apart: z stands for all values that nobody names."""


@given(SELECTORS, SELECTORS)
def test_implied_is_exactly_what_holds_on_all_nodes(selector: LabelSelector, other: LabelSelector) -> None:
    selected = [node for node in NODES if selector.matches(node)]
    assert implies(selector, other) == (bool(selected) and all(other.matches(node) for node in selected))


@pytest.mark.parametrize("selector", [LabelSelector(()), LabelSelector((Requirement("a", Operator.EXISTS),))])
def test_selector_of_everything_is_implied_by_all(selector: LabelSelector) -> None:
    assert implies(selector, LabelSelector(()))
