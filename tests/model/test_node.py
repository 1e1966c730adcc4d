"""Which changes of a node keep all that fitted there."""

import pytest

from aischeduler.model.node import Node, only_opens
from tests.build import a_node, a_taint, replace

SICK = replace(a_node("a"), taints=(a_taint("sick"),), unschedulable=True)


@pytest.mark.parametrize(
    ("after", "opens"),
    [
        pytest.param(replace(SICK, taints=()), True, id="loses a taint"),
        pytest.param(replace(SICK, unschedulable=False), True, id="loses its cordon"),
        pytest.param(replace(SICK, taints=(a_taint("other"),)), False, id="gets another taint"),
        pytest.param(replace(SICK, taints=(), labels={"zone": "b"}), False, id="changes a label too"),
        pytest.param(replace(SICK, taints=(), allocatable={}), False, id="shrinks too"),
    ],
)
def test_what_fitted_on_a_node_still_fits_where_it_only_loses_taints_or_its_cordon(after: Node, opens: bool) -> None:
    assert only_opens(SICK, after) == opens


def test_node_that_is_cordoned_opens_nothing() -> None:
    assert not only_opens(a_node("a"), replace(a_node("a"), unschedulable=True))
