"""A trial on the live node table: place and remove assigned pods, look, and undo.

Invariants:
- A trial leaves no trace: amounts, allocations, counts, versions, journals and kept results are as before. It is used
  as a context manager.
- While a trial is open, the rows that it changed are `tentative`: nothing is kept of what is read on them.
- Trials nest.
- Where an exception ends a trial, the changed rows count as changed, so that recovery counts them again.
"""

from collections.abc import Iterable, Sequence
from typing import Self

from aischeduler.state.assigned_pod import AssignedPod
from aischeduler.state.nodes import NodeTable


class Trial:
    """One trial, which begins without the `gone` pods. Nothing else may change the table while it is open."""

    def __init__(self, nodes: NodeTable, gone: Sequence[AssignedPod] = ()) -> None:
        self.nodes = nodes
        self._gone = gone
        self._steps: list[tuple[int, list[AssignedPod]]] = []

    def __enter__(self) -> Self:
        if self._gone:
            try:
                self.remove(self._gone)
            except BaseException:  # what raises here does not reach `__exit__`
                self.put_back(failed=True)
                raise
        return self

    def __exit__(self, *error: object) -> None:
        self.put_back(failed=error[0] is not None)

    def place(self, pod: AssignedPod) -> None:
        """Add a pod to its row, as if it were bound there."""
        self._step(1, [pod])

    def remove(self, pods: Iterable[AssignedPod]) -> None:
        """Remove pods from their rows, as if they were gone; pods of one class in one step."""
        alike: dict[bytes, list[AssignedPod]] = {}
        for one in pods:
            alike.setdefault(one.spec.key, []).append(one)
        for group in alike.values():
            self._step(-1, group)

    def put_back(self, *, failed: bool = False) -> None:
        """Undo every step, the last step first; with `failed`, the rows count as changed."""
        steps, self._steps = self._steps, []
        try:
            for sign, pods in reversed(steps):
                self.nodes.count_tentatively(pods, -sign)
        except BaseException:
            failed = True
            raise
        finally:
            for one in (one for _, pods in steps for one in pods):
                self.nodes.tentative[one.row] -= 1
                if not self.nodes.tentative[one.row]:
                    del self.nodes.tentative[one.row]
                if failed:
                    self.nodes.touch(one.row)

    def _step(self, sign: int, pods: list[AssignedPod]) -> None:
        self._steps.append((sign, pods))
        self.nodes.tentative.update(one.row for one in pods)
        self.nodes.count_tentatively(pods, sign)
