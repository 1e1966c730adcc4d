"""The sets of numbers that are enough of everything, the smallest first, against brute force."""

from collections.abc import Iterator
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from aischeduler.analysis.fewest import fewest_first

AMOUNTS = st.integers(0, 5)


def brute(missing: list[int], frees: list[list[int]]) -> Iterator[list[int]]:
    count = len(frees[0])
    for size in range(1, count + 1):
        for chosen in combinations(range(count), size):
            if all(sum(free[i] for i in chosen) >= need for need, free in zip(missing, frees, strict=True)):
                yield list(chosen)


@given(st.integers(1, 3), st.integers(1, 7), st.data())
def test_every_set_is_found_in_order(kinds: int, count: int, data: st.DataObject) -> None:
    frees = [data.draw(st.lists(AMOUNTS, min_size=count, max_size=count)) for _ in range(kinds)]
    missing = data.draw(st.lists(st.integers(1, 9), min_size=kinds, max_size=kinds))
    assert list(fewest_first(missing, frees)) == list(brute(missing, frees))


def test_many_equal_pods_are_chosen_at_once() -> None:
    assert next(fewest_first([60], [[1] * 110])) == list(range(60))


def test_search_that_takes_too_many_steps_gives_up() -> None:
    one = [(i * 7_919_113) % 1_000_003 for i in range(40)]
    other = [1_000_003 - amount for amount in one]  # five numbers are enough of both only if their sum is exact
    assert not list(fewest_first([2_500_000, 5 * 1_000_003 - 2_500_000], [one, other]))
