"""The rows of the node table that plugins read.

Invariant: a view is valid until the table changes; after a change, make a new one.
"""

from functools import lru_cache
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from aischeduler.state.counted_pods import Counted
from aischeduler.state.label_index import Rows
from aischeduler.state.node_table import Column, NodeTable

Values = TypeVar("Values", bound=npt.NDArray[Any])


@lru_cache(maxsize=4)
def every_row(width: int) -> Rows:
    """Return the numbers of all rows of a table, which cannot be written."""
    rows = np.arange(width, dtype=np.intp)
    rows.setflags(write=False)
    return rows


class NodeView:
    """Some `rows` of a table; a row may occur twice. Amounts are read once for all plugins.

    With `used` [column, one of rows], that counts as in use instead of what the table has.
    """

    __slots__ = ("_allocatable", "_every", "_left", "_scored", "_used", "nodes", "rows")

    def __init__(self, nodes: NodeTable, rows: Rows, used: Column | None = None) -> None:
        self.nodes = nodes
        self.rows = rows
        self._every = False
        self._allocatable: Column | None = None
        self._used = used
        self._left: Column | None = None
        self._scored: Column | None = None

    @classmethod
    def everywhere(cls, nodes: NodeTable) -> Self:
        """Return a view of all rows."""
        view = cls(nodes, every_row(nodes.width))
        view._every = True
        return view

    def __len__(self) -> int:
        return len(self.rows)

    def pick(self, values: Values) -> Values:
        """Return what a vector over the whole table has for these rows; do not write it."""
        return values if self._every else values.take(self.rows)  # type: ignore[return-value]

    @property
    def allocatable(self) -> Column:
        """The allocatable amounts, [column, one of rows]."""
        if self._allocatable is None:
            self._allocatable = self.nodes.allocatable.take(self.rows, axis=1)
        return self._allocatable

    @property
    def used(self) -> Column:
        """The requests of pods and claims, [column, one of rows]."""
        if self._used is None:
            self._used = self.nodes.used.take(self.rows, axis=1)
        return self._used

    @property
    def left(self) -> Column:
        """The free amounts, [column, one of rows]; below zero where claims count beside pods that are leaving."""
        if self._left is None:
            self._left = self.allocatable - self.used
        return self._left

    @property
    def scored(self) -> Column:
        """The CPU and memory in use as scores count them, [CPU or memory, one of rows]."""
        if self._scored is None:
            self._scored = self.nodes.scored.take(self.rows, axis=1)
        return self._scored

    def counted(self, by: Counted) -> npt.NDArray[np.int64]:
        """Return how many pods count on each row, as long as the view: owners of claims too, removed victims not.

        `by` is what a cross-row rule counts for a pod. It takes time for each row with such a pod.
        """
        counts = self.nodes.pod_counts
        there = np.zeros(self.nodes.width, dtype=np.int64)
        for numbers in (counts.of(by).rows, counts.of(by).claimed):
            rows = np.fromiter(numbers.keys(), dtype=np.intp, count=len(numbers))
            there[rows] += np.fromiter(numbers.values(), dtype=np.int64, count=len(numbers))
        if counts.apart is not None and by in counts.apart:
            there -= counts.apart[by]
        return there.take(self.rows)
