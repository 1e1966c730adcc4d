"""The numbers of the engine computed again from pod records, nodes and specs, to compare them in checks.

Invariant: nothing here reads a number that the engine updates step by step, except the pool of each row, which has a
check of its own (`pool_by_selectors`).
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.pod_counting import interest_of
from aischeduler.model.allocation import NO_ALLOCATION, Allocation
from aischeduler.model.device import DEVICES, HeldDevices
from aischeduler.model.names import CPU, DEFAULT_POOL, MEMORY
from aischeduler.model.node import Node
from aischeduler.model.pod import HostPort, PodSpec
from aischeduler.model.pool_summary import GPU
from aischeduler.model.resources import ResourceList
from aischeduler.model.volumes import VolumeChoice, VolumeClaimKey
from aischeduler.state.cards import kind_of
from aischeduler.state.claims import Claim
from aischeduler.state.counted_pods import Counted, is_counted
from aischeduler.state.ledger import BORROWS, LENDS, LOAN, QUEUE_BORROWS, Account, Loan
from aischeduler.state.pod_counts import DomainCounts, PodCount
from aischeduler.state.pod_records import NOWHERE, PodRecord, PodState
from aischeduler.state.requests import AMOUNT_MAX, requested
from aischeduler.state.scheduling_queue import queue_order

Faults = Iterator[tuple[str, str]]
"""The name of an invariant, and what violates it."""

NVIDIA, GPU_SHARE = "nvidia.com/gpu", "nvidia.com/gpu/100"
SHARES = ("gpu-core", "gpu-memory-ratio")
Amounts = dict[str, Counter[str]]
"""Pool, or kind of amount -> resource -> amount."""

KINDS = ("capacity", "allocatable", "used", "own", "shared", "system", "borrowed", "free", "pending")
"""The amounts of a PoolSummary."""


def unequal(about: str, *compared: tuple[str, str, object, object]) -> Faults:
    """Compare what is kept with what should be: (name of the invariant, a verb, as it is, as it should be)."""
    for name, what, kept, should in compared:
        if kept != should:
            yield name, f"{about}: {what} {kept}, should be {should}"


def amounts(spec: PodSpec) -> Counter[str]:
    """Return what a pod of this spec takes, as the node table counts it."""
    return Counter({name: requested(amount) for name, amount in spec.request.taken.items()})


def gpu_share(spec: PodSpec, allocation: Allocation = NO_ALLOCATION) -> int:
    """Return the hundredths of GPUs that a pod has, or asks for as parts: 0 for whole ones by count."""
    asked, held = spec.devices.gpu if spec.devices is not None else None, allocation.part(DEVICES)
    if asked is None or asked.vendor:
        return 0
    named = [device for device in held.devices if device.type == "gpu"] if isinstance(held, HeldDevices) else []
    if named:
        return sum(max(of for name, of in device.amounts if name in SHARES) for device in named)
    return asked.count * (100 if asked.memory_bytes else max(asked.core, asked.ratio))


def charge(spec: PodSpec, allocation: Allocation = NO_ALLOCATION) -> Counter[str]:
    """Return what a pod counts for in sums: what it takes, and its share of GPUs."""
    share = gpu_share(spec, allocation)
    return Counter({**spec.request.taken, **({GPU_SHARE: share} if share else {})})


def in_hundredths(amounts: Counter[str]) -> Counter[str]:
    """Return amounts with whole GPUs and shares of them together."""
    return Counter({**amounts, NVIDIA: 0, GPU_SHARE: amounts[NVIDIA] * 100 + amounts[GPU_SHARE]})


def total(specs: Iterable[PodSpec]) -> Counter[str]:
    """Return what pods of these specs take together."""
    taken: Counter[str] = Counter()
    for spec in specs:
        for name, amount in amounts(spec).items():
            taken[name] += amount
    return taken


def scored(specs: Iterable[PodSpec]) -> tuple[int, int]:
    """Return CPU in milli and memory in bytes as scores count them."""
    asked = [spec.request for spec in specs]
    return (
        sum(requested(request.score_cpu_milli) for request in asked),
        sum(requested(request.score_memory_bytes) for request in asked),
    )


def sizes(node: Node | None) -> tuple[int, float, float]:
    """Return `sized` and `twice` of the node table for a node; None is a node that is gone."""
    offered = node.allocatable if node is not None else {}
    both = [min(offered.get(name, 0), AMOUNT_MAX) for name in (CPU, MEMORY)]
    if min(both) > 0:
        return 2, 2.0 * both[0], 2.0 * both[1]
    return sum(amount > 0 for amount in both), math.inf, math.inf


DeviceAmounts = dict[tuple[str, int], dict[str, int]]
"""Type and minor -> dimension -> amount."""


def held_on(cluster: Cluster, row: int, *, claims: bool = True) -> list[HeldDevices]:
    """Return what the pods of a row hold, and with `claims` the owners of claims there."""
    found = [record.allocation.part(DEVICES) for record in cluster.on_row(row)]
    if claims:
        found += [room.allocation.part(DEVICES) for claim in cluster.claims.on_row(row) for room in claim.on(row)]
    return [held for held in found if isinstance(held, HeldDevices)]


def free_devices(cluster: Cluster, row: int, *, claims: bool = True) -> DeviceAmounts:
    """Return what is left of each device of a row, below zero where more is held than there is."""
    found = cluster.nodes.devices.of(row)
    left = {(device.type, device.minor): dict(device.totals) for device in (found.devices if found is not None else ())}
    by_id = {(device.type, device.id): device.minor for device in (found.devices if found is not None else ())}
    for held in held_on(cluster, row, claims=claims):
        for device in held.devices:
            minor = by_id.get((device.type, device.id), device.minor) if device.id else device.minor
            of = left.get((device.type, minor), {})
            for dimension, amount in device.amounts:
                if dimension in of:
                    of[dimension] -= amount
    return left


def unknown_devices(cluster: Cluster, row: int) -> Counter[str]:
    """Return how many devices of each type are held on a row of which nobody knows which."""
    return Counter(kind for held in held_on(cluster, row) for kind, count in held.unknown for _ in range(count))


def offered(cluster: Cluster, row: int, node: Node) -> ResourceList:
    """Return what a node offers: what it lists, and the totals of its devices under names that it does not list."""
    return {**_offered_by_devices(cluster, row, node), **node.allocatable}


def _offered_by_devices(cluster: Cluster, row: int, node: Node) -> ResourceList:
    """Return the totals of the devices of a node under names that it does not list."""
    found = cluster.nodes.devices.of(row)
    sums: Counter[str] = Counter()
    for device in found.devices if found is not None else ():
        for dimension, amount in device.totals:
            sums[f"koordinator.sh/{dimension}"] += amount
        if device.type == "gpu":
            sums.update({"koordinator.sh/gpu": 100, "koordinator.sh/gpu.shared": 100, "nvidia.com/gpu": 1})
    return {name: amount for name, amount in sums.items() if name not in node.allocatable}


def ports(specs: Iterable[PodSpec]) -> Counter[HostPort]:
    """Return how many pods take each host port."""
    return Counter(port for spec in specs for port in spec.host_ports)


def used_volumes(specs: Iterable[PodSpec]) -> dict[VolumeClaimKey, int]:
    """Return how many pods use each claim."""
    return dict(Counter(key for spec in specs if spec.volumes is not None for key in spec.volumes.keys))


def chosen_volumes(cluster: Cluster) -> Counter[VolumeChoice]:
    """Return how many pods on rows have each choice of a volume."""
    return Counter(choice for record in cluster.records.values() for choice in record.allocation.choices)


def counted_rows(cluster: Cluster, by: Counted) -> dict[int, int]:
    """Return by row how many pods there count by this."""
    pods = [(record.pod, record.row) for record in cluster.records.values() if record.row != NOWHERE]
    return dict(Counter(row for pod, row in pods if is_counted(by, pod, cluster.nodes.pod_counts.namespaces)))


def claimed_rows(cluster: Cluster, by: Counted) -> dict[int, int]:
    """Return by row how many owners of claims there count by this."""
    rooms = [room for claim in cluster.claims.all() for room in claim.rooms]
    return dict(
        Counter(room.row for room in rooms if is_counted(by, room.record.pod, cluster.nodes.pod_counts.namespaces))
    )


def domains(cluster: Cluster, count: PodCount) -> bool:
    """Return whether the domains of a count have the pods of their rows; those of a smaller table are not read."""
    for kept in count.domains():
        if len(kept.of_row) == cluster.nodes.width:
            new = DomainCounts(kept.of_row, count.rows, count.claimed, kept.counted)
            if not (np.array_equal(kept.pods, new.pods) and np.array_equal(kept.claims, new.claims)):
                return False
    return True


def interests(cluster: Cluster) -> dict[Counted, tuple[int, dict[bytes, int]]]:
    """Return for what is counted how many pods are interested, and how many have each spec whose filters read it."""
    users, specs = Counter[Counted](), dict[Counted, Counter[bytes]]()
    for record in cluster.records.values():
        interest = interest_of(cluster, record.pod)
        users.update(dict.fromkeys((*interest.counts, *interest.scored, *interest.carried), 1))
        for by in interest.counts:
            specs.setdefault(by, Counter())[record.pod.spec.key] += 1
    return {by: (number, dict(specs.get(by, {}))) for by, number in users.items()}


def ledger(cluster: Cluster) -> dict[Account, Counter[str]]:
    """Return the sums by account."""
    sums: dict[Account, Counter[str]] = {}
    for record in on_nodes(cluster):
        loan, node = loan_of(cluster, record), cluster.nodes.nodes[record.row]
        accounts = [*cluster.accounts_of(record, record.row)] if cluster.ours(record.pod) else []
        cards = "" if node is None else kind_of(node.labels, cluster.profile.gpu_type_labels).label
        if loan is not None:
            accounts += [(LOAN, *loan), (LENDS, loan[0]), (BORROWS, loan[1])]
            accounts += [(LENDS, loan[0], cards), (BORROWS, loan[1], cards)] if cards else []
            accounts += [(QUEUE_BORROWS, queue.name) for queue in cluster.tenants.chain(record)]
        for account in accounts:
            sums.setdefault(account, Counter()).update(
                charge(record.counted, record.allocation) if record.counted else {}
            )
    for room in (room for claim in cluster.claims.all() for room in claim.rooms):
        for account in cluster.accounts_of(room.record, room.row):
            sums.setdefault(account, Counter()).update(charge(room.spec, room.allocation))
    return sums


def waiting_kept(cluster: Cluster) -> dict[str, Counter[str]]:
    """Return what is kept of the requests that wait in each tenant queue."""
    return {name: +total for name, total in sorted(cluster.tenants.waiting.items()) if +total}


def waiting(cluster: Cluster) -> dict[str, Counter[str]]:
    """Return what our pods request in each tenant queue that are on no node."""
    found: dict[str, Counter[str]] = {}
    for record in cluster.records.values():
        if record.tenancy.queue and record.counted is None:
            found.setdefault(record.tenancy.queue, Counter()).update(charge(record.pod.spec))
    return dict(sorted(found.items()))


def tenancies(cluster: Cluster) -> tuple[dict[str, tuple[object, ...]], dict[str, tuple[object, ...]]]:
    """Return the queue, the service and the priority of the queue of each of our pods, as kept and anew."""
    ours = [record for _, record in sorted(cluster.records.items()) if cluster.ours(record.pod)]
    kept: dict[str, tuple[object, ...]] = {}
    anew: dict[str, tuple[object, ...]] = {}
    for record in ours:
        tenancy = cluster.tenants.tenancy(record.pod)
        queue = cluster.tenants.queues.get(tenancy.queue)
        kept[record.pod.uid] = (record.tenancy, record.queue_priority if record.queue else None)
        anew[record.pod.uid] = (tenancy, (queue.priority if queue is not None else 0) if record.queue else None)
    return kept, anew


def claim_users(cluster: Cluster) -> dict[VolumeClaimKey, tuple[str, ...]]:
    """Return the uids of this scheduler's pods that use each volume claim, sorted."""
    users: dict[VolumeClaimKey, set[str]] = {}
    for record in cluster.records.values():
        for use in record.pod.volume_claims if cluster.ours(record.pod) else ():
            users.setdefault((record.pod.namespace, use.name), set()).add(record.pod.uid)
    return {key: tuple(sorted(uids)) for key, uids in users.items()}


def owners(cluster: Cluster, node: Node) -> tuple[str, ...]:
    """Return the pools that select a node, sorted."""
    return tuple(
        name
        for name, pool in sorted(cluster.pools.pools.items())
        if name != DEFAULT_POOL
        and not pool.invalid
        and pool.selector is not None
        and pool.selector.matches(node.labels)
    )


def pool_by_selectors(cluster: Cluster, row: int) -> str:
    """Return the pool of a row by the selectors; empty where there is no node."""
    node = cluster.nodes.nodes[row]
    if node is None:
        return ""
    found = owners(cluster, node)
    return found[0] if len(found) == 1 else DEFAULT_POOL


def home_of(cluster: Cluster, record: PodRecord) -> str:
    """Return the home pool of a pod by the name in the pod."""
    return record.pod.pool if record.pod.pool in cluster.pools.pools else DEFAULT_POOL


def on_nodes(cluster: Cluster) -> list[PodRecord]:
    """Return the pods that count on nodes."""
    return [record for record in cluster.records.values() if record.counted is not None]


def loan_of(cluster: Cluster, record: PodRecord) -> Loan | None:
    """Return the loan of a pod of this scheduler on a node of another pool; None for other pods."""
    lender, home = cluster.pool_of(record.row), home_of(cluster, record)
    ours = record.pod.scheduler_name in cluster.profile.names
    return (lender, home) if ours and lender and lender != home else None


def can_come_true(cluster: Cluster, claim: Claim, row: int) -> bool:
    """Return whether the claim fits once the leaving pods are gone, beside the claims of pods ahead of its owner."""
    pods = [record for record in cluster.on_row(row) if not cluster.leaving(record.pod.uid)]
    ahead = [other for other in cluster.claims.on_row(row) if queue_order(other.owner) < queue_order(claim.owner)]
    own = [room.spec for room in claim.on(row)]
    others = [room.spec for other in ahead for room in other.on(row)]
    taken = total([*(r.counted for r in pods if r.counted is not None), *others, *own])
    node = cluster.nodes.nodes[row]
    return node is not None and all(taken[name] <= offered(cluster, row, node).get(name, 0) for name in total(own))


def summaries(cluster: Cluster) -> dict[str, Amounts]:
    """Return the amounts of every pool: name -> kind -> resource -> amount, with the sum of GPUs."""
    sums = {name: {kind: Counter[str]() for kind in KINDS} for name in sorted(cluster.pools.pools)}
    claimed: dict[int, Counter[str]] = {}
    left: dict[int, Counter[str]] = {}
    for row, node in enumerate(cluster.nodes.nodes):
        if node is not None:
            mine = sums[cluster.pool_of(row)]
            devices = _offered_by_devices(cluster, row, node)
            mine["allocatable"].update(_bounded({**devices, **node.allocatable}))
            mine["capacity"].update(_bounded({**devices, **node.capacity}))
    _add_running(cluster, sums)
    for record in cluster.records.values():
        if record.queue and not (record.state is PodState.GATED and (record.unit is None or record.pod.gates)):
            sums[record.queue]["pending"].update(charge(record.pod.spec))
        room = cluster.claims.room_of(record)
        if room is not None:
            asked = amounts(room.spec) + Counter({GPU_SHARE: gpu_share(room.spec, room.allocation)})
            claimed.setdefault(room.row, Counter()).update(asked)
        if record.counted is not None and cluster.leaving(record.pod.uid):
            left.setdefault(record.row, Counter()).update(counted(record))
    kept = {name: Counter[str]() for name in sums}
    for row, asked in claimed.items():
        kept[cluster.pool_of(row)].update(in_hundredths(asked) - in_hundredths(left.get(row, Counter())))
    for name, mine in sums.items():
        offers, used = in_hundredths(mine["allocatable"]), in_hundredths(mine["used"])
        for resource, amount in offers.items():
            mine["free"][resource] = max(amount - used[resource] - kept[name][resource], 0)
        mine["free"][NVIDIA], mine["free"][GPU_SHARE] = divmod(mine["free"][GPU_SHARE], 100)
        for kind in mine.values():
            kind[GPU] = sum(kind[resource] for resource in cluster.profile.gpu_resources)
    return sums


def _add_running(cluster: Cluster, sums: dict[str, Amounts]) -> None:
    for record in on_nodes(cluster):
        pool, spec, loan = cluster.pool_of(record.row), record.counted, loan_of(cluster, record)
        if pool and spec is not None:
            owner = "shared" if loan else "own" if cluster.ours(record.pod) else "system"
            sums[pool]["used"].update(counted(record))
            sums[pool][owner].update(counted(record))
            if loan:
                sums[loan[1]]["borrowed"].update(counted(record))


def counted(record: PodRecord) -> Counter[str]:
    """Return what a pod on a row counts for, as the node table counts it, with its share of GPUs."""
    assert record.counted is not None
    return amounts(record.counted) + Counter({GPU_SHARE: gpu_share(record.counted, record.allocation)})


def _bounded(found: ResourceList) -> Mapping[str, int]:
    return {name: min(amount, AMOUNT_MAX) for name, amount in found.items()}
