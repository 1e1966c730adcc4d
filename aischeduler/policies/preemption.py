"""Preemption: choose the node, and the victims on it, whose eviction makes room for one home pod.

Invariants:
- The live filters decide what fits, asked about the node table without the evicted pods. There is no second rule here.
- A pod that is leaving counts as gone: its room is free, and it is no victim a second time.
- A node without victims beats every other node. `victims` says who may be evicted, and who goes first.
- Pods that are of no use without a victim of their unit are victims too, on whatever node, and count in the cost.
- The set of victims is minimal: a pod that fits beside the preemptor stays; the most important pods are tried first.
- The result does not depend on the order in which pods or nodes came.

Source: kube-scheduler's DefaultPreemption (reprieve, disruption budgets, order of nodes). Borrowers are added.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from aischeduler.framework.allocating import allocation_on, claims_something
from aischeduler.framework.runner import Runner
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.pool import Pool
from aischeduler.policies.eviction_order import (
    LAST,
    STANDING_BITS,
    Loss,
    Preemptor,
    importance_of,
    may_evict,
    most_important_first,
    potential_victims,
    ranks_of,
    started_of,
    weights_of,
)
from aischeduler.policies.gang_losses import costs_kept, lost_with, spared_instead
from aischeduler.state.diagnosis import Diagnosis
from aischeduler.state.disruption_budgets import BudgetTable
from aischeduler.state.label_index import Mask, Rows
from aischeduler.state.node_table import Column, NodeTable
from aischeduler.state.pod_records import AssignedPod
from aischeduler.state.running_pods import RunningPods, Slots
from aischeduler.state.what_if import Clearing, Trial

FREED_MAX: Final = 16
"""The most other rows of victims where it is looked whether fewer of them would do."""
VICTIMS_MAX: Final = 512
"""The most pods of one node that are considered as victims, the least important ones: a kubelet runs no more."""
UNIT_BITS: Final = 32
"""The numbers of units are below 2**31, and those of rows below 2**29."""

COST_RULES: Final = 5
"""The number of rules that compare rows before the names of their nodes do."""
LOSS_RULES: Final = 2
"""The number of further rules where lost work counts."""

NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
NO_VICTIMS: Final = "No preemption victims found for incoming pod"


def not_eligible(pool: Pool, pods: Iterable[tuple[Pod, str]], *, everywhere: bool) -> str:
    """Return why these pods, which are placed all or none, may not preempt in their home pool; empty where they may.

    With each pod comes the name of its profile if that does not preempt, else nothing; `everywhere` is the scheduler's
    own switch. Source: PodEligibleToPreemptOthers of kube-scheduler.
    """
    if not everywhere:
        return "switched off for the whole scheduler"
    if pool.disable_preemption:
        return f"switched off for the pool {pool.name}"
    for pod, unwilling in pods:
        if unwilling:
            return f"switched off in the profile {unwilling}"
        if not pod.preempts:
            return "not eligible due to preemptionPolicy=Never."
    return ""


class VictimRequest(Struct, frozen=True):
    """A pod of this spec that asks for room, and what decides who goes for it."""

    spec: PodSpec
    preemptor: Preemptor


class Candidate(Struct, frozen=True):
    """A row on which the preemptor fits once the victims, and the pods that are leaving already, are gone.

    `victims` are uids in the order of eviction, the least important first; those of a unit may be on other rows. There
    are none where the leaving pods free enough room. `violations` is the number of victims whose eviction breaks a
    disruption budget.
    """

    row: int
    victims: tuple[str, ...]
    violations: int


class NoCandidate(Diagnosis):
    """No eviction helps on any node; the message follows "preemption: " in the FailedScheduling event."""


class _Groups(Struct, frozen=True):
    """Pods sorted by row: the `slots` of all pods; per row its number, its first pod and its number of pods."""

    slots: Slots
    rows: Rows
    starts: Rows
    counts: Rows


class _Victims(Struct, frozen=True):
    """The victims of each row.

    For each: the row that it makes free, its slot, and whether its eviction breaks a budget.
    """

    rows: Rows
    slots: Slots
    violates: Mask


class EvictionCosts(Struct, frozen=True):
    """The cost of eviction on each of `rows`, ascending: a `free` row needs no victim, a `helped` row needs some.

    `columns` [5, rows] compare rows in kube-scheduler's order of rules, less is better: the victims that a budget
    protects, the highest rank of the victims, the sum of their priorities, their number, and the start of the
    oldest of the most important victims, negated. Where lost work counts, [7, rows]: the units of several pods that
    are lost, and the lost card-seconds, come second and third.
    """

    rows: Rows
    free: Mask
    helped: Mask
    columns: Column

    def best(self, nodes: NodeTable) -> int | None:
        """Return the row of the lowest cost; None where eviction helps on no row."""
        ranks = nodes.ranks()[self.rows]
        if self.free.any():
            return int(self.rows[least(np.flatnonzero(self.free), (ranks,))])
        if self.helped.any():
            return int(self.rows[least(np.flatnonzero(self.helped), (*self.columns, ranks))])
        return None

    def forget(self, rows: Rows) -> None:
        """Mark some of these rows as rows where eviction does not help."""
        at = np.searchsorted(self.rows, rows)
        self.free[at] = self.helped[at] = False

    def update(self, others: "EvictionCosts") -> None:
        """Copy the newer costs of some of these rows."""
        at = np.searchsorted(self.rows, others.rows)
        self.free[at], self.helped[at], self.columns[:, at] = others.free, others.helped, others.columns


def least(at: Rows, columns: Iterable[Column]) -> int:
    """Return which of these places has the smallest number in the first column; among equals the next one decides."""
    for column in columns:
        if len(at) > 1:
            of_each = column.take(at)
            at = at[of_each == of_each.min()]
    return int(at[0])


class Candidates(Struct, frozen=True):
    """The costs of rows, and the victims on them. `refusal` is set where no row helps."""

    costs: EvictionCosts
    victims: _Victims
    refusal: NoCandidate | None = None

    def candidate(self, row: int, running: RunningPods) -> Candidate:
        """Return the candidate of a row that is free or helped."""
        here = self.victims.rows == row
        slots = most_important_first(running, self.victims.slots[here].tolist())[::-1]
        return Candidate(row, tuple(running.uids_of(slots)), int(self.victims.violates[here].sum()))


def choose_victims(
    ask: VictimRequest, runner: Runner, running: RunningPods, rows: Rows, budgets: BudgetTable
) -> Candidate | NoCandidate:
    """Return the best row among `rows`, and the fewest victims on it whose eviction makes the pod fit."""
    return select_candidate(find_candidates(ask, runner, running, rows, budgets), runner, running)


def select_candidate(candidates: Candidates, runner: Runner, running: RunningPods) -> Candidate | NoCandidate:
    """Return the candidate of the lowest cost, or why there is none."""
    row = candidates.costs.best(runner.nodes)
    if row is not None:
        return candidates.candidate(row, running)
    assert candidates.refusal is not None, "where no row helps, there is a reason"
    return candidates.refusal


def fewest(
    ask: VictimRequest, runner: Runner, running: RunningPods, budgets: BudgetTable, chosen: Candidate, *, rows: Rows
) -> Candidate:
    """Return the candidate without the victims that may stay although the others go, the most important first.

    A pod that takes its unit with it frees more than itself, also on others of these rows, so that others need not go.
    Pods of a unit stay together, or all but a few that it can spare.
    """
    slots = running.slots_of(chosen.victims)
    if len(slots) < 2 or not running.table["unit"][slots].any():
        return chosen
    groups: dict[tuple[int, int], list[int]] = {}
    for slot in most_important_first(running, slots).tolist():
        unit = int(running.table["unit"][slot])
        groups.setdefault((unit, 0) if unit else (0, slot), []).append(slot)
    if len(groups) < 2 and not running.spare_of(next(iter(groups))[0]).pods:
        return chosen
    freed = np.unique(running.table["row"][slots])
    others = freed[np.isin(freed, rows) & (freed != chosen.row)].tolist()[:FREED_MAX]
    found = (_staying(ask, runner, running, row, [*groups.values()]) for row in (chosen.row, *others))
    row, stay = max(zip((chosen.row, *others), found, strict=True), key=lambda one: len(one[1] or ()))
    if not stay:
        return chosen
    staying = set(running.uids_of(np.array(sorted(stay), dtype=np.intp)))
    left = tuple(uid for uid in chosen.victims if uid not in staying)
    violations = int(budgets.broken(left, np.zeros(len(left), dtype=np.intp)).sum())
    return Candidate(row, left, violations)


def _staying(
    ask: VictimRequest, runner: Runner, running: RunningPods, row: int, groups: Sequence[list[int]]
) -> set[int] | None:
    """Return the victims that may stay if the pod goes to this row; None where it fits there without none of them."""
    rows, stay = np.array([row], dtype=np.intp), set[int]()
    if not runner.allowed(ask.spec, rows)[0]:
        return None
    of_row = [
        np.array([slot for slot in group if running.table["row"][slot] == row], dtype=np.intp) for group in groups
    ]
    with Clearing(ask.spec, runner.nodes, running, rows, runner.counts(ask.spec)) as clearing:
        here = running.slots_on(rows)
        clearing.take_off(here[running.table["leaving"][here]])
        clearing.take_off(np.concatenate(of_row))
        if not runner.fits(ask.spec, rows)[0]:
            return None
        for group, slots in zip(groups, of_row, strict=True):
            clearing.put_on(slots)
            if runner.fits(ask.spec, rows)[0]:
                stay.update(group)
                continue
            clearing.take_off(slots)
            may_go = slots[may_evict(ask.preemptor, running.pods_in(slots))][::-1]
            for few in spared_instead(running, group, may_go.tolist()):
                others = slots[~np.isin(slots, few)]
                clearing.put_on(others)
                if runner.fits(ask.spec, rows)[0]:
                    stay.update(set(group) - {*few})
                    break
                clearing.take_off(others)
    return stay


def find_candidates(
    ask: VictimRequest, runner: Runner, running: RunningPods, rows: Rows, budgets: BudgetTable
) -> Candidates:
    """Return the cost of eviction on each row, with the victims."""
    spec, preemptor = ask.spec, ask.preemptor
    candidates = rows[runner.could_run(spec, rows)]
    slots = running.slots_on(candidates)
    leaving = running.table["leaving"][slots]
    with Clearing(spec, runner.nodes, running, candidates, runner.counts(spec)) as clearing:
        clearing.take_off(slots[leaving])
        free = candidates[runner.fits(spec, candidates)]
        is_free: Mask = np.zeros(len(rows), dtype=np.bool_)
        is_free[np.searchsorted(rows, free)] = True
        if len(free) and len(free) == len(candidates):
            return _without_victims(rows, is_free, preemptor)
        staying = slots[~leaving]
        if len(free):
            staying = staying[~np.isin(running.table["row"][staying], free)]
        potential = _potential_victims(preemptor, running, staying, budgets)
        clearing.take_off(potential.slots)
        helped = runner.fits(spec, potential.rows)
        if not helped.any() and len(free):
            return _without_victims(rows, is_free, preemptor)
        victims, reasons = None, Counter[str]()
        if not helped.any():
            reasons = _reasons(potential, candidates, runner, spec)
        else:
            slots = potential.slots[np.repeat(helped, potential.counts)]
            row = running.table["row"][slots]
            violates = budgets.broken(map(running.uid_of, slots.tolist()), row)
            order = np.argsort(row * 2 + ~violates, kind="stable")
            evicted = np.sort(order[_reprieve(_grouped(running, slots[order]), clearing, runner, spec)])
            victims = _Victims(row[evicted], slots[evicted], violates[evicted])
    if victims is None:
        others = rows[runner.refused_for_now(spec, rows) & ~np.isin(rows, candidates)]
        reasons = reasons + _reasons_of_others(ask, runner, running, others, budgets)
        reasons[NOT_HELPFUL] = len(rows) - len(candidates) - len(others)
        return _without_victims(rows, is_free, preemptor, NoCandidate(len(rows), +reasons))
    victims = _whole(_with_lost(victims, running, budgets), running, budgets)
    if not len(victims.rows) and not len(free):
        return _without_victims(rows, is_free, preemptor, NoCandidate(len(rows), Counter({NO_VICTIMS: len(rows)})))
    return Candidates(_costs(rows, is_free, victims, running, preemptor.loss), victims)


def _reasons(potential: _Groups, searched: Rows, runner: Runner, spec: PodSpec) -> Counter[str]:
    """Return what refuses the pod on these rows while the potential victims are taken off."""
    without = Counter({NO_VICTIMS: len(searched) - len(potential.rows)})
    return runner.refusals(spec, potential.rows).reasons + without


def _reasons_of_others(
    ask: VictimRequest, runner: Runner, running: RunningPods, rows: Rows, budgets: BudgetTable
) -> Counter[str]:
    """Return what refuses the pod without its potential victims, on rows where no eviction helps.

    On these rows the first filter that refuses would let the pod run beside fewer pods, and a later one would not.
    """
    if not len(rows):
        return Counter()
    slots = running.slots_on(rows)
    leaving = running.table["leaving"][slots]
    potential = _potential_victims(ask.preemptor, running, slots[~leaving], budgets)
    with Clearing(ask.spec, runner.nodes, running, rows, runner.counts(ask.spec)) as clearing:
        clearing.take_off(slots[leaving])
        clearing.take_off(potential.slots)
        return _reasons(potential, rows, runner, ask.spec)


def _without_victims(rows: Rows, free: Mask, preemptor: Preemptor, refusal: NoCandidate | None = None) -> Candidates:
    helped: Mask = np.zeros(len(rows), dtype=np.bool_)
    rules = COST_RULES + LOSS_RULES * bool(preemptor.loss.cards)
    costs = EvictionCosts(rows, free, helped, np.zeros((rules, len(rows)), dtype=np.int64))
    none: Slots = np.zeros(0, dtype=np.intp)
    return Candidates(costs, _Victims(none, none, helped[:0]), refusal)


def fits_after_departures(spec: PodSpec, runner: Runner, running: RunningPods, row: int) -> bool:
    """Return whether the pod fits on this row once the pods that are leaving it are gone."""
    rows = np.array([row], dtype=np.intp)
    if not runner.allowed(spec, rows)[0]:
        return False
    slots = running.slots_on(rows)
    with Clearing(spec, runner.nodes, running, rows, runner.counts(spec)) as clearing:
        clearing.take_off(slots[running.table["leaving"][slots]])
        return bool(runner.fits(spec, rows)[0])


def claiming(
    pods: Sequence[AssignedPod], victims: Iterable[str], runner: Runner, running: RunningPods
) -> list[AssignedPod]:
    """Return pods that are to claim room, each with what allocators choose for it beside those before it."""
    return allocated(pods, running.slots_of(victims), runner, running, claims=True)


def allocated(
    pods: Sequence[AssignedPod], gone: Slots, runner: Runner, running: RunningPods, *, claims: bool = False
) -> list[AssignedPod]:
    """Return pods on rows, each with what allocators choose for it beside those before it.

    They choose as if the pods of `gone`, and those that leave already, were gone.
    """
    if not any(claims_something(runner, assigned.spec) for assigned in pods):
        return [*pods]
    found = list[AssignedPod]()
    with Trial(runner.nodes) as trial:
        for assigned in pods:
            rows = np.array([assigned.row], dtype=np.intp)
            slots = running.slots_on(rows)
            with Clearing(assigned.spec, runner.nodes, running, rows, runner.counts(assigned.spec)) as clearing:
                clearing.take_off(slots[running.table["leaving"][slots] | np.isin(slots, gone)])
                allocation = allocation_on(runner, assigned.spec, assigned.row, claims=True)
            found.append(AssignedPod(assigned.pod, assigned.spec, assigned.row, allocation, claims=claims))
            trial.place(found[-1])
    return found


def _with_lost(victims: _Victims, running: RunningPods, budgets: BudgetTable) -> _Victims:
    """Add to the victims of each row the pods of their units that are lost with them."""
    grouped = np.flatnonzero(running.table["unit"][victims.slots])
    if not len(grouped):
        return victims
    on_row: dict[int, list[int]] = {}
    for row, slot in zip(victims.rows[grouped].tolist(), victims.slots[grouped].tolist(), strict=True):
        on_row.setdefault(row, []).append(slot)
    lost = {row: lost_with(running, there) for row, there in on_row.items()}
    added = [slot for slots in lost.values() for slot in slots]
    rows = np.append(victims.rows, np.repeat(list(lost), [len(slots) for slots in lost.values()]))
    slots = np.append(victims.slots, np.array(added, dtype=np.intp))
    violates = np.append(victims.violates, np.zeros(len(added), dtype=np.bool_))
    anew = np.flatnonzero(np.isin(rows, [row for row, slots in lost.items() if slots]))
    violates[anew] = budgets.broken(running.uids_of(slots[anew]), rows[anew])
    return _Victims(rows, slots, violates)


def _whole(victims: _Victims, running: RunningPods, budgets: BudgetTable) -> _Victims:
    """Leave out the rows whose victims would take only a part of a unit: a pod lost with them may not go, or not now.

    The pods of a unit go together or not at all. A single victim may wait until its budget allows its eviction.
    """
    grouped = np.flatnonzero(running.table["unit"][victims.slots])
    if not len(grouped):
        return victims
    on_row: dict[int, list[int]] = {}
    for at in grouped.tolist():
        on_row.setdefault(int(victims.rows[at]), []).append(int(victims.slots[at]))
    parted = {row for row, slots in on_row.items() if costs_kept(running, slots)}
    if budgets.obeyed:
        parted.update(victims.rows[grouped][victims.violates[grouped]].tolist())
    if not parted:
        return victims
    left = ~np.isin(victims.rows, list(parted))
    return _Victims(victims.rows[left], victims.slots[left], victims.violates[left])


def _potential_victims(preemptor: Preemptor, running: RunningPods, slots: Slots, budgets: BudgetTable) -> _Groups:
    """Return the pods that may be evicted for the preemptor: by row, the most important pod of a row first.

    The order of importance: the highest standing, then earlier start, then uid.
    """
    slots = potential_victims(preemptor, running, slots, budgets)
    pods = running.pods_in(slots)
    rank, started = -importance_of(pods), started_of(pods)
    if pods["queue_priority"].any():
        _, rank = np.unique(rank, return_inverse=True)
        rank = rank.reshape(-1)
    rank += (pods["row"] + 1) << STANDING_BITS  # one number for both sorts ten times as fast
    order = np.lexsort((started, rank))
    same = (np.diff(rank[order]) == 0) & (np.diff(started[order]) == 0)
    if same.any():  # only equal pods are compared by uid, which takes long
        tied = order[np.append(same, False) | np.insert(same, 0, False)]
        by_uid = np.zeros(len(slots), dtype=np.intp)
        by_uid[tied] = np.unique(running.uids_of(slots[tied]), return_inverse=True)[1]
        order = np.lexsort((by_uid, started, rank))
    groups = _grouped(running, slots[order])
    from_last = np.repeat(groups.starts + groups.counts, groups.counts) - np.arange(len(slots))
    return _grouped(running, groups.slots[from_last <= VICTIMS_MAX])


def _grouped(running: RunningPods, slots: Slots) -> _Groups:
    """Group pods that are sorted by row."""
    row = running.table["row"][slots]
    first = np.ones(len(slots), dtype=np.bool_)
    np.not_equal(row[1:], row[:-1], out=first[1:])
    starts = np.flatnonzero(first)
    ends = np.empty_like(starts)
    ends[:-1] = starts[1:]
    ends[-1:] = len(slots)
    return _Groups(slots, row[starts].astype(np.intp), starts, ends - starts)


def _reprieve(groups: _Groups, clearing: Clearing, runner: Runner, spec: PodSpec) -> Mask:
    """Let each pod stay that fits beside the preemptor, in the order of the groups; return a mask of the victims.

    All rows are tried together: the first pod of each row, then the second.
    """
    evicted: Mask = np.zeros(len(groups.slots), dtype=np.bool_)
    for turn in range(int(groups.counts.max())):
        left = groups.counts > turn
        at = groups.starts[left] + turn
        clearing.put_on(groups.slots[at])
        at = at[~runner.fits(spec, groups.rows[left])]
        evicted[at] = True
        clearing.take_off(groups.slots[at])
    return evicted


def _costs(rows: Rows, free: Mask, victims: _Victims, running: RunningPods, loss: Loss) -> EvictionCosts:
    """Return the costs of `rows`, of which the `free` ones need no victim."""
    at, pods, size = np.searchsorted(rows, victims.rows), running.pods_in(victims.slots), len(rows)
    ranks = ranks_of(pods)
    highest, weight = np.zeros((2, size), dtype=np.int64)
    np.maximum.at(highest, at, ranks)
    np.add.at(weight, at, weights_of(ranks))
    oldest = np.full(size, LAST, dtype=np.int64)
    among_highest = ranks == highest[at]
    np.minimum.at(oldest, at[among_highest], started_of(pods)[among_highest])
    violations = np.bincount(at[victims.violates], minlength=size)
    count = np.bincount(at, minlength=size)
    lost = _lost(at, victims.slots, size, running, loss) if loss.cards else ()
    return EvictionCosts(rows, free, count > 0, np.stack((violations, *lost, highest, weight, count, -oldest)))


def _lost(at: Rows, slots: Slots, size: int, running: RunningPods, loss: Loss) -> tuple[Column, Column]:
    """Return the units of several pods, and the card-seconds, that are lost with the victims of each of `size` rows."""
    work = np.zeros(size, dtype=np.int64)
    np.add.at(work, at, running.work(slots, loss.cards, loss.now_seconds))
    units = running.table["unit"][slots]
    if not units.any():
        return np.zeros(size, dtype=np.int64), work
    pairs, count = np.unique(at << UNIT_BITS | units, return_counts=True)  # one number for both sorts ten times as fast
    of_row, of_unit = pairs >> UNIT_BITS, pairs & ((1 << UNIT_BITS) - 1)
    kept = [pods <= running.spare_of(unit).pods for unit, pods in zip(of_unit.tolist(), count.tolist(), strict=True)]
    lost = np.bincount(of_row[(of_unit != 0) & ~np.array(kept, dtype=np.bool_)], minlength=size)
    return lost, work
