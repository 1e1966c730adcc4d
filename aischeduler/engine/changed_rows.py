"""The work on changed rows: their claims are checked, then their room is offered. The row's pool does it in its slices.

Invariants:
- A row is worked on before the next pod of its pool is tried, so the order of the queue decides about its room.
- Rows are worked on in the order in which they changed; a row that changes again meanwhile is begun again.
- One call does a limited number of checks, whatever the number of claims and classes; the next call continues.
"""

from collections import OrderedDict
from collections.abc import Collection
from typing import Final

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.deferred_work import RowWork, Stage
from aischeduler.engine.lending import borrowers
from aischeduler.engine.nominator import check_claims
from aischeduler.engine.queueing_hints import FEW_ROWS, offer_abroad, offer_at_home, offer_to_nominated
from aischeduler.engine.row_room import Checks, RowRoom

CHECKED_MAX: Final = 64
"""The most checks of one call; a check for victims on a row counts as several."""


def work_on_rows(cluster: Cluster, pool: str) -> int:
    """Do a part of the work on the changed rows of a pool; return its cost in checks."""
    rows, checks = cluster.deferred.rows[pool], Checks(CHECKED_MAX)
    if not _some_pod_waits(cluster, pool) or (len(rows) > FEW_ROWS and not _some_pod_fits(cluster, pool, rows)):
        cluster.announcements.of_rows(rows)
        del cluster.deferred.rows[pool]
        return 0
    while rows and checks.left > 0:
        row, work = rows.popitem(last=False)
        checks.left -= 1
        if cluster.pool_of(row) == pool and not _finish(cluster, rows, row, work, checks):
            rows[row] = work
            rows.move_to_end(row, last=False)
    if not rows:
        del cluster.deferred.rows[pool]
    return CHECKED_MAX - checks.left


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
    cluster.announcements.of_rows((row,))
    if work.stage is Stage.CLAIMS:
        work.stage = Stage.HOME
        offer_to_nominated(cluster, room, checks)
    if work.stage is Stage.HOME and checks.left > 0:
        work.after = offer_at_home(cluster, room, work.after, checks)
        if work.after is None:
            work.stage = Stage.ABROAD
    if work.stage is Stage.ABROAD and checks.left > 0:
        work.after = offer_abroad(cluster, room, work.after, checks)
        return work.after is None
    return False
