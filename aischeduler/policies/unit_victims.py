"""The victims of a unit as they are chosen: its pods on rows, a group of alike pods after the other.

Invariants:
- A group takes the row that costs least beside the groups before it, then the next; a row costs what makes it hold one
  more pod, and holds as many as then have room. What a victim frees anywhere counts for all pods.
- Costs are found for many rows at once: for the rows that were chosen, also what one more pod would cost there. They
  are kept from one order of the groups to the next; only rows that changed are asked again.
- Where units are lost with victims, the costs of other rows change with each choice. They are found again a few times;
  after that, rows come by the costs that were found last.
- Pods whose fit depends on other rows are placed one after the other.
- Pods that differ in CPU and memory alone count as one group where there are many classes: each as the largest of them.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from operator import itemgetter
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from aischeduler.framework.plugin import PlacementRequest
from aischeduler.framework.runner import Runner
from aischeduler.model.allocation import allocation_of
from aischeduler.model.names import CPU, EPHEMERAL_STORAGE, MEMORY
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.resources import PodRequest
from aischeduler.policies.eviction_order import potential_victims, ranks_of, started_of, weights_of
from aischeduler.policies.gang_losses import rows_lost_with
from aischeduler.policies.preemption import (
    Candidates,
    EvictionCosts,
    NoCandidate,
    VictimRequest,
    allocated,
    find_candidates,
    select_candidate,
)
from aischeduler.policies.unit_placement import UnitRequest, but_for_amounts
from aischeduler.state.disruption_budgets import BudgetTable
from aischeduler.state.label_index import Mask, Rows
from aischeduler.state.node_table import Column
from aischeduler.state.pod_records import AssignedPod
from aischeduler.state.running_pods import RunningPods, Slots
from aischeduler.state.what_if import Trial

CLASSES_MAX: Final = 4
"""Up to so many classes each is a group of its own; of more, those that differ in CPU and memory alone are one."""
ROUNDS_MAX: Final = 24
"""How often the costs of one more pod are found for the rows that a group chose."""
LOOKS_MAX: Final = 4
"""How often one search finds costs again because a unit is lost."""
PLENTIFUL: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)


class Group(Struct, frozen=True):
    """Pods of a unit by their turns; `ask` is the request of each, or the most that one of them asks of a resource."""

    ask: PlacementRequest
    turns: tuple[int, ...]


class _Step(Struct, frozen=True):
    """A row, and the slots of the victims without which it holds some more pods of a group. A free row needs none."""

    cost: tuple[int, ...]
    row: int
    slots: tuple[int, ...]
    holds: int


_END: Final = _Step((), -1, (), 0)
"""The row holds no more pods."""


def groups_of(unit: UnitRequest, runner: Runner) -> list[Group]:
    """Return the required pods in groups of alike ones, in the order in which the first of each comes."""
    turns: dict[bytes, list[int]] = {}
    asks = unit.asks[: unit.required]
    for turn, ask in enumerate(asks):
        turns.setdefault(ask.spec.key, []).append(turn)
    found = [Group(asks[alike[0]], tuple(alike)) for alike in turns.values()]
    return found if len(found) <= CLASSES_MAX else _merged(found, runner)


def _merged(groups: list[Group], runner: Runner) -> list[Group]:
    """Return groups of which those are one that differ in CPU and memory alone, where amounts decide."""
    alike: list[tuple[object, list[Group]]] = []
    for group in groups:
        spec = group.ask.spec
        scarce = sorted((name, amount) for name, amount in spec.request.amounts.items() if name not in PLENTIFUL)
        what = (scarce, group.ask.placement, but_for_amounts(spec)) if runner.by_amounts(spec) else spec.key
        others = next((others for other, others in alike if other == what), None)
        if others is None:
            alike.append((what, [group]))
        else:
            others.append(group)
    return [
        Group(_most_of([ask.ask for ask in same]), tuple(sorted(turn for ask in same for turn in ask.turns)))
        for _, same in alike
    ]


def _most_of(asks: Sequence[PlacementRequest]) -> PlacementRequest:
    """Return one request where each of these fits; they differ in amounts alone."""
    specs: dict[bytes, PodSpec] = {ask.spec.key: ask.spec for ask in asks}
    if len(specs) == 1:
        return asks[0]
    requests = [spec.request for spec in specs.values()]
    names = sorted({name for request in requests for name in request.amounts})
    most = PodRequest(
        {name: max(request.amounts.get(name, 0) for request in requests) for name in names},
        max(request.score_cpu_milli for request in requests),
        max(request.score_memory_bytes for request in requests),
    )
    key = blake2b(b"".join(specs)).digest()  # of the classes together: each has a key of its own
    return PlacementRequest(replace(asks[0].spec, key=key, request=most), asks[0].placement)


def leaving_pods(running: RunningPods, rows: Rows) -> Slots:
    """Return the slots of the pods on rows that leave."""
    slots = running.slots_on(rows)
    found: Slots = slots[running.table["leaving"][slots]]
    return found


def room_without(gone: Slots, runner: Runner, running: RunningPods, rows: Rows) -> Column:
    """Return what is free on `rows` [column, row] without these running pods there."""
    nodes = runner.nodes
    room: Column = nodes.allocatable[:, rows] - nodes.used[:, rows]
    at = np.searchsorted(rows, running.table["row"][gone])
    amounts = running.specs.amounts[running.table["spec"][gone]]
    for resource, number in running.specs.resources.items():
        room[nodes.column(resource)] += np.bincount(at, amounts[:, number], len(rows)).astype(np.int64)
    return room


class _Known:
    """The costs of rows for a group, and the victims on them. `stale` rows changed since."""

    def __init__(self, found: Candidates) -> None:
        self.costs: EvictionCosts = found.costs
        self.stale = set[int]()
        order = np.argsort(found.victims.rows, kind="stable")
        self._rows, self._slots = found.victims.rows[order], found.victims.slots[order]
        self._anew: dict[int, Slots] = {}

    def update(self, rows: Rows, found: Candidates) -> None:
        """Take the newer costs of these rows, and the victims on them."""
        self.costs.forget(rows)
        self.costs.update(found.costs)
        for row in rows.tolist():
            self._anew[row] = found.victims.slots[found.victims.rows == row]

    def victims(self, rows: Rows) -> list[tuple[int, ...]]:
        """Return for each row the slots of the victims without which it holds one more pod."""
        first, last = (np.searchsorted(self._rows, rows + end).tolist() for end in (0, 1))
        anew, slots = self._anew, self._slots.tolist()
        return [
            tuple(anew[row].tolist()) if row in anew else tuple(slots[start:end])
            for row, start, end in zip(rows.tolist(), first, last, strict=True)
        ]


class UnitVictims:
    """Pods of the unit on rows, and their victims, in one order of its groups. It is used inside `running.trying()`."""

    def __init__(
        self, unit: UnitRequest, runner: Runner, running: RunningPods, rows: Rows, budgets: BudgetTable
    ) -> None:
        self._unit, self._runner, self._running, self._budgets = unit, runner, running, budgets
        self._rows = rows
        self._known: dict[bytes, _Known] = {}
        self._potential = potential_victims(unit.preemptor, running, running.slots_on(rows), budgets)
        self._touched = set[int]()
        """The rows that are not as before the search."""
        self._looks = LOOKS_MAX
        self.placed: dict[int, int] = {}
        """Turn of a pod -> its row."""
        self.victims = set[int]()

    def begin(self) -> None:
        """Forget the pods and victims of the last order."""
        for known in self._known.values():
            known.stale |= self._touched
        self._touched = set()
        self.placed, self.victims = {}, set()

    def place(self, group: Group, trial: Trial) -> bool:
        """Choose rows and victims for all pods of a group; return whether that works."""
        left = len(group.turns)
        if left > 1 and not self._runner.crosses_rows(group.ask.spec):
            left -= self._commit(group, self._chosen_at_once(group), left, trial)
        return left == 0 or self._one_after_another(group, left, trial)

    def refusal(self, group: Group) -> NoCandidate | None:
        """Return why no row holds the first pod of a group that has none now."""
        turn = next(turn for turn in group.turns if turn not in self.placed)
        found = select_candidate(self._find(self._unit.asks[turn], self._rows), self._runner, self._running)
        return found if isinstance(found, NoCandidate) else None

    def cheapest_first(self, group: Group) -> list[int]:
        """Return the rows by what one pod of a group costs there, without rows that hold none."""
        return [step.row for step in self._steps(group, len(self._rows))]

    def _chosen_at_once(self, group: Group) -> list[_Step]:
        """Choose rows for the pods of a group; none where a unit is lost with victims, which changes other costs."""
        need = len(group.turns)
        steps = self._steps(group, need)
        if self._loses_unit(steps):
            return []
        chain = {step.row: [step] for step in steps}
        for _ in range(ROUNDS_MAX):
            chosen, ends = _cheapest(chain, need)
            if ends and sum(step.holds for step in chosen) >= need:
                ends = self._not_dearer(group.ask.spec, chosen, ends)
            if not ends:
                return chosen
            self._look_further(group, chain, ends)
        return _cheapest(chain, need)[0]

    def _not_dearer(self, spec: PodSpec, chosen: list[_Step], rows: list[int]) -> list[int]:
        """Return the rows where one more pod may cost no more than the last of these steps, by a bound of its cost.

        It costs as much as one of its victims alone, at least. Where more than amounts decides, it may cost none.
        """
        running, loss, most = self._running, self._unit.preemptor.loss, chosen[-1].cost
        first = 3 if loss.cards else 2  # after what comes before the cost of single victims: budgets, and units
        if any(most[1:first]) or not chosen[-1].slots or not self._runner.by_amounts(spec):
            return rows
        looks: Mask = np.zeros(len(self._runner.nodes.used[0]), dtype=np.bool_)
        looks[rows] = True
        taken = running.table["leaving"].copy()
        taken[[slot for step in chosen for slot in step.slots]] = True
        slots = self._potential[looks[running.table["row"][self._potential]] & ~taken[self._potential]]
        pods = running.pods_in(slots)
        ranks = ranks_of(pods)
        costs = [ranks, weights_of(ranks), np.ones_like(ranks), -started_of(pods)]
        if loss.cards:
            costs.insert(0, running.work(slots, loss.cards, loss.now_seconds))
        dearer, equal = np.zeros(len(slots), dtype=np.bool_), np.ones(len(slots), dtype=np.bool_)
        for cost, limit in zip(costs, most[first:], strict=False):
            dearer |= equal & (cost > limit)
            equal &= cost == limit
        may = {*pods["row"][~dearer].tolist()}
        return [row for row in rows if row in may]

    def _loses_unit(self, steps: Iterable[_Step]) -> bool:
        slots = [slot for step in steps for slot in step.slots]
        return bool(self._running.table["unit"][slots].any()) if slots else False

    def _look_further(self, group: Group, chain: dict[int, list[_Step]], rows: list[int]) -> None:
        """Find what one more pod costs on rows on which all steps so far are taken."""
        leaving, spec, pod = self._running.table["leaving"], group.ask.spec, self._unit.pods[group.turns[0]]
        slots = [slot for row in rows for step in chain[row] for slot in step.slots]
        with Trial(self._runner.nodes) as trial:
            at = [(row, sum(step.holds for step in chain[row])) for row in rows]
            gone = np.array(slots, dtype=np.intp)
            trial.place_all(self._placed([(pod, spec, row) for row, pods in at for _ in range(pods)], gone))
            leaving[slots] = True
            found = _Known(self._find(group.ask, np.array(sorted(rows), dtype=np.intp)))
            further = {step.row: step for step in self._steps_of(group, found, len(rows))}
            leaving[slots] = False
        loses = self._loses_unit(further.values())
        for row in rows:
            step = further.get(row, _END)
            chain[row].append(_END if loses and self._loses_unit([step]) else step)

    def _one_after_another(self, group: Group, left: int, trial: Trial) -> bool:
        """Take row after row; find the costs of rows that changed again as long as there are looks."""
        crosses = self._runner.crosses_rows(group.ask.spec)
        while left:
            steps = self._steps(group, left)
            if not steps:
                return False
            before, taken = len(self.placed), set[int]()
            for step in steps:
                if step.row in taken:
                    continue
                if len(self.placed) > before and (crosses or (self._looks > 0 and step.slots)):
                    break
                taken |= self._take(group, step, left, trial)
                left = sum(turn not in self.placed for turn in group.turns)
                if not left:
                    break
            self._looks -= 1
        return True

    def _take(self, group: Group, step: _Step, left: int, trial: Trial) -> set[int]:
        """Take a step, and then rows that hold pods because more was lost with its victims; return all rows taken."""
        table, taken = self._running.table, {step.row}
        left -= self._commit(group, [step], left, trial)
        elsewhere = {int(row) for row in table["row"][list(step.slots)]} - taken if step.slots else set[int]()
        rows = np.array(sorted(elsewhere.intersection(self._rows.tolist())), dtype=np.intp)
        if left and len(rows) and self._runner.by_amounts(group.ask.spec):
            rows = rows[self._runner.could_run(group.ask.spec, rows)]
            rows = rows[np.argsort(self._runner.nodes.ranks()[rows])]
            for row, holds in zip(rows.tolist(), self._holds(group.ask.spec, rows, ()), strict=True):
                if holds and left:
                    left -= self._commit(group, [_Step((), row, (), holds)], left, trial)
                    taken.add(row)
        return taken

    def _placed(self, pods: Sequence[tuple[Pod, PodSpec, int]], gone: Slots) -> list[AssignedPod]:
        """Return pods on rows, each with what it has for itself once the pods of `gone` are gone."""
        placed = [AssignedPod(pod, spec, row, allocation_of(spec)) for pod, spec, row in pods]
        return allocated(placed, gone, self._runner, self._running)

    def _commit(self, group: Group, steps: Sequence[_Step], left: int, trial: Trial) -> int:
        """Take steps for at most `left` pods, the last ones of the group; return for how many."""
        running = self._running
        slots = np.array([slot for step in steps for slot in step.slots], dtype=np.intp)
        slots = slots[~running.table["leaving"][slots]]
        running.table["leaving"][slots] = True
        self.victims.update(slots.tolist())
        rows = [step.row for step in steps for _ in range(step.holds)]
        turns = group.turns[len(group.turns) - left :]
        taken = list(zip(turns, rows, strict=False))
        pods, spec = self._unit.pods, group.ask.spec
        trial.place_all(self._placed([(pods[turn], spec, row) for turn, row in taken], slots))
        self.placed.update(taken)
        changed = {row for _, row in taken}.union(rows_lost_with(running, slots))
        self._touched |= changed
        for known in self._known.values():
            known.stale |= changed
        return len(taken)

    def _steps(self, group: Group, most: int) -> list[_Step]:
        """Return the rows that cost least for one more pod, at most so many, the cheapest first."""
        key, ask = group.ask.spec.key, group.ask
        known = self._known.get(key)
        if known is None or self._runner.crosses_rows(ask.spec):
            known = self._known[key] = _Known(self._find(ask, self._rows))
        elif known.stale:
            rows = np.array(sorted(known.stale.intersection(self._rows.tolist())), dtype=np.intp)
            known.stale = set()
            if len(rows):
                known.update(rows, self._find(ask, rows))
        return self._steps_of(group, known, most)

    def _steps_of(self, group: Group, known: _Known, most: int) -> list[_Step]:
        costs, ranks = known.costs, self._runner.nodes.ranks()
        at = np.flatnonzero(costs.free | costs.helped)
        paid = np.where(costs.free[at], 0, costs.columns[:, at])
        rank = ranks[costs.rows[at]]
        order = np.lexsort((rank, *paid[::-1], ~costs.free[at]))[:most]
        paid = np.stack((~costs.free[at], *paid, rank))[:, order]
        rows, free = costs.rows[at[order]], costs.free[at[order]].tolist()
        slots = [() if is_free else of_row for is_free, of_row in zip(free, known.victims(rows), strict=True)]
        holds = self._holds(group.ask.spec, rows, slots)
        keys = zip(*paid.tolist(), strict=True)
        return [_Step(*step) for step in zip(keys, rows.tolist(), slots, np.maximum(holds, 1).tolist(), strict=True)]

    def _holds(self, spec: PodSpec, rows: Rows, victims: Sequence[Sequence[int]]) -> Column:
        """Return how many such pods each row holds without its victims there; one where more than amounts decides."""
        if not len(rows) or not self._runner.by_amounts(spec):
            return np.ones(len(rows), dtype=np.int64)
        table, order = self._running.table, np.argsort(rows)
        slots = np.array([slot for each in victims for slot in each], dtype=np.intp)
        of_row = np.repeat(rows, [len(each) for each in victims]) if len(victims) else rows[:0]
        gone = np.append(leaving_pods(self._running, rows), slots[table["row"][slots] == of_row])
        room = room_without(gone, self._runner, self._running, rows[order])
        asked = self._runner.nodes.request(spec)
        columns = np.flatnonzero(asked)
        holds: Column = np.empty(len(rows), dtype=np.int64)
        holds[order] = np.maximum(room[columns] // asked[columns, None], 0).min(axis=0)
        return holds

    def _find(self, ask: PlacementRequest, rows: Rows) -> Candidates:
        return find_candidates(
            VictimRequest(ask.spec, self._unit.preemptor), self._runner, self._running, rows, self._budgets
        )


def _cheapest(chain: dict[int, list[_Step]], need: int) -> tuple[list[_Step], list[int]]:
    """Take the cheapest step that is next on its row until enough pods are held.

    Return the steps, and the rows whose last known step was taken before the last of all.
    """
    ordered = list[tuple[tuple[int, ...], int, int, _Step]]()
    most: dict[int, tuple[int, ...]] = {}
    """Row -> the dearest step so far: a cheaper one behind it comes next once that is taken."""
    number, rows = 0, [*chain]
    while rows:  # the steps of each number are almost in order, which sorts fast
        rows = [row for row in rows if number < len(chain[row]) and chain[row][number] is not _END]
        for row in rows:
            step = chain[row][number]
            most[row] = max(step.cost, most[row]) if number else step.cost
            ordered.append((most[row], row, number, step))
        number += 1
    ordered.sort(key=itemgetter(0, 1, 2))
    chosen, ends = list[_Step](), list[int]()
    for _, row, number, step in ordered:
        if need <= 0:
            break
        chosen.append(step)
        need -= step.holds
        if number + 1 == len(chain[row]):
            ends.append(row)
    return chosen, [row for row in ends if need > 0 or row != chosen[-1].row]
