"""The rows of all pools, grouped, for sums over the nodes of every pool."""

from typing import Final

import numpy as np
import numpy.typing as npt

from aischeduler.state.label_index import Mask, Rows
from aischeduler.state.requests import Amounts

NO_POOL: Final = -1
"""The number of a row in no pool."""


class PoolRows:
    """The `rows` of all pools, grouped by pool; `numbers` are the pools that have rows, ascending.

    Sums over a pool's rows are exact int64.
    """

    def __init__(self, pool: npt.NDArray[np.int32], alive: Mask) -> None:
        rows = np.flatnonzero(alive & (pool != NO_POOL))
        self.rows: Rows = rows[np.argsort(pool[rows], kind="stable")]
        self.numbers, self._starts = np.unique(pool[self.rows], return_index=True)
        self.places = {number: place for place, number in enumerate(self.numbers.tolist())}

    def sums(self, column: Amounts) -> Amounts:
        """Return the sums of a column (or of several) over the rows of each pool; the last axis follows `numbers`."""
        return np.add.reduceat(column[..., self.rows], self._starts, axis=-1, dtype=np.int64)

    def any(self, mask: Mask) -> Mask:
        """Return for each pool whether the mask is True on one of its rows."""
        return np.logical_or.reduceat(mask[self.rows], self._starts)
