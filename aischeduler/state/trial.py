"""A trial on the live node table: place and evict pods, then commit or undo.

Invariants:
- Amounts are exact integers, so that undoing a step restores the row exactly.
- A trial that ends without commit undoes every step (use it as a context manager).
"""

from collections.abc import Iterable
from types import TracebackType
from typing import Self

from aischeduler.model.pod import PodSpec
from aischeduler.state.nodes import NodeTable


class Trial:
    """One trial. Nothing else may change the table while it is open."""

    def __init__(self, nodes: NodeTable) -> None:
        self.nodes = nodes
        self._steps: list[tuple[bool, PodSpec, list[int]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.put_back()

    def place(self, spec: PodSpec, row: int) -> None:
        """Add a pod to the row, as if it were bound there."""
        self.nodes.add(spec, row)
        self._steps.append((True, spec, [row]))

    def evict(self, spec: PodSpec, row: int) -> None:
        """Remove a pod from the row, as if it were gone."""
        self.nodes.remove(spec, row)
        self._steps.append((False, spec, [row]))

    def evict_all(self, pods: Iterable[tuple[PodSpec, int]]) -> None:
        """Remove many pods from their rows, pods of one class in one step."""
        alike: dict[bytes, tuple[PodSpec, list[int]]] = {}
        for spec, row in pods:
            alike.setdefault(spec.key, (spec, []))[1].append(row)
        for spec, rows in alike.values():
            self.nodes.remove_all(spec, rows)
            self._steps.append((False, spec, rows))

    def mark(self) -> int:
        """Return a mark for `put_back`."""
        return len(self._steps)

    def put_back(self, mark: int = 0) -> None:
        """Undo every step after the mark, the last step first."""
        while len(self._steps) > mark:
            placed, spec, rows = self._steps.pop()
            if placed:
                self.nodes.remove_all(spec, rows)
            else:
                self.nodes.add_all(spec, rows)

    def commit(self) -> None:
        """Make all steps final."""
        self._steps.clear()
