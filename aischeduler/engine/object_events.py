"""Events about objects: one table says for each kind what is done when an object is seen, and when it is gone.

Invariant: a kind that the engine knows is a row of the table, and a type in `model.events.Object`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.device_events import devices_gone, devices_seen
from aischeduler.engine.elastic import elastic_gone, elastic_seen, levels_seen
from aischeduler.engine.evictions import budget_gone, budget_seen
from aischeduler.engine.node_events import node_gone, node_seen
from aischeduler.engine.pod_events import pod_gone, pod_seen
from aischeduler.engine.pool_events import namespace_gone, namespace_seen, pool_gone, pool_seen
from aischeduler.engine.tenant_queues import queue_gone, queue_seen, warn_of_retries, workload_gone, workload_seen
from aischeduler.engine.units import gang_gone, gang_seen
from aischeduler.engine.unknown_pools import put_off
from aischeduler.engine.volume_binding import storage_gone, storage_seen
from aischeduler.model.device import NodeDevices
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.events import Gone, Seen
from aischeduler.model.gang import Gang
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pod_set import PodSet
from aischeduler.model.pool import Namespace, Pool
from aischeduler.model.storage_objects import CsiDriver, CsiNode, StorageCapacity, StorageClass, VolumeAttachment
from aischeduler.model.tenant_queue import TenantQueue
from aischeduler.model.volumes import Volume, VolumeClaim
from aischeduler.model.workload import Workload

Key = tuple[str, ...]


class Handlers(NamedTuple):
    """What is done with an object of one kind: as it is now, and by its key once it is gone."""

    seen: Callable[[Cluster, Any, float], object]
    gone: Callable[[Cluster, Key, float], object]


def object_changed(cluster: Cluster, event: Seen | Gone, now: float) -> None:
    """Handle an event about an object."""
    if isinstance(event, Seen):
        HANDLERS[type(event.object).__name__].seen(cluster, event.object, now)
    else:
        HANDLERS[event.kind].gone(cluster, event.key, now)


def _node_seen(cluster: Cluster, node: Node, now: float) -> None:
    if not put_off(cluster, node, now):
        node_seen(cluster, node, now)


def _node_gone(cluster: Cluster, key: Key, now: float) -> None:
    cluster.unknown_pools.late.pop(key[0], None)
    node_gone(cluster, key[0], now)


def _gang_seen(cluster: Cluster, gang: Gang) -> None:
    gang_seen(cluster, gang)
    warn_of_retries(cluster, str(gang.key.source), gang.key.namespace, gang.key.name)


def _pod_set_seen(cluster: Cluster, pod_set: PodSet) -> None:
    cluster.pod_sets.see(pod_set)


def _workload_seen(cluster: Cluster, workload: Workload) -> None:
    workload_seen(cluster, workload)
    elastic_seen(cluster, workload)


def _workload_gone(cluster: Cluster, key: Key) -> None:
    workload_gone(cluster, *key)
    elastic_gone(cluster, (key[0], key[1], key[2]))


def _of_storage(kind: type) -> Handlers:
    def gone(cluster: Cluster, key: Key, _: float) -> None:
        storage_gone(cluster, kind, key)

    return Handlers(lambda cluster, stored, _: storage_seen(cluster, stored), gone)


def _namespace_seen(cluster: Cluster, namespace: Namespace) -> None:
    namespace_seen(cluster, namespace)
    levels_seen(cluster, namespace)


def _namespace_gone(cluster: Cluster, key: Key) -> None:
    namespace_gone(cluster, *key)
    levels_seen(cluster, Namespace(key[0], {}))


def _timeless(seen: Callable[[Cluster, Any], object], gone: Callable[[Cluster, Key], object]) -> Handlers:
    """Return handlers that need no time."""
    return Handlers(
        lambda cluster, seen_object, _: seen(cluster, seen_object), lambda cluster, key, _: gone(cluster, key)
    )


_STORAGE: Final = (VolumeClaim, Volume, StorageClass, CsiNode, CsiDriver, StorageCapacity, VolumeAttachment)
_OTHERS: Final[tuple[tuple[type, Handlers], ...]] = (
    (Pod, Handlers(pod_seen, lambda cluster, key, now: pod_gone(cluster, key[0], now))),
    (Node, Handlers(_node_seen, _node_gone)),
    (Pool, Handlers(pool_seen, lambda cluster, key, now: pool_gone(cluster, key[0], now))),
    (DisruptionBudget, _timeless(budget_seen, lambda cluster, key: budget_gone(cluster, *key))),
    (Namespace, _timeless(_namespace_seen, _namespace_gone)),
    (Gang, _timeless(_gang_seen, gang_gone)),
    (TenantQueue, _timeless(queue_seen, lambda cluster, key: queue_gone(cluster, *key))),
    (Workload, _timeless(_workload_seen, _workload_gone)),
    (NodeDevices, _timeless(devices_seen, lambda cluster, key: devices_gone(cluster, key[0]))),
    (PodSet, _timeless(_pod_set_seen, lambda cluster, key: cluster.pod_sets.forget((key[0], key[1], key[2])))),
)
HANDLERS: Final[Mapping[str, Handlers]] = {
    kind.__name__: handlers for kind, handlers in (*_OTHERS, *((kind, _of_storage(kind)) for kind in _STORAGE))
}
"""Name of a kind -> what is done."""
