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
from aischeduler.state.running import RunningPods, Slots

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


def choose_victims(
    demand: Demand, runner: Runner, running: RunningPods, rows: Rows, budgets: BudgetTable
) -> Chosen | Unhelpful:
    """Return the best row among `rows` and the fewest pods that must leave it so that the pod fits there."""
    nodes, spec = runner.nodes, demand.spec
    candidates = rows[runner.could_run(spec, rows)]
    slots = running.slots_on(candidates)
    leaving = running.table["leaving"][slots]
    with Clearing(spec, nodes, running, candidates) as clearing:
        clearing.take_off(slots[leaving])
        free = candidates[runner.fits(spec, candidates)]
        if len(free):
            return Chosen(int(free[np.argmin(nodes.ranks()[free])]), (), 0)
        potential = _potential_victims(demand, running, slots[~leaving])
        clearing.take_off(potential.slots)
        helped = runner.fits(spec, potential.rows)
        if not helped.any():
            reasons = Counter(dict(runner.refusals(spec, potential.rows).reasons))
            reasons[NOT_HELPFUL] = len(rows) - len(candidates)
            reasons[NO_VICTIMS] = len(candidates) - len(potential.rows)
            return Unhelpful(len(rows), +reasons)
        by_importance = potential.slots[np.repeat(helped, potential.counts)]
        row = running.table["row"][by_importance]
        violates = budgets.broken(running.uids_of(by_importance), row)
        order = np.argsort(row * 2 + ~violates, kind="stable")
        groups = _grouped(running, by_importance[order])
        evicted = _reprieve(groups, clearing, runner, spec)
        best = _best(groups, evicted, violates[order], running, nodes)
    on_best = evicted & (groups.of_each() == best)
    victims = np.sort(order[on_best])[::-1]
    return Chosen(
        int(groups.rows[best]),
        tuple(running.uids_of(by_importance[victims])),
        int(violates[victims].sum()),
    )


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
    started = _started(running, slots)
    order = np.lexsort((started, rank))
    rank, started, slots = rank[order], started[order], slots[order]
    as_before = (rank[1:] == rank[:-1]) & (started[1:] == started[:-1])
    groups = _grouped(running, _by_uid_where_tied(running, slots, as_before))
    from_last = np.repeat(groups.starts + groups.counts, groups.counts) - np.arange(len(slots))
    return _grouped(running, groups.slots[from_last <= VICTIMS_MAX])


def _by_uid_where_tied(running: RunningPods, slots: Slots, as_before: Mask) -> Slots:
    """Put runs of equals in the order of their uids; `as_before` says of each but the first that it equals its left."""
    tied = np.flatnonzero(np.append(as_before, False) | np.insert(as_before, 0, False))
    if not len(tied):
        return slots
    run = np.cumsum(np.insert(~as_before, 0, False))
    uids = np.array(running.uids_of(slots[tied]))
    settled = slots.copy()
    settled[tied] = slots[tied[np.lexsort((uids, run[tied]))]]
    return settled


def _grouped(running: RunningPods, slots: Slots) -> _Groups:
    """Group pods that are sorted by row."""
    row = running.table["row"][slots]
    starts = np.flatnonzero(np.diff(row, prepend=-1))
    counts = np.diff(starts, append=len(slots))
    return _Groups(slots, row[starts].astype(np.intp), starts, counts)


def _started(running: RunningPods, slots: Slots) -> Numbers:
    started = running.table["started_seconds"][slots]
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


def _best(groups: _Groups, evicted: Mask, violates: Mask, running: RunningPods, nodes: NodeTable) -> int:
    """Return the place of the row that loses least by its victims, in kube-scheduler's order of rules."""
    row, slots, size = groups.of_each()[evicted], groups.slots[evicted], len(groups.rows)
    pods = running.table[slots]
    priority = np.where(pods["borrower"], BORROWER_PRIORITY, pods["priority"])
    highest = np.full(size, BORROWER_PRIORITY, dtype=np.int64)
    np.maximum.at(highest, row, priority)
    weight = np.zeros(size, dtype=np.int64)
    np.add.at(weight, row, np.where(pods["borrower"], 0, pods["priority"] - PRIORITY_MIN))
    oldest = np.full(size, NOT_STARTED, dtype=np.int64)
    among_highest = priority == highest[row]
    np.minimum.at(oldest, row[among_highest], _started(running, slots)[among_highest])
    violations = np.bincount(row[violates[evicted]], minlength=size)
    count = np.bincount(row, minlength=size)
    order = np.lexsort((nodes.ranks()[groups.rows], -oldest, count, weight, highest, violations))
    return int(order[0])
