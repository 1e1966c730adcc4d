"""The sets of things that together are enough of everything, the smallest first."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from aischeduler.state.requests import Amounts

STEPS_MAX: Final = 20_000
"""The most choices that one search makes; beyond that it gives up."""


def fewest_first(missing: list[int], frees: list[list[int]]) -> Iterator[list[int]]:
    """Yield the sets of numbers i with sum(frees[d][i]) >= missing[d] for each d.

    Smaller sets come first; of one size, those with smaller numbers. The numbers of a set ascend. Ends early where the
    search needs more than `STEPS_MAX` steps.
    """
    amounts = np.array(frees, dtype=np.int64)
    need = np.array(missing, dtype=np.int64)
    if (amounts.sum(axis=1) < need).any():
        return
    search = _Search(amounts)
    largest = np.cumsum(-np.sort(-amounts, axis=1), axis=1)
    least = int(np.max(np.count_nonzero(largest < need[:, None], axis=1))) + 1
    for size in range(least, amounts.shape[1] + 1):
        yield from search.choose(0, size, need)


class _Search:
    """A search for the sets of a given size, in the order of their numbers."""

    def __init__(self, amounts: Amounts) -> None:
        self._steps = 0
        self._amounts = amounts
        self._most: dict[int, Amounts] = {}

    def choose(self, first: int, left: int, need: Amounts) -> Iterator[list[int]]:
        """Yield each `left` numbers from `first` on that free `need`."""
        self._steps += 1
        if not left:
            if (need <= 0).all():
                yield []
            return
        if first == self._amounts.shape[1] or self._steps > STEPS_MAX:
            return
        most = self._most_from(first)
        if left > most.shape[1] or (most[:, left - 1] < need).any():
            return
        for taken in self.choose(first + 1, left - 1, need - self._amounts[:, first]):
            yield [first, *taken]
        yield from self.choose(first + 1, left, need)

    def _most_from(self, first: int) -> Amounts:
        """Return per resource the most that 1, 2, ... of the numbers from `first` on free."""
        most = self._most.get(first)
        if most is None:
            most = self._most[first] = np.cumsum(-np.sort(-self._amounts[:, first:], axis=1), axis=1)
        return most
