"""Counts of many pods at once: by selector, and loans after rows changed their pools or after an exception."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from aischeduler.model.pod import Pod, PodSpec
from aischeduler.state.counted_pods import NO_INTEREST, Interest
from aischeduler.state.ledger import Account
from aischeduler.state.pod_records import NOWHERE, PodRecord, Unit

if TYPE_CHECKING:
    from aischeduler.engine.cluster import Cluster


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
            cluster.refresh(record)
            cluster.row_changed(record.row, loans=True)


def pods_on_rows(cluster: "Cluster") -> Iterator[tuple[Pod, int, bool]]:
    """Yield the pods that count on rows, with their rows, and whether they own claims there."""
    yield from ((record.pod, record.row, False) for record in cluster.records.values() if record.row != NOWHERE)
    yield from ((room.record.pod, room.row, True) for claim in cluster.claims.all() for room in claim.rooms)


def book_rows(cluster: "Cluster", rows: list[int]) -> None:
    """Update the accounts of pods on rows that changed their pool or their cards, pods of one spec in one step."""
    changes: Counter[tuple[tuple[Account, ...], bytes]] = Counter()
    specs: dict[bytes, PodSpec] = {}
    for row in rows:
        pool = cluster.pool_of(row)
        for record in cluster.on_row(row):
            accounts, spec = cluster.accounts_in(record, pool), record.counted
            if accounts == record.accounts or spec is None:
                continue
            specs[spec.key] = spec
            changes[record.accounts, spec.key] -= 1
            changes[accounts, spec.key] += 1
            cluster.edits.turned.setdefault(record.pod.uid, record.loan)
            record.accounts = accounts
    for (accounts, key), pods in changes.items():
        cluster.ledger.book(accounts, specs[key], pods)
