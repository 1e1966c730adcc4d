"""The summary of each pool, computed from the columns on each call.

Invariants:
- Nothing is kept from one call to the next, so that no kept number can be wrong.
- Pending requests are summed by name: they may exceed a column, or be of resources without a column.
"""

from collections import Counter
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from aischeduler.engine.cluster import Cluster
from aischeduler.model.names import PODS
from aischeduler.model.pool_summary import CARD_TYPES_MAX, GPU, OTHER_TYPES, CardCount, PoolSummary
from aischeduler.model.resources import ResourceList
from aischeduler.state.node_table import ALWAYS, NO_POOL
from aischeduler.state.running_pods import Slots

Sums = npt.NDArray[np.int64]

OWN, SHARED, SYSTEM = range(3)


def summarize(cluster: Cluster) -> tuple[PoolSummary, ...]:
    """Return one summary per pool, sorted by name."""
    nodes = cluster.nodes
    grouped = nodes.by_pool()
    capacity, allocatable = grouped.sums(nodes.capacity), grouped.sums(nodes.allocatable)
    by_owner, borrowed = _running(cluster)
    cards = _cards(cluster)
    empty = np.zeros(len(nodes.used), dtype=np.int64)
    summaries: list[PoolSummary] = []
    for name in cluster.pools.names():
        number = cluster.pools.id(name)
        place = grouped.places.get(number)
        own, shared, system = by_owner[number]
        used = own + shared + system
        has = allocatable[:, place] if place is not None else empty
        columns = {
            "capacity": capacity[:, place] if place is not None else empty,
            "allocatable": has,
            "used": used,
            "own": own,
            "shared": shared,
            "system": system,
            "borrowed": borrowed[number],
            "free": np.maximum(has - used - _claimed(cluster, name), 0),
        }
        pool = cluster.pools.pools[name]
        sums = {kind: nodes.named(column) for kind, column in columns.items()} | {"pending": _pending(cluster, name)}
        named = {kind: _shown(cluster, amounts) for kind, amounts in sums.items()}
        summaries.append(
            PoolSummary(
                name=name,
                nodes=len(nodes.rows_of_pool(number)),
                pods=named["used"][PODS],
                pending_pods=named["pending"][PODS],
                preemption=cluster.borrowing.may_evict(pool) and not pool.invalid,
                borrowing=not (pool.disable_borrowing or pool.invalid),
                sharing=not (pool.disable_sharing or pool.invalid),
                cards=_most(cards.get(number, {})),
                **named,
            )
        )
    return tuple(summaries)


def _running(cluster: Cluster) -> tuple[Sums, Sums]:
    """Return the requests of pods on nodes: [pool, own|shared|system, column], and of loans [home pool, column]."""
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


def _cards(cluster: Cluster) -> dict[int, dict[str, CardCount]]:
    """Return the GPUs by pool and card type; nodes without a type, and types without GPUs, do not count."""
    nodes, specs, table = cluster.nodes, cluster.running.specs, cluster.running.table
    kinds, numbers = nodes.cards.kinds(nodes)
    if len(kinds) == 1 and not kinds[0].label:
        return {}
    gpus = cluster.profile.gpu_resources
    total = nodes.allocatable[[nodes.columns[name] for name in gpus if name in nodes.columns]].sum(axis=0)
    used = np.zeros(nodes.width, dtype=np.int64)
    slots = np.flatnonzero(table["row"] >= 0)
    asked = specs.amounts[:, [i for i, name in enumerate(specs.resources) if name in gpus]].sum(axis=1)
    np.add.at(used, table["row"][slots], asked[table["spec"][slots]])
    found: dict[int, dict[str, CardCount]] = {}
    groups, places = np.unique(np.stack((nodes.pool.astype(np.intp), numbers)), axis=1, return_inverse=True)
    sums = np.zeros((groups.shape[1], 2), dtype=np.int64)
    np.add.at(sums, places.reshape(-1), np.stack((total, used), axis=1))
    for (pool, kind), (has, uses) in zip(groups.T.tolist(), sums.tolist(), strict=True):
        label = kinds[kind].label
        if pool != NO_POOL and label and (has or uses):
            before = found.setdefault(pool, {}).get(label, CardCount(label, 0, 0))
            found[pool][label] = CardCount(label, before.total + has, before.used + uses)
    return found


def _most(cards: Mapping[str, CardCount]) -> tuple[CardCount, ...]:
    """Return the types with the most GPUs; the others as one entry."""
    ordered = sorted(cards.values(), key=lambda count: (-count.total, count.type))
    if len(ordered) <= CARD_TYPES_MAX:
        return tuple(ordered)
    rest = ordered[CARD_TYPES_MAX - 1 :]
    other = CardCount(OTHER_TYPES, sum(count.total for count in rest), sum(count.used for count in rest))
    return (*ordered[: CARD_TYPES_MAX - 1], other)


def _sums(cluster: Cluster, groups: Sums, slots: Slots, count: int) -> Sums:
    """Return the sums of the requests of the pods in these slots: [group, column]."""
    nodes, specs = cluster.nodes, cluster.running.specs
    columns = [nodes.column(resource) for resource in specs.resources]
    sums = np.zeros((count, len(nodes.used)), dtype=np.int64)
    # Pods of one group and spec are counted first: there are far fewer specs than pods.
    size = len(specs.amounts)
    keys, pods = np.unique(groups * size + cluster.running.table["spec"][slots], return_counts=True)
    amounts = specs.amounts[keys % size] * pods[:, None]
    for i, column in enumerate(columns):
        np.add.at(sums[:, column], keys // size, amounts[:, i])
    return sums


def _claimed(cluster: Cluster, pool: str) -> Sums:
    """Return what is claimed in the pool beyond the room of leaving pods, which counts as used."""
    nodes, running = cluster.nodes, cluster.running
    by_row: dict[int, Sums] = {}
    for claim in cluster.claims.in_pool(pool):
        for room in claim.rooms:
            claimed = by_row.setdefault(room.row, np.zeros(len(nodes.used), dtype=np.int64))
            claimed += nodes.request(room.spec)
    columns = [nodes.column(resource) for resource in running.specs.resources]
    for row, claimed in by_row.items():
        pods = running.table[running.slots_on(np.array([row], dtype=np.intp))]
        claimed[columns] -= running.specs.amounts[pods["spec"][pods["leaving"]]].sum(axis=0)
        np.maximum(claimed, 0, out=claimed)
    return sum(by_row.values(), np.zeros(len(nodes.used), dtype=np.int64))


def _pending(cluster: Cluster, pool: str) -> ResourceList:
    total: Counter[str] = Counter()
    for spec, count in cluster.queues[pool].pending():
        for resource, amount in spec.request.taken.items():
            total[resource] += count * amount
    return total


def _shown(cluster: Cluster, sums: ResourceList) -> ResourceList:
    """Return the sums by resource name: the resources of every status first, then the others by name."""
    always = {resource: sums.get(resource, 0) for resource in ALWAYS}
    gpus = sum(sums.get(resource, 0) for resource in cluster.profile.gpu_resources)
    rest = {resource: amount for resource, amount in sorted(sums.items()) if resource not in ALWAYS and amount}
    return {**always, GPU: gpus, **rest}
