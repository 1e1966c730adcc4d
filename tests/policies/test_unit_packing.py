"""Packing finds rows for all pods wherever some way of placing them fits."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aischeduler.policies.unit_packing import Kind, Places, pack, preferring
from tests import packing_oracle

AMOUNTS = st.tuples(st.integers(0, 5), st.integers(0, 2))
ROWS = st.lists(AMOUNTS, min_size=1, max_size=4)
KINDS = st.lists(st.tuples(AMOUNTS.filter(any), st.integers(1, 3)), min_size=1, max_size=3)


def a_kind(*asked: int, count: int, rows: int, allowed: tuple[int, ...] | None = None) -> Kind:
    """Return pods that may run on all rows, or on the `allowed` ones."""
    mask = np.zeros(rows, dtype=np.bool_)
    mask[list(range(rows) if allowed is None else allowed)] = True
    return Kind(np.array(asked, dtype=np.int64), mask, count)


def places(*rows: tuple[int, ...], preferred: tuple[int, ...] = ()) -> Places:
    """Return rows with this room, in the order of their names."""
    ranks = np.arange(len(rows), dtype=np.int64)
    return Places(np.array(rows, dtype=np.int64).T, np.array(preferred or [0] * len(rows), dtype=np.int64), ranks)


@given(rows=ROWS, kinds=KINDS)
def test_way_is_found_exactly_where_there_is_one(
    rows: list[tuple[int, int]], kinds: list[tuple[tuple[int, int], int]]
) -> None:
    found = pack([a_kind(*asked, count=count, rows=len(rows)) for asked, count in kinds], places(*rows))
    pods = [asked for asked, count in kinds for _ in range(count)]
    assert (found is not None) == packing_oracle.fits(rows, pods)
    if found is not None:
        assert [len(one) for one in found] == [count for _, count in kinds]
        left = [np.array(room) for room in rows]
        for (asked, _), taken in zip(kinds, found, strict=True):
            for row in taken:
                left[row] = left[row] - asked
        assert all((room >= 0).all() for room in left)


def test_row_that_few_others_can_use_comes_first() -> None:
    small, card = a_kind(1, 0, count=1, rows=2), a_kind(1, 1, count=1, rows=2)
    assert pack([small, card], places((1, 1), (1, 0))) == [[1], [0]]


def test_preferred_rows_come_first_where_others_can_use_all() -> None:
    assert pack([a_kind(1, count=2, rows=3)], places((2,), (1,), (3,), preferred=(2, 1, 0))) == [[2, 2]]
    assert pack([a_kind(1, count=2, rows=3)], places((2,), (1,), (3,), preferred=(1, 0, 2))) == [[1, 0]]


def test_row_that_is_not_allowed_takes_no_pod() -> None:
    assert pack([a_kind(1, count=1, rows=2, allowed=())], places((9,), (9,))) is None
    assert pack([a_kind(1, count=1, rows=2, allowed=(1,))], places((9,), (9,))) == [[1]]


def test_row_with_less_than_nothing_left_takes_no_pod_that_asks_for_it() -> None:
    assert pack([a_kind(1, 0, count=1, rows=2)], places((-1, 4), (1, -4))) == [[1]]


def test_search_ends_where_its_looks_are_spent() -> None:
    """Sixty pods of growing size, each of which fits on some row, and all of which ask for more than there is."""
    kinds = [a_kind(11 + number, 1, count=1, rows=40) for number in range(60)]
    rows = [(29 + number % 7, 2) for number in range(40)]
    assert pack(kinds, places(*rows)) is None


def test_rows_that_are_not_in_the_order_come_last() -> None:
    assert preferring([7, 3], np.array([3, 5, 7])).tolist() == [1, 2, 0]
    assert preferring([], np.array([3, 5])).tolist() == [0, 0]
