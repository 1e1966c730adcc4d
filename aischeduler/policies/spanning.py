"""Placement of a unit that may start in its home pool and in lenders at once.

Invariants:
- Each pod takes its home pool where it fits there, else the first lender in the order of borrowing.
- A lender gives only nodes that none of its waiting home pods can use. The loans together keep to the limits of the
  home pool, those of each lender to its limits; a lender whose limits forbid its part is left out.
- Nothing here changes state.
"""

from collections.abc import Sequence

from aischeduler.framework.runner import Runner
from aischeduler.model.pod import PodSpec
from aischeduler.policies.borrowing import BorrowingContext, lender_refusal, lenders_in_order, wanted_by_home_pods
from aischeduler.policies.unit_placement import (
    UnitPlacement,
    UnitRequest,
    assigned,
    close_parts,
    in_rank_order,
    total_of,
)
from aischeduler.state.assigned_pod import AssignedPod
from aischeduler.state.label_index import Rows
from aischeduler.state.ledger import BORROWS, within
from aischeduler.state.what_if import Trial


def place_spanning(context: BorrowingContext, home: str, unit: UnitRequest) -> UnitPlacement | None:
    """Return nodes of the home pool and of lenders for the required pods; None where there are too few."""
    runner, nodes = context.runner, context.runner.nodes
    mine = nodes.rows_of_pool(context.pools.id(home))
    lenders = lenders_in_order(context, home, unit.asks[0])
    while lenders:
        parts = [mine]
        for lender in lenders:
            rows = nodes.rows_of_pool(context.pools.id(lender))
            parts.append(rows[~wanted_by_home_pods(context, lender, rows)])
        found = _place(unit, runner, parts)
        if found is None:
            return None
        refused = _refused(context, home, found, lenders)
        if not refused:
            return UnitPlacement(in_rank_order(unit, runner, found), 1)
        lenders = [lender for lender in lenders if lender not in refused]
    return None


def _place(unit: UnitRequest, runner: Runner, parts: Sequence[Rows]) -> tuple[AssignedPod, ...] | None:
    """Place each required pod on the first part where it fits, close to the others; None where one does not."""
    for near in close_parts(unit, runner, parts):
        placed: list[AssignedPod] = []
        with Trial(runner.nodes) as trial:
            for turn in range(unit.required):
                best = (runner.best(unit.asks[turn], rows) for rows in near if len(rows))
                found = next((one for one in best if one is not None), None)
                if found is None:
                    break
                placed.append(assigned(unit.pods[turn], unit.asks[turn].spec, found[0], runner))
                trial.place(placed[-1])
        if len(placed) == unit.required:
            return tuple(placed)
    return None


def _refused(context: BorrowingContext, home: str, pods: tuple[AssignedPod, ...], lenders: Sequence[str]) -> list[str]:
    """Return the lenders whose part is more than their limits allow; the last one where the whole is too much."""
    parts: dict[str, list[PodSpec]] = {}
    for one in pods:
        parts.setdefault(context.pools.name(int(context.runner.nodes.pool[one.row])), []).append(one.spec)
    lent = [lender for lender in lenders if lender in parts]
    refused = [lender for lender in lent if lender_refusal(context, home, lender, total_of(parts[lender])) is not None]
    every = total_of([spec for lender in lent for spec in parts[lender]])
    if within(context.pools.pools[home].borrowing_limit, context.ledger.of(BORROWS, home), every):
        return [lent[-1]]
    return refused
