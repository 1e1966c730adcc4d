"""A trial on the live node table: place and evict pods, then commit or undo.

Invariants:
- A trial that ends without commit leaves no trace: amounts, versions, journals and kept results are as before. It is
  used as a context manager.
- While a trial is open, the rows that it changed are `tentative`: nothing is kept of what is read on them.
- Trials nest; only the outer one may be committed.
- Where an exception ends a trial, the changed rows count as changed, so that recovery counts them again.
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
        self._steps: list[tuple[int, PodSpec, list[int]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.put_back(failed=error is not None)

    def place(self, spec: PodSpec, row: int) -> None:
        """Add a pod to the row, as if it were bound there."""
        self._step(1, spec, [row])

    def evict(self, spec: PodSpec, row: int) -> None:
        """Remove a pod from the row, as if it were gone."""
        self._step(-1, spec, [row])

    def evict_all(self, pods: Iterable[tuple[PodSpec, int]]) -> None:
        """Remove many pods from their rows, pods of one class in one step."""
        alike: dict[bytes, tuple[PodSpec, list[int]]] = {}
        for spec, row in pods:
            alike.setdefault(spec.key, (spec, []))[1].append(row)
        for spec, rows in alike.values():
            self._step(-1, spec, rows)

    def put_back(self, *, failed: bool = False) -> None:
        """Undo every step, the last step first; with `failed`, the rows count as changed."""
        steps, self._steps = self._steps, []
        try:
            for sign, spec, rows in reversed(steps):
                self.nodes.count_tentatively(spec, rows, -sign)
        except BaseException:
            failed = True
            raise
        finally:
            self._end(steps, changed=failed)

    def commit(self) -> None:
        """Make all steps final."""
        steps, self._steps = self._steps, []
        self._end(steps, changed=True)

    def _step(self, sign: int, spec: PodSpec, rows: list[int]) -> None:
        self._steps.append((sign, spec, rows))
        self.nodes.tentative.update(rows)
        self.nodes.count_tentatively(spec, rows, sign)

    def _end(self, steps: list[tuple[int, PodSpec, list[int]]], *, changed: bool) -> None:
        tentative = self.nodes.tentative
        for _, _, rows in steps:
            tentative.subtract(rows)
            for row in rows:
                if not tentative[row]:
                    del tentative[row]
                if changed:
                    self.nodes.touch(row)
