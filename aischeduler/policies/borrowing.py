"""Borrowing: choose the pool that lends a node to a pod that fits on no node of its home pool.

`place_spanning` places a unit whose gang may span pools: in its home pool and in lenders at once.

Invariants:
- A lender shares, is in the home pool's borrowingPools, stays within both limits, and has a node on which the pod fits
  and which no waiting home pod of the lender can use. Where one lender is refused, the next is checked.
- A node of a rare type is lent only if the lender's spec says so.
- The order of lenders: largest idle share, fewest pods, fewest idle scarce resources that the pod does not use, name.
- Of a unit that spans pools, each pod takes its home pool where it fits there, else the first lender in that order.
- A lender gives only nodes that none of its waiting home pods can use. The loans together keep to the limits of the
  home pool, those of each lender to its limits; a lender whose limits forbid its part is left out.
- Nothing here changes state.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from cachetools import LRUCache
from msgspec import Struct, field
from msgspec.structs import replace

from aischeduler.framework.plugin import PlacementRequest
from aischeduler.framework.runner import Runner
from aischeduler.model.card_shares import CARD, Memories, counted
from aischeduler.model.device import NVIDIA_GPU
from aischeduler.model.names import CPU, EPHEMERAL_STORAGE, GPU_SHARE, MEMORY, PODS
from aischeduler.model.pod import PodSpec
from aischeduler.model.pool import Pool
from aischeduler.model.proposal import Lender, LenderRefusal, NoLender
from aischeduler.policies.loan_limits import home_refusal, lender_refusal
from aischeduler.policies.unit_capacity import UnitCapacity
from aischeduler.policies.unit_placement import (
    UnitPlacement,
    UnitRequest,
    assigned,
    close_parts,
    in_rank_order,
    place_unit,
    total_of,
)
from aischeduler.state.claims import Claims
from aischeduler.state.label_index import Mask, Rows
from aischeduler.state.ledger import BORROWS, Ledger, within
from aischeduler.state.node_table import NodeTable
from aischeduler.state.pod_records import AssignedPod, Unit
from aischeduler.state.pool_table import PoolTable
from aischeduler.state.requests import Amounts, requested
from aischeduler.state.scheduling_queue import PoolQueue
from aischeduler.state.units import Shape, shape_of, shape_of_unit
from aischeduler.state.what_if import Trial

PLENTIFUL: Final = frozenset((CPU, MEMORY, EPHEMERAL_STORAGE, PODS))
"""The resources that every node has; all others are scarce."""


FITS_MAX: Final = 1024
"""The most units of which it is kept whether they fit now."""


class BorrowingContext(Struct, frozen=True):
    """The state that a choice of a lender reads. `preemption` is the scheduler's own switch.

    `unit_request` returns the request of a unit in a pool; `capacity` says by amounts where a unit may fit.
    """

    pools: PoolTable
    queues: Mapping[str, PoolQueue]
    claims: Claims
    ledger: Ledger
    runner: Runner
    preemption: bool
    unit_request: Callable[[Unit, str], UnitRequest]
    capacity: UnitCapacity
    fits: LRUCache[tuple[str, str], tuple[tuple[object, ...], Rows, bool]] = field(
        default_factory=lambda: LRUCache(FITS_MAX)
    )
    """Unit and pool -> what placing it there read, and whether it fits now."""

    @property
    def memories(self) -> Memories:
        """The sizes of the GPUs that are known."""
        return self.runner.nodes.cards.gpu_memories(self.runner.nodes)

    def total(self, ask: PlacementRequest | UnitRequest) -> PodSpec:
        """Return what a pod, or the required pods of a unit, ask for together, with their shares of GPUs."""
        return ask.total(self.memories) if isinstance(ask, UnitRequest) else total_of((ask.spec,), self.memories)

    def may_evict(self, pool: Pool) -> bool:
        """Return whether pods of this pool may preempt."""
        return self.preemption and not pool.disable_preemption


def choose_lender(
    context: BorrowingContext, home: str, ask: PlacementRequest | UnitRequest, visited: tuple[str, ...]
) -> Lender | NoLender:
    """Return the best lender for a pod, or a whole unit, of this home pool, apart from those that it has `visited`."""
    spec, first = context.total(ask), ask.asks[0] if isinstance(ask, UnitRequest) else ask
    unable, resource = home_refusal(context, home, spec)
    if unable is not None:
        return NoLender((), unable, resource)
    refused: list[tuple[str, LenderRefusal]] = []
    willing: list[str] = []
    for name in context.pools.names():
        if name == home:
            continue
        refusal = LenderRefusal.VISITED if name in visited else lender_refusal(context, home, name, spec)
        if refusal is None:
            willing.append(name)
        else:
            refused.append((name, refusal))
    fits = context.runner.feasible(first)
    for name in _in_order(context, willing, spec, fits, refused):
        rows = first.open(context.runner.nodes.rows_of_pool(context.pools.id(name)))
        if isinstance(ask, UnitRequest):
            refusal = _unit_refusal(context, ask, name, rows)
        else:
            refusal = LenderRefusal.HOME_PODS if wanted_by_home_pods(context, name, rows[fits[rows]]).all() else None
        if refusal is None:
            return Lender(name, tuple(sorted(refused)))
        refused.append((name, refusal))
    if first.closed is not None:
        kept = context.runner.feasible(replace(first, closed=None)) & first.closed
        refused = [(name, _or_kept(context, name, refusal, kept)) for name, refusal in refused]
    return NoLender(tuple(sorted(refused)))


def kept_from_borrowers(nodes: NodeTable) -> Mask | None:
    """Return a mask of the rows that their pools lend to nobody, because their cards are rare; None where none are."""
    return nodes.cards.not_lent(nodes)


def _or_kept(context: BorrowingContext, lender: str, refusal: LenderRefusal, kept: Mask) -> LenderRefusal:
    """Return why a lender has no room: the pod fits on some of its nodes, and it keeps all of these."""
    rows = context.runner.nodes.rows_of_pool(context.pools.id(lender))
    return LenderRefusal.RARE_TYPES if refusal is LenderRefusal.NO_ROOM and kept[rows].any() else refusal


def _unit_refusal(context: BorrowingContext, ask: UnitRequest, lender: str, rows: Rows) -> LenderRefusal | None:
    """Return why the unit does not fit as a whole on rows that the lender does not need."""
    shape = shape_of([asked.spec for asked in ask.asks[: ask.required]])
    if not context.capacity.may_hold(shape, context.pools.id(lender)):
        return LenderRefusal.NO_ROOM
    wanted = wanted_by_home_pods(context, lender, rows)
    if isinstance(place_unit(ask, context.runner, rows[~wanted]), UnitPlacement):
        return None
    return LenderRefusal.HOME_PODS if wanted.any() else LenderRefusal.NO_ROOM


def wanted_by_home_pods(context: BorrowingContext, lender: str, rows: Rows) -> Mask:
    """Return a mask of the lender's rows that a waiting home pod of the lender can use.

    Where the lender may preempt, that is a pod that fits there now: a larger pod reclaims the room when it needs it.
    Where it may not, it is every pod that fits on the empty node; of a unit, only where each pod fits on some node.
    """
    wanted: Mask = np.zeros(len(rows), dtype=np.bool_)
    queue, pool, nodes = context.queues[lender], context.pools.pools[lender], context.runner.nodes
    if not len(rows) or not queue.has_usable:
        return wanted
    evicts = context.may_evict(pool)
    rooms = nodes.allocatable[:, rows] - nodes.used[:, rows] if evicts else nodes.allocatable[:, rows]
    could = context.runner.passes if evicts else context.runner.could_run

    def holds(shape: Shape, _: int) -> bool:
        return context.capacity.may_hold(shape, context.pools.id(lender))

    specs, units = queue.usable_within(rooms.max(axis=1), holds if evicts else None)
    for spec in specs:
        left = ~wanted
        wanted[left] = could(spec, rows[left])
        if wanted.all():
            return wanted
    known = {spec.key for spec in specs}
    for unit in units:
        asked = {record.pod.spec.key: record.pod.spec for record in unit.together}
        if known.issuperset(asked):
            continue
        own = context.claims.of(unit.lead.pod.uid) if unit.lead is not None else None
        with Trial(nodes, own.assigned if own is not None else ()):  # a unit moves out of the room that it claims
            if not (
                _fits_now(context, unit, lender)
                if evicts
                else _fits_large_enough_nodes(context, unit, asked.values(), lender)
            ):
                continue
            for spec in asked.values():
                wanted |= could(spec, rows)
        if wanted.all():
            return wanted
        known |= asked.keys()
    return wanted


def _fits_now(context: BorrowingContext, unit: Unit, pool: str) -> bool:
    """Return whether a unit of this pool fits into its free room, so that it is about to take some of it."""
    if not context.capacity.may_hold(shape_of_unit(unit), context.pools.id(pool)):
        return False
    nodes = context.runner.nodes
    rows = nodes.rows_of_pool(context.pools.id(pool))
    state = nodes.version, nodes.storage.version, unit.pods, unit.required, unit.gang
    known = context.fits.get((unit.name, pool))
    if known is not None and known[0] == state and known[1] is rows and not nodes.tentative:
        return known[2]
    fits = isinstance(place_unit(context.unit_request(unit, pool), context.runner, rows), UnitPlacement)
    if not nodes.tentative:
        context.fits[unit.name, pool] = state, rows, fits
    return fits


def _fits_large_enough_nodes(context: BorrowingContext, unit: Unit, specs: Iterable[PodSpec], pool: str) -> bool:
    """Return whether each pod of a unit, of these specs, fits by amounts on a node of the pool, or may go elsewhere."""
    if unit.spans:
        return True
    nodes = context.runner.nodes
    offered = nodes.allocatable[:, nodes.rows_of_pool(context.pools.id(pool))]
    return all(bool((offered >= nodes.request(spec)[:, None]).all(axis=0).any()) for spec in specs)


def lenders_in_order(context: BorrowingContext, home: str, ask: PlacementRequest) -> list[str]:
    """Return the pools that lend to one such pod of this home pool, room for others aside, the best first."""
    spec = context.total(ask)
    if home_refusal(context, home, spec)[0] is not None:
        return []
    names = [name for name in context.pools.names() if name != home]
    willing = [name for name in names if lender_refusal(context, home, name, spec) is None]
    return _in_order(context, willing, spec, context.runner.feasible(ask), [])


def _in_order(
    context: BorrowingContext, willing: list[str], spec: PodSpec, fits: Mask, refused: list[tuple[str, LenderRefusal]]
) -> list[str]:
    """Return the willing pools that have a fitting node, best first; add the others to `refused`.

    The idle share of a pool is the smallest of the resources that the pod requests, once the pod is placed. Of GPUs it
    is that of all GPUs, of which nodes with Device objects may have given parts.
    """
    if not willing:
        return []
    nodes = context.runner.nodes
    grouped = nodes.by_pool()
    fitting, allocatable, used = grouped.any(fits), grouped.sums(nodes.allocatable), grouped.sums(nodes.used)
    idle = allocatable - used
    other = [
        nodes.columns[name] for name in nodes.columns if name not in PLENTIFUL and name not in spec.request.amounts
    ]
    scarce = idle[other].sum(axis=0)
    gpus = grouped.sums(gpus_by_row(nodes)) if nodes.devices.active else None
    ranked: list[tuple[float, int, int, str]] = []
    for name in willing:
        place = grouped.places.get(context.pools.id(name))
        if place is None or not fitting[place]:
            refused.append((name, LenderRefusal.NO_ROOM))
            continue
        share = np.inf
        if gpus is not None and (asked := counted(NVIDIA_GPU, spec.request.amounts)):
            come = counted(NVIDIA_GPU, context.queues[name].borrowers_ask)
            share = float((gpus[0, place] - asked - come) / max(gpus[1, place], 1))
        for resource, amount in spec.request.amounts.items():
            if resource == GPU_SHARE or (resource == NVIDIA_GPU and gpus is not None):
                continue
            column = nodes.column(resource)
            # borrowers in the pool's queue count as placed, so that pods that come together spread over lenders
            left = idle[column, place] - requested(amount) - context.queues[name].borrowers_ask[resource]
            share = min(share, float(left / max(allocatable[column, place], 1)))
        pods = int(used[nodes.columns[PODS], place]) - context.claims.count_in(name)
        ranked.append((-share, pods, int(scarce[place]), name))
    return [name for *_, name in sorted(ranked)]


def gpus_by_row(nodes: NodeTable) -> Amounts:
    """Return per row how much of its GPUs is free, and of how many, in hundredths: [free|all, row]."""
    column, devices = nodes.column(NVIDIA_GPU), nodes.devices
    offered, free = nodes.allocatable[column], nodes.allocatable[column] - nodes.used[column]
    return np.stack((np.where(devices.there, devices.free_hundredths(), free * CARD), offered * CARD))


def place_spanning(context: BorrowingContext, home: str, unit: UnitRequest) -> UnitPlacement | tuple[str, ...]:
    """Return nodes of the home pool and of lenders for the required pods.

    Where there are too few, return the lenders whose own pods wait for some of theirs.
    """
    runner, nodes = context.runner, context.runner.nodes
    mine = nodes.rows_of_pool(context.pools.id(home))
    lenders, blocked = lenders_in_order(context, home, unit.asks[0]), dict[str, None]()
    while lenders:
        parts = [mine]
        for lender in lenders:
            rows = nodes.rows_of_pool(context.pools.id(lender))
            wanted = wanted_by_home_pods(context, lender, rows)
            blocked |= dict.fromkeys([lender] if wanted.any() else ())
            parts.append(rows[~wanted])
        found = _place(unit, runner, parts)
        if found is None:
            break
        refused = _refused(context, home, found, lenders)
        if not refused:
            return UnitPlacement(in_rank_order(unit, runner, found), 1)
        lenders = [lender for lender in lenders if lender not in refused]
    return tuple(blocked)


def _place(unit: UnitRequest, runner: Runner, parts: Sequence[Rows]) -> tuple[AssignedPod, ...] | None:
    """Place each required pod on the first part where it fits, close to the others; None where one does not."""
    for near in close_parts(unit, runner, parts):
        placed: list[AssignedPod] = []
        with Trial(runner.nodes) as trial:
            for turn in range(unit.required):
                best = (runner.best(unit.asks[turn], rows) for rows in near if len(rows))
                found = next((choice for choice in best if choice is not None), None)
                if found is None:
                    break
                placed.append(assigned(unit.pods[turn], unit.asks[turn], found[0], runner))
                trial.place(placed[-1])
        if len(placed) == unit.required:
            return tuple(placed)
    return None


def _refused(context: BorrowingContext, home: str, pods: tuple[AssignedPod, ...], lenders: Sequence[str]) -> list[str]:
    """Return the lenders whose part is more than their limits allow; the last one where the whole is too much."""
    parts: dict[str, list[PodSpec]] = {}
    for on_row in pods:
        parts.setdefault(context.pools.name(int(context.runner.nodes.pool[on_row.row])), []).append(on_row.spec)
    lent, sizes = [lender for lender in lenders if lender in parts], context.memories
    totals = {lender: total_of(parts[lender], sizes) for lender in lent}
    refused = [lender for lender in lent if lender_refusal(context, home, lender, totals[lender]) is not None]
    every = total_of([spec for lender in lent for spec in parts[lender]], sizes)
    if within(context.pools.pools[home].borrowing_limit, context.ledger.of(BORROWS, home), every):
        return [lent[-1]]
    return refused
