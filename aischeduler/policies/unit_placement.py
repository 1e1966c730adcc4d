"""Placement of a unit: its pods together, the required ones all or none.

Invariants:
- Nothing here changes state; each pod is tried on the table with the pods before it.
- Pods of one class are placed one after the other, which finds a way where there is one. Where a few pods of several
  classes do not fit in this way, others of their nodes are tried, up to a limit.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from aischeduler.framework.allocating import allocation_on
from aischeduler.framework.plugin import PlacementRequest
from aischeduler.framework.runner import Runner
from aischeduler.model.gang import TopologyLevel
from aischeduler.model.names import PODS
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.resources import PodRequest, ResourceList
from aischeduler.model.selectors import Operator, Requirement
from aischeduler.policies.preemption import NO_LOSS, Loss, fits_after_departures
from aischeduler.policies.unit_topology import closeness
from aischeduler.state.assigned_pod import AssignedPod
from aischeduler.state.diagnosis import Diagnosis
from aischeduler.state.label_index import Rows
from aischeduler.state.node_table import NodeTable
from aischeduler.state.pod_records import Unit
from aischeduler.state.running_pods import RunningPods
from aischeduler.state.what_if import Trial

SEARCHED_PODS_MAX: Final = 16
"""The most required pods of several classes for which other nodes than the best are tried."""
TRIES_MAX: Final = 256
"""The most placements that one such search tries."""
APART: Final = "node(s) didn't match the topology of the gang"


class _TotalRequest(PodRequest, frozen=True, kw_only=True):
    """The requests of several pods together."""

    pods: int

    @property
    def taken(self) -> ResourceList:
        """What the pods take of nodes."""
        return {**self.amounts, PODS: self.pods}


def total_of(specs: Sequence[PodSpec]) -> PodSpec:
    """Return a spec with the requests of several pods together."""
    amounts: Counter[str] = Counter()
    for spec in specs:
        amounts.update(spec.request.amounts)
    return PodSpec(b"", _TotalRequest(dict(sorted(amounts.items())), 0, 0, pods=len(specs)))


class UnitRequest(Struct, frozen=True):
    """The pods of a unit that need nodes, in the order in which they are placed; the first `required` all or none."""

    pods: tuple[Pod, ...]
    asks: tuple[PlacementRequest, ...]
    required: int
    priority: int = 0
    topology: tuple[TopologyLevel, ...] = ()
    """The node labels whose values the pods share, the widest first."""
    loss: Loss = NO_LOSS
    """How lost work counts when room is made for it."""
    beside: tuple[tuple[str, str], ...] = ()
    """The node labels (key, value) of the pods of the unit on nodes, which the others must have too."""

    @property
    def total(self) -> PodSpec:
        """A spec with the requests of the required pods together, for limits and idle shares."""
        return total_of([ask.spec for ask in self.asks[: self.required]])


class UnitPlacement(Struct, frozen=True):
    """Nodes for the placed pods of a unit, in their order; `feasible` nodes fitted the first."""

    pods: tuple[AssignedPod, ...]
    feasible: int


class NotPlaced(Struct, frozen=True):
    """The required pods that fit together, and the turn of the first one that does not fit beside those before it."""

    pods: tuple[AssignedPod, ...]
    short: int


def place_unit(unit: UnitRequest, runner: Runner, rows: Rows) -> UnitPlacement | NotPlaced:
    """Return the best of `rows` for each pod of the unit, or how many of the required pods fit."""
    rows = rows_beside(unit, runner, rows)
    if not unit.topology:
        return _place(unit, runner, rows)
    free = runner.nodes.allocatable[:, rows] - runner.nodes.used[:, rows]
    close = closeness(unit.topology, unit.asks[: unit.required], runner, rows, free)
    best, sets = NotPlaced((), 0), close.sets()
    for near in sets:
        for among in (close.fewest(near), near):
            found = _place(unit, runner, among)
            if isinstance(found, UnitPlacement):
                return UnitPlacement(in_rank_order(unit, runner, found.pods), found.feasible)
            best = max(best, found, key=lambda one: len(one.pods))
    if not sets:
        found = _place(unit, runner, close.largest())
        assert isinstance(found, NotPlaced), "by amounts, no set holds all pods"
        return found
    return best


def labels_of_placed(unit: Unit, nodes: NodeTable) -> tuple[tuple[str, str], ...]:
    """Return the labels that the gang requires, as they are on the node of a pod of it that is on one."""
    placed = [record for record in unit.members.values() if record.counted is not None]
    node = nodes.nodes[min(placed, key=lambda one: one.pod.uid).row] if placed else None
    if node is None or unit.gang is None:
        return ()
    labels = [level.label for level in unit.gang.topology if level.required]
    return tuple((label, node.labels[label]) for label in labels if label in node.labels)


def close_parts(unit: UnitRequest, runner: Runner, parts: Sequence[Rows]) -> Iterator[list[Rows]]:
    """Yield the close part of each of these sets of rows, the closest first; all of them without a topology."""
    parts = [rows_beside(unit, runner, rows) for rows in parts]
    if not unit.topology:
        yield parts
        return
    rows = np.sort(np.concatenate(parts))
    free = runner.nodes.allocatable[:, rows] - runner.nodes.used[:, rows]
    for near in closeness(unit.topology, unit.asks[: unit.required], runner, rows, free).sets():
        yield [part[np.isin(part, near)] for part in parts]


def rows_beside(unit: UnitRequest, runner: Runner, rows: Rows) -> Rows:
    """Return the rows that have the labels that the pods of the unit on nodes share."""
    for key, value in unit.beside:
        rows = rows[runner.nodes.labels.mask(Requirement(key, Operator.IN, (value,)))[rows]]
    return rows


def in_rank_order(unit: UnitRequest, runner: Runner, pods: tuple[AssignedPod, ...]) -> tuple[AssignedPod, ...]:
    """Give pods of one class their rows anew, so that one rank follows the other from neighbour to neighbour."""
    nodes = runner.nodes
    numbers = [nodes.labels.numbers(level.label) for level in unit.topology]
    ranks = nodes.ranks()

    def place_of(one: AssignedPod) -> tuple[int, ...]:
        return (*(int(number[one.row]) for number in numbers), int(ranks[one.row]))

    by_class: dict[bytes, list[int]] = {}
    for turn, one in enumerate(pods[: unit.required]):
        by_class.setdefault(one.spec.key, []).append(turn)
    placed = list(pods)
    for turns in by_class.values():
        rows = [one.row for one in sorted((pods[turn] for turn in turns), key=place_of)]
        for turn, row in zip(turns, rows, strict=True):
            one = pods[turn]
            placed[turn] = AssignedPod(one.pod, one.spec, row, one.allocation)
    return tuple(placed)


def _place(unit: UnitRequest, runner: Runner, rows: Rows) -> UnitPlacement | NotPlaced:
    with Trial(runner.nodes) as trial:
        placed, feasible = _one_by_one(unit, range(unit.required), runner, rows, trial)
        if len(placed) < unit.required:
            short = len(placed)
            part = placed + _others_that_fit(unit, short, runner, rows, trial)
            trial.put_back()
            found = _search(unit, runner, rows)
            if found is None:
                return NotPlaced(tuple(part), short)
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
        placed.append(assigned(unit.pods[turn], unit.asks[turn].spec, found[0], runner))
        trial.place(placed[-1])
    return placed, feasible


def _others_that_fit(unit: UnitRequest, short: int, runner: Runner, rows: Rows, trial: Trial) -> list[AssignedPod]:
    """Place the required pods that still fit after the one that does not."""
    fit, refused = list[AssignedPod](), {unit.asks[short].spec.key}
    for turn in range(short + 1, unit.required):
        if unit.asks[turn].spec.key not in refused:
            found = _one_by_one(unit, range(turn, turn + 1), runner, rows, trial)[0]
            fit += found
            if not found:
                refused.add(unit.asks[turn].spec.key)
    return fit


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
            one = assigned(unit.pods[turn], asks[turn].spec, row, runner)
            with Trial(runner.nodes) as trial:
                trial.place(one)
                others = place_from(turn + 1)
            if others is not None:
                return [one, *others]
        return None

    return place_from(0)


def assigned(pod: Pod, spec: PodSpec, row: int, runner: Runner) -> AssignedPod:
    """Return a pod on a row where it fits, with what it has for itself there."""
    return AssignedPod(pod, spec, row, allocation_on(runner, spec, row))


def refusals_beside(found: NotPlaced, spec: PodSpec, runner: Runner, rows: Rows) -> Diagnosis:
    """Return why no row fits a pod beside those that fit; a row that no filter refuses is too far from them."""
    with Trial(runner.nodes) as trial:
        for one in found.pods:
            trial.place(one)
        refusals = runner.refusals(spec, rows)
        apart = int(np.count_nonzero(runner.passes(spec, rows)))
    return Diagnosis(refusals.nodes, refusals.reasons + Counter({APART: apart}))


def all_fit_after_departures(pods: Sequence[AssignedPod], runner: Runner, running: RunningPods) -> bool:
    """Return whether these pods fit together on their rows once the pods that are leaving are gone."""
    with Trial(runner.nodes) as trial:
        for pod in pods:
            if not fits_after_departures(pod.spec, runner, running, pod.row):
                return False
            if pod is not pods[-1]:
                trial.place(pod)
    return True
