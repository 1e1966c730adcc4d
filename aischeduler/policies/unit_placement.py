"""Placement of a unit: its pods together, the required ones all or none.

Invariants:
- Nothing here changes state; each pod is tried on the table with the pods before it.
- Pods of one class are placed one after the other, which finds a way where there is one. Where a few pods of several
  classes do not fit in this way, others of their nodes are tried, up to a limit.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aischeduler.framework.plugin import PlacementRequest
from aischeduler.framework.runner import Runner
from aischeduler.model.allocation import allocation_of
from aischeduler.model.names import PODS
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.resources import PodRequest, ResourceList
from aischeduler.policies.preemption import fits_after_departures
from aischeduler.state.assigned_pod import AssignedPod
from aischeduler.state.label_index import Rows
from aischeduler.state.running_pods import RunningPods
from aischeduler.state.what_if import Trial

SEARCHED_PODS_MAX: Final = 16
"""The most required pods of several classes for which other nodes than the best are tried."""
TRIES_MAX: Final = 256
"""The most placements that one such search tries."""


@dataclass(frozen=True, slots=True)
class _TotalRequest(PodRequest):
    """The requests of several pods together."""

    pods: int

    @property
    def taken(self) -> ResourceList:
        """What the pods take of nodes."""
        return {**self.amounts, PODS: self.pods}


@dataclass(frozen=True, slots=True)
class UnitRequest:
    """The pods of a unit that need nodes, in the order in which they are placed; the first `required` all or none."""

    pods: tuple[Pod, ...]
    asks: tuple[PlacementRequest, ...]
    required: int

    @property
    def total(self) -> PodSpec:
        """A spec with the requests of the required pods together, for limits and idle shares."""
        amounts: Counter[str] = Counter()
        for ask in self.asks[: self.required]:
            amounts.update(ask.spec.request.amounts)
        return PodSpec(b"", _TotalRequest(dict(sorted(amounts.items())), 0, 0, self.required))


@dataclass(frozen=True, slots=True)
class UnitPlacement:
    """Nodes for the placed pods of a unit, in their order; `feasible` nodes fitted the first."""

    pods: tuple[AssignedPod, ...]
    feasible: int


@dataclass(frozen=True, slots=True)
class NotPlaced:
    """The pods that fit, in their order, before the first required pod that does not."""

    pods: tuple[AssignedPod, ...]


def place_unit(unit: UnitRequest, runner: Runner, rows: Rows) -> UnitPlacement | NotPlaced:
    """Return the best of `rows` for each pod of the unit, or how many of the required pods fit."""
    with Trial(runner.nodes) as trial:
        placed, feasible = _one_by_one(unit, range(unit.required), runner, rows, trial)
        if len(placed) < unit.required:
            trial.put_back()
            found = _search(unit, runner, rows)
            if found is None:
                return NotPlaced(tuple(placed))
            placed = found
            for one in placed:
                trial.place(one)
        for turn in range(unit.required, len(unit.pods)):
            placed += _one_by_one(unit, range(turn, turn + 1), runner, rows, trial)[0]
    return UnitPlacement(tuple(placed), feasible)


def _one_by_one(
    unit: UnitRequest, turns: range, runner: Runner, rows: Rows, trial: Trial
) -> tuple[list[AssignedPod], int]:
    """Place these pods one after the other, as far as they fit; return them, and how many rows fit the first."""
    placed, feasible = list[AssignedPod](), 0
    for turn in turns:
        found = runner.best(unit.asks[turn], rows)
        if found is None:
            break
        feasible = feasible or found[1]
        placed.append(_assigned(unit.pods[turn], unit.asks[turn], found[0]))
        trial.place(placed[-1])
    return placed, feasible


def _search(unit: UnitRequest, runner: Runner, rows: Rows) -> list[AssignedPod] | None:
    """Try other nodes than the best for the pods of a small unit of several classes; None where that finds no way."""
    asks = unit.asks[: unit.required]
    alike = len({ask.spec.key for ask in asks}) == 1 and not runner.crosses_rows(asks[0].spec)
    if alike or unit.required > SEARCHED_PODS_MAX:
        return None
    tries = TRIES_MAX

    def place_from(turn: int) -> list[AssignedPod] | None:
        nonlocal tries
        if turn == unit.required:
            return []
        for row, _ in runner.ranked(asks[turn], rows):
            tries -= 1
            if tries < 0:
                return None
            one = _assigned(unit.pods[turn], asks[turn], row)
            with Trial(runner.nodes) as trial:
                trial.place(one)
                others = place_from(turn + 1)
            if others is not None:
                return [one, *others]
        return None

    return place_from(0)


def _assigned(pod: Pod, ask: PlacementRequest, row: int) -> AssignedPod:
    return AssignedPod(pod, ask.spec, row, allocation_of(ask.spec))


def all_fit_after_departures(pods: Sequence[AssignedPod], runner: Runner, running: RunningPods) -> bool:
    """Return whether these pods fit together on their rows once the pods that are leaving are gone."""
    with Trial(runner.nodes) as trial:
        for pod in pods:
            if not fits_after_departures(pod.spec, runner, running, pod.row):
                return False
            if pod is not pods[-1]:
                trial.place(pod)
    return True
