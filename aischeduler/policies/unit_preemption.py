"""Preemption for a unit: the rows of its required pods, and the victims on all of them.

Invariants:
- Each group of alike pods gets the rows that cost least beside those before it. Where one does not fit, it comes first
  in another order, a few times; then rows are searched that hold all pods without all that may leave.
- Rows are compared by the victims that budgets protect, the gangs that are lost, the card-seconds that are lost, and
  then as for a single pod. A pod of a unit costs what it takes with it.
- The set of victims is minimal: victims that the unit fits beside stay, the most important first, also where its pods
  move for it to rows that the other victims make free. Pods of one unit that are lost together stay or go together.
  The moves, and the tests of pods whose fit depends on more than amounts, have a budget.
- A unit with a topology is tried in its sets of rows, the closest first, up to a limit; the least cost counts.
- Nothing here changes state.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from aischeduler.framework.runner import Runner
from aischeduler.model.allocation import allocation_of
from aischeduler.policies.eviction_order import most_important_first, potential_victims
from aischeduler.policies.gang_losses import lost_with, units_lost
from aischeduler.policies.preemption import (
    NO_VICTIMS,
    NoCandidate,
    VictimRequest,
    find_candidates,
    select_candidate,
)
from aischeduler.policies.unit_packing import Places, pack, preferring
from aischeduler.policies.unit_placement import (
    UnitRequest,
    all_fit_after_departures,
    in_rank_order,
    kinds_of,
    on_packed_rows,
    rows_beside,
)
from aischeduler.policies.unit_topology import closeness
from aischeduler.policies.unit_victims import UnitVictims, groups_of, leaving_pods, room_without
from aischeduler.state.disruption_budgets import BudgetTable
from aischeduler.state.label_index import Rows
from aischeduler.state.node_table import Column
from aischeduler.state.pod_records import AssignedPod
from aischeduler.state.running_pods import RunningPods
from aischeduler.state.what_if import Trial

SETS_SEARCHED_MAX: Final = 16
"""The most sets of close rows in which victims are searched."""
SEARCHED_PODS_MAX: Final = 1024
"""No further set is searched once this many pods were; one is in any case."""
GROUPS_MAX: Final = 4
"""The most groups of alike pods for which the cheapest rows are searched."""
ORDERS_MAX: Final = 3
"""The most orders of its groups in which a unit is tried."""
MOVES_MAX: Final = 64
"""How often a search moves pods of the unit, so that a victim stays."""
TESTS_MAX: Final = 128
"""The most pods of the unit that a search tests beside victims that are to stay, where amounts alone do not decide."""


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
    """Return rows for the required pods of the unit, and the victims whose eviction makes all of them fit.

    Rows that are closed to one of them are for none: where each pod goes is not known while victims are chosen.
    """
    rows = rows_beside(unit, runner, rows)
    for ask in {id(ask): ask for ask in unit.asks[: unit.required]}.values():
        rows = ask.open(rows)
    room = _room_of_all(unit, runner, running, rows, budgets)
    close = closeness(unit.topology, unit.asks[: unit.required], runner, rows, room)
    if int(close.capacity.sum()) < unit.required:
        return _refusal(unit, runner, running, rows, budgets)
    if not unit.topology:
        return _choose(unit, runner, running, rows, budgets)
    best: tuple[tuple[int, ...], UnitCandidate] | None = None
    refusal: NoCandidate | None = None
    for turn, near in enumerate(close.sets()[:SETS_SEARCHED_MAX]):
        if turn * unit.required >= SEARCHED_PODS_MAX:
            break
        found = _choose(unit, runner, running, near, budgets)
        if isinstance(found, NoCandidate):
            refusal = refusal or found
            continue
        found = UnitCandidate(in_rank_order(unit, runner, found.pods), found.victims, found.violations)
        slots = running.slots_of(found.victims)
        work = int(running.work(slots, unit.preemptor.loss.cards, unit.preemptor.loss.now_seconds).sum())
        cost = (found.violations, len(units_lost(running, slots.tolist())), work, len(slots), turn)
        if best is None or cost < best[0]:
            best = cost, found
    return best[1] if best is not None else refusal or _refusal(unit, runner, running, rows, budgets)


def _room_of_all(unit: UnitRequest, runner: Runner, running: RunningPods, rows: Rows, budgets: BudgetTable) -> Column:
    """Return what is free on rows without all pods that leave, or may be evicted for the unit."""
    may_go = potential_victims(unit.preemptor, running, running.slots_on(rows), budgets)
    gone = np.append(leaving_pods(running, rows), may_go)
    return room_without(gone, runner, running, rows)


def _refusal(
    unit: UnitRequest, runner: Runner, running: RunningPods, rows: Rows, budgets: BudgetTable
) -> NoCandidate | UnitCandidate:
    """Return why no eviction helps the pods that find no room; the first of them speaks for all."""
    ask = unit.asks[0]
    found = find_candidates(VictimRequest(ask.spec, unit.preemptor), runner, running, rows, budgets)
    chosen = select_candidate(found, runner, running)
    return chosen if isinstance(chosen, NoCandidate) else NoCandidate(len(rows), Counter({NO_VICTIMS: len(rows)}))


def _choose(
    unit: UnitRequest, runner: Runner, running: RunningPods, rows: Rows, budgets: BudgetTable
) -> UnitCandidate | NoCandidate:
    """Return the victims of the first order of the groups in which all pods fit, else those on rows that hold them."""
    search, groups = UnitVictims(unit, runner, running, rows, budgets), groups_of(unit, runner)
    refusal: NoCandidate | None = None
    order, tried = list(range(len(groups))), list[list[int]]()
    while len(groups) <= GROUPS_MAX and order not in tried and len(tried) < ORDERS_MAX:
        search.begin()
        with running.trying():
            with Trial(runner.nodes) as trial:
                failed = next((number for number in order if not search.place(groups[number], trial)), None)
                if failed is not None and not tried:
                    refusal = search.refusal(groups[failed])
            if failed is None:
                where = [search.placed[turn] for turn in range(unit.required)]
                return _Reprieve(unit, runner, running, rows, where).candidate(search.victims, budgets, found=True)
        tried.append(order)
        order = [failed, *(number for number in order if number != failed)]
    search.begin()
    preferred = preferring(search.cheapest_first(groups[0]), rows)
    room = _room_of_all(unit, runner, running, rows, budgets)
    found = _on_rows_that_hold(unit, runner, rows, room, preferred)
    if found is None:
        return refusal or NoCandidate(len(rows), Counter({NO_VICTIMS: len(rows)}))
    with running.trying():
        victims = _all_that_may_go(unit, running, np.unique(found), budgets)
        running.table["leaving"][victims] = True
        if not _fits(unit, runner, running, found):
            return refusal or NoCandidate(len(rows), Counter({NO_VICTIMS: len(rows)}))
        return _Reprieve(unit, runner, running, rows, found).candidate({*victims}, budgets, found=False)


def _on_rows_that_hold(
    unit: UnitRequest, runner: Runner, rows: Rows, room: Column, preferred: Column
) -> list[int] | None:
    """Return rows with this room that hold all required pods by amounts, and rather the preferred ones."""
    asks = unit.asks[: unit.required]
    kinds = kinds_of(asks, runner, rows)
    found = pack([*kinds.values()], Places(room, preferred, runner.nodes.ranks()[rows]))
    return rows[on_packed_rows(asks, kinds, found)].tolist() if found is not None else None


def _all_that_may_go(unit: UnitRequest, running: RunningPods, rows: Rows, budgets: BudgetTable) -> list[int]:
    """Return the slots of the pods on rows that may be evicted for the unit, and of all that are lost with them."""
    victims = potential_victims(unit.preemptor, running, running.slots_on(rows), budgets).tolist()
    return [*victims, *lost_with(running, victims)]


def _fits(unit: UnitRequest, runner: Runner, running: RunningPods, where: list[int]) -> bool:
    """Return whether the pods fit on their rows together, where they are not too many to test."""
    if all(runner.by_amounts(ask.spec) for ask in unit.asks[: unit.required]):
        return True
    pods = [_claiming(unit, turn, row) for turn, row in enumerate(where)]
    return len(pods) <= TESTS_MAX and all_fit_after_departures(pods, runner, running)


def _claiming(unit: UnitRequest, turn: int, row: int) -> AssignedPod:
    """Return a pod of the unit on a row whose room it is to claim; nothing is chosen for it yet."""
    spec = unit.asks[turn].spec
    return AssignedPod(unit.pods[turn], spec, row, allocation_of(spec))


class _Reprieve:
    """Victims stay beside which the unit fits, where its pods are or on other rows that the other victims make free.

    `where` is the row of each pod. What is `left` on the rows is so beside the pods of the unit.
    """

    def __init__(self, unit: UnitRequest, runner: Runner, running: RunningPods, rows: Rows, where: list[int]) -> None:
        self._unit, self._runner, self._running, self._rows = unit, runner, running, rows
        self._specs = {ask.spec.key: ask.spec for ask in unit.asks[: unit.required]}
        self._keys = [ask.spec.key for ask in unit.asks[: unit.required]]
        self._where = where
        self._crosses = any(runner.crosses_rows(spec) for spec in self._specs.values())
        self._plain = {key: not self._crosses and runner.by_amounts(spec) for key, spec in self._specs.items()}
        self._asked = {key: runner.nodes.request(spec) for key, spec in self._specs.items()}
        self._columns = [runner.nodes.column(resource) for resource in running.specs.resources]
        self._at = dict(zip(rows.tolist(), range(len(rows)), strict=True))
        self._turns: dict[int, list[int]] = {}
        """Row -> the turns of the pods on it."""
        self._left = room_without(leaving_pods(running, rows), runner, running, rows)
        for turn, row in enumerate(where):
            self._turns.setdefault(row, []).append(turn)
        for key, pods in self._pods_of_classes().items():
            self._left -= self._asked[key][:, None] * pods
        self._moves, self._tests = MOVES_MAX if self._has_spare() else 0, TESTS_MAX
        self._moved = False
        self._full = set[bytes]()
        """The classes that find no room on another row any more: what victims that stay take is not given back."""

    def _pods_of_classes(self) -> dict[bytes, Column]:
        """Return for each class how many of its pods are on each of the rows."""
        at: dict[bytes, list[int]] = {key: [] for key in self._specs}
        for key, row in zip(self._keys, self._where, strict=True):
            at[key].append(self._at[row])
        return {key: np.bincount(some, minlength=len(self._rows)) for key, some in at.items()}

    def candidate(self, victims: set[int], budgets: BudgetTable, *, found: bool) -> UnitCandidate:
        """Return the rows of the pods, and the victims that do not stay.

        Where the victims were `found` pod by pod, those of a row with one pod are all needed there.
        """
        leave = most_important_first(self._running, sorted(self._left_of(victims, found=found)))[::-1]
        uids = self._running.uids_of(leave)
        violations = int(budgets.broken(uids, np.zeros(len(uids), dtype=np.intp)).sum())
        pods = tuple(_claiming(self._unit, turn, row) for turn, row in enumerate(self._where))
        return UnitCandidate(pods, tuple(uids), violations)

    def _has_spare(self) -> bool:
        """Return whether a row holds one more pod of a class; else no pod can move."""
        for key, asked in self._asked.items():
            columns = np.flatnonzero(asked)
            rows = self._rows[(self._left[columns] >= asked[columns, None]).all(axis=0)]
            if len(rows) and self._runner.allowed(self._specs[key], rows).any():
                return True
        return False

    def _left_of(self, victims: set[int], *, found: bool) -> set[int]:
        """Let victims stay, the most important first; return the slots of the others."""
        running, groups = self._running, dict[tuple[int, int], list[int]]()
        for slot in most_important_first(running, sorted(victims)).tolist():
            unit = int(running.table["unit"][slot])
            groups.setdefault((unit, 0) if unit else (0, slot), []).append(slot)
        shared = {int(running.table["row"][slot]) for (unit, _), slots in groups.items() if unit for slot in slots}
        left, beside = set[int](), self._with_room_beside(victims)
        for (unit, _), group in groups.items():
            row = int(running.table["row"][group[0]])
            needed = found and not unit and not self._crosses and row not in shared and len(self._on(row)) == 1
            if not self._moves and (needed or not (self._moved or beside.issuperset(group))):
                left.update(group)
                continue
            running.table["leaving"][group] = False
            if not self._stay(group):
                running.table["leaving"][group] = True
                left.update(group)
        return left

    def _with_room_beside(self, victims: set[int]) -> set[int]:
        """Return the slots of the victims that leave enough by amounts if they stay, each by itself.

        As long as no pod of the unit moves, no other can stay where its pods are.
        """
        table, specs = self._running.table, self._running.specs
        slots = np.array(sorted(victims), dtype=np.intp)
        here = np.isin(table["row"][slots], self._rows)
        at = np.searchsorted(self._rows, table["row"][slots[here]])
        asked = np.zeros(self._left.shape, dtype=np.bool_)
        for key, pods in self._pods_of_classes().items():
            asked |= (self._asked[key] > 0)[:, None] & (pods > 0)
        left = self._left[:, at].copy()
        left[self._columns] -= specs.amounts[table["spec"][slots[here]]].T
        fits = ~((left < 0) & asked[:, at]).any(axis=0)
        return {*slots[~here].tolist(), *slots[here][fits].tolist()}

    def _stay(self, group: list[int]) -> bool:
        """Let victims of one unit stay where the pods fit beside them or can move; return whether they do."""
        rows = sorted({row for row in self._running.table["row"][group].tolist() if row in self._at})
        self._count(group, -1)
        near = [turn for row in rows for turn in self._turns.get(row, ())]
        if self._crosses:
            stays = self._still_fit(range(len(self._where)))
        elif all(self._plain[self._keys[turn]] for turn in near):
            stays = self._move_away([row for row in rows if self._lacks(row)])
        else:
            stays = not any(self._lacks(row) for row in rows) and self._still_fit(near)
        if not stays:
            self._count(group, 1)
        return stays

    def _count(self, slots: list[int], sign: int) -> None:
        """Give the rows what these running pods take (1), or take it from them (-1)."""
        table, specs = self._running.table, self._running.specs
        for row, number in zip(table["row"][slots].tolist(), table["spec"][slots].tolist(), strict=True):
            if row in self._at:
                self._left[self._columns, self._at[row]] += sign * specs.amounts[number]

    def _lacks(self, row: int) -> bool:
        """Return whether less is left on a row than the pods of the unit there ask for."""
        short = self._left[:, self._at[row]] < 0
        return bool(short.any()) and any((short & (self._asked[self._keys[turn]] > 0)).any() for turn in self._on(row))

    def _on(self, row: int) -> list[int]:
        return self._turns.get(row, [])

    def _still_fit(self, turns: Sequence[int]) -> bool:
        """Return whether these pods fit on their rows, asked of all rules; not once too many were tested."""
        self._tests -= len(turns)
        pods = [_claiming(self._unit, turn, self._where[turn]) for turn in turns]
        return self._tests >= 0 and all_fit_after_departures(pods, self._runner, self._running)

    def _move_away(self, rows: list[int]) -> bool:
        """Move pods from rows until the others fit there; where that fails, all stay where they are."""
        if not rows:
            return True
        if not self._moves or all(self._keys[turn] in self._full for turn in self._on(rows[0])):
            return False
        self._moves -= 1
        moved: list[tuple[int, int]] = []
        for row in rows:
            for turn in reversed(self._on(row).copy()):
                if not self._lacks(row):
                    break
                to = self._room_elsewhere(turn, rows)
                if to is not None:
                    self._move(turn, to)
                    moved.append((turn, row))
        if not any(self._lacks(row) for row in rows):
            return True
        for turn, row in reversed(moved):
            self._move(turn, row)
        return False

    def _room_elsewhere(self, turn: int, crowded: list[int]) -> int | None:
        """Return the first row by name that holds this pod too; None where there is none."""
        key = self._keys[turn]
        if key in self._full:
            return None
        asked, nodes = self._asked[key], self._runner.nodes
        columns = np.flatnonzero(asked)
        rows = self._rows[(self._left[columns] >= asked[columns, None]).all(axis=0)]
        rows = rows[self._runner.allowed(self._specs[key], rows)] if len(rows) else rows
        if not len(rows):
            self._full.add(key)
        rows = rows[~np.isin(rows, crowded)]
        if not len(rows):
            return None
        return int(rows[nodes.ranks()[rows].argmin()])

    def _move(self, turn: int, to: int) -> None:
        row, asked, self._moved = self._where[turn], self._asked[self._keys[turn]], True
        self._turns[row].remove(turn)
        self._turns.setdefault(to, []).append(turn)
        self._left[:, self._at[row]] += asked
        self._left[:, self._at[to]] -= asked
        self._where[turn] = to
