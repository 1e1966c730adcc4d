"""Some rows of the node table as they are at this moment: what rules are asked about.

Law: it stands for one moment. Whoever changes the table takes a new one.
"""

from aischeduler.state.index import Rows
from aischeduler.state.nodes import Column, NodeTable


class Excerpt:
    """The `rows` of a table; a row may stand there twice. Amounts are read once, however many rules look at them.

    With `used` [column, one of rows] that counts as in use on the rows, in place of what is.
    """

    __slots__ = ("_allocatable", "_left", "_scored", "_used", "nodes", "rows")

    def __init__(self, nodes: NodeTable, rows: Rows, used: Column | None = None) -> None:
        self.nodes = nodes
        self.rows = rows
        self._allocatable: Column | None = None
        self._used = used
        self._left: Column | None = None
        self._scored: Column | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def allocatable(self) -> Column:
        """What the nodes have for pods, [column, one of rows]."""
        if self._allocatable is None:
            self._allocatable = self.nodes.allocatable.take(self.rows, axis=1)
        return self._allocatable

    @property
    def used(self) -> Column:
        """What pods and claims ask for, [column, one of rows]."""
        if self._used is None:
            self._used = self.nodes.used.take(self.rows, axis=1)
        return self._used

    @property
    def left(self) -> Column:
        """What is left, [column, one of rows]; below zero where claims are counted beside those who leave."""
        if self._left is None:
            self._left = self.allocatable - self.used
        return self._left

    @property
    def scored(self) -> Column:
        """CPU and memory in use as scores count them, [one of both, one of rows]."""
        if self._scored is None:
            self._scored = self.nodes.scored.take(self.rows, axis=1)
        return self._scored
