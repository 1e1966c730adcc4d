"""What-if on the live node table: place and remove pods, look, and undo.

Invariants:
- A trial leaves no trace: amounts, allocations, counts, versions, change logs and kept results are as before. It is
  used as a context manager. Kept results from before it hold again, those that were made in it do not.
- While a `Trial` is open, the rows that it changed are `tentative`: nothing is kept of what is read on them.
- Trials nest.
- Where an exception ends a step of a trial, or the trial cannot be undone, the table is `torn`.
- A `Clearing` serves one preemptor on many rows at once: parts of allocations that do not matter to it, and what only
  scores read, do not change. Inside, the filters are called, and the kept results of classes are not read. Each row is
  judged as if pods had left that row alone; so counts by selector, and the use of volumes, change apart.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Self

import numpy as np

from aischeduler.model.pod import PodSpec
from aischeduler.state.allocation_parts import Cleared
from aischeduler.state.counted_pods import Counted
from aischeduler.state.label_index import Mask, Rows
from aischeduler.state.node_table import NodeTable
from aischeduler.state.pod_records import AssignedPod
from aischeduler.state.running_pods import RunningPods, Slots

FEW_SLOTS: Final = 64
"""So many pods are looked up one by one."""


class Trial:
    """One trial, which begins without the `gone` pods. Nothing else may change the table while it is open."""

    def __init__(self, nodes: NodeTable, gone: Sequence[AssignedPod] = ()) -> None:
        self.nodes = nodes
        self._gone = gone
        self._steps: list[tuple[int, list[AssignedPod]]] = []
        self._version = 0
        self._stamps: list[int] = []
        """The versions of the open trials, and of the parts of allocations, before the first step."""

    def __enter__(self) -> Self:
        if self._gone:
            try:
                self.remove(self._gone)
            except BaseException:  # what raises here does not reach `__exit__`
                self.put_back()
                raise
        return self

    def __exit__(self, *error: object) -> None:
        self.put_back()

    def place(self, pod: AssignedPod) -> None:
        """Add a pod to its row, as if it were bound there."""
        self._step(1, [pod])

    def place_all(self, pods: Iterable[AssignedPod]) -> None:
        """Add pods to their rows; pods of one class in one step."""
        for group in _by_class(pods):
            self._step(1, group)

    def remove(self, pods: Iterable[AssignedPod]) -> None:
        """Remove pods from their rows, as if they were gone; pods of one class in one step."""
        for group in _by_class(pods):
            self._step(-1, group)

    def put_back(self) -> None:
        """Undo every step, the last step first; nothing in a table that is torn."""
        steps, self._steps = self._steps, []
        if not steps:
            return
        try:
            for sign, pods in reversed(steps):
                if not self.nodes.torn:
                    self._count(pods, -sign)
        finally:
            for assigned in (assigned for _, pods in steps for assigned in pods):
                self.nodes.tentative[assigned.row] -= 1
                if not self.nodes.tentative[assigned.row]:
                    del self.nodes.tentative[assigned.row]
            self.nodes.trial.version = self._version
            for part, stamp in zip(self.nodes.parts.values(), self._stamps, strict=True):
                part.restore(stamp)
            if not self.nodes.tentative:
                self.nodes.trial_rows = []

    def _step(self, sign: int, pods: list[AssignedPod]) -> None:
        if not self._steps:
            self._version = self.nodes.trial.version
            self._stamps = [part.stamp() for part in self.nodes.parts.values()]
        self._steps.append((sign, pods))
        self.nodes.tentative.update(assigned.row for assigned in pods)
        self._count(pods, sign)

    def _count(self, pods: list[AssignedPod], sign: int) -> None:
        try:
            self.nodes.count_tentatively(pods, sign)
        except BaseException:
            self.nodes.torn = True
            raise


def _by_class(pods: Iterable[AssignedPod]) -> list[list[AssignedPod]]:
    alike: dict[bytes, list[AssignedPod]] = {}
    for assigned in pods:
        alike.setdefault(assigned.spec.key, []).append(assigned)
    return list(alike.values())


class Clearing:
    """A trial on the pods of `rows`. Nothing else may change the tables while it is open.

    `counts` is what rules count for the preemptor.
    """

    def __init__(
        self, asker: PodSpec, nodes: NodeTable, running: RunningPods, rows: Rows, counts: tuple[Counted, ...] = ()
    ) -> None:
        self._asker, self._nodes, self._running, self._rows = asker, nodes, running, rows
        self._columns = np.array([nodes.column(resource) for resource in running.specs.resources], dtype=np.intp)
        self._used = nodes.used[:, rows]
        self._parts: list[Cleared] = []
        self._apart = {selector: np.zeros(nodes.width, dtype=np.int64) for selector in counts}
        self._members: dict[Counted, Mask] = {}
        """What is counted -> a mask of the slots of its pods."""

    def __enter__(self) -> Self:
        self._nodes.pod_counts.apart = self._apart or None
        parts = (part.clearing(self._asker, self._running) for part in self._nodes.parts.values())
        self._parts = [part for part in parts if part is not None]
        return self

    def __exit__(self, *error: object) -> None:
        self._nodes.used[:, self._rows] = self._used
        self._nodes.pod_counts.apart = None
        for part in self._parts:
            part.end()

    def take_off(self, slots: Slots) -> None:
        """Remove these pods from their rows; one row may have several."""
        self._count(slots, -1)

    def put_on(self, slots: Slots) -> None:
        """Add these pods to their rows again."""
        self._count(slots, 1)

    def _count(self, slots: Slots, sign: int) -> None:
        used, specs = self._nodes.used, self._running.specs
        row, number = self._running.table["row"][slots], self._running.table["spec"][slots]
        amounts = sign * specs.amounts[number].T
        if len(slots) <= FEW_SLOTS:
            np.add.at(used, (self._columns[:, np.newaxis], row), amounts)
        else:  # with an index of one dimension `at` is faster by slot, and slower by call
            for column, of_column in zip(self._columns.tolist(), amounts, strict=True):
                np.add.at(used[column], row, of_column)
        for selector, gone in self._apart.items():
            np.add.at(gone, row[self._counted(selector, slots)], -sign)
        for part in self._parts:
            part.count(slots, sign)

    def _counted(self, by: Counted, slots: Slots) -> Mask:
        """Return which of the pods in these slots count."""
        count = self._nodes.pod_counts.of(by)
        if len(slots) <= FEW_SLOTS:
            return np.array([uid in count for uid in self._running.uids_of(slots)], dtype=np.bool_)
        if by not in self._members:
            self._members[by] = np.zeros(len(self._running.table), dtype=np.bool_)
            self._members[by][self._running.slots_of(count.uids())] = True
        return self._members[by][slots]
