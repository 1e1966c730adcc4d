"""Preemption: which pods must go, and from which node, so that one pod of the pool gets room.

Laws:
- What fits is what the live filters say of the table with pods taken off; there is no other rule of room here.
- Pods that are leaving are as good as gone: their room counts as free, and they are nobody's victims again.
- A node where nobody has to go beats every other. Borrowers of any priority go before home pods, and home pods only
  for a pod of higher priority; pods that are not evictable never go.
- Victims are minimal: each that could stay beside the asker stays, the most important first.
- The answer does not depend on the order in which pods or nodes came.

Source: kube-scheduler's DefaultPreemption (victims by reprieve, budgets, order of nodes). Ours: borrowers.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from aischeduler.framework.runner import Runner
from aischeduler.model.pod import PodSpec
from aischeduler.state.budgets import BudgetTable
from aischeduler.state.clearing import Clearing
from aischeduler.state.diagnosis import diagnosis
from aischeduler.state.index import Mask, Rows
from aischeduler.state.nodes import NodeTable
from aischeduler.state.running import RunningPods, RunningTable, Slots

Numbers = npt.NDArray[np.int64]

VICTIMS_MAX: Final = 512
"""Pods of one node that may become victims, the least important ones: as many as a kubelet runs at most."""
PRIORITY_MIN: Final = -(2**31)
PRIORITY_MAX: Final = 2**31 - 1
PRIORITY_BITS: Final = 32
BORROWER_PRIORITY: Final = PRIORITY_MIN - 1
"""As what a borrower counts when nodes are compared: less than any home pod."""
NOT_STARTED: Final = 2**62
"""As when a pod without a start time counts to have started: after all others."""

LOSSES: Final = 5
"""Rules by which rows are compared, before their names."""

NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
NO_VICTIMS: Final = "No preemption victims found for incoming pod"


@dataclass(frozen=True, slots=True)
class Demand:
    """A home pod that asks for room."""

    spec: PodSpec
    priority: int


@dataclass(frozen=True, slots=True)
class Chosen:
    """The pod fits on the row once the victims are gone, and those who are leaving already.

    `victims` are uids in the order of eviction, the least important first; none when only the leaving are waited
    for. `violations` of them are more than a disruption budget allows.
    """

    row: int
    victims: tuple[str, ...]
    violations: int


@dataclass(frozen=True, slots=True)
class Unhelpful:
    """No eviction would help on any of the `nodes`; `reasons` as kube-scheduler counts and words them."""

    nodes: int
    reasons: Counter[str]

    def message(self) -> str:
        """Return the sentence that follows "preemption: " in the FailedScheduling event."""
        return diagnosis(self.nodes, self.reasons).message()


@dataclass(frozen=True, slots=True)
class _Groups:
    """Pods sorted by row: `slots` of all, and per row its number, where its pods start and how many they are."""

    slots: Slots
    rows: Rows
    starts: Rows
    counts: Rows

    def of_each(self) -> Rows:
        """Return per pod the place of its row in `rows`."""
        return np.repeat(np.arange(len(self.rows), dtype=np.intp), self.counts)


@dataclass(frozen=True, slots=True)
class Losses:
    """What each of `rows`, ascending, would lose for one demand: `free` nobody, `helped` some victims.

    `columns` [5, rows] compare rows in kube-scheduler's order of rules, less is better: victims that a budget protects,
    the highest priority of the victims, the sum of their priorities, how many they are, and how early the oldest of the
    most important started, negated.
    """

    rows: Rows
    free: Mask
    helped: Mask
    columns: Numbers

    def best(self, nodes: NodeTable) -> int | None:
        """Return the row that loses least; None where nothing would help on any."""
        at = np.flatnonzero(self.free)
        if not len(at):
            at = np.flatnonzero(self.helped)
            if not len(at):
                return None
            for column in self.columns:
                loss = column[at]
                at = at[loss == loss.min()]
        rows = self.rows[at]
        return int(rows[nodes.ranks()[rows].argmin()])

    def forget(self, rows: Rows) -> None:
        """Take some of these rows as if nothing helped there."""
        at = np.searchsorted(self.rows, rows)
        self.free[at] = self.helped[at] = False

    def update(self, others: "Losses") -> None:
        """Take over what is known anew of some of these rows."""
        at = np.searchsorted(self.rows, others.rows)
        self.free[at], self.helped[at], self.columns[:, at] = others.free, others.helped, others.columns


@dataclass(frozen=True, slots=True)
class Weighed:
    """The losses of rows, and who they are. `refusal` says why no row would do, where that is so.

    Of each place in `groups`: whether that pod must go, whether that breaks a budget, and its place in the order of
    importance of all.
    """

    losses: Losses
    groups: _Groups
    evicted: Mask
    violates: Mask
    importance: Rows
    refusal: Unhelpful | None = None

    def chosen(self, row: int, running: RunningPods) -> Chosen:
        """Return the choice of this row, which is free or helped."""
        on_row = np.flatnonzero(self.evicted & (self.groups.rows[self.groups.of_each()] == row))
        on_row = on_row[np.argsort(-self.importance[on_row])]
        return Chosen(row, tuple(running.uids_of(self.groups.slots[on_row])), int(self.violates[on_row].sum()))


def choose_victims(
    demand: Demand, runner: Runner, running: RunningPods, rows: Rows, budgets: BudgetTable
) -> Chosen | Unhelpful:
    """Return the best row among `rows` and the fewest pods that must leave it so that the pod fits there."""
    return choice(weigh(demand, runner, running, rows, budgets), runner, running)


def choice(weighed: Weighed, runner: Runner, running: RunningPods) -> Chosen | Unhelpful:
    """Return the best row of those that were weighed with its victims, or why there is none."""
    row = weighed.losses.best(runner.nodes)
    if row is not None:
        return weighed.chosen(row, running)
    assert weighed.refusal is not None, "where no row helps, there is a reason"
    return weighed.refusal


def weigh(demand: Demand, runner: Runner, running: RunningPods, rows: Rows, budgets: BudgetTable) -> Weighed:
    """Return what each row would lose."""
    spec = demand.spec
    none = np.zeros(len(rows), dtype=np.bool_)
    losses = Losses(rows, none, none.copy(), np.zeros((LOSSES, len(rows)), dtype=np.int64))
    candidates = rows[runner.could_run(spec, rows)]
    slots = running.slots_on(candidates)
    leaving = running.table["leaving"][slots]
    with Clearing(spec, runner.nodes, running, candidates) as clearing:
        clearing.take_off(slots[leaving])
        free = candidates[runner.fits(spec, candidates)]
        losses.free[np.searchsorted(rows, free)] = True
        if len(free) and len(free) == len(candidates):
            return _unweighed(losses, running, None)
        staying = slots[~leaving]
        if len(free):
            staying = staying[~np.isin(running.table["row"][staying], free)]
        potential = _potential_victims(demand, running, staying)
        clearing.take_off(potential.slots)
        helped = runner.fits(spec, potential.rows)
        if not helped.any() and len(free):
            return _unweighed(losses, running, None)
        if not helped.any():
            reasons = Counter(dict(runner.refusals(spec, potential.rows).reasons))
            reasons[NOT_HELPFUL] = len(rows) - len(candidates)
            reasons[NO_VICTIMS] = len(candidates) - len(potential.rows)
            return _unweighed(losses, running, Unhelpful(len(rows), +reasons))
        by_importance = potential.slots[np.repeat(helped, potential.counts)]
        row = running.table["row"][by_importance]
        violates = budgets.broken(running.uids_of(by_importance), row)
        order = np.argsort(row * 2 + ~violates, kind="stable")
        groups, violates = _grouped(running, by_importance[order]), violates[order]
        evicted = _reprieve(groups, clearing, runner, spec)
    at = np.searchsorted(rows, groups.rows)
    losses.helped[at] = True
    losses.columns[:, at] = _losses(groups, evicted, violates, running)
    return Weighed(losses, groups, evicted, violates, order)


def _unweighed(losses: Losses, running: RunningPods, refusal: Unhelpful | None) -> Weighed:
    nobody: Slots = np.zeros(0, dtype=np.intp)
    nothing: Mask = np.zeros(0, dtype=np.bool_)
    return Weighed(losses, _grouped(running, nobody), nothing, nothing, nobody, refusal)


def viable(spec: PodSpec, runner: Runner, running: RunningPods, row: int) -> bool:
    """Say whether the pod would fit on this row once those are gone who are leaving it."""
    rows = np.array([row], dtype=np.intp)
    if not runner.allowed(spec, rows)[0]:
        return False
    slots = running.slots_on(rows)
    with Clearing(spec, runner.nodes, running, rows) as clearing:
        clearing.take_off(slots[running.table["leaving"][slots]])
        return bool(runner.fits(spec, rows)[0])


def _potential_victims(demand: Demand, running: RunningPods, slots: Slots) -> _Groups:
    """Return which of the pods may be evicted for the demand: by row, the most important of a row first.

    Important: home pods before borrowers, then priority, then the older start, then the uid.
    """
    pods = running.table[slots]
    may_go = pods["evictable"] & (pods["borrower"] | (pods["priority"] < demand.priority))
    slots, pods = slots[may_go], pods[may_go]
    below_top = PRIORITY_MAX - pods["priority"]
    rank = (((pods["row"] << 1) | pods["borrower"]) << PRIORITY_BITS) | below_top
    started = started_of(pods)
    order = np.lexsort((started, rank))
    rank, started, slots = rank[order], started[order], slots[order]
    as_before = (rank[1:] == rank[:-1]) & (started[1:] == started[:-1])
    groups = _grouped(running, _by_uid_where_tied(running, slots, as_before))
    from_last = np.repeat(groups.starts + groups.counts, groups.counts) - np.arange(len(slots))
    return _grouped(running, groups.slots[from_last <= VICTIMS_MAX])


def _by_uid_where_tied(running: RunningPods, slots: Slots, as_before: Mask) -> Slots:
    """Put runs of equals in the order of their uids; `as_before` says of each but the first that it equals its left."""
    if not as_before.any():
        return slots
    tied = np.flatnonzero(np.append(as_before, False) | np.insert(as_before, 0, False))
    run = np.cumsum(np.insert(~as_before, 0, False))
    uids = np.array(running.uids_of(slots[tied]))
    settled = slots.copy()
    settled[tied] = slots[tied[np.lexsort((uids, run[tied]))]]
    return settled


def _grouped(running: RunningPods, slots: Slots) -> _Groups:
    """Group pods that are sorted by row."""
    row = running.table["row"][slots]
    first = np.ones(len(slots), dtype=np.bool_)
    np.not_equal(row[1:], row[:-1], out=first[1:])
    starts = np.flatnonzero(first)
    counts = np.empty_like(starts)
    counts[:-1] = starts[1:]
    counts[-1:] = len(slots)
    return _Groups(slots, row[starts].astype(np.intp), starts, counts - starts)


def started_of(pods: RunningTable) -> Numbers:
    """Return since when these rows of the table of running pods run, as their starts are compared."""
    started = pods["started_seconds"]
    return np.where(started == 0, NOT_STARTED, started)


def _reprieve(groups: _Groups, clearing: Clearing, runner: Runner, spec: PodSpec) -> Mask:
    """Let each pod stay that can stay beside the asker, in the order of the groups; return who cannot.

    All rows take their turns at once: the first pod of each, then the second.
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


def _losses(groups: _Groups, evicted: Mask, violates: Mask, running: RunningPods) -> Numbers:
    """Return [loss, row of the groups] as `Losses` has them."""
    row, slots, size = groups.of_each()[evicted], groups.slots[evicted], len(groups.rows)
    pods = running.table[slots]
    priority = np.where(pods["borrower"], BORROWER_PRIORITY, pods["priority"])
    highest = np.full(size, BORROWER_PRIORITY, dtype=np.int64)
    np.maximum.at(highest, row, priority)
    weight = np.zeros(size, dtype=np.int64)
    np.add.at(weight, row, np.where(pods["borrower"], 0, pods["priority"] - PRIORITY_MIN))
    oldest = np.full(size, NOT_STARTED, dtype=np.int64)
    among_highest = priority == highest[row]
    np.minimum.at(oldest, row[among_highest], started_of(pods)[among_highest])
    violations = np.bincount(row[violates[evicted]], minlength=size)
    count = np.bincount(row, minlength=size)
    return np.stack((violations, highest, weight, count, -oldest))
