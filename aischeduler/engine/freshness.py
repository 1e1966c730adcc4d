"""Nothing is evicted by a view that may be out of date: before an eviction in a pool, its view is refreshed.

Invariants:
- An eviction follows only within `FRESH_SECONDS` of a `Refreshed` of its pool. Each kind of objects has a watch of its
  own, and any of them can lag; what we have not seen (a new node, an edit of a Pool, a pod that is gone) may make the
  eviction needless.
- The pod that would evict is parked meanwhile: free room is still offered to it.
- A pool is refreshed once at a time, whatever the number of its pods that wait for that.
"""

from typing import Final

from aischeduler.engine.cluster import Cluster
from aischeduler.model.actions import Refresh
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.pod import Pod
from aischeduler.state.records import PodRecord, PodState

FRESH_SECONDS: Final = 1.0
"""How long a view counts as fresh; of a crowd, many evict by one."""
ANSWER_SECONDS: Final = 120.0
"""After so long without an answer the shell is asked again."""


def is_fresh(cluster: Cluster, pool: str, now: float) -> bool:
    """Say whether something may be evicted in the pool by what we know."""
    at = cluster.freshness.refreshed_at.get(pool)
    return at is not None and now - at <= FRESH_SECONDS


def await_fresh_view(cluster: Cluster, pool: str, record: PodRecord, now: float) -> list[Refresh]:
    """Let a pod be tried again once the pool was refreshed; return the request for that, unless it is under way."""
    cluster.freshness.waiting.setdefault(pool, {})[record.pod.uid] = record
    return _ask(cluster, pool, record.pod, now)


def await_to_end_loans(cluster: Cluster, pool: str, victim: Pod, now: float) -> list[Refresh]:
    """Let the pool's loans be looked at again once it was refreshed; return the request, unless it is under way."""
    cluster.freshness.loans.add(pool)
    return _ask(cluster, pool, victim, now)


def awaits_view(cluster: Cluster, record: PodRecord) -> bool:
    """Say whether the pod waits for its pool to be refreshed."""
    return record.pod.uid in cluster.freshness.waiting.get(record.home, ())


def refreshed(cluster: Cluster, pool: str, now: float) -> None:
    """Note that a pool's view is fresh, and let go on what waited for that."""
    if pool in cluster.queues:
        cluster.freshness.problems.pop(pool, None)
        cluster.freshness.refreshed_at[pool] = now
        go_on(cluster, pool, now)


def refresh_failed(cluster: Cluster, pool: str, message: str, now: float) -> None:
    """Note why a pool could not be refreshed; what waited for that is tried again, and asks again."""
    if pool in cluster.queues:
        cluster.freshness.problems[pool] = message
        go_on(cluster, pool, now)


def _ask(cluster: Cluster, pool: str, pod: Pod, now: float) -> list[Refresh]:
    freshness, spec = cluster.freshness, cluster.pools.pools[pool]
    asked_at = freshness.asked_at.get(pool)
    if asked_at is not None and now - asked_at < ANSWER_SECONDS:
        return []
    freshness.asked_at[pool] = now
    names = cluster.nodes.names
    nodes = tuple(names[row] for row in cluster.nodes.rows_of_pool(cluster.pools.id(pool)).tolist())
    selector = None if pool == DEFAULT_POOL else spec.selector
    return [Refresh(pool, pod, selector, nodes, spec.allowed_namespaces is not None)]


def go_on(cluster: Cluster, pool: str, now: float) -> None:
    """Let everything that waits for the pool's refresh be tried again; what still needs one asks again."""
    freshness = cluster.freshness
    freshness.asked_at.pop(pool, None)
    if pool in freshness.loans:
        freshness.loans.discard(pool)
        cluster.errands.review.add(pool)
    for uid, record in freshness.waiting.pop(pool, {}).items():
        if cluster.records.get(uid) is record and record.state is PodState.PARKED and record.queue == pool:
            cluster.queues[pool].wake_at_once(record, now)
