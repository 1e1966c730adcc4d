"""The pods of one count by the domains of a node label: one domain for each value, over all pools."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from aischeduler.state.label_index import NO_VALUE, Mask, Rows

Numbers = npt.NDArray[np.int64]


class DomainCounts:
    """The numbers of `pods` and of owners of `claims` by domain; rows without the label are in the last, empty one.

    `of_row` has the number of the domain of each row, -1 without the label: as an index it is that of the last domain.
    With `counted`, a mask over all rows, only the pods of its rows count.
    """

    def __init__(
        self, of_row: Rows, pods: Mapping[int, int], claims: Mapping[int, int], counted: Mask | None = None
    ) -> None:
        self.of_row, self.counted = of_row, counted
        self._counted_in: Rows = of_row if counted is None else np.where(counted, of_row, NO_VALUE)
        domains = int(of_row.max(initial=-1)) + 2
        self.pods: Numbers = np.zeros(domains, dtype=np.int64)
        self.claims: Numbers = np.zeros(domains, dtype=np.int64)
        for total, numbers in ((self.pods, pods), (self.claims, claims)):
            if numbers:
                rows = np.fromiter(numbers.keys(), dtype=np.intp, count=len(numbers))
                amounts = np.fromiter(numbers.values(), dtype=np.int64, count=len(numbers))
                np.add.at(total, self._counted_in[rows], amounts)
            total[-1] = 0

    def is_of(self, of_row: Rows, counted: Mask | None) -> bool:
        """Return whether these are the domains of such rows, of which the same count."""
        if self.of_row is not of_row or counted is None or self.counted is None:
            return self.of_row is of_row and self.counted is counted
        return np.array_equal(self.counted, counted)

    def change(self, row: int, by: int, *, claims: bool) -> None:
        """Add to the domain of a row; a table that has grown since needs new domains anyway."""
        if row < len(self._counted_in) and self._counted_in[row] >= 0:
            (self.claims if claims else self.pods)[self._counted_in[row]] += by
