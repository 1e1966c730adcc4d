"""The engine checks its invariants as it runs, a part at a time: a violation is a bug of the scheduler.

Invariants:
- A check takes some milliseconds, however large the cluster is: it continues where the last one ended, and covers all
  pods, nodes, queues and pools after a while. Sums over everything are checked in small clusters only.
- A check changes no state. Violations are returned and counted; people decide what to do.
"""

from collections import Counter
from hashlib import blake2b
from itertools import islice
from typing import Final

from msgspec import Struct

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.invariants import Violation, check, claims_faults, pool_faults, records_faults, rows_faults
from aischeduler.engine.queue_invariants import queue_faults
from aischeduler.engine.recount import Faults

SELF_CHECK_SECONDS: Final = 2.0
"""The time between two checks."""
POSTPONED_MAX_SECONDS: Final = 60.0
"""This long after the last check, the next one runs even while a pool is ready."""
RECORDS_MAX: Final = 200
"""The pods of one check."""
ROWS_MAX: Final = 10
"""The nodes of one check."""
QUEUE_MAX: Final = 300
"""The most pods of a queue that is checked; longer queues are skipped."""
CLAIMS_MAX: Final = 100
"""The most claims that are checked; more are skipped."""
SMALL_MAX: Final = 200
"""The most pods and nodes of a cluster that every check covers in full."""
VIOLATIONS_MAX: Final = 10
"""The most violations that one check returns; all are counted."""


class SelfCheck(Struct):
    """The position and the time of the last check."""

    checked_at: float = float("-inf")
    turn: int = 0
    record: int = 0
    row: int = 0
    pool: int = 0

    def is_due(self, now: float, *, busy: bool) -> bool:
        """Return whether a check is due; while a pool is ready, it waits longer."""
        return now - self.checked_at >= (POSTPONED_MAX_SECONDS if busy else SELF_CHECK_SECONDS)

    def look(self, cluster: Cluster, now: float) -> tuple[Violation, ...]:
        """Check the next part and count the violations; return the first of them."""
        self.checked_at = now
        if len(cluster.records) + len(cluster.nodes.rows) <= SMALL_MAX:
            found = check(cluster)
        else:
            found = tuple(Violation(name, message) for name, message in self._next_part(cluster))
        cluster.counters.violations.update(violation.name for violation in found)
        return found[:VIOLATIONS_MAX]

    def _next_part(self, cluster: Cluster) -> Faults:
        self.turn += 1
        match self.turn % 3:
            case 0:
                records = cluster.records
                self.record = self.record if self.record < len(records) else 0
                part = islice(records.values(), self.record, self.record + RECORDS_MAX)
                self.record += RECORDS_MAX
                yield from records_faults(cluster, tuple(part))
            case 1:
                rows = cluster.nodes.rows
                self.row = self.row if self.row < len(rows) else 0
                yield from rows_faults(cluster, tuple(islice(rows.values(), self.row, self.row + ROWS_MAX)))
                self.row += ROWS_MAX
            case _:
                names = cluster.pools.names()
                self.pool = (self.pool + 1) % len(names)
                queue = cluster.queues[names[self.pool]]
                yield from pool_faults(cluster, queue.pool)
                if len(queue) <= QUEUE_MAX:
                    yield from queue_faults(cluster, queue)
                if len(cluster.claims) <= CLAIMS_MAX:
                    yield from claims_faults(cluster)


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
