"""Lower bounds of eviction costs: they order rows so that few rows need a full search for victims.

Invariants:
- The bound of a row is never above the cost that `preemption` finds there, for any preemptor that needs a victim.
- The result is that of `preemption` over all rows, or None: a few rows do not decide.
- The live filters decide what fits, by amounts alone. For a pod whose fit other filters decide, the result is None.
- Where a pod on an examined row belongs to a unit, the result is None: pods on other rows may be lost with it.
"""

from dataclasses import dataclass
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np

from aischeduler.framework.runner import Runner
from aischeduler.policies.preemption import (
    BORROWER_PRIORITY,
    NOT_STARTED,
    PRIORITY_MIN,
    VICTIMS_MAX,
    Candidate,
    Numbers,
    Preemptor,
    started_of,
)
from aischeduler.state.budgets import BudgetTable
from aischeduler.state.index import Rows
from aischeduler.state.nodes import Column, NodeTable
from aischeduler.state.running import RunningPods

ROWS_EXAMINED_MAX: Final = 4
"""The most rows that one search examines; where they do not decide, `preemption` searches all rows at once."""
FEW_ROWS: Final = 2
"""Up to this many changed rows are read one by one; for more, one vectorised pass is faster."""
NO_SLOT: Final = -1
NO_VICTIM: Final = 2**62
"""The bound of a row without a pod that may be evicted."""


class EvictionCost(NamedTuple):
    """The cost of eviction on a row, less is better: the rules of `EvictionCosts`, then the rank of the name."""

    violations: int
    highest: int
    weight: int
    victims: int
    youth: int
    rank: int


class EvictionCostBounds:
    """The lower bounds by row of the node table.

    `highest` is the priority of the least important potential victim, BORROWER_PRIORITY for a borrower. `youth` is the
    latest start among the pods of that priority, negated. `leaving` [column of the node table, row] is the sum of what
    leaving pods use. `columns` are the node table's columns of the resources of `RunningPods.specs`.
    `last` is the slot of the least important pod; NO_SLOT where it is a borrower or another pod is as important.
    """

    def __init__(self) -> None:
        self.highest: Numbers = np.zeros(0, dtype=np.int64)
        self.youth: Numbers = np.zeros(0, dtype=np.int64)
        self.last: Numbers = np.zeros(0, dtype=np.int64)
        self.leaving: Column = np.zeros((0, 0), dtype=np.int64)
        self.columns: list[int] = []
        self._version = 0

    def catch_up(self, running: RunningPods, nodes: NodeTable) -> None:
        """Read the rows whose running pods changed since the last call."""
        changed = running.changed_since(self._version)
        if changed is None or self.leaving.shape != nodes.used.shape:
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
        self._version = running.version

    def of(self, row: int, rank: int) -> EvictionCost:
        """Return the bound of a row; `rank` is the position of its node's name in the order of all names."""
        highest = int(self.highest[row])
        weight = 0 if highest == BORROWER_PRIORITY else highest - PRIORITY_MIN
        return EvictionCost(0, highest, weight, 1, int(self.youth[row]), rank)

    def lowest(self, rows: Rows, ranks: Column) -> int:
        """Return the row with the lowest bound."""
        for bound in (self.highest, self.youth, ranks):
            if len(rows) > 1:
                of_each = bound.take(rows)
                rows = rows[of_each == of_each.min()]
        return int(rows[0])

    def _read_one(self, running: RunningPods, row: int) -> None:
        """Do for one row what `_read` does for many."""
        pods = running.pods_on(row)
        leaving = [pod.spec for _, pod in pods if pod.leaving]
        self.leaving[:, row] = 0
        self.leaving[self.columns, row] = running.specs.amounts[leaving].sum(axis=0)
        lowest, last = (NO_VICTIM, 0), NO_SLOT
        for slot, pod in pods:
            if pod.evictable and not pod.leaving:
                priority = BORROWER_PRIORITY if pod.borrower else pod.priority
                bound = (priority, -(pod.started_seconds or NOT_STARTED))
                if bound < lowest:
                    lowest, last = bound, NO_SLOT if pod.borrower else slot
                elif bound == lowest:
                    last = NO_SLOT
        self.highest[row], self.youth[row] = lowest
        self.last[row] = last

    def _read(self, running: RunningPods, rows: Rows) -> None:
        slots = running.slots_on(rows)
        pods = running.table[slots]
        leaving = pods["leaving"]
        self.leaving[:, rows] = 0
        gone = pods[leaving]
        np.add.at(self.leaving.T, (gone["row"][:, np.newaxis], self.columns), running.specs.amounts[gone["spec"]])
        may_go = pods["evictable"] & ~leaving
        slots, pods = slots[may_go], pods[may_go]
        row, youth = pods["row"], -started_of(pods)
        priority = np.where(pods["borrower"], BORROWER_PRIORITY, pods["priority"])
        self.highest[rows] = NO_VICTIM
        np.minimum.at(self.highest, row, priority)
        lowest = np.flatnonzero(priority == self.highest[row])
        self.youth[rows] = 0
        np.minimum.at(self.youth, row[lowest], youth[lowest])
        last = lowest[youth[lowest] == self.youth[row[lowest]]]
        slots, row = slots[last], row[last]
        self.last[rows] = NO_SLOT
        self.last[row] = slots
        self.last[row[(self.last[row] != slots) | pods["borrower"][last]]] = NO_SLOT


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
        if not self.runner.by_amounts(spec):
            return None
        rows = rows[self.runner.allowed(spec, rows)]
        free = rows[self.runner.fits_using(spec, rows, self._used(rows))]
        if len(free):
            return Candidate(int(free[ranks[free].argmin()]), (), 0)
        found: list[tuple[EvictionCost, Candidate]] = []
        for _ in range(min(ROWS_EXAMINED_MAX, len(rows))):
            row = bounds.lowest(rows, ranks)
            bound = bounds.of(row, int(ranks[row]))
            if bound.highest >= self.preemptor.priority:
                return min(found)[1] if found else None
            if self.running.has_units and any(pod.unit for _, pod in self.running.pods_on(row)):
                return None
            found += self._examine(row, bound)
            if found and min(found)[0] <= bound:
                return min(found)[1]
            rows = rows[rows != row]
        return min(found)[1] if found and not len(rows) else None

    def _used(self, rows: Rows) -> Column:
        """Return what is used on these rows, [column, row], without the pods that are leaving."""
        used: Column = self.runner.nodes.used.take(rows, axis=1) - self.bounds.leaving.take(rows, axis=1)
        return used

    def _examine(self, row: int, bound: EvictionCost) -> list[tuple[EvictionCost, Candidate]]:
        """Return the cost and the candidate of a row in a list; an empty list where no eviction helps.

        The row is not free. So where evicting its least important pod is enough, and no budget protects that pod, all
        other pods stay.
        """
        last = int(self.bounds.last[row])
        if last != NO_SLOT and not self.budgets.protects(uid := self.running.uid_of(last)) and self._enough(row, last):
            return [(bound, Candidate(row, (uid,), 0))]
        potential = self._potential_victims(row)
        broken = self.budgets.broken([one.uid for one in potential], np.full(len(potential), row)).tolist()
        turns = sorted(zip(broken, potential, strict=True), key=itemgetter(0), reverse=True)
        victims = [turns[turn] for turn in self._reprieve(row, [one.spec for _, one in turns])]
        if not victims:
            return []
        violations, leave = sum(breaks for breaks, _ in victims), sorted((one for _, one in victims), reverse=True)
        priorities = [BORROWER_PRIORITY if one.borrower else -one.below for one in leave]
        highest = max(priorities)
        weight = sum(0 if one.borrower else -one.below - PRIORITY_MIN for one in leave)
        oldest = min(one.started for one, priority in zip(leave, priorities, strict=True) if priority == highest)
        cost = EvictionCost(violations, highest, weight, len(leave), -oldest, bound.rank)
        return [(cost, Candidate(row, tuple(one.uid for one in leave), violations))]

    def _enough(self, row: int, slot: int) -> bool:
        """Return whether the preemptor fits once the pod in this slot, and the leaving pods, are gone from the row."""
        rows = np.array([row], dtype=np.intp)
        used = self._used(rows)
        used[self.bounds.columns, 0] -= self.running.specs.amounts[self.running.table["spec"][slot]]
        return bool(self.runner.fits_using(self.preemptor.spec, rows, used)[0])

    def _potential_victims(self, row: int) -> "list[_PotentialVictim]":
        """Return the pods of the row that may be evicted, the most important first."""
        priority = self.preemptor.priority
        found = [
            _PotentialVictim(
                pod.borrower, -pod.priority, pod.started_seconds or NOT_STARTED, self.running.uid_of(slot), pod.spec
            )
            for slot, pod in self.running.pods_on(row)
            if pod.evictable and not pod.leaving and (pod.borrower or pod.priority < priority)
        ]
        return sorted(found)[-VICTIMS_MAX:]

    def _reprieve(self, row: int, specs: list[int]) -> list[int]:
        """Let pods stay that fit beside the preemptor; return the indexes of the others, none where nothing helps.

        Each turn is one column of `used`: the pods that stayed before it count there. The first column has no pod.
        """
        amounts = np.zeros((len(self.bounds.leaving), len(specs) + 1), dtype=np.int64)
        amounts[self.bounds.columns, 1:] = self.running.specs.amounts[specs].T
        turns = np.full(len(specs) + 1, row, dtype=np.intp)
        put_on = amounts.cumsum(axis=1)
        used = (self.runner.nodes.used[:, row] - self.bounds.leaving[:, row] - put_on[:, -1])[:, np.newaxis] + put_on
        evicted: list[int] = []
        while not (fits := self.runner.fits_using(self.preemptor.spec, turns, used)).all():
            first = int(fits.argmin())
            if not first:
                return []
            used[:, first:] -= amounts[:, first : first + 1]
            evicted.append(first - 1)
        return evicted


class _PotentialVictim(NamedTuple):
    """A pod that may be evicted; the most important sorts first. `below` is its priority, negated."""

    borrower: bool
    below: int
    started: int
    uid: str
    spec: int
