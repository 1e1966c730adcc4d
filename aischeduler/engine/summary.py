"""What each pool has, uses and waits for: recounted from the records whenever somebody asks."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from aischeduler.engine.cluster import Cluster
from aischeduler.model.names import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from aischeduler.model.node import Node
from aischeduler.state.records import Place

GPU = "gpu"
"""The name under which all GPU resources are summed up."""


@dataclass(frozen=True, slots=True)
class PoolSummary:
    """One pool in numbers: cpu in milli, gpu in devices, memory and ephemeral-storage in bytes, pods in pods.

    `used` is what unfinished pods on its nodes ask for; `shared` the part of it whose home is another pool;
    `pending` what its queue asks for, gated pods not counted. `pods` of capacity are pod slots.
    """

    name: str
    nodes: int
    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    used: Mapping[str, int]
    shared: Mapping[str, int]
    pending: Mapping[str, int]
    pending_pods: int
    pods: int
    preemption: bool
    borrowing: bool
    sharing: bool


class _Count:
    """The sums of one pool while they are added up."""

    def __init__(self) -> None:
        self.nodes = 0
        self.capacity: Counter[str] = Counter()
        self.allocatable: Counter[str] = Counter()
        self.used: Counter[str] = Counter()
        self.shared: Counter[str] = Counter()
        self.pending: Counter[str] = Counter()


def summarize(cluster: Cluster) -> tuple[PoolSummary, ...]:
    """Return one summary a pool, sorted by name."""
    counts = {name: _Count() for name in sorted(cluster.pools.pools)}
    for node in cluster.nodes.nodes:
        if node is not None:
            _add_node(cluster, counts[_pool_of(cluster, cluster.nodes.rows[node.name])], node)
    for record in cluster.records.values():
        asked = _amounts(cluster, record.pod.spec.request.amounts)
        if record.counted is not None and cluster.nodes.nodes[record.row] is not None:
            pool = _pool_of(cluster, record.row)
            counts[pool].used.update(_amounts(cluster, record.counted.request.amounts))
            ours = record.pod.scheduler_name == cluster.profile.scheduler_name
            if ours and cluster.pools.home(record.pod.pool) != pool:
                counts[pool].shared.update(_amounts(cluster, record.counted.request.amounts))
        elif record.queue and record.place is not Place.GATED:
            counts[record.queue].pending.update(asked)
    return tuple(_summary(cluster, name, count) for name, count in counts.items())


def _summary(cluster: Cluster, name: str, count: _Count) -> PoolSummary:
    pool = cluster.pools.pools[name]
    return PoolSummary(
        name=name,
        nodes=count.nodes,
        capacity=dict(count.capacity),
        allocatable=dict(count.allocatable),
        used=dict(count.used),
        shared=dict(count.shared),
        pending=dict(count.pending),
        pending_pods=count.pending[PODS],
        pods=count.used[PODS],
        preemption=not pool.disable_preemption,
        borrowing=not pool.disable_borrowing,
        sharing=not pool.disable_sharing,
    )


def _add_node(cluster: Cluster, count: _Count, node: Node) -> None:
    count.nodes += 1
    for total, amounts in ((count.capacity, node.capacity), (count.allocatable, node.allocatable)):
        total.update(_amounts(cluster, amounts, pods=amounts.get(PODS, 0)))


def _amounts(cluster: Cluster, amounts: Mapping[str, int], pods: int = 1) -> dict[str, int]:
    gpus = sum(amounts.get(resource, 0) for resource in cluster.profile.gpu_resources)
    named = {resource: amounts.get(resource, 0) for resource in (CPU, MEMORY, EPHEMERAL_STORAGE)}
    return {**named, GPU: gpus, PODS: pods}


def _pool_of(cluster: Cluster, row: int) -> str:
    return cluster.pools.name(int(cluster.nodes.pool[row]))
