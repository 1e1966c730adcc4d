"""Pods and new nodes that may belong to an unseen Pool wait until a read shows whether it exists.

Invariants:
- A new node that no known Pool selects is added after a list of the Pools: before, no pod is bound there that its Pool
  would evict. A failed list delays the node by at most `LATE_SECONDS_MAX`.
- A pod that names an unknown Pool is held until the Pool was read. Before the answer it is not bound and evicts no pod:
  a Pool may exist that the watch of Pools, which can lag behind the watch of pods, has not shown.
- A name that no Pool can have is a Pool that does not exist; it is never read.
- An answer counts for the pods that were held when its read began. A pod that came later may name a later Pool.
- A read lists all Pools, of which there are few. One is under way at a time, however many pods wait for it.
"""

from collections.abc import Iterable
from typing import Final

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.deferred_work import LateNode
from aischeduler.engine.freshness import is_fresh
from aischeduler.engine.view import View
from aischeduler.model.actions import Refresh, ReportWaiting
from aischeduler.model.names import DEFAULT_POOL, can_be_pool_name
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.state.pod_records import PodRecord, PodState

MISSING_SECONDS: Final = 1.0
"""How long the answer that a Pool does not exist counts: it may be created later, and its watch may lag."""
LATE_SECONDS_MAX: Final = 5.0
"""How long a new node may wait for a list of the Pools."""
LET_IN_AT_ONCE: Final = 64
"""The most kept nodes that one decision adds."""


def is_known(cluster: View, record: PodRecord, now: float) -> bool:
    """Return whether it is known that the pod's Pool exists, or does not.

    The scheduler knows that a Pool does not exist for a moment after the read, after a recent refresh of the home pool,
    which has shown every Pool, and while the pod has a claim. Without the latter two, a pod could request reads and
    refreshes in turn for ever, if each takes longer than the result of the other is valid.
    """
    name = record.pod.pool
    if not name or name in cluster.pools.pools or not can_be_pool_name(name):
        return True
    missing = cluster.unknown_pools.missing.get(record.pod.uid)
    if missing is None or missing[0] != name:
        return False
    return (
        now - missing[1] <= MISSING_SECONDS
        or is_fresh(cluster, record.home, now)
        or cluster.claims.room_of(record) is not None
    )


def is_missing(cluster: View, pod: Pod) -> bool:
    """Say whether the pod's Pool does not exist: no Pool can have this name, or the last read said so."""
    if not pod.pool or pod.pool in cluster.pools.pools:
        return False
    missing = cluster.unknown_pools.missing.get(pod.uid)
    return not can_be_pool_name(pod.pool) or (missing is not None and missing[0] == pod.pool)


def want_pool(cluster: Cluster, record: PodRecord) -> None:
    """Have the Pools read for a pod, unless a read that began after the pod came is under way."""
    if record.pod.uid not in cluster.unknown_pools.asked:
        cluster.unknown_pools.wanted[record.pod.uid] = record


def unknown_pool_message(name: str) -> str:
    """Return the message of a pod whose Pool is unknown."""
    return f'It is not known yet whether the Pool "{name}" exists.'


def begin_reads(cluster: Cluster) -> list[Refresh]:
    """Return the request for the Pools, where pods or new nodes need one and none is under way."""
    unknown = cluster.unknown_pools
    unknown.begun = True
    if unknown.listing:
        return []
    unknown.asked |= unknown.wanted
    unknown.wanted.clear()
    unknown.asked = {
        record.pod.uid: record for record in _waiting(cluster) if record.pod.pool not in cluster.pools.pools
    }
    nodes = [late for late in unknown.late.values() if not late.asked]
    if not (unknown.asked or nodes):
        return []
    unknown.listing = True
    for late in nodes:
        late.asked = True
    return [Refresh()]


def want_again(cluster: Cluster) -> None:
    """Have the read begin again: a request may be lost."""
    unknown = cluster.unknown_pools
    unknown.listing = False
    for late in unknown.late.values():
        late.asked = False


def stop_reads(cluster: Cluster) -> None:
    """Stop all reads while another scheduler leads, and add the new nodes."""
    unknown = cluster.unknown_pools
    unknown.begun = unknown.listing = False
    unknown.wanted.clear()
    _let_in(unknown.late.values(), cluster.now)


def put_off(cluster: Cluster, node: Node, now: float) -> bool:
    """Keep a new node that may belong to an unseen Pool for later; return whether it is kept."""
    unknown = cluster.unknown_pools
    if cluster.nodes.has(node.name) or not unknown.begun or cluster.pools.claimants(node):
        unknown.late.pop(node.name, None)
        return False
    late = unknown.late.setdefault(node.name, LateNode(node, now + LATE_SECONDS_MAX))
    late.node = node
    return True


def late_until(cluster: Cluster) -> float | None:
    """Return when a kept node is due, or a list is to be requested; None where there is no kept node."""
    unknown = cluster.unknown_pools
    unasked = unknown.begun and not unknown.listing
    return min(
        (cluster.now if unasked and not late.asked else late.due for late in unknown.late.values()), default=None
    )


def due_nodes(cluster: Cluster, now: float) -> list[Node]:
    """Return the next kept nodes that are due, sorted by name."""
    late = cluster.unknown_pools.late
    return [late[name].node for name in sorted(late) if late[name].due <= now][:LET_IN_AT_ONCE]


def pools_listed(cluster: Cluster, now: float) -> None:
    """Wake the pods that waited for this answer, and make the nodes due: every Pool that could be theirs is known."""
    unknown = cluster.unknown_pools
    unknown.listing = False
    _let_in([late for late in unknown.late.values() if late.asked], now)
    waiting = _waiting(cluster)
    unknown.asked = {}
    for record in waiting:
        if record.pod.pool not in cluster.pools.pools:
            unknown.missing[record.pod.uid] = (record.pod.pool, now)
        first = record.waits_as
        if first.state is PodState.HELD:
            cluster.queue_of(first).wake_at_once(first, now)
    for action in begin_reads(cluster):
        cluster.say(DEFAULT_POOL, action)


def pools_unlisted(cluster: Cluster, why: str) -> None:
    """Report to the pods that wait for the answer why the read failed; it is tried again."""
    for record in _waiting(cluster):
        message = f"{unknown_pool_message(record.pod.pool)} It could not be read: {why}"
        if message != record.message:
            record.message = message
            cluster.say(record.home, ReportWaiting(record.pod, record.home, record.home, message, record.decision))


def view_refreshed(cluster: Cluster, now: float) -> None:
    """Make all kept nodes due: a refresh has listed the Pools, and their room may save an eviction."""
    _let_in(cluster.unknown_pools.late.values(), now)


def _let_in(nodes: Iterable[LateNode], now: float) -> None:
    for late in nodes:
        late.due = min(late.due, now)


def _waiting(cluster: Cluster) -> list[PodRecord]:
    """Return the pods that still wait for the answer that is under way."""
    return [
        record
        for uid, record in cluster.unknown_pools.asked.items()
        if cluster.records.get(uid) is record and record.queue
    ]
