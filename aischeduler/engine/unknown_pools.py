"""What may belong to a Pool that we have not seen waits until a read says whether there is one: pods and new nodes.

Invariants:
- A new node that no Pool selects which we know is taken in after a list of the Pools: nobody is bound there in the
  meantime whom its owner would evict. A list that fails delays it by `LATE_SECONDS_MAX`.
- A pod that names such a Pool is held until it was read. It is neither bound nor lets anything be evicted before the
  answer: a Pool that we have not seen is not a Pool that does not exist, as its watch may lag behind the watch of pods.
- An answer counts for the pods that were held when its read began. A pod that came later may speak of a later Pool.
- A Pool is read once at a time, whatever the number of its pods, and `READS_MAX` Pools are.
"""

from collections.abc import Iterable
from typing import Final

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.freshness import is_fresh
from aischeduler.engine.unseen import LateNode
from aischeduler.model.actions import ListPools, ReadPool, ReportWaiting
from aischeduler.model.events import PoolRead, PoolUnread
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.node import Node
from aischeduler.state.records import PodRecord, PodState

MISSING_SECONDS: Final = 1.0
"""How long a Pool that was read to be missing counts as missing: its watch may lag when it is created later."""
READS_MAX: Final = 64
"""Pools that are read at one time."""
LATE_SECONDS_MAX: Final = 5.0
"""How long a node may be kept from everybody by a list of the Pools."""


def is_known(cluster: Cluster, record: PodRecord, now: float) -> bool:
    """Say whether the pod's Pool exists, or is known not to: as of a moment ago, or when room was made for the pod.

    A fresh view of its home has shown every Pool. Without it a pod that waits for one would ask anew after each view,
    and for a view after each answer, for ever where either takes longer than they count.
    """
    name = record.pod.pool
    if not name or name in cluster.pools.pools:
        return True
    if record.missing_pool is None or record.missing_pool[0] != name:
        return False
    return (
        now - record.missing_pool[1] <= MISSING_SECONDS
        or is_fresh(cluster, record.home, now)
        or cluster.claims.of(record.pod.uid) is not None
    )


def want_pool(cluster: Cluster, record: PodRecord) -> None:
    """Have the pod's Pool read, unless a read is under way that began after the pod was seen."""
    unknown, name, uid = cluster.unknown_pools, record.pod.pool, record.pod.uid
    if uid not in unknown.reading.get(name, ()):
        unknown.wanted.setdefault(name, {})[uid] = record


def unknown_pool_message(name: str) -> str:
    """Return why a pod waits whose Pool is unknown."""
    return f'It is not known yet whether there is a Pool "{name}".'


def begin_reads(cluster: Cluster) -> list[ReadPool | ListPools]:
    """Return the reads that can begin now."""
    unknown = cluster.unknown_pools
    unknown.begun = True
    for name in [name for name in unknown.wanted if name in cluster.pools.pools]:
        del unknown.wanted[name]  # it was seen meanwhile
    names = [name for name in unknown.wanted if name not in unknown.reading]
    begun = names[: READS_MAX - len(unknown.reading)]
    for name in begun:
        unknown.reading[name] = unknown.wanted.pop(name)
    return [*_begin_list(cluster), *(ReadPool(name) for name in begun)]


def want_again(cluster: Cluster) -> None:
    """Let all reads begin anew: the requests of some may be lost."""
    unknown = cluster.unknown_pools
    for name, records in unknown.reading.items():
        unknown.wanted.setdefault(name, {}).update(records)
    unknown.reading.clear()
    unknown.listing = False
    for late in unknown.late.values():
        late.asked = False


def stop_reads(cluster: Cluster) -> None:
    """Want nothing any more while another scheduler leads, and take the new nodes in."""
    unknown = cluster.unknown_pools
    unknown.begun = unknown.listing = False
    unknown.wanted.clear()
    _let_in(unknown.late.values(), cluster.now)


def put_off(cluster: Cluster, node: Node, now: float) -> bool:
    """Keep a new node for later that may belong to a Pool which we have not seen; say whether that is so."""
    unknown = cluster.unknown_pools
    if cluster.nodes.has(node.name) or not unknown.begun or cluster.pools.claimants(node):
        unknown.late.pop(node.name, None)
        return False
    late = unknown.late.setdefault(node.name, LateNode(node, now + LATE_SECONDS_MAX))
    late.node = node
    return True


def late_until(cluster: Cluster) -> float | None:
    """Return when a node that was put off is due, or a list to be asked for; None where there is none."""
    unknown = cluster.unknown_pools
    unasked = unknown.begun and not unknown.listing
    return min(
        (cluster.now if unasked and not late.asked else late.due for late in unknown.late.values()), default=None
    )


def due_nodes(cluster: Cluster, now: float) -> list[Node]:
    """Return the nodes that were put off and wait no longer, sorted by name."""
    late = cluster.unknown_pools.late
    return [late[name].node for name in sorted(late) if late[name].due <= now]


def forget_late(cluster: Cluster, name: str) -> None:
    """Keep no node of this name any more."""
    cluster.unknown_pools.late.pop(name, None)


def pools_listed(cluster: Cluster, now: float) -> None:
    """Take the nodes in that waited for this list: no Pool is unseen that could own one."""
    cluster.unknown_pools.listing = False
    _let_in([late for late in cluster.unknown_pools.late.values() if late.asked], now)


def view_refreshed(cluster: Cluster, now: float) -> None:
    """Take all new nodes in: a refresh has listed the Pools, and an eviction follows that their room may spare."""
    _let_in(cluster.unknown_pools.late.values(), now)


def pool_read(cluster: Cluster, event: PoolRead, now: float) -> None:
    """Let the pods that waited for this answer be tried. Those whose Pool was found have gone home already."""
    for record in _waiting(cluster, event.name, cluster.unknown_pools.reading.pop(event.name, {})):
        if not event.found:
            record.missing_pool = (event.name, now)
        if record.state is PodState.HELD:
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


def _let_in(nodes: Iterable[LateNode], now: float) -> None:
    for late in nodes:
        late.due = min(late.due, now)


def _begin_list(cluster: Cluster) -> list[ListPools]:
    """Return the request for a list of the Pools where new nodes wait for one and none is under way."""
    unknown = cluster.unknown_pools
    unasked = [late for late in unknown.late.values() if not late.asked]
    if unknown.listing or not unasked:
        return []
    unknown.listing = True
    for late in unasked:
        late.asked = True
    return [ListPools()]


def _waiting(cluster: Cluster, name: str, records: dict[str, PodRecord]) -> list[PodRecord]:
    """Return those that still wait and still name this Pool."""
    return [
        record
        for uid, record in records.items()
        if cluster.records.get(uid) is record and record.queue and record.pod.pool == name
    ]
