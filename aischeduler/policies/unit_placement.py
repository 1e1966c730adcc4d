"""Placement of a unit: its pods together, the required ones all or none.

Invariants:
- Nothing here changes state; each pod is tried on the table with the pods before it.
- Pods are placed one after the other, each on its best node. Where one does not fit, its class comes first in another
  order of the classes, a few times; then nodes are searched that hold all pods by amounts, whatever their scores; then
  other nodes are tried for pods whose fit depends on more. Each search has a budget.
- The pods that a refusal names are those of the order in which most pods fit, the first of such orders.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from aischeduler.framework.allocating import allocated_together, allocation_on
from aischeduler.framework.plugin import PlacementRequest
from aischeduler.framework.runner import Runner
from aischeduler.model.card_shares import Memories, gpu_share
from aischeduler.model.gang import TopologyLevel
from aischeduler.model.names import GPU_SHARE, PODS
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.resources import PodRequest, ResourceList
from aischeduler.model.selectors import Operator, Requirement
from aischeduler.model.topology_spread import HOSTNAME
from aischeduler.policies.eviction_order import Preemptor
from aischeduler.policies.preemption import allocated, fits_after_departures
from aischeduler.policies.unit_packing import Kind, Places, pack
from aischeduler.policies.unit_topology import closeness
from aischeduler.state.diagnosis import Diagnosis
from aischeduler.state.label_index import Mask, Rows
from aischeduler.state.node_table import NodeTable
from aischeduler.state.pod_records import AssignedPod, Unit
from aischeduler.state.running_pods import NO_SLOTS, RunningPods
from aischeduler.state.what_if import Trial

ORDERS_MAX: Final = 4
"""The most orders of its classes in which a unit is placed."""
PLACED_AGAIN_MAX: Final = 64
"""No further order is begun once this many pods were placed in orders that failed."""
TRIES_MAX: Final = 64
"""The most placements that a search tries for pods whose fit depends on more than amounts."""
NOTHING_REQUESTED: Final = PodRequest({}, 0, 0)
APART: Final = "node(s) didn't match the topology of the gang"


class _TotalRequest(PodRequest, frozen=True, kw_only=True):
    """The requests of several pods together."""

    pods: int

    @property
    def taken(self) -> ResourceList:
        """What the pods take of nodes."""
        return {**self.amounts, PODS: self.pods}


def total_of(specs: Sequence[PodSpec], memories: Memories) -> PodSpec:
    """Return a spec with the requests of several pods together, and their shares of GPUs: no node offers these.

    Requests in bytes are shares of GPUs of these sizes. That of one pod without a share is its own spec.
    """
    shares = sum(gpu_share(spec, memories=memories) for spec in specs)
    if len(specs) == 1 and not shares:
        return specs[0]
    amounts: Counter[str] = Counter({GPU_SHARE: shares} if shares else {})
    for spec in specs:
        amounts.update(spec.request.amounts)
    return PodSpec(b"", _TotalRequest(dict(sorted(amounts.items())), 0, 0, pods=len(specs)))


class UnitRequest(Struct, frozen=True):
    """The pods of a unit that need nodes, in the order in which they are placed; the first `required` all or none."""

    pods: tuple[Pod, ...]
    asks: tuple[PlacementRequest, ...]
    required: int
    preemptor: Preemptor = Preemptor()
    """What decides who goes where room is made for it."""
    topology: tuple[TopologyLevel, ...] = ()
    """The node labels whose values the pods share, the widest first."""
    beside: tuple[tuple[str, str], ...] = ()
    """The node labels (key, value) of the pods of the unit on nodes, which the others must have too."""

    def total(self, memories: Memories) -> PodSpec:
        """Return a spec with the requests of the required pods together, for limits and idle shares."""
        return total_of([ask.spec for ask in self.asks[: self.required]], memories)


class UnitPlacement(Struct, frozen=True):
    """Nodes for the placed pods of a unit, in their order; `feasible` nodes fitted the one that was placed first."""

    pods: tuple[AssignedPod, ...]
    feasible: int


class NotPlaced(Struct, frozen=True):
    """Required pods that fit together, and the turn of one that does not fit beside those of them placed before it."""

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
                placed = in_rank_order(unit, runner, found.pods)
                return UnitPlacement(_allocated_on_one_node(unit, runner, placed), found.feasible)
            best = max(best, found, key=lambda placed_unit: len(placed_unit.pods))
    if not sets:
        found = _place(unit, runner, close.largest())
        assert isinstance(found, NotPlaced), "by amounts, no set holds all pods"
        return found
    return best


def _allocated_on_one_node(
    unit: UnitRequest, runner: Runner, placed: tuple[AssignedPod, ...]
) -> tuple[AssignedPod, ...]:
    """Return the pods of a unit that asks for one node with what allocators choose for all of them at once."""
    one_node = any(level.required and level.label == HOSTNAME for level in unit.topology)
    if not one_node or len(placed) < 2 or len({pod.row for pod in placed}) > 1:
        return placed
    return allocated_together(runner, placed, unit.asks[0].placement)


def labels_of_placed(unit: Unit, nodes: NodeTable) -> tuple[tuple[str, str], ...]:
    """Return the labels that the gang requires, as they are on the node of a pod of it that is on one."""
    placed = [record for record in unit.members.values() if record.counted is not None]
    node = nodes.nodes[min(placed, key=lambda assigned: assigned.pod.uid).row] if placed else None
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
    """Give pods of one class their rows anew, so that one rank follows the other from neighbour to neighbour.

    What was chosen for a pod on a row goes to the pod that gets the row.
    """
    nodes = runner.nodes
    numbers = [nodes.labels.numbers(level.label) for level in unit.topology]
    ranks = nodes.ranks()

    def place_of(assigned: AssignedPod) -> tuple[int, ...]:
        return (*(int(number[assigned.row]) for number in numbers), int(ranks[assigned.row]))

    by_class: dict[bytes, list[int]] = {}
    for turn, ask in enumerate(pods[: unit.required]):
        by_class.setdefault(ask.spec.key, []).append(turn)
    placed = list(pods)
    for turns in by_class.values():
        places = sorted((pods[turn] for turn in turns), key=place_of)
        for turn, place in zip(turns, places, strict=True):
            placed[turn] = AssignedPod(pods[turn].pod, pods[turn].spec, place.row, place.allocation)
    return tuple(placed)


def _place(unit: UnitRequest, runner: Runner, rows: Rows) -> UnitPlacement | NotPlaced:
    with Trial(runner.nodes) as trial:
        found = _in_orders(unit, runner, rows, trial)
        if isinstance(found, NotPlaced):
            placed = _packed(unit, runner, rows) or _search(unit, runner, rows)
            if placed is None:
                return found
            found = UnitPlacement(tuple(placed), max(1, int(np.count_nonzero(runner.passes(unit.asks[0].spec, rows)))))
            trial.place_all(placed)
        others: list[AssignedPod] = []
        for turn in range(unit.required, len(unit.pods)):
            others += _one_by_one(unit, [turn], runner, rows, trial)[0]
    return UnitPlacement((*found.pods, *others), found.feasible)


def _in_orders(unit: UnitRequest, runner: Runner, rows: Rows, trial: Trial) -> UnitPlacement | NotPlaced:
    """Place the required pods in their order; where one does not fit, with all pods of its class before the others."""
    turns, tried, again = list(range(unit.required)), list[list[int]](), 0
    best: NotPlaced | None = None
    while True:
        placed, feasible = _one_by_one(unit, turns, runner, rows, trial)
        if len(placed) == unit.required:
            by_turn = dict(zip(turns, placed, strict=True))
            return UnitPlacement(tuple(by_turn[turn] for turn in range(unit.required)), feasible)
        at = len(placed)
        if best is None:
            best = NotPlaced(tuple(placed + _others_that_fit(unit, turns[at:], runner, rows, trial)), turns[at])
        elif len(placed) > len(best.pods):
            best = NotPlaced(tuple(placed), turns[at])
        trial.put_back()
        tried.append(turns)
        again += at
        key = unit.asks[turns[at]].spec.key
        turns = sorted(turns, key=lambda turn: unit.asks[turn].spec.key != key)
        if turns in tried or len(tried) == ORDERS_MAX or again > PLACED_AGAIN_MAX:
            return best


def _one_by_one(
    unit: UnitRequest, turns: Sequence[int], runner: Runner, rows: Rows, trial: Trial
) -> tuple[list[AssignedPod], int]:
    """Place these pods one after the other, as far as they fit; return them, and how many rows fit the first."""
    placed, feasible = list[AssignedPod](), 0
    for turn in turns:
        found = runner.best(unit.asks[turn], rows)
        if found is None:
            break
        feasible = feasible or found[1]
        placed.append(assigned(unit.pods[turn], unit.asks[turn], found[0], runner))
        trial.place(placed[-1])
    return placed, feasible


def _others_that_fit(
    unit: UnitRequest, turns: Sequence[int], runner: Runner, rows: Rows, trial: Trial
) -> list[AssignedPod]:
    """Place the pods that still fit after the first of these turns, which does not.

    Where a pod is refused, so is one that asks for no less and differs in nothing else.
    """
    fit, refused = list[AssignedPod](), [unit.asks[turns[0]].spec]
    for turn in turns[1:]:
        spec = unit.asks[turn].spec
        if not any(spec.key == refusal.key or _asks_no_less(spec, refusal) for refusal in refused):
            found = _one_by_one(unit, [turn], runner, rows, trial)[0]
            fit += found
            if not found:
                refused.append(spec)
    return fit


def _asks_no_less(spec: PodSpec, than: PodSpec) -> bool:
    amounts = spec.request.amounts
    less = any(amounts.get(resource, 0) < amount for resource, amount in than.request.amounts.items())
    return not less and but_for_amounts(spec) == but_for_amounts(than)


def but_for_amounts(spec: PodSpec) -> PodSpec:
    """Return the spec without what it requests, and without the keys that say so."""
    return replace(spec, key=b"", origin=b"", read=None, request=NOTHING_REQUESTED)


def kinds_of(asks: Sequence[PlacementRequest], runner: Runner, rows: Rows) -> dict[bytes, Kind]:
    """Return the pods of each class as a kind for packing, in the order in which the classes come."""
    count = Counter(ask.spec.key for ask in asks)
    ask_of = {ask.spec.key: ask for ask in asks}
    return {
        key: Kind(runner.nodes.request(ask.spec), allowed_to(ask, runner, rows), count[key])
        for key, ask in ask_of.items()
    }


def allowed_to(ask: PlacementRequest, runner: Runner, rows: Rows) -> Mask:
    """Return a mask of the rows that static filters allow to a pod, and that are open to it."""
    allowed = runner.allowed(ask.spec, rows)
    return allowed if ask.closed is None else allowed & ~ask.closed[rows]


def on_packed_rows(asks: Sequence[PlacementRequest], keys: Iterable[bytes], found: list[list[int]]) -> list[int]:
    """Return the place that was found for each pod: those of a kind go to its pods in turn."""
    places = {key: iter(places) for key, places in zip(keys, found, strict=True)}
    return [next(places[ask.spec.key]) for ask in asks]


def _packed(unit: UnitRequest, runner: Runner, rows: Rows) -> list[AssignedPod] | None:
    """Place the required pods of several classes on rows that hold all of them by amounts; None where that fails."""
    asks, nodes = unit.asks[: unit.required], runner.nodes
    if len({ask.spec.key for ask in asks}) == 1:
        return None
    room = nodes.allocatable[:, rows] - nodes.used[:, rows]
    if (np.maximum(room, 0).sum(axis=1) < sum(nodes.request(ask.spec) for ask in asks)).any():
        return None
    kinds = kinds_of(asks, runner, rows)
    found = pack([*kinds.values()], Places(room, np.zeros(len(rows), dtype=np.int64), nodes.ranks()[rows]))
    if found is None:
        return None
    placed: list[AssignedPod] = []
    with Trial(nodes) as trial:
        for pod, ask, at in zip(unit.pods, asks, on_packed_rows(asks, kinds, found), strict=False):
            if not runner.passes(ask.spec, rows[at : at + 1])[0]:
                return None
            placed.append(assigned(pod, ask, int(rows[at]), runner))
            trial.place(placed[-1])
    return placed


def _search(unit: UnitRequest, runner: Runner, rows: Rows) -> list[AssignedPod] | None:
    """Try other nodes than the best for pods whose fit depends on more than amounts; None where that finds no way."""
    asks = unit.asks[: unit.required]
    if unit.required > TRIES_MAX or all(
        runner.by_amounts(spec) for spec in {ask.spec.key: ask.spec for ask in asks}.values()
    ):
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
            placed = assigned(unit.pods[turn], asks[turn], row, runner)
            with Trial(runner.nodes) as trial:
                trial.place(placed)
                others = place_from(turn + 1)
            if others is not None:
                return [placed, *others]
        return None

    return place_from(0)


def assigned(pod: Pod, ask: PlacementRequest, row: int, runner: Runner) -> AssignedPod:
    """Return a pod on a row where it fits, with what it has for itself there."""
    return AssignedPod(pod, ask.spec, row, allocation_on(runner, ask.spec, row, ask.placement))


def refusals_beside(found: NotPlaced, spec: PodSpec, runner: Runner, rows: Rows) -> Diagnosis:
    """Return why no row fits a pod beside those that fit; a row that no filter refuses is too far from them."""
    with Trial(runner.nodes) as trial:
        for assigned in found.pods:
            trial.place(assigned)
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
                trial.place_all(allocated([pod], NO_SLOTS, runner, running, claims=pod.claims))
    return True
