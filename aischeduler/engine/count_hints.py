"""Wake-ups by counts: a pod that comes to one row or leaves it may let a waiting pod fit on others.

Invariants:
- The classes whose cross-row filters count differently are noted by events and checked by the decisions of their pools.
- A parked class is woken where an attempt of its first pod would not park it again.
"""

from operator import attrgetter
from typing import Final

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.lending import NEVER_LOOKED
from aischeduler.engine.propose import propose
from aischeduler.engine.queueing_hints import would_be_helped
from aischeduler.model.proposal import Place
from aischeduler.state.pod_records import PodState
from aischeduler.state.queued_class import QueuedClass, unit_key, without_preemption

CHECKED_AT_ONCE: Final = 16
"""The most classes that one decision checks."""


def note_counts(cluster: Cluster) -> None:
    """Note the waiting classes whose counts changed since the last call, for the decisions of their pools."""
    counts, versions = cluster.nodes.pod_counts, (*cluster.nodes.domains_version, cluster.nodes.pool_version)
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
    keys = [key for spec in specs for key in (spec, without_preemption(spec))]
    units = (unit for unit in cluster.units.by_name.values() if unit.lead is not None)
    keys += (unit_key(unit) for unit in units if any(one.pod.spec.key in specs for one in unit.together))
    for pool in waiting:
        found = [key for key in keys if _waits(queues[pool].queued_class(key))]
        if found:
            cluster.deferred.counted.setdefault(pool, {}).update(dict.fromkeys(found))


def check_counted(cluster: Cluster, pool: str, now: float) -> None:
    """Wake the pods of the next noted classes that an attempt would help."""
    counted, queue, relook = cluster.deferred.counted[pool], cluster.queues[pool], cluster.deferred.relook
    if pool in relook:
        relook[pool] = NEVER_LOOKED  # a class that kept room from borrowers may no longer fit there
    for key in list(counted)[:CHECKED_AT_ONCE]:
        del counted[key]
        alike = queue.queued_class(key)
        if alike is None:
            continue
        for record in sorted(alike.nominated.values(), key=attrgetter("order")):
            if isinstance(propose(cluster, record, pool, now, known=True), Place):
                queue.wake_at_once(record, now)
        if alike.parked and would_be_helped(cluster, alike.head, pool):
            queue.wake_next(alike.head, now, at_once=True)
    if not counted:
        del cluster.deferred.counted[pool]


def _waits(alike: QueuedClass | None) -> bool:
    return alike is not None and bool(alike.parked or alike.nominated)
