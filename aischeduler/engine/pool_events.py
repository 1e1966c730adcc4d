"""Handling of Pool and namespace events.

Invariants:
- Nodes, queues, claims, loans and waiting pods move with their pools in one step; every pod keeps its age.
- A Pool that is edited again and again is handled a few times a second; the edits between are skipped.
- The default pool always exists: while its object is deleted, the profile has its spec.
"""

from typing import Final

from msgspec.structs import replace

from aischeduler.engine.admission import admit
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.machine_groups import namespace_relabelled, rules_changed
from aischeduler.engine.message_updates import reword_all
from aischeduler.engine.node_events import follow
from aischeduler.engine.pod_counting import refresh
from aischeduler.engine.queueing_hints import rows_changed
from aischeduler.engine.tenant_queues import may_say_otherwise, namespace_of_queues
from aischeduler.engine.units import break_up, stop_waiting
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.pool import Namespace, Pool
from aischeduler.model.selectors import Labels
from aischeduler.state.pod_records import NOWHERE

EDITS_MAX: Final = 5
"""The edits of one Pool that are handled at once within a window; of further edits the last waits for its end."""
WINDOW_SECONDS: Final = 0.5


def pool_seen(cluster: Cluster, pool: Pool, now: float) -> None:
    """Handle a Pool as it is now, or keep it for the end of the window where it was edited often."""
    if _too_many(cluster, pool.name, now):
        cluster.edits.last[pool.name] = pool
    else:
        put_in_force(cluster, pool, now)


def pool_gone(cluster: Cluster, name: str, now: float) -> None:
    """Remove a Pool; its nodes and pods go to the pools where they belong now."""
    forget_edits(cluster, name)
    if name == DEFAULT_POOL:
        put_in_force(cluster, cluster.profile.default_pool, now)
    elif name in cluster.pools.pools:
        _remove(cluster, name, now)


def forget_edits(cluster: Cluster, name: str) -> None:
    """Drop what is kept of a Pool for the end of its window."""
    cluster.edits.last.pop(name, None)
    cluster.edits.windows.drop(name)
    cluster.edits.counts.pop(name, None)


def end_windows(cluster: Cluster, now: float) -> None:
    """Start the count of edits again for Pools whose window ended; their kept edits are due."""
    for name in cluster.edits.windows.pop_due(now):
        cluster.edits.counts.pop(name, None)


def namespace_seen(cluster: Cluster, namespace: Namespace) -> None:
    """Store a namespace as it is now; a pool may allow its pods now, or no longer."""
    name, labels = namespace.name, namespace.labels
    before = cluster.nodes.pod_counts.namespaces.get(name)
    if before != labels:
        _count_namespace(cluster, name, labels)
        namespace_relabelled(cluster, name, before, labels)
        namespace_of_queues(cluster, name, before, labels)
    for pool in cluster.pools.names():
        allowed = cluster.pools.pools[pool].allowed_namespaces
        if allowed is not None and allowed.matches(labels) != (before is not None and allowed.matches(before)):
            cluster.deferred.affect(pool).namespaces[name] = None


def namespace_gone(cluster: Cluster, name: str) -> None:
    """Remove a namespace."""
    _count_namespace(cluster, name, None)


def _count_namespace(cluster: Cluster, name: str, labels: Labels | None) -> None:
    """Count the pods of a namespace by its labels; None is a namespace that is gone."""
    if cluster.nodes.pod_counts.namespace_changed(name, cluster.nodes.pod_counts.namespaces.get(name), labels):
        cluster.nodes.touch_counts()


def _too_many(cluster: Cluster, name: str, now: float) -> bool:
    if name not in cluster.edits.windows:
        cluster.edits.windows.set(name, now + WINDOW_SECONDS)
        cluster.edits.counts[name] = 0
    cluster.edits.counts[name] += 1
    return cluster.edits.counts[name] > EDITS_MAX


def put_in_force(cluster: Cluster, pool: Pool, now: float) -> None:
    """Let a Pool be as it is now, however often it was edited."""
    before = cluster.pools.pools.get(pool.name)
    moved = cluster.pools.see(pool)
    if pool.name not in cluster.queues:
        cluster.add_queue(pool.name)
    if before is None:
        _rehome(cluster, pool.name, now)
        reword_all(cluster)
    if pool.profile != ("" if before is None else before.profile) and cluster.profile.others:
        _take_profiles(cluster, pool.name, now)
    rules_changed(cluster, () if before is None else before.machine_groups, pool.machine_groups)
    follow(cluster, moved, now)
    if before is not None and before.non_preemptible_namespaces != pool.non_preemptible_namespaces:
        may_say_otherwise(cluster)
    if before is not None and _terms(before) != _terms(pool):
        _reconsider(cluster, before, pool)


def _take_profiles(cluster: Cluster, name: str, now: float) -> None:
    """Have the waiting pods of this home pool judged by the profile that it names now."""
    for record in tuple(cluster.records.values()):
        if record.queue and record.home == name:
            stop_waiting(cluster, record, now)
            admit(cluster, record, now)


def _remove(cluster: Cluster, name: str, now: float) -> None:
    for claim in cluster.claims.in_pool(name):
        cluster.claims.end(claim)
    rules = cluster.pools.pools[name].machine_groups
    moved = cluster.pools.forget(name)
    queue = cluster.queues[name]
    for record in queue.records():
        if record.unit is not None:
            break_up(cluster, record, now)
    for record in queue.records():
        queue.remove(record)
        cluster.withdraw(record)
        record.offered = NOWHERE
        admit(cluster, record, now)
    del cluster.queues[name]
    _rehome(cluster, name, now)
    cluster.forget_pool(name)
    rules_changed(cluster, rules, ())
    follow(cluster, moved, now)
    reword_all(cluster)


def _rehome(cluster: Cluster, name: str, now: float) -> None:
    """Update the home pool of all pods that name this pool, which is new or gone."""
    followers = tuple(cluster.naming.get(name, {}).values())
    counted = [record for record in followers if record.counted is not None]
    for record in counted:
        refresh(cluster, record)
    rows = sorted({record.row for record in counted})
    cluster.deferred.review(pool for pool in map(cluster.pool_of, rows) if pool)
    for record in followers:
        if name in cluster.pools.pools:
            cluster.unknown_pools.missing.pop(record.pod.uid, None)
        if record.queue and (cluster.pools.home(record.pod.pool) != record.home or record.borrower):
            stop_waiting(cluster, record, now)
            admit(cluster, record, now)
    rows_changed(cluster, rows)  # own and lent room may have changed there


def _reconsider(cluster: Cluster, before: Pool, pool: Pool) -> None:
    """Have waiting pods tried again after a changed spec, and check the pool's loans."""
    cluster.deferred.review((pool.name,))
    affected = cluster.deferred.affect(pool.name)
    affected.parked = True
    if before.allowed_namespaces != pool.allowed_namespaces:
        affected.namespaces[""] = None
    if before.rare_types != pool.rare_types:
        for row in cluster.nodes.rows_of_pool(cluster.pools.id(pool.name)).tolist():
            cluster.row_changed(row, offers=False)  # a claim there may be of no use now
    reword_all(cluster)


def _terms(pool: Pool) -> Pool:
    """Return the part of the spec that decides lending, borrowing and preemption."""
    return replace(pool, uid="", generation=0, selector=None, placement=None)
