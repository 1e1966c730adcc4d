"""What-if on the live table: place, evict, then commit or put back.

Laws:
- There is no other "does it fit": preemption, gangs, plan and explain all try here.
- Amounts are exact integers, so taking a step back restores the row to the last bit.
- A trial that is dropped without commit puts everything back (use it as a context manager).
"""

from types import TracebackType
from typing import Self

from aischeduler.model.pod import PodSpec
from aischeduler.state.nodes import NodeTable


class Trial:
    """One what-if. Nothing else may change the table while it is open."""

    def __init__(self, nodes: NodeTable) -> None:
        self.nodes = nodes
        self._steps: list[tuple[bool, PodSpec, int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.put_back()

    def place(self, spec: PodSpec, row: int) -> None:
        """Count a pod on the row, as if it were bound there."""
        self.nodes.add(spec, row)
        self._steps.append((True, spec, row))

    def evict(self, spec: PodSpec, row: int) -> None:
        """Count a pod on the row no more, as if it were gone."""
        self.nodes.remove(spec, row)
        self._steps.append((False, spec, row))

    def mark(self) -> int:
        """Return a mark to which `put_back` can return."""
        return len(self._steps)

    def put_back(self, mark: int = 0) -> None:
        """Undo every step after the mark, the last one first."""
        while len(self._steps) > mark:
            placed, spec, row = self._steps.pop()
            if placed:
                self.nodes.remove(spec, row)
            else:
                self.nodes.add(spec, row)

    def commit(self) -> None:
        """Make the steps so far final."""
        self._steps.clear()
