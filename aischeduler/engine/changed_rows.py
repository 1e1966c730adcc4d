"""The work on changed rows: their claims are checked, then their room is offered. The row's pool does it in its slices.

Invariants:
- A row is worked on before the next pod of its pool is tried, so the order of the queue decides about its room. Where
  that takes long, because units of several pods are checked or slice after slice is full, pods are tried in between.
- Rows are worked on in the order in which they changed; a row that changes again meanwhile is begun again.
- One call does a limited number of checks, whatever the number of claims and classes; the next call continues.
"""

from collections import OrderedDict
from collections.abc import Collection
from typing import Final

from aischeduler.engine.agenda import Checks, RowWork, Stage
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.lending import borrowers, note_offered_beside
from aischeduler.engine.nominator import check_claims
from aischeduler.engine.queueing_hints import (
    FEW_ROWS,
    RowRoom,
    offer_abroad,
    offer_at_home,
    offer_to_nominated,
    offer_to_owners,
)

OFFER_COST: Final = 3
"""The cost of looking at the room of a row and at who may take it, in checks."""
PATIENCE: Final = 8
"""After so many slices in which rows were left, a pod is tried although rows are left."""
_OFFERS: Final = {
    Stage.OWNERS: offer_to_owners,
    Stage.NOMINATED: offer_to_nominated,
    Stage.HOME: offer_at_home,
    Stage.ABROAD: offer_abroad,
}


def work_on_rows(cluster: Cluster, pool: str, checks: Checks) -> None:
    """Do a part of the work on the changed rows of a pool."""
    agenda, of_units = cluster.deferred.agenda(pool), checks.of_units
    rows = agenda.rows
    many = len(rows) > FEW_ROWS and not agenda.held_up  # not in each slice: it reads all rows
    if not _some_pod_waits(cluster, pool) or (many and not _some_pod_fits(cluster, pool, rows)):
        cluster.said.announcements.of_rows(rows)
        rows.clear()
        agenda.held_up = 0
        return
    while rows and checks.left > 0:
        row, work = rows.popitem(last=False)
        checks.spend(1)
        if cluster.pool_of(row) == pool and not _finish(cluster, rows, row, work, checks):
            rows[row] = work
            rows.move_to_end(row, last=False)
    if not rows:
        agenda.held_up = 0
    elif checks.of_units > of_units:
        agenda.held_up = PATIENCE
    else:
        agenda.held_up += 1


def lets_pass(cluster: Cluster, pool: str) -> bool:
    """Return whether the next pod of the pool may be tried: no rows are left, or they held up pods for long enough."""
    agenda = cluster.deferred.look_at(pool)
    if not agenda.rows:
        return True
    if agenda.held_up < PATIENCE:
        return False
    agenda.held_up = 0
    return True


def _some_pod_waits(cluster: Cluster, pool: str) -> bool:
    """Return whether there is a claim in the pool, or a parked pod that its rows may help."""
    return bool(cluster.claims.count_in(pool) or cluster.queues[pool].has_parked or borrowers(cluster, pool))


def _some_pod_fits(cluster: Cluster, pool: str, rows: Collection[int]) -> bool:
    """Return whether there is a claim in the pool, or a parked pod that by its request may fit on one of these rows."""
    if cluster.claims.count_in(pool):
        return True
    queues = (cluster.queues[pool], *borrowers(cluster, pool))
    room = cluster.nodes.allocatable[:, list(rows)].max(axis=1)  # a home pod may evict what is there
    return any(True for queue in queues for _ in queue.parked_within(room))


def _finish(cluster: Cluster, rows: OrderedDict[int, RowWork], row: int, work: RowWork, checks: Checks) -> bool:
    """Continue the work on a row; return whether it is finished."""
    if work.stage is Stage.CLAIMS:
        work.after = check_claims(cluster, row, work.after, checks)
        if rows.pop(row, None) is not None:
            work.offers = True  # a claim ended; the claims behind it were checked without it
        if work.after is not None or not work.offers:
            return work.after is None
    room = RowRoom(cluster, row)
    checks.spend(OFFER_COST)
    cluster.said.announcements.of_rows((row,))
    if work.stage is Stage.CLAIMS:
        work.stage = Stage.OWNERS
    for stage, offer in _OFFERS.items():
        if work.stage is stage and checks.left > 0:
            work.after = offer(cluster, room, work.after, checks)
            if work.after is None:
                work.stage = Stage(stage + 1)
    note_offered_beside(cluster, room.pool, (row,))
    return work.stage is Stage.DONE
