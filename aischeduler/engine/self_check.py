"""The engine checks a part of its state from time to time: a violation is a bug of the scheduler.

Invariants:
- A check takes some milliseconds, however large the cluster is: it continues where the last one ended, and covers all
  pods and nodes after a while.
- A check changes no state. Violations are returned and counted; people decide what to do.
- What others count is added up again from the pods: no number that is updated step by step is compared with itself.
"""

from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from itertools import islice
from typing import Final

from msgspec import Struct

from aischeduler.engine.cluster import Cluster
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.state.pod_records import NOWHERE, WAITING, PodRecord, PodState
from aischeduler.state.requests import requested

NAMES: Final = ("I1", "I2", "I3", "I4", "I5")
"""A pod is in one place. A node counts what its pods take. A waiting pod is in its queue. A node is in the pool that
selects it. A pod on a node is known as such."""
SELF_CHECK_SECONDS: Final = 2.0
"""The time between two checks."""
POSTPONED_MAX_SECONDS: Final = 60.0
"""This long after the last check, the next one runs even while a pool is ready."""
RECORDS_MAX: Final = 200
"""The pods of one check."""
ROWS_MAX: Final = 10
"""The nodes of one check."""
VIOLATIONS_MAX: Final = 10
"""The most violations that one check returns; all are counted."""

Faults = Iterator[tuple[str, str]]
"""The name of an invariant, and what violates it."""


class Violation(Struct, frozen=True):
    """A violated invariant: `name` as in I2; `message` names the pods, nodes and pools."""

    name: str
    message: str


class SelfCheck(Struct):
    """The position and the time of the last check."""

    checked_at: float = float("-inf")
    record: int = 0
    row: int = 0

    def is_due(self, now: float, *, busy: bool) -> bool:
        """Return whether a check is due; while a pool is ready, it waits longer."""
        return now - self.checked_at >= (POSTPONED_MAX_SECONDS if busy else SELF_CHECK_SECONDS)

    def look(self, cluster: Cluster, now: float) -> tuple[Violation, ...]:
        """Check the next part and count the violations; return the first of them."""
        self.checked_at = now
        found = tuple(Violation(name, message) for name, message in self._next_part(cluster))
        cluster.counters.violations.update(violation.name for violation in found)
        return found[:VIOLATIONS_MAX]

    def _next_part(self, cluster: Cluster) -> Faults:
        records, rows = cluster.records, cluster.nodes.rows
        self.record = self.record if self.record < len(records) else 0
        self.row = self.row if self.row < len(rows) else 0
        for record in islice(records.values(), self.record, self.record + RECORDS_MAX):
            yield from _waits(cluster, record) if record.state in WAITING else _runs(cluster, record)
        for row in islice(rows.values(), self.row, self.row + ROWS_MAX):
            yield from _row(cluster, row)
        self.record += RECORDS_MAX
        self.row += ROWS_MAX


def _waits(cluster: Cluster, record: PodRecord) -> Faults:
    uid, queue = record.pod.uid, cluster.queues.get(record.queue)
    if record.row != NOWHERE or record.counted is not None or record.accounts or uid in cluster.running:
        yield "I1", f"{uid}: waits in {record.queue} and counts on {cluster.nodes.names[record.row]}"
    if queue is None or not queue.holds(record):
        yield "I3", f"{uid}: waits in {record.queue}, whose queue does not have it"
    if uid in cluster.reservations.unsettled or cluster.leaving(uid):
        yield "I5", f"{uid}: waits, but is kept as a pod on a node"


def _runs(cluster: Cluster, record: PodRecord) -> Faults:
    uid, row, state = record.pod.uid, record.row, record.state
    node = cluster.nodes.names[row] if row != NOWHERE else ""
    if record.queue or not node or record.counted is None:
        yield "I1", f"{uid}: {state.name} on the node '{node}' and in the queue '{record.queue}'"
        return
    if state is PodState.BOUND and record.pod.node_name != node:
        yield "I1", f"{uid}: counts on {node} and is bound to {record.pod.node_name}"
    if uid not in cluster.running.on_row(row):
        yield "I5", f"{uid}: not found among the running pods of {node}"
    lender = cluster.pool_of(row)
    home = record.pod.pool if record.pod.pool in cluster.pools.pools else DEFAULT_POOL
    loan = (lender, home) if cluster.ours(record.pod) and lender and lender != home else None
    if record.loan != loan:
        yield "I5", f"{uid}: its loan is {record.loan}, should be {loan}"


def _row(cluster: Cluster, row: int) -> Faults:
    nodes = cluster.nodes
    name, node = nodes.names[row], nodes.nodes[row]
    specs = [record.counted for record in cluster.on_row(row) if record.counted is not None]
    specs += [room.spec for claim in cluster.claims.on_row(row) for room in claim.on(row)]
    taken: Counter[str] = Counter()
    for spec in specs:
        taken.update({resource: requested(amount) for resource, amount in spec.request.taken.items()})
    used = Counter(nodes.named(nodes.used[:, row]))
    if used != taken:
        yield "I2", f"{name}: uses {used}, its pods and claims {taken}"
    owners = cluster.pools.claimants(node) if node is not None else []
    pool = "" if node is None else owners[0] if len(owners) == 1 else DEFAULT_POOL
    if cluster.pool_of(row) != pool:
        yield "I4", f"{name}: is in the pool {cluster.pool_of(row)}, should be in {pool}"


def digest(cluster: Cluster) -> dict[str, str | int]:
    """Return the state as a few numbers and a hash; equal states have equal hashes."""
    states: Counter[str] = Counter()
    told = blake2b(digest_size=8)
    for uid in sorted(cluster.records):
        record = cluster.records[uid]
        states[record.state.name.lower()] += 1
        node = cluster.nodes.names[record.row] if record.counted is not None else ""
        told.update(repr((uid, record.state.name, record.home, record.queue, node, record.loan)).encode())
    for name, row in sorted(cluster.nodes.rows.items()):
        used = sorted(cluster.nodes.named(cluster.nodes.used[:, row]).items())
        told.update(repr((name, cluster.pool_of(row), used)).encode())
    return {
        "digest": told.hexdigest(),
        "pods": len(cluster.records),
        **{f"pods_{state}": count for state, count in sorted(states.items())},
        "nodes": len(cluster.nodes.rows),
        "pools": len(cluster.pools.pools),
        "claims": len(cluster.claims),
        "loans": sum(cluster.ledger.loans().values()),
        "victims": len(cluster.leaving_pods.asked),
    }
