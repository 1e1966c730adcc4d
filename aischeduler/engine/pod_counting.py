"""What counts of pods on rows: in the node table, among the running pods, in accounts, and by selectors.

Invariant: a pod counts in all of them exactly while its record has a row.
"""

from collections import Counter
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Final, TypedDict

from msgspec.structs import replace

from aischeduler.framework.allocating import bound_allocation
from aischeduler.model.allocation import NO_ALLOCATION
from aischeduler.model.card_shares import gpu_share
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.workload import ServiceType
from aischeduler.policies.eviction_order import QUEUE_PRIORITY_MAX
from aischeduler.state.counted_pods import NO_INTEREST, Interest
from aischeduler.state.ledger import QUEUE_BORROWS, Account, accounts_of_loan
from aischeduler.state.pod_records import NOWHERE, AssignedPod, PodRecord, Unit
from aischeduler.state.running_pods import RunningFacts

if TYPE_CHECKING:
    from aischeduler.engine.cluster import Cluster


SYSTEM_NAMESPACE: Final = "kube-system"
"""The namespace whose pods no tenant takes."""


def count(cluster: "Cluster", record: PodRecord, node: str) -> None:
    """Count a pod on the node of this name; an unknown node gets a stub."""
    row = cluster.nodes.row(node)
    allocation = bound_allocation(cluster.profile.plugins_of(record.pod), record.pod, cluster.nodes)
    assigned = AssignedPod(record.pod, record.pod.spec, row, allocation)
    cluster.nodes.add(assigned)
    adopt(cluster, record, assigned)


def adopt(cluster: "Cluster", record: PodRecord, assigned: AssignedPod) -> None:
    """Note that the node table already counts the pod on this row."""
    record.row, record.counted, record.allocation = assigned.row, assigned.spec, assigned.allocation
    record.home = cluster.pools.home(record.pod.pool)
    pool = cluster.pool_of(record.row)
    cluster.budgets.placed(record.pod)
    share = gpu_share(assigned.spec, assigned.allocation)
    cluster.running.add(record.pod.uid, record.pod.spec, record.row, _facts(cluster, record, pool), share)
    book(cluster, record, pool)
    if record.waits_with is not None:
        cluster.tenants.waits_no_more(record)
    if record.unit is not None:
        cluster.units.touch(record)


def uncount(cluster: "Cluster", record: PodRecord) -> int:
    """Stop counting a pod on its node; return the row."""
    row, assigned = record.row, record.assigned
    cluster.reservations.release(record.pod.uid)
    _unbook(cluster, record)
    cluster.running.remove(record.pod.uid)
    cluster.budgets.taken_off(record.pod)
    record.row, record.counted, record.allocation = NOWHERE, None, NO_ALLOCATION
    cluster.nodes.remove(assigned)
    if record.tenancy.queue:
        cluster.tenants.waits(record)
    cluster.units.touch(record)
    return row


def book(cluster: "Cluster", record: PodRecord, pool: str) -> None:
    """Update the accounts of a pod from its home pool and `pool`, that of its row."""
    accounts = accounts_in(cluster, record, pool)
    if accounts != record.accounts:
        _unbook(cluster, record)
        record.accounts = accounts
        if record.counted is not None:
            cluster.ledger.book(accounts, record.counted, 1, cluster.running.gpu_share_of(record.pod.uid))


def refresh(cluster: "Cluster", record: PodRecord) -> None:
    """Update what is kept of a pod on a row: its home pool, its loan, whether it is leaving."""
    home, pool = record.home, cluster.pool_of(record.row)
    record.home = cluster.pools.home(record.pod.pool)
    cluster.running.change(record.pod.uid, _facts(cluster, record, pool))
    if record.home != home:  # a row that changes its pool or its cards, and a pod its quotas, are booked there
        loan = record.loan
        book(cluster, record, pool)
        if record.loan != loan:
            cluster.edits.turned.setdefault(record.pod.uid, loan)


def accounts_in(cluster: "Cluster", record: PodRecord, pool: str) -> tuple[Account, ...]:
    """Return the accounts of a pod on its row of this pool: those of its loan, if it has one, and of its quotas."""
    at_home = not pool or pool == record.home
    if (at_home and not (record.tenancy.queue or cluster.quotas_of_plugins)) or not cluster.ours(record.pod):
        return ()
    accounts = cluster.accounts_of(record, record.row)
    if at_home:
        return accounts
    node = cluster.nodes.nodes[record.row]
    cards = cluster.nodes.cards.label_of(node.labels) if node is not None else ""
    borrows = ((QUEUE_BORROWS, queue.name) for queue in cluster.tenants.chain(record))
    return (*accounts_of_loan((pool, record.home), cards), *borrows, *accounts)


def may_go(cluster: "Cluster", record: PodRecord) -> bool:
    """Return whether a pod on a row may be evicted now."""
    facts = _facts(cluster, record, cluster.pool_of(record.row))
    return facts.evictable and not facts.leaving and record.pod.uid not in cluster.reservations.delayed


def _facts(cluster: "Cluster", record: PodRecord, pool: str) -> RunningFacts:
    """Return the facts of a pod on a row of this pool."""
    pod, unit, ours = record.pod, record.unit, cluster.ours(record.pod)
    known = unit is None or unit.formed  # else neither its rank nor its spare is
    kept = pod.uid in cluster.leaving_pods.spared or pod.uid in cluster.budgets.forbidden
    stays = kept or pod.uid in cluster.leaving_pods.overstayed
    facts = RunningFacts(
        priority=pod.priority if unit is None else unit.priority,
        borrower=record.home != pool,
        evictable=ours and known and not pod.guarded and not pod.critical and not stays,
        leaving=cluster.leaving(pod.uid),
        started_seconds=pod.started_seconds,
        home=cluster.pools.id(record.home),
        ours=ours,
        unit=0 if unit is None else unit.number,
        kept=kept,
    )
    return replace(facts, **_tenant_facts(cluster, record)) if record.tenancy.queue else facts


class _TenantFacts(TypedDict):
    """The facts of a pod in a tenant queue; see `RunningFacts`."""

    queue: int
    queue_priority: int
    training: bool
    reclaimable: bool
    shielded: bool


def _tenant_facts(cluster: "Cluster", record: PodRecord) -> _TenantFacts:
    tenancy, queue = record.tenancy, cluster.tenants.queue_of(record)
    of_system = record.pod.namespace == SYSTEM_NAMESPACE
    training = tenancy.service is ServiceType.TRAINING and tenancy.known
    return {
        "queue": cluster.tenants.number(tenancy.queue),
        "queue_priority": min(queue.priority, QUEUE_PRIORITY_MAX) if queue is not None else 0,
        "training": training,
        "reclaimable": training and queue is not None and queue.reclaimable,
        "shielded": of_system or may_stay(cluster, record) or _is_young(cluster, record),
    }


def may_stay(cluster: "Cluster", record: PodRecord) -> bool:
    """Return whether a pod says that it is not preemptable, and its namespace may say so."""
    if record.tenancy.preemptable:
        return False
    labels = cluster.nodes.pod_counts.namespaces.get(record.pod.namespace)
    pool = cluster.pools.pools[record.home]
    selectors = (pool.non_preemptible_namespaces, cluster.tenants.settings.non_preemptible)
    return labels is not None and any(selector is not None and selector.matches(labels) for selector in selectors)


def _is_young(cluster: "Cluster", record: PodRecord) -> bool:
    """Return whether a pod has not run as long as its queue lets it; a gang is as old as its oldest pod on a node."""
    queue = cluster.tenants.queue_of(record)
    if queue is None or not queue.min_runtime_seconds:
        return False
    gang = record.unit.members.values() if record.unit is not None else (record,)
    since = [member.pod.placed_seconds for member in gang if member.counted is not None and member.pod.placed_seconds]
    until = min(since, default=int(cluster.now)) + queue.min_runtime_seconds
    if until <= cluster.now:
        cluster.tenants.shields.drop(record.pod.uid)
        return False
    cluster.tenants.shields.set(record.pod.uid, until)
    return True


def shields_end(cluster: "Cluster", now: float) -> None:
    """Let pods be evicted that have run as long as their queues let them."""
    for uid in cluster.tenants.shields.pop_due(now):
        record = cluster.records.get(uid)
        if record is not None and record.counted is not None:
            refresh(cluster, record)
            cluster.row_changed(record.row)


def _unbook(cluster: "Cluster", record: PodRecord) -> None:
    if record.counted is not None and record.accounts:
        cluster.ledger.book(record.accounts, record.counted, -1, cluster.running.gpu_share_of(record.pod.uid))
    record.accounts = ()


def hold_parts(cluster: "Cluster", record: PodRecord, parts: tuple[tuple[str, Hashable], ...]) -> None:
    """Let a pod on a row have other parts of the node than before."""
    cluster.nodes.remove(record.assigned)
    record.allocation = replace(record.allocation, parts=parts)
    cluster.nodes.add(record.assigned)
    share = gpu_share(record.assigned.spec, record.allocation)
    if share != cluster.running.gpu_share_of(record.pod.uid):
        _unbook(cluster, record)
        cluster.running.set_gpu_share(record.pod.uid, share)
        book(cluster, record, cluster.pool_of(record.row))


def follow_accounts(cluster: "Cluster", record: PodRecord) -> None:
    """Count a pod, or its claim, in the accounts that it has now."""
    if record.counted is not None:
        book(cluster, record, cluster.pool_of(record.row))
    claim = cluster.claims.of(record.waits_as.pod.uid)
    if claim is not None:
        cluster.claims.renew(claim, cluster.accounts_of)


def planned(cluster: "Cluster", uid: str) -> None:
    """Update what is kept of a pod of which an eviction was planned, or is planned no more."""
    record = cluster.records.get(uid)
    if record is not None and record.counted is not None:
        refresh(cluster, record)


def interest_of(cluster: "Cluster", pod: Pod) -> Interest:
    """Return what is counted for a pod; for one of another scheduler, these are the terms that it carries."""
    if cluster.ours(pod):
        return cluster.runner.interest(pod.spec)
    carried = pod.spec.pod_affinity.carried
    return Interest(carried=carried) if carried else NO_INTEREST


def count_again(cluster: "Cluster", before: Pod, record: PodRecord) -> None:
    """Count a pod on a row, or its claim, by its labels as they are now."""
    room = cluster.claims.room_of(record)
    row = room.row if room is not None else record.row
    if row != NOWHERE and cluster.nodes.pod_counts.change(before, record.pod, row, claims=room is not None):
        cluster.nodes.touch(row)


def count_with_unit(cluster: "Cluster", unit: Unit) -> None:
    """Count the pods of a unit that are on nodes with its priority, and as pods that may be evicted."""
    for record in unit.members.values():
        if record.counted is not None:
            refresh(cluster, record)
            cluster.row_changed(record.row, loans=True)


def pods_on_rows(cluster: "Cluster") -> Iterator[tuple[Pod, int, bool]]:
    """Yield the pods that count on rows, with their rows, and whether they own claims there."""
    yield from ((record.pod, record.row, False) for record in cluster.records.values() if record.row != NOWHERE)
    yield from ((room.record.pod, room.row, True) for claim in cluster.claims.all() for room in claim.rooms)


def book_rows(cluster: "Cluster", rows: list[int]) -> None:
    """Update the accounts of pods on rows that changed their pool or their cards, pods of one spec in one step."""
    changes: Counter[tuple[tuple[Account, ...], bytes, int]] = Counter()
    specs: dict[bytes, PodSpec] = {}
    for row in rows:
        pool = cluster.pool_of(row)
        for record in cluster.on_row(row):
            accounts, spec = accounts_in(cluster, record, pool), record.counted
            if accounts == record.accounts or spec is None:
                continue
            specs[spec.key], share = spec, cluster.running.gpu_share_of(record.pod.uid)
            changes[record.accounts, spec.key, share] -= 1
            changes[accounts, spec.key, share] += 1
            cluster.edits.turned.setdefault(record.pod.uid, record.loan)
            record.accounts = accounts
    for (accounts, key, share), pods in changes.items():
        cluster.ledger.book(accounts, specs[key], pods, share)
