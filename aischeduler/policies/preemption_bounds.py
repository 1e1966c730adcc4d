"""Lower bounds of eviction costs: they order rows so that few rows need a full search for victims.

Invariants:
- The bound of a row is never above the cost that `preemption` finds there, for any preemptor that needs a victim.
- The result is that of `preemption` over all rows, or None: a few rows do not decide.
- The live filters decide what fits, by amounts alone. For a pod whose fit other filters decide, the result is None.
"""

from typing import Final

import numpy as np
from msgspec import Struct

from aischeduler.framework.runner import Runner
from aischeduler.policies.eviction_order import (
    PRIORITY_MASK,
    first_to_go,
    may_go,
    ranks_of,
    started,
    started_of,
)
from aischeduler.policies.preemption import Candidate, VictimRequest, find_candidates, least
from aischeduler.state.disruption_budgets import BudgetTable
from aischeduler.state.label_index import Rows
from aischeduler.state.node_table import Column, NodeTable
from aischeduler.state.running_pods import RunningPods

ROWS_EXAMINED_MAX: Final = 4
"""The most rows that one search examines; where they do not decide, `preemption` searches all rows at once."""
FEW_ROWS: Final = 2
"""Up to this many changed rows are read one by one; for more, one pass is faster."""
NO_SLOT: Final = -1
NO_VICTIM: Final = 2**62
"""The bound of a row without a pod that may be evicted."""


class EvictionCostBounds:
    """The lower bounds by row of the node table.

    `highest` is the rank of the least important potential victim. `youth` is the latest start among the pods of that
    rank, negated. `last` is the slot of the least important one; NO_SLOT where none is known. `leaving` [column of the
    node table, row] is the sum of what leaving pods use. `columns` are the node table's columns of the resources of
    `RunningPods.specs`.
    """

    def __init__(self) -> None:
        self.highest: Column = np.zeros(0, dtype=np.int64)
        self.youth: Column = np.zeros(0, dtype=np.int64)
        self.last: Column = np.zeros(0, dtype=np.int64)
        self.leaving: Column = np.zeros((0, 0), dtype=np.int64)
        self.columns: list[int] = []
        self._version, self._layout = 0, 0

    def catch_up(self, running: RunningPods, nodes: NodeTable) -> None:
        """Read the rows whose running pods changed since the last call."""
        changed = running.changed_since(self._version)
        if changed is None or self.leaving.shape != nodes.used.shape or self._layout != nodes.layout:
            self.highest, self.youth, self.last = (np.empty(nodes.width, dtype=np.int64) for _ in range(3))
            self.leaving = np.empty_like(nodes.used)
            changed = list(range(nodes.width))
        if changed:
            self.columns = [nodes.column(resource) for resource in running.specs.resources]
            if len(changed) > FEW_ROWS:
                self._read(running, np.array(changed, dtype=np.intp))
            else:
                for row in changed:
                    self._read_one(running, row)
        self._version, self._layout = running.version, nodes.layout

    def of(self, row: int, rank: int) -> tuple[int, ...]:
        """Return the bound of a row: the columns of `EvictionCosts`, then the `rank` of its name among all names."""
        highest = int(self.highest[row])
        return (0, highest, highest & PRIORITY_MASK, 1, int(self.youth[row]), rank)

    def least_important(self, row: int, running: RunningPods) -> int:
        """Return the slot of the least important potential victim of a row that has one."""
        if self.last[row] == NO_SLOT:
            self._read_one(running, row)
        return int(self.last[row])

    def _read_one(self, running: RunningPods, row: int) -> None:
        """Do for one row what `_read` does for many, and find its least important potential victim."""
        pods = running.pods_on(row)
        gone = [pod.spec for _, pod in pods if pod.leaving]
        self.leaving[:, row] = 0
        if gone:
            self.leaving[self.columns, row] = running.specs.amounts[gone].sum(axis=0)
        self.highest[row], self.youth[row], self.last[row] = NO_VICTIM, 0, NO_SLOT
        first = first_to_go(running, pods)
        if first is not None:
            self.last[row], self.highest[row], latest = first
            self.youth[row] = -latest

    def _read(self, running: RunningPods, rows: Rows) -> None:
        pods = running.pods_in(running.slots_on(rows))
        gone = pods[pods["leaving"]]
        self.leaving[:, rows] = 0
        np.add.at(self.leaving.T, (gone["row"][:, np.newaxis], self.columns), running.specs.amounts[gone["spec"]])
        pods = pods.compress(may_go(pods))
        row, ranks = pods["row"], ranks_of(pods)
        self.highest[rows], self.youth[rows], self.last[rows] = NO_VICTIM, 0, NO_SLOT
        np.minimum.at(self.highest, row, ranks)
        lowest = ranks == self.highest[row]
        np.minimum.at(self.youth, row[lowest], -started_of(pods)[lowest])


class BoundedSearch(Struct, frozen=True):
    """A search for victims on the rows of the lowest bounds. `bounds` must have caught up with the running pods."""

    ask: VictimRequest
    runner: Runner
    running: RunningPods
    budgets: BudgetTable
    bounds: EvictionCostBounds

    def cheapest(self, rows: Rows) -> Candidate | None:
        """Return the best row among `rows` with its victims; None where the examined rows do not decide."""
        spec, bounds, ranks = self.ask.spec, self.bounds, self.runner.nodes.ranks()
        rows = rows[self.runner.allowed(spec, rows)]
        if not len(rows) or not self.runner.by_amounts(spec):
            return None
        free = rows[self.runner.fits_using(spec, rows, self._used(rows))]
        if len(free):
            return Candidate(int(free[ranks[free].argmin()]), (), 0)
        row = least(rows, (bounds.highest, bounds.youth, ranks))
        if bounds.highest[row] >= self.ask.preemptor.standing:
            return None
        if uid := self._only_victim(row):
            return Candidate(row, (uid,), 0)
        rows = rows[bounds.highest[rows] < self.ask.preemptor.standing]
        lowest = rows[np.lexsort((ranks[rows], bounds.youth[rows], bounds.highest[rows]))]
        examined = np.sort(lowest[:ROWS_EXAMINED_MAX])
        found = find_candidates(self.ask, self.runner, self.running, examined, self.budgets)
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

    def _only_victim(self, row: int) -> str:
        """Return the uid of the least important pod, if its eviction is enough and costs the bound of the row; or "".

        The row is not free. So where the preemptor fits once that pod is gone, and no budget or unit asks for more, all
        other pods stay.
        """
        slot = self.bounds.least_important(row, self.running)
        uid, pod = self.running.uid_of(slot), self.running.pod_in(slot)
        if pod.unit or -started(pod) != self.bounds.youth[row] or self.budgets.protects(uid):
            return ""
        rows = np.array([row], dtype=np.intp)
        used = self._used(rows)
        used[self.bounds.columns, 0] -= self.running.specs.amounts[pod.spec]
        return uid if self.runner.fits_using(self.ask.spec, rows, used)[0] else ""
