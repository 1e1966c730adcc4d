"""Preemption for a unit: the rows of its required pods, and the victims on all of them.

Invariants:
- Each pod gets the row that costs least beside the pods before it. What a victim frees anywhere counts for all of them.
- Rows are compared by the victims that budgets protect, the gangs that are lost, the card-seconds that are lost, and
  then as for a single pod. A pod of a unit costs what it takes with it.
- The set of victims is minimal: victims that the unit fits beside stay, the most important first, also where its pods
  move for it to rows that the other victims make free. Pods of one unit that are lost together stay or go together.
- A unit with a topology is tried in its sets of rows, the closest first, up to a limit; the least cost counts.
- Nothing here changes state.
"""

from collections import Counter
from typing import Final

import numpy as np
from msgspec import Struct

from aischeduler.framework.plugin import PlacementRequest
from aischeduler.framework.runner import Runner
from aischeduler.model.allocation import allocation_of
from aischeduler.policies.preemption import (
    NO_VICTIMS,
    Candidate,
    Candidates,
    NoCandidate,
    Preemptor,
    find_candidates,
    most_important_first,
    select_candidate,
)
from aischeduler.policies.unit_placement import (
    UnitRequest,
    all_fit_after_departures,
    assigned,
    in_rank_order,
    rows_beside,
)
from aischeduler.policies.unit_topology import closeness, row_capacity
from aischeduler.state.assigned_pod import AssignedPod
from aischeduler.state.disruption_budgets import BudgetTable
from aischeduler.state.label_index import Rows
from aischeduler.state.node_table import Column
from aischeduler.state.running_pods import RunningPods, Slots
from aischeduler.state.what_if import Trial

SETS_SEARCHED_MAX: Final = 16
"""The most sets of close rows in which victims are searched."""
MOVES_MAX: Final = 64
"""How often a search tries to move the pods of the unit, so that a victim stays."""


class UnitCandidate(Struct, frozen=True):
    """Rows on which the unit fits once the victims, and the pods that are leaving already, are gone.

    `victims` are uids, the least important first; `violations` of them are protected by a disruption budget.
    """

    pods: tuple[AssignedPod, ...]
    victims: tuple[str, ...]
    violations: int


def choose_unit_victims(
    unit: UnitRequest, runner: Runner, running: RunningPods, rows: Rows, budgets: BudgetTable
) -> UnitCandidate | NoCandidate:
    """Return rows for the required pods of the unit, and the victims whose eviction makes all of them fit."""
    rows = rows_beside(unit, runner, rows)
    slots = running.slots_on(rows)
    pods = running.table[slots]
    may_go = pods["evictable"] & (pods["borrower"] | (pods["priority"] < unit.priority))
    room = room_without(slots[may_go | pods["leaving"]], runner, running, rows)
    close = closeness(unit.topology, unit.asks[: unit.required], runner, rows, room)
    if int(close.capacity.sum()) < unit.required:
        return _refusal(unit, runner, running, rows, budgets)
    if not unit.topology:
        return _choose(unit, runner, running, rows, budgets)
    best: tuple[tuple[int, ...], UnitCandidate] | None = None
    refusal: NoCandidate | None = None
    for turn, near in enumerate(close.sets()[:SETS_SEARCHED_MAX]):
        found = _choose(unit, runner, running, near, budgets)
        if isinstance(found, NoCandidate):
            refusal = refusal or found
            continue
        found = UnitCandidate(in_rank_order(unit, runner, found.pods), found.victims, found.violations)
        slots = running.slots_of(found.victims)
        work = int(running.work(slots, unit.loss.cards, unit.loss.now_seconds).sum())
        cost = (found.violations, len(running.units_lost(slots.tolist())), work, len(slots), turn)
        if best is None or cost < best[0]:
            best = cost, found
    return best[1] if best is not None else refusal or _refusal(unit, runner, running, rows, budgets)


def room_without(gone: Slots, runner: Runner, running: RunningPods, rows: Rows) -> Column:
    """Return what is free on `rows` [column, row] without these running pods there."""
    nodes = runner.nodes
    room: Column = nodes.allocatable[:, rows] - nodes.used[:, rows]
    at = np.searchsorted(rows, running.table["row"][gone])
    amounts = running.specs.amounts[running.table["spec"][gone]]
    for resource, number in running.specs.resources.items():
        room[nodes.column(resource)] += np.bincount(at, amounts[:, number], len(rows)).astype(np.int64)
    return room


def _refusal(
    unit: UnitRequest, runner: Runner, running: RunningPods, rows: Rows, budgets: BudgetTable
) -> NoCandidate | UnitCandidate:
    """Return why no eviction helps the pods that find no room; the first of them speaks for all."""
    ask = unit.asks[0]
    found = find_candidates(Preemptor(ask.spec, unit.priority, unit.loss), runner, running, rows, budgets)
    chosen = select_candidate(found, runner, running)
    return chosen if isinstance(chosen, NoCandidate) else NoCandidate(len(rows), Counter({NO_VICTIMS: len(rows)}))


class _Search:
    """The victims that are chosen so far for the pods of a unit, and the costs of rows beside them.

    The costs of a class are kept from one pod of it to the next: only the rows that the last pods changed are asked
    again. A class whose fit depends on other rows is asked about all rows each time.
    """

    def __init__(self, unit: UnitRequest, runner: Runner, running: RunningPods, budgets: BudgetTable) -> None:
        self._unit, self._runner, self._running, self._budgets = unit, runner, running, budgets
        self._known: dict[bytes, Candidates] = {}
        self._stale: dict[bytes, set[int]] = {}

    def next(self, ask: PlacementRequest, rows: Rows) -> Candidate | NoCandidate:
        """Return the best row for a pod beside the pods and without the victims so far."""
        key, runner = ask.spec.key, self._runner
        if key not in self._known or runner.crosses_rows(ask.spec):
            self._known[key], self._stale[key] = self._find(ask, rows), set()
            return select_candidate(self._known[key], runner, self._running)
        anew = np.array(sorted(self._stale[key].intersection(rows.tolist())), dtype=np.intp)
        costs, self._stale[key] = self._known[key].costs, set()
        if len(anew):
            costs.forget(anew)
            costs.update(self._find(ask, anew).costs)
        row = costs.best(runner.nodes)
        at = rows if row is None else np.array([row], dtype=np.intp)
        return select_candidate(self._find(ask, at), runner, self._running)

    def changed(self, rows: set[int]) -> None:
        """Note rows on which a pod was placed, or whose pods cost something else now."""
        for stale in self._stale.values():
            stale.update(rows)

    def _find(self, ask: PlacementRequest, rows: Rows) -> Candidates:
        preemptor = Preemptor(ask.spec, self._unit.priority, self._unit.loss)
        return find_candidates(preemptor, self._runner, self._running, rows, self._budgets)


def _choose(
    unit: UnitRequest, runner: Runner, running: RunningPods, rows: Rows, budgets: BudgetTable
) -> UnitCandidate | NoCandidate:
    pods, asks = unit.pods[: unit.required], unit.asks[: unit.required]
    placed: list[AssignedPod] = []
    victims = set[int]()
    search = _Search(unit, runner, running, budgets)
    with running.trying():
        with Trial(runner.nodes) as trial:
            for pod, ask in zip(pods, asks, strict=True):
                found = search.next(ask, rows)
                if not isinstance(found, Candidate):
                    return found
                slots = running.slots_of(found.victims)
                search.changed({found.row, *running.rows_lost_with(slots)})
                running.table["leaving"][slots] = True
                victims.update(slots.tolist())
                placed.append(AssignedPod(pod, ask.spec, found.row, allocation_of(ask.spec)))
                trial.place(assigned(pod, ask.spec, found.row, runner))
        reprieve = _Reprieve(unit, runner, running, rows, placed)
        leave = most_important_first(running, sorted(reprieve.left_of(victims)))[::-1]
    uids = running.uids_of(leave)
    violations = int(budgets.broken(uids, np.zeros(len(uids), dtype=np.intp)).sum())
    return UnitCandidate(tuple(reprieve.placed), tuple(uids), violations)


class _Reprieve:
    """Victims stay beside which the unit fits, where its pods are or on other rows that the other victims make free."""

    def __init__(
        self, unit: UnitRequest, runner: Runner, running: RunningPods, rows: Rows, placed: list[AssignedPod]
    ) -> None:
        self._unit, self._runner, self._running, self._rows = unit, runner, running, rows
        self._crosses = any(runner.crosses_rows(one.spec) for one in placed)
        self._moves = MOVES_MAX if int(self._capacity().sum()) > unit.required else 0
        self.placed = placed

    def left_of(self, victims: set[int]) -> set[int]:
        """Let victims stay, the most important first; return the slots of the others.

        The victims of a row with one placed pod are minimal already, unless a pod of a unit went with one elsewhere.
        """
        running, groups = self._running, dict[tuple[int, int], list[int]]()
        for slot in most_important_first(running, sorted(victims)).tolist():
            unit = int(running.table["unit"][slot])
            groups.setdefault((unit, 0) if unit else (0, slot), []).append(slot)
        shared = {int(running.table["row"][slot]) for (unit, _), slots in groups.items() if unit for slot in slots}
        count = Counter(one.row for one in self.placed)
        left = set[int]()
        for (unit, _), group in groups.items():
            row = int(running.table["row"][group[0]])
            minimal = not unit and not self._crosses and row not in shared and count[row] == 1
            running.table["leaving"][group] = False
            if (minimal or not self._fits_beside(group)) and not self._fits_elsewhere():
                running.table["leaving"][group] = True
                left.update(group)
        return left

    def _fits_beside(self, group: list[int]) -> bool:
        """Return whether the pods fit on their rows; a victim that stays takes room on its own row only."""
        rows = {int(self._running.table["row"][slot]) for slot in group}
        near = self.placed if self._crosses else [one for one in self.placed if one.row in rows]
        return all_fit_after_departures(near, self._runner, self._running)

    def _fits_elsewhere(self) -> bool:
        """Move pods to other rows where the unit fits so; a few times at most."""
        if not self._moves:
            return False
        left = dict(zip(self._rows.tolist(), self._capacity().tolist(), strict=True))
        if sum(left.values()) < self._unit.required:
            return False
        self._moves -= 1
        moved: list[AssignedPod] = []
        homeless: list[AssignedPod] = []
        for one in self.placed:
            (moved if left[one.row] > 0 else homeless).append(one)
            left[one.row] -= 1
        free = [row for row, room in left.items() for _ in range(room)]
        for one, row in zip(homeless, free, strict=False):
            moved.append(AssignedPod(one.pod, one.spec, row, one.allocation))
        if len(moved) < len(self.placed) or not all_fit_after_departures(moved, self._runner, self._running):
            return False
        order = {one.pod.uid: turn for turn, one in enumerate(self.placed)}
        self.placed = sorted(moved, key=lambda one: order[one.pod.uid])
        return True

    def _capacity(self) -> Column:
        """Return how many pods of the unit each row may hold without the pods that leave."""
        slots = self._running.slots_on(self._rows)
        gone = slots[self._running.table["leaving"][slots]]
        room = room_without(gone, self._runner, self._running, self._rows)
        return row_capacity(self._unit.asks[: self._unit.required], self._runner, self._rows, room)
