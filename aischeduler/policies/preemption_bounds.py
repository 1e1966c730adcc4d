"""Lower bounds of eviction costs: they order rows so that few rows need a full search for victims.

Invariants:
- The bound of a row is never above the cost that `preemption` finds there, for any preemptor that needs a victim.
- The result is that of `preemption` over all rows, or None: a few rows do not decide.
- The live filters decide what fits, by amounts alone. For a pod whose fit other filters decide, the result is None.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from aischeduler.framework.runner import Runner
from aischeduler.policies.preemption import (
    BORROWER_PRIORITY,
    NOT_STARTED,
    PRIORITY_MIN,
    Candidate,
    Numbers,
    Preemptor,
    find_candidates,
    least,
    started_of,
)
from aischeduler.state.budgets import BudgetTable
from aischeduler.state.index import Rows
from aischeduler.state.nodes import Column, NodeTable
from aischeduler.state.running import RunningPod, RunningPods

ROWS_EXAMINED_MAX: Final = 4
"""The most rows that one search examines; where they do not decide, `preemption` searches all rows at once."""
FEW_ROWS: Final = 2
"""Up to this many changed rows are read one by one; for more, one vectorised pass is faster."""
NO_VICTIM: Final = 2**62
"""The bound of a row without a pod that may be evicted."""


class EvictionCostBounds:
    """The lower bounds by row of the node table.

    `highest` is the priority of the least important potential victim, BORROWER_PRIORITY for a borrower. `youth` is the
    latest start among the pods of that priority, negated. `leaving` [column of the node table, row] is the sum of what
    leaving pods use. `columns` are the node table's columns of the resources of `RunningPods.specs`.
    """

    def __init__(self) -> None:
        self.highest: Numbers = np.zeros(0, dtype=np.int64)
        self.youth: Numbers = np.zeros(0, dtype=np.int64)
        self.leaving: Column = np.zeros((0, 0), dtype=np.int64)
        self.columns: list[int] = []
        self._version = 0

    def catch_up(self, running: RunningPods, nodes: NodeTable) -> None:
        """Read the rows whose running pods changed since the last call."""
        changed = running.changed_since(self._version)
        if changed is None or self.leaving.shape != nodes.used.shape:
            self.highest, self.youth = (np.empty(nodes.width, dtype=np.int64) for _ in range(2))
            self.leaving = np.empty_like(nodes.used)
            changed = list(range(nodes.width))
        if changed:
            self.columns = [nodes.column(resource) for resource in running.specs.resources]
            if len(changed) > FEW_ROWS:
                self._read(running, np.array(changed, dtype=np.intp))
            else:
                for row in changed:
                    self._read_one(running, row)
        self._version = running.version

    def of(self, row: int, rank: int) -> tuple[int, ...]:
        """Return the bound of a row: the columns of `EvictionCosts`, then the `rank` of its name among all names."""
        highest = int(self.highest[row])
        weight = 0 if highest == BORROWER_PRIORITY else highest - PRIORITY_MIN
        return (0, highest, weight, 1, int(self.youth[row]), rank)

    def _read_one(self, running: RunningPods, row: int) -> None:
        """Do for one row what `_read` does for many."""
        pods = [pod for _, pod in running.pods_on(row)]
        self.leaving[:, row] = 0
        self.leaving[self.columns, row] = running.specs.amounts[[pod.spec for pod in pods if pod.leaving]].sum(axis=0)
        self.highest[row], self.youth[row] = min(
            (
                (BORROWER_PRIORITY if pod.borrower else pod.priority, -(pod.started_seconds or NOT_STARTED))
                for pod in pods
                if pod.evictable and not pod.leaving
            ),
            default=(NO_VICTIM, 0),
        )

    def _read(self, running: RunningPods, rows: Rows) -> None:
        pods = running.table[running.slots_on(rows)]
        gone = pods[pods["leaving"]]
        self.leaving[:, rows] = 0
        np.add.at(self.leaving.T, (gone["row"][:, np.newaxis], self.columns), running.specs.amounts[gone["spec"]])
        pods = pods[pods["evictable"] & ~pods["leaving"]]
        row, priority = pods["row"], np.where(pods["borrower"], BORROWER_PRIORITY, pods["priority"])
        self.highest[rows], self.youth[rows] = NO_VICTIM, 0
        np.minimum.at(self.highest, row, priority)
        lowest = priority == self.highest[row]
        np.minimum.at(self.youth, row[lowest], -started_of(pods)[lowest])


@dataclass(frozen=True, slots=True)
class BoundedSearch:
    """A search for victims on the rows of the lowest bounds. `bounds` must have caught up with the running pods."""

    preemptor: Preemptor
    runner: Runner
    running: RunningPods
    budgets: BudgetTable
    bounds: EvictionCostBounds

    def cheapest(self, rows: Rows) -> Candidate | None:
        """Return the best row among `rows` with its victims; None where the examined rows do not decide."""
        spec, bounds, ranks = self.preemptor.spec, self.bounds, self.runner.nodes.ranks()
        rows = rows[self.runner.allowed(spec, rows)]
        if not len(rows) or not self.runner.by_amounts(spec):
            return None
        free = rows[self.runner.fits_using(spec, rows, self._used(rows))]
        if len(free):
            return Candidate(int(free[ranks[free].argmin()]), (), 0)
        row = least(rows, (bounds.highest[rows], bounds.youth[rows], ranks[rows]))
        if bounds.highest[row] >= self.preemptor.priority:
            return None
        last, uid = self._least_important(row)
        if self._is_enough(row, last, uid):
            return Candidate(row, (uid,), 0)
        rows = rows[bounds.highest[rows] < self.preemptor.priority]
        lowest = rows[np.lexsort((ranks[rows], bounds.youth[rows], bounds.highest[rows]))]
        examined = np.sort(lowest[:ROWS_EXAMINED_MAX])
        found = find_candidates(self.preemptor, self.runner, self.running, examined, self.budgets)
        best = found.costs.best(self.runner.nodes)
        if best is None:
            return None
        cost = (*found.costs.columns[:, np.searchsorted(examined, best)].tolist(), int(ranks[best]))
        if any(cost > bounds.of(row, int(ranks[row])) for row in lowest[ROWS_EXAMINED_MAX:][:1].tolist()):
            return None
        return found.candidate(best, self.running)

    def _used(self, rows: Rows) -> Column:
        """Return what is used on these rows, [column, row], without the pods that are leaving."""
        used: Column = self.runner.nodes.used.take(rows, axis=1) - self.bounds.leaving.take(rows, axis=1)
        return used

    def _least_important(self, row: int) -> tuple[RunningPod, str]:
        """Return the first potential victim of a row, and its uid."""
        running = self.running
        *_, uid, pod = max(
            (pod.borrower, -pod.priority, pod.started_seconds or NOT_STARTED, running.uid_of(slot), pod)
            for slot, pod in running.pods_on(row)
            if pod.evictable and not pod.leaving
        )
        return pod, uid

    def _is_enough(self, row: int, pod: RunningPod, uid: str) -> bool:
        """Return whether the cost of the row is its bound: its least important pod is the only victim.

        The row is not free. So where the preemptor fits once that pod is gone, and no budget or unit asks for more, all
        other pods stay.
        """
        if pod.unit or -(pod.started_seconds or NOT_STARTED) != self.bounds.youth[row] or self.budgets.protects(uid):
            return False
        rows = np.array([row], dtype=np.intp)
        used = self._used(rows)
        used[self.bounds.columns, 0] -= self.running.specs.amounts[pod.spec]
        return bool(self.runner.fits_using(self.preemptor.spec, rows, used)[0])
