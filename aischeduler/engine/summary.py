"""What each pool has, uses, lends and waits for, summed up from the columns whenever somebody asks.

Law: nothing is kept from one summary to the next, so that there is nothing to go wrong between them.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from aischeduler.engine.cluster import Cluster
from aischeduler.model.names import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from aischeduler.model.summary import GPU, PoolSummary
from aischeduler.state.nodes import NO_POOL
from aischeduler.state.running import Slots

Sums = npt.NDArray[np.int64]

ALWAYS = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)
OWN, SHARED, SYSTEM = range(3)


def summarize(cluster: Cluster) -> tuple[PoolSummary, ...]:
    """Return one summary a pool, sorted by name."""
    nodes = cluster.nodes
    grouped = nodes.by_pool()
    capacity, allocatable = grouped.sums(nodes.capacity), grouped.sums(nodes.allocatable)
    by_owner, borrowed = _running(cluster)
    empty = np.zeros(len(nodes.columns), dtype=np.int64)
    summaries: list[PoolSummary] = []
    for name in cluster.pools.names():
        number = cluster.pools.id(name)
        place = grouped.places.get(number)
        own, shared, system = by_owner[number]
        used = own + shared + system
        has = allocatable[:, place] if place is not None else empty
        claimed = _claimed(cluster, name)
        amounts = {
            "capacity": capacity[:, place] if place is not None else empty,
            "allocatable": has,
            "used": used,
            "own": own,
            "shared": shared,
            "system": system,
            "borrowed": borrowed[number],
            "free": np.maximum(has - used - claimed, 0),
            "pending": _pending(cluster, name),
        }
        pool = cluster.pools.pools[name]
        named = {kind: _named(cluster, sums) for kind, sums in amounts.items()}
        summaries.append(
            PoolSummary(
                name=name,
                nodes=len(nodes.rows_of_pool(number)),
                pods=named["used"][PODS],
                pending_pods=named["pending"][PODS],
                preemption=not pool.disable_preemption,
                borrowing=not pool.disable_borrowing,
                sharing=not pool.disable_sharing,
                **named,
            )
        )
    return tuple(summaries)


def _running(cluster: Cluster) -> tuple[Sums, Sums]:
    """Return what pods on nodes ask for: [pool, own|shared|system, column], and as loans [home, column]."""
    nodes, table = cluster.nodes, cluster.running.table
    slots = np.flatnonzero(table["row"] >= 0)
    pool = nodes.pool[table["row"][slots]].astype(np.int64)
    slots, pool = slots[pool != NO_POOL], pool[pool != NO_POOL]
    home = table["home"][slots]
    pools = 1 + max(cluster.pools.id(name) for name in cluster.pools.names())
    owner = np.where(~table["ours"][slots], SYSTEM, np.where(home == pool, OWN, SHARED))
    by_owner = _sums(cluster, pool * 3 + owner, slots, pools * 3)
    lent = owner == SHARED
    return by_owner.reshape(pools, 3, -1), _sums(cluster, home[lent], slots[lent], pools)


def _sums(cluster: Cluster, groups: Sums, slots: Slots, count: int) -> Sums:
    """Sum up what the pods of these slots ask for by group: [group, column]."""
    nodes, kinds = cluster.nodes, cluster.running.kinds
    columns = [nodes.column(resource) for resource in kinds.resources]
    sums = np.zeros((count, len(nodes.columns)), dtype=np.int64)
    # Pods of one group and kind are counted first: there are far fewer kinds than pods.
    size = len(kinds.amounts)
    keys, pods = np.unique(groups * size + cluster.running.table["kind"][slots], return_counts=True)
    amounts = kinds.amounts[keys % size] * pods[:, None]
    for i, column in enumerate(columns):
        np.add.at(sums[:, column], keys // size, amounts[:, i])
    return sums


def _claimed(cluster: Cluster, pool: str) -> Sums:
    nodes = cluster.nodes
    total = np.zeros(len(nodes.columns), dtype=np.int64)
    for claim in cluster.claims.in_pool(pool):
        total[nodes.columns[PODS]] += 1
        for resource, amount in claim.spec.request.amounts.items():
            total[nodes.columns[resource]] += amount
    return total


def _pending(cluster: Cluster, pool: str) -> Sums:
    nodes = cluster.nodes
    total = np.zeros(len(nodes.columns), dtype=np.int64)
    for spec, count in cluster.queues[pool].pending():
        total[nodes.columns[PODS]] += count
        for resource, amount in spec.request.amounts.items():
            total[nodes.columns[resource]] += count * amount
    return total


def _named(cluster: Cluster, sums: Sums) -> Mapping[str, int]:
    """Return the sums by resource name, those that are never left out first, then the others by name."""
    columns = cluster.nodes.columns
    always = {resource: int(sums[columns[resource]]) for resource in ALWAYS}
    gpus = sum(int(sums[columns[resource]]) for resource in cluster.profile.gpu_resources if resource in columns)
    rest = {r: int(sums[c]) for r, c in sorted(columns.items()) if r not in ALWAYS and sums[c]}
    return {**always, GPU: gpus, **rest}
