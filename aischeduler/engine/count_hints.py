"""Wake-ups by counts: a pod that comes to one row or leaves it may let a waiting pod fit on others.

Invariants:
- The classes whose cross-row filters count differently are noted by events and checked by the decisions of their pools.
- A parked class is woken where an attempt of its first pod would not park it again.
"""

from aischeduler.engine.agenda import Checks
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.lending import look_again
from aischeduler.engine.propose import propose_briefly
from aischeduler.engine.queueing_hints import would_be_helped
from aischeduler.model.proposal import Place
from aischeduler.state.pod_records import PodState
from aischeduler.state.scheduling_queue import OrderKey, QueuedClass, queue_order


def note_counts(cluster: Cluster) -> None:
    """Note the waiting classes whose counts changed since the last call, for the decisions of their pools."""
    nodes, counts = cluster.nodes, cluster.nodes.pod_counts
    versions = (nodes.unlabelled_version, nodes.labels.version, nodes.pool_version)
    if versions != cluster.deferred.domains:
        cluster.deferred.domains = versions
        counts.note_all()
    if not counts.changed and not counts.changed_specs:
        return
    queues = cluster.queues
    waiting = [
        pool for pool in cluster.pools.names() if queues[pool].has_parked or queues[pool].in_state(PodState.NOMINATED)
    ]
    if not waiting:
        counts.forget_changed()
        return
    specs = counts.take_changed()
    for pool in waiting:
        found = [
            key for spec in specs for key in queues[pool].classes_of(spec) if _waits(queues[pool].queued_class(key))
        ]
        if found:
            cluster.deferred.agenda(pool).counted.update(dict.fromkeys(found))


def check_counted(cluster: Cluster, pool: str, checks: Checks) -> None:
    """Wake the pods of the next noted classes that an attempt would help."""
    counted = cluster.deferred.agenda(pool).counted
    look_again(cluster, (pool,))
    while counted and checks.left > 0:
        key, after = next(iter(counted.items()))
        alike = cluster.queues[pool].queued_class(key)
        rest = _check(cluster, alike, after, checks) if alike is not None else None
        if rest is None:
            del counted[key]
        else:
            counted[key] = rest


def _check(cluster: Cluster, alike: QueuedClass, after: OrderKey | None, checks: Checks) -> OrderKey | None:
    """Wake the pods of a class that an attempt would help; return the turn after which to continue, None at the end."""
    nominated = (
        nominated_record
        for nominated_record in alike.nominated.values()
        if after is None or after < queue_order(nominated_record)
    )
    for record in sorted(nominated, key=queue_order):
        if checks.left <= 0:
            return after
        after = queue_order(record)
        checks.spend(len(record.together))
        if isinstance(propose_briefly(cluster, record), Place):
            cluster.queue_of(record).wake_at_once(record, cluster.now)
    if alike.parked and checks.left <= 0:
        return after
    if alike.parked:
        checks.spend(len(alike.head.together))
        if would_be_helped(cluster, alike.head):
            cluster.queue_of(alike.head).wake_next(alike.head, cluster.now, at_once=True)
    return None


def _waits(alike: QueuedClass | None) -> bool:
    return alike is not None and bool(alike.parked or alike.nominated)
