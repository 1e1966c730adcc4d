"""What-if on the live table: place, evict, then commit or put back.

Laws:
- There is no other "does it fit": preemption, gangs, plan and explain all try here.
- Amounts are exact integers, so taking a step back restores the row to the last bit.
- A trial that is dropped without commit puts everything back (use it as a context manager).
"""

from collections.abc import Iterable
from types import TracebackType
from typing import Self

from aischeduler.model.pod import PodSpec
from aischeduler.state.nodes import NodeTable


class Trial:
    """One what-if. Nothing else may change the table while it is open."""

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
        """Count a pod on the row, as if it were bound there."""
        self.nodes.add(spec, row)
        self._steps.append((True, spec, [row]))

    def evict(self, spec: PodSpec, row: int) -> None:
        """Count a pod on the row no more, as if it were gone."""
        self.nodes.remove(spec, row)
        self._steps.append((False, spec, [row]))

    def evict_all(self, pods: Iterable[tuple[PodSpec, int]]) -> None:
        """Count many pods on their rows no more, those that are alike together."""
        alike: dict[bytes, tuple[PodSpec, list[int]]] = {}
        for spec, row in pods:
            alike.setdefault(spec.key, (spec, []))[1].append(row)
        for spec, rows in alike.values():
            self.nodes.remove_all(spec, rows)
            self._steps.append((False, spec, rows))

    def mark(self) -> int:
        """Return a mark to which `put_back` can return."""
        return len(self._steps)

    def put_back(self, mark: int = 0) -> None:
        """Undo every step after the mark, the last one first."""
        while len(self._steps) > mark:
            placed, spec, rows = self._steps.pop()
            if placed:
                self.nodes.remove_all(spec, rows)
            else:
                self.nodes.add_all(spec, rows)

    def commit(self) -> None:
        """Make the steps so far final."""
        self._steps.clear()
