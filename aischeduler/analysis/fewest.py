"""The fewest things that together are enough of everything."""

from typing import Final

import numpy as np

from aischeduler.state.requests import Amounts

STEPS_MAX: Final = 20_000
"""The most choices that one search makes; beyond that it gives up."""


def fewest(missing: list[int], frees: list[list[int]]) -> list[int] | None:
    """Return the fewest numbers i with sum(frees[d][i]) >= missing[d] for each d, ascending, the first such set.

    None where all together are not enough, or the search needs more than `STEPS_MAX` steps.
    """
    amounts = np.array(frees, dtype=np.int64)
    need = np.array(missing, dtype=np.int64)
    if (amounts.sum(axis=1) < need).any():
        return None
    search = _Search(amounts, need)
    largest = np.cumsum(-np.sort(-amounts, axis=1), axis=1)
    size = int(np.max(np.count_nonzero(largest < need[:, None], axis=1))) + 1
    while size <= amounts.shape[1] and search.steps < STEPS_MAX:
        found = search.of_size(size)
        if found is not None:
            return found
        size += 1
    return None


class _Search:
    """A search for a set of a given size, in the order of its numbers."""

    def __init__(self, amounts: Amounts, need: Amounts) -> None:
        self.steps = 0
        self._amounts = amounts
        self._need = need
        self._most: dict[int, Amounts] = {}

    def of_size(self, size: int) -> list[int] | None:
        """Return the first set of this size that is enough; None where there is none, or the search gives up."""
        return self._choose(0, size, self._need)

    def _choose(self, first: int, left: int, need: Amounts) -> list[int] | None:
        """Return `left` numbers from `first` on that free `need`."""
        self.steps += 1
        if (need <= 0).all():
            return []
        if not left or first == self._amounts.shape[1] or self.steps > STEPS_MAX:
            return None
        if (self._most_from(first)[:, :left].max(axis=1) < need).any():
            return None
        taken = self._choose(first + 1, left - 1, need - self._amounts[:, first])
        return [first, *taken] if taken is not None else self._choose(first + 1, left, need)

    def _most_from(self, first: int) -> Amounts:
        """Return per resource the most that 1, 2, ... of the numbers from `first` on free."""
        most = self._most.get(first)
        if most is None:
            most = self._most[first] = np.cumsum(-np.sort(-self._amounts[:, first:], axis=1), axis=1)
        return most
