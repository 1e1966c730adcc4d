"""Floors: the least that a row could lose, whoever asks; few rows need a close look where they are looked at in order.

Laws:
- A floor is never above what `preemption` says that the row loses, for any asker that would cost it a victim.
- The answer is that of `preemption` over all rows, or None: not known by a look at so few.
- What fits is what the live filters say of amounts, and only an asker for whom these decide is answered.
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
    Chosen,
    Demand,
    Numbers,
    started_of,
)
from aischeduler.state.budgets import BudgetTable
from aischeduler.state.index import Rows
from aischeduler.state.nodes import Column, NodeTable
from aischeduler.state.running import RunningPods

LOOKS_MAX: Final = 4
"""Rows that are looked at closely; where that does not tell, all rows are to be weighed at once."""
FEW_ROWS: Final = 2
"""So few rows are sooner read one by one than all at once."""
UNCLEAR: Final = -1
"""No slot."""
NOBODY: Final = 2**62
"""The floor of a row from which nobody may be evicted."""


class Loss(NamedTuple):
    """What a row loses: less is better, as the columns of `preemption.Losses` have it; the rank of its name last."""

    violations: int
    highest: int
    weight: int
    victims: int
    youth: int
    rank: int


class LossBounds:
    """By row of the node table. `highest`: the least important victim that it has, as victims are compared.

    `youth` is the latest start among the pods of that priority, negated; `leaving` [column of the node table, row] what
    those have who are leaving. `columns` are those of the resources of the kinds of running pods.
    `last` is the slot of the least important pod, UNCLEAR where that is a borrower or others are as important.
    """

    def __init__(self) -> None:
        self.highest: Numbers = np.zeros(0, dtype=np.int64)
        self.youth: Numbers = np.zeros(0, dtype=np.int64)
        self.last: Numbers = np.zeros(0, dtype=np.int64)
        self.leaving: Column = np.zeros((0, 0), dtype=np.int64)
        self.columns: list[int] = []
        self._version = 0

    def catch_up(self, running: RunningPods, nodes: NodeTable) -> None:
        """Take over what changed among the running pods."""
        changed = running.changed_since(self._version)
        if changed is None or self.leaving.shape != nodes.used.shape:
            self.highest, self.youth, self.last = (np.empty(nodes.width, dtype=np.int64) for _ in range(3))
            self.leaving = np.empty_like(nodes.used)
            changed = list(range(nodes.width))
        if changed:
            self.columns = [nodes.column(resource) for resource in running.kinds.resources]
            if len(changed) > FEW_ROWS:
                self._read(running, np.array(changed, dtype=np.intp))
            else:
                for row in changed:
                    self._read_one(running, row)
        self._version = running.version

    def of(self, row: int, rank: int) -> Loss:
        """Return the least that a row could lose; `rank` is the place of its name among all."""
        highest = int(self.highest[row])
        weight = 0 if highest == BORROWER_PRIORITY else highest - PRIORITY_MIN
        return Loss(0, highest, weight, 1, int(self.youth[row]), rank)

    def lowest(self, rows: Rows, ranks: Column) -> int:
        """Return the row of the lowest floor among some."""
        for floor in (self.highest, self.youth, ranks):
            if len(rows) > 1:
                of_each = floor.take(rows)
                rows = rows[of_each == of_each.min()]
        return int(rows[0])

    def _read_one(self, running: RunningPods, row: int) -> None:
        """Read one row, as `_read` does many."""
        pods = running.pods_on(row)
        leaving = [pod.kind for _, pod in pods if pod.leaving]
        self.leaving[:, row] = 0
        self.leaving[self.columns, row] = running.kinds.amounts[leaving].sum(axis=0)
        lowest, last = (NOBODY, 0), UNCLEAR
        for slot, pod in pods:
            if pod.evictable and not pod.leaving:
                priority = BORROWER_PRIORITY if pod.borrower else pod.priority
                floor = (priority, -(pod.started_seconds or NOT_STARTED))
                if floor < lowest:
                    lowest, last = floor, UNCLEAR if pod.borrower else slot
                elif floor == lowest:
                    last = UNCLEAR
        self.highest[row], self.youth[row] = lowest
        self.last[row] = last

    def _read(self, running: RunningPods, rows: Rows) -> None:
        slots = running.slots_on(rows)
        pods = running.table[slots]
        leaving = pods["leaving"]
        self.leaving[:, rows] = 0
        gone = pods[leaving]
        np.add.at(self.leaving.T, (gone["row"][:, np.newaxis], self.columns), running.kinds.amounts[gone["kind"]])
        may_go = pods["evictable"] & ~leaving
        slots, pods = slots[may_go], pods[may_go]
        row, youth = pods["row"], -started_of(pods)
        priority = np.where(pods["borrower"], BORROWER_PRIORITY, pods["priority"])
        self.highest[rows] = NOBODY
        np.minimum.at(self.highest, row, priority)
        lowest = np.flatnonzero(priority == self.highest[row])
        self.youth[rows] = 0
        np.minimum.at(self.youth, row[lowest], youth[lowest])
        last = lowest[youth[lowest] == self.youth[row[lowest]]]
        slots, row = slots[last], row[last]
        self.last[rows] = UNCLEAR
        self.last[row] = slots
        self.last[row[(self.last[row] != slots) | pods["borrower"][last]]] = UNCLEAR


@dataclass(frozen=True, slots=True)
class Search:
    """One search for victims. The floors have caught up with the running pods."""

    demand: Demand
    runner: Runner
    running: RunningPods
    budgets: BudgetTable
    floors: LossBounds

    def cheapest(self, rows: Rows) -> Chosen | None:
        """Return the best row among `rows` and who must leave it; None where so few looks do not tell."""
        spec, floors, ranks = self.demand.spec, self.floors, self.runner.nodes.ranks()
        if not self.runner.by_amounts(spec):
            return None
        rows = rows[self.runner.allowed(spec, rows)]
        free = rows[self.runner.fits_using(spec, rows, self._used(rows))]
        if len(free):
            return Chosen(int(free[ranks[free].argmin()]), (), 0)
        found: list[tuple[Loss, Chosen]] = []
        for _ in range(min(LOOKS_MAX, len(rows))):
            row = floors.lowest(rows, ranks)
            floor = floors.of(row, int(ranks[row]))
            if floor.highest >= self.demand.priority:
                return min(found)[1] if found else None
            found += self._look(row, floor)
            if found and min(found)[0] <= floor:
                return min(found)[1]
            rows = rows[rows != row]
        return min(found)[1] if found and not len(rows) else None

    def _used(self, rows: Rows) -> Column:
        """Return what is used on these rows, [column, row], once those are gone who are leaving."""
        used: Column = self.runner.nodes.used.take(rows, axis=1) - self.floors.leaving.take(rows, axis=1)
        return used

    def _look(self, row: int, floor: Loss) -> list[tuple[Loss, Chosen]]:
        """Return what the row loses and how, in a list; nothing where no eviction would help.

        It is not free as it is. So where the last of all is enough, whom no budget protects, all others can stay.
        """
        last = int(self.floors.last[row])
        if last != UNCLEAR and not self.budgets.protects(uid := self.running.uid_of(last)) and self._enough(row, last):
            return [(floor, Chosen(row, (uid,), 0))]
        candidates = self._candidates(row)
        broken = self.budgets.broken([one.uid for one in candidates], np.full(len(candidates), row)).tolist()
        turns = sorted(zip(broken, candidates, strict=True), key=itemgetter(0), reverse=True)
        victims = [turns[place] for place in self._reprieve(row, [one.kind for _, one in turns])]
        if not victims:
            return []
        violations, leave = sum(breaks for breaks, _ in victims), sorted((one for _, one in victims), reverse=True)
        priorities = [BORROWER_PRIORITY if one.borrower else -one.below for one in leave]
        highest = max(priorities)
        weight = sum(0 if one.borrower else -one.below - PRIORITY_MIN for one in leave)
        oldest = min(one.started for one, priority in zip(leave, priorities, strict=True) if priority == highest)
        loss = Loss(violations, highest, weight, len(leave), -oldest, floor.rank)
        return [(loss, Chosen(row, tuple(one.uid for one in leave), violations))]

    def _enough(self, row: int, slot: int) -> bool:
        """Say whether the asker fits once the pod in this slot is gone from the row, and those who are leaving."""
        rows = np.array([row], dtype=np.intp)
        used = self._used(rows)
        used[self.floors.columns, 0] -= self.running.kinds.amounts[self.running.table["kind"][slot]]
        return bool(self.runner.fits_using(self.demand.spec, rows, used)[0])

    def _candidates(self, row: int) -> "list[_Candidate]":
        """Return who may have to leave the row, the most important first."""
        asker = self.demand.priority
        found = [
            _Candidate(
                pod.borrower, -pod.priority, pod.started_seconds or NOT_STARTED, self.running.uid_of(slot), pod.kind
            )
            for slot, pod in self.running.pods_on(row)
            if pod.evictable and not pod.leaving and (pod.borrower or pod.priority < asker)
        ]
        return sorted(found)[-VICTIMS_MAX:]

    def _reprieve(self, row: int, kinds: list[int]) -> list[int]:
        """Let those stay that can stay beside the asker; return the places of the others, none where nothing helps.

        One what-if for each turn, and a first one with nobody: who was let stay before counts in it.
        """
        amounts = np.zeros((len(self.floors.leaving), len(kinds) + 1), dtype=np.int64)
        amounts[self.floors.columns, 1:] = self.running.kinds.amounts[kinds].T
        turns = np.full(len(kinds) + 1, row, dtype=np.intp)
        put_on = amounts.cumsum(axis=1)
        used = (self.runner.nodes.used[:, row] - self.floors.leaving[:, row] - put_on[:, -1])[:, np.newaxis] + put_on
        evicted: list[int] = []
        while not (fits := self.runner.fits_using(self.demand.spec, turns, used)).all():
            first = int(fits.argmin())
            if not first:
                return []
            used[:, first:] -= amounts[:, first : first + 1]
            evicted.append(first - 1)
        return evicted


class _Candidate(NamedTuple):
    """A pod that may have to leave; they sort by importance, the most important first. `below`: priority, negated."""

    borrower: bool
    below: int
    started: int
    uid: str
    kind: int
