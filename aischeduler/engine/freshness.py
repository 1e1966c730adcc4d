"""Before an eviction in a pool, everything that the eviction depends on is read: a watch may lag.

Invariants:
- An eviction follows within `FRESH_SECONDS` of a `Refreshed` of its pool. Each kind of object has a watch of its own,
  and each watch can lag; an unseen change (a new node, an edit of a Pool or a queue, a deleted pod) may make the
  eviction unnecessary, or wrong.
- The preemptor is parked meanwhile: free room is still offered to it.
- A pool has one refresh at a time, however many pods wait for it.
"""

from collections.abc import Iterable
from typing import Final

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.machine_groups import groups_have_rules
from aischeduler.engine.view import View
from aischeduler.model.actions import Refresh
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.state.pod_records import PodRecord, PodState

FRESH_SECONDS: Final = 1.0
"""How long a refresh counts; many pods evict after one refresh."""
ANSWER_SECONDS: Final = 120.0
"""After this time without an answer the refresh is requested again."""


def is_fresh(cluster: View, pool: str, now: float) -> bool:
    """Return whether the pool was refreshed just now."""
    at = cluster.freshness.refreshed_at.get(pool)
    return at is not None and now - at <= FRESH_SECONDS


def was_refreshed(cluster: View, pool: str, since: float) -> bool:
    """Return whether the pool was refreshed since then, however long that was ago."""
    at = cluster.freshness.refreshed_at.get(pool)
    return at is not None and at >= since


def await_fresh_view(cluster: Cluster, pool: str, record: PodRecord, now: float) -> list[Refresh]:
    """Have the pod tried again after a refresh of the pool; return the request, unless one is under way."""
    cluster.freshness.waiting.setdefault(pool, {})[record.pod.uid] = record
    return _ask(cluster, pool, now)


def await_to_end_loans(cluster: Cluster, pool: str, now: float) -> list[Refresh]:
    """Have the pool's loans checked again after a refresh; return the request, unless one is under way."""
    cluster.freshness.loans.add(pool)
    return _ask(cluster, pool, now)


def await_to_roll_back(cluster: Cluster, pool: str, unit: str, now: float) -> list[Refresh]:
    """Have the unit given up after a refresh of the pool; return the request, unless one is under way."""
    cluster.freshness.units.setdefault(pool, {})[unit] = None
    return _ask(cluster, pool, now)


def await_for_order(cluster: Cluster, pool: str, now: float) -> list[Refresh]:
    """Return the request for a refresh of the pool, unless one is under way: see `answers_due`."""
    return _ask(cluster, pool, now)


def answers_due(cluster: Cluster, pools: Iterable[str]) -> float:
    """Return until when to wait for the refreshes of these pools that are under way; without any it is past."""
    asked = (cluster.freshness.asked_at.get(pool) for pool in pools)
    return max((at + ANSWER_SECONDS for at in asked if at is not None), default=float("-inf"))


def awaits_view(cluster: View, record: PodRecord) -> bool:
    """Return whether the pod waits for a refresh of its pool."""
    return record.pod.uid in cluster.freshness.waiting.get(record.home, ())


def refreshed(cluster: Cluster, pool: str, now: float) -> None:
    """Note the refresh of a pool, and continue what waited for it."""
    if pool in cluster.queues:
        cluster.freshness.problems.pop(pool, None)
        cluster.freshness.refreshed_at[pool] = now
        go_on(cluster, pool, now)


def refresh_failed(cluster: Cluster, pool: str, message: str, now: float) -> None:
    """Note why the refresh of a pool failed; what waited for it is tried again, and requests a refresh again."""
    if pool in cluster.queues:
        cluster.freshness.problems[pool] = message
        go_on(cluster, pool, now)


def _ask(cluster: Cluster, pool: str, now: float) -> list[Refresh]:
    freshness, spec = cluster.freshness, cluster.pools.pools[pool]
    asked_at = freshness.asked_at.get(pool)
    if asked_at is not None and now - asked_at < ANSWER_SECONDS:
        return []
    freshness.asked_at[pool] = now
    names = cluster.nodes.names
    nodes = tuple(names[row] for row in cluster.nodes.rows_of_pool(cluster.pools.id(pool)).tolist())
    selector = None if pool == DEFAULT_POOL else spec.selector
    tenants = bool(cluster.tenants.queues.names())
    namespaces = spec.allowed_namespaces is not None or groups_have_rules(cluster)
    namespaces = namespaces or (tenants and _tenants_name_namespaces(cluster))
    return [Refresh(pool, selector, nodes, namespaces, tenants)]


def _tenants_name_namespaces(cluster: View) -> bool:
    """Return whether the namespace of a pod may decide whether its queue takes it, or whether it may stay."""
    selectors = (
        cluster.tenants.settings.non_preemptible,
        *(pool.non_preemptible_namespaces for pool in cluster.pools.pools.values()),
        *(queue.allowed_namespaces for queue in cluster.tenants.queues.objects()),
    )
    return any(selector is not None for selector in selectors)


def go_on(cluster: Cluster, pool: str, now: float) -> None:
    """Have everything that waits for the pool's refresh tried again; it requests a refresh again where it needs one."""
    freshness = cluster.freshness
    freshness.asked_at.pop(pool, None)
    if pool in freshness.loans:
        freshness.loans.discard(pool)
        cluster.deferred.review((pool,))
    for name in freshness.units.pop(pool, {}):
        if name in cluster.units.unfinished:
            cluster.units.unfinished.set(name, now)
    queue = cluster.queues[pool]
    for record in freshness.waiting.pop(pool, {}).values():
        if record.state in (PodState.PARKED, PodState.NOMINATED) and queue.holds(record):
            queue.wake_at_once(record, now)
        else:  # it left or was placed meanwhile: the next pod of its class may evict now
            queue.wake_next(record, now, at_once=True)
