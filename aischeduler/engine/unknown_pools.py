"""Pods that name a Pool which we have not seen: they are held until a read of that Pool says whether there is one.

Invariants:
- Such a pod is neither bound nor lets anything be evicted before the answer: a Pool that we have not seen is not a Pool
  that does not exist, as its watch may lag behind the watch of pods.
- An answer counts for the pods that were held when its read began. A pod that came later may speak of a later Pool.
- A Pool is read once at a time, whatever the number of its pods, and `READS_MAX` Pools are.
"""

from typing import Final

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.freshness import is_fresh
from aischeduler.model.actions import ReadPool, ReportWaiting
from aischeduler.model.events import PoolRead, PoolUnread
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.state.records import Place, PodRecord

MISSING_SECONDS: Final = 1.0
"""How long a Pool that was read to be missing counts as missing: its watch may lag when it is created later."""
READS_MAX: Final = 64
"""Pools that are read at one time."""


def is_known(cluster: Cluster, record: PodRecord, now: float) -> bool:
    """Say whether the pod's Pool exists, or is known not to: as of a moment ago, or when room was made for the pod.

    A fresh view of its home has shown every Pool. Without it a pod that waits for one would ask anew after each view,
    and for a view after each answer, for ever where either takes longer than they count.
    """
    name = record.pod.pool
    if not name or name in cluster.pools.pools:
        return True
    return record.poolless == name and (
        now - record.poolless_at <= MISSING_SECONDS
        or is_fresh(cluster, record.home, now)
        or cluster.claims.of(record.pod.uid) is not None
    )


def want_pool(cluster: Cluster, record: PodRecord) -> None:
    """Have the pod's Pool read."""
    cluster.unknown_pools.wanted.setdefault(record.pod.pool, {})[record.pod.uid] = record


def unknown_pool_message(name: str) -> str:
    """Return why a pod waits whose Pool is unknown."""
    return f'It is not known yet whether there is a Pool "{name}".'


def begin_reads(cluster: Cluster) -> list[ReadPool]:
    """Return the reads that can begin now."""
    unknown = cluster.unknown_pools
    names = [name for name in unknown.wanted if name not in unknown.reading]
    begun = names[: READS_MAX - len(unknown.reading)]
    for name in begun:
        unknown.reading[name] = unknown.wanted.pop(name)
    return [ReadPool(name) for name in begun]


def want_again(cluster: Cluster) -> None:
    """Let all reads begin anew: the requests of some may be lost."""
    unknown = cluster.unknown_pools
    for name, records in unknown.reading.items():
        unknown.wanted.setdefault(name, {}).update(records)
    unknown.reading.clear()


def pool_read(cluster: Cluster, event: PoolRead, now: float) -> None:
    """Let the pods that waited for this answer be tried. Those whose Pool was found have gone home already."""
    for record in _waiting(cluster, event.name, cluster.unknown_pools.reading.pop(event.name, {})):
        if not event.found:
            record.poolless, record.poolless_at = event.name, now
        if record.place is Place.HELD:
            cluster.queue_of(record).wake_at_once(record, now)
    for action in begin_reads(cluster):
        cluster.say(DEFAULT_POOL, action)


def pool_unread(cluster: Cluster, event: PoolUnread) -> None:
    """Tell the pods that wait for this answer what keeps it from coming."""
    message = f"{unknown_pool_message(event.name)} It could not be read: {event.message}"
    for record in _waiting(cluster, event.name, cluster.unknown_pools.reading.get(event.name, {})):
        if message != record.message:
            record.message = message
            cluster.say(record.home, ReportWaiting(record.pod, record.home, record.home, message, record.decision))


def _waiting(cluster: Cluster, name: str, records: dict[str, PodRecord]) -> list[PodRecord]:
    """Return those that still wait and still name this Pool."""
    return [
        record
        for uid, record in records.items()
        if cluster.records.get(uid) is record and record.queue and record.pod.pool == name
    ]
