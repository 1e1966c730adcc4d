"""The invariants of the engine, checked on a live one without changing it.

Invariants:
- The names are those of the product's list of invariants. A violation is a bug of the scheduler.
- `check` checks the state between two calls of the engine.
- Overbooked nodes are checked in decisions, not in the state: pods that others bind, and nodes that shrink, overbook
  nodes too.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from aischeduler.engine import recount
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.queue_invariants import queue_faults
from aischeduler.engine.summary import summarize
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.pool_summary import PoolSummary
from aischeduler.state.claims import Claim
from aischeduler.state.nodes import UNOFFERED
from aischeduler.state.pool_rows import NO_POOL
from aischeduler.state.records import NOWHERE, WAITING, PodRecord, PodState

Faults = Iterator[tuple[str, str]]
"""The name of an invariant, and what violates it."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A violated invariant: `name` as in I2; `message` names the pods, nodes and pools."""

    name: str
    message: str


def check(cluster: Cluster) -> tuple[Violation, ...]:
    """Check everything; the cost grows with the number of pods and nodes."""
    found = [
        *records_faults(cluster, cluster.records.values()),
        *rows_faults(cluster, sorted(cluster.nodes.rows.values())),
        *_free_rows_faults(cluster),
        *counts_faults(cluster),
        *(fault for name in sorted(cluster.queues) for fault in queue_faults(cluster, cluster.queues[name])),
        *pools_faults(cluster),
        *claims_faults(cluster),
        *units_faults(cluster),
        *sums_faults(cluster),
    ]
    return tuple(Violation(name, message) for name, message in found)


def records_faults(cluster: Cluster, records: Iterable[PodRecord]) -> Faults:
    """Check pods one by one: each has one state, and everything that is kept of it agrees."""
    for record in records:
        uid = record.pod.uid
        if cluster.records.get(uid) is not record:
            yield "I1", f"{uid}: its record is kept under another uid"
        if record.home != recount.home_of(cluster, record):
            yield "I3", f"{uid}: its home is {record.home}, it names {record.pod.pool}"
        named = cluster.naming.get(record.pod.pool, {}).get(uid)
        if record.pod.pool and named is not record:
            yield "I5", f"{uid}: not found among the pods that name {record.pod.pool}"
        yield from _waits(cluster, record) if record.state in WAITING else _runs(cluster, record)


def _waits(cluster: Cluster, record: PodRecord) -> Faults:
    uid, queue = record.pod.uid, cluster.queues.get(record.queue)
    if record.row != NOWHERE or record.counted is not None or record.loan is not None:
        yield "I1", f"{uid}: waits in {record.queue} and counts on {cluster.nodes.names[record.row]}"
    if queue is None or queue._records.get(uid) is not record:
        yield "I3", f"{uid}: waits in {record.queue}, whose queue does not have it"
    held_by_gate = any(gate.holds(record.pod) for gate in cluster.profile.plugins.gates)
    if held_by_gate != (record.state is PodState.GATED) and not _gated_with_unit(cluster, record, held_by_gate):
        yield "I3", f"{uid}: {record.state.name} with the gates {record.pod.gates}"
    if record.borrower:
        if record.state not in (PodState.ACTIVE, PodState.BACKOFF):
            yield "I3", f"{uid}: {record.state.name} in {record.queue}, which is not its home"
        if record.visited[:1] != (record.home,) or record.queue not in record.visited:
            yield "I3", f"{uid}: waits in {record.queue}, but its trip went to {record.visited}"
    if len(set(record.visited)) != len(record.visited):
        yield "I3", f"{uid}: its trip visits a pool twice: {record.visited}"
    if record.visited and record.state not in (PodState.ACTIVE, PodState.BACKOFF):
        yield "I3", f"{uid}: {record.state.name} and still on a trip: {record.visited}"
    if record.pod.spec.invalid and record.state in (PodState.PARKED, PodState.NOMINATED):
        yield "I14", f"{uid}: its spec is invalid and it is {record.state.name}"
    if uid in cluster.unsettled or cluster.leaving(uid) or uid in cluster.overstayed or uid in cluster.spared:
        yield "I5", f"{uid}: waits, but is kept as a pod on a node"
    yield from _claims_while_waiting(cluster, record)


def _gated_with_unit(cluster: Cluster, record: PodRecord, held_by_gate: bool) -> bool:
    """Return whether a pod is gated because its unit is not complete, or not formed yet."""
    unit = record.unit
    formed_later = unit is not None and (unit.name in cluster.units.stale or unit.name in cluster.units.again)
    return (
        record.state is PodState.GATED
        and not held_by_gate
        and (formed_later or (unit is not None and bool(unit.message)))
    )


def units_faults(cluster: Cluster) -> Faults:
    """Check the units: their members, and how their pods wait."""
    members: dict[str, dict[str, PodRecord]] = {}
    for uid, record in cluster.records.items():
        name = cluster.unit_name(record.pod)
        if name:
            members.setdefault(name, {})[uid] = record
    if {name: unit.members for name, unit in cluster.units.by_name.items()} != members:
        yield "I3", f"the units are {sorted(cluster.units.by_name)}, the pods name {sorted(members)}"
    for unit in cluster.units.by_name.values():
        stale = unit.name in cluster.units.stale or unit.name in cluster.units.again
        together = [one for one in unit.members.values() if one.state is PodState.GROUPED]
        if unit.lead is None:
            if unit.pods or (together and not stale):
                yield "I3", f"{unit.name}: has no lead, and {_uids(together)} wait with it"
            continue
        if unit.lead not in unit.together or {*together, unit.lead} - {*unit.pods}:
            yield "I3", f"{unit.name}: {unit.lead.pod.uid} leads {_uids(unit.pods)}, grouped are {_uids(together)}"
        if any(one is not unit.lead and one.state is not PodState.GROUPED for one in unit.pods) or unit.required < 2:
            yield (
                "I3",
                f"{unit.name}: {unit.required} of {_uids(unit.pods)} wait together, grouped are {_uids(together)}",
            )
        if not stale and len({one.home for one in unit.together}) != 1:
            yield "I3", f"{unit.name}: its pods have different home pools"


def _uids(records: Iterable[PodRecord]) -> list[str]:
    return [record.pod.uid for record in records]


def _claims_while_waiting(cluster: Cluster, record: PodRecord) -> Faults:
    uid = record.pod.uid
    claims = cluster.claims.of(uid) is not None
    if record.state is PodState.NOMINATED and not claims:
        yield "claims", f"{uid}: nominated without a claim"
    if claims and (record.borrower or record.state not in (PodState.NOMINATED, PodState.ACTIVE, PodState.BACKOFF)):
        yield "claims", f"{uid}: {record.state.name} in {record.queue} with a claim"


def _runs(cluster: Cluster, record: PodRecord) -> Faults:
    uid, row = record.pod.uid, record.row
    node = cluster.nodes.names[row] if row != NOWHERE else ""
    if record.queue or not node or record.counted is None:
        yield "I1", f"{uid}: {record.state.name} on the node '{node}' and in the queue '{record.queue}'"
        return
    if record.state is PodState.BOUND and record.pod.node_name != node:
        yield "I1", f"{uid}: counts on {node} and is bound to {record.pod.node_name}"
    if (uid in cluster.unsettled or uid in cluster.reservations.delayed) != (record.state is PodState.ASSUMED):
        yield "I1", f"{uid}: {record.state.name}, its bind is settled: {uid not in cluster.unsettled}"
    if cluster.claims.of(uid) is not None:
        yield "claims", f"{uid}: {record.state.name} with a claim"
    if record.loan != recount.loan_of(cluster, record):
        yield "I5", f"{uid}: its loan is {record.loan}, it should be {recount.loan_of(cluster, record)}"
    departing, overstayed = uid in cluster.departures, uid in cluster.overstayed
    if (departing and overstayed) or (departing or overstayed) != (
        record.pod.terminating and record.state is PodState.BOUND
    ):
        yield "I5", f"{uid}: terminating {record.pod.terminating}, leaving {departing}, overstayed {overstayed}"
    if uid in cluster.victims and (departing or overstayed):
        yield "I7", f"{uid}: its eviction is requested although it is terminating"
    yield from _running_faults(cluster, record)


def _running_faults(cluster: Cluster, record: PodRecord) -> Faults:
    """Check the pod's slot among the running pods, and that a victim is evictable."""
    uid, pod, running = record.pod.uid, record.pod, cluster.running
    slot = running._slots.get(uid)
    ours = pod.scheduler_name == cluster.profile.scheduler_name
    if slot is None or running._uids[slot] != uid or running._on_row.get(record.row, {}).get(uid) != slot:
        yield "I5", f"{uid}: not found among the running pods of {cluster.nodes.names[record.row]}"
        return
    has = {name: running.table[name][slot].item() for name in running.table.dtype.names or () if name != "spec"}
    should = {
        "row": record.row,
        "priority": pod.priority if record.unit is None else record.unit.priority,
        "unit": 0 if record.unit is None else record.unit.number,
        "started_seconds": pod.started_seconds,
        "home": cluster.pools.id(recount.home_of(cluster, record)),
        "ours": ours,
        "borrower": recount.home_of(cluster, record) != cluster.pool_of(record.row),
        "leaving": cluster.leaving(uid),
    }
    odd = {name: (has[name], value) for name, value in should.items() if has[name] != value}
    if has["evictable"] and (not ours or pod.guarded or pod.critical):
        odd["evictable"] = (True, False)
    if odd:
        yield "I5", f"{uid}: among the running pods as (is, should be): {odd}"
    if record.counted is not None and running.specs.spec(int(running.table["spec"][slot])).key != record.counted.key:
        yield "I5", f"{uid}: among the running pods with another spec than it is counted with"
    if uid in cluster.victims and (not ours or pod.guarded or pod.critical):
        yield "I7", f"{uid}: may not be evicted, but its eviction is requested"


def rows_faults(cluster: Cluster, rows: Iterable[int]) -> Faults:
    """Check rows one by one: pool, amounts, scores and ports against the pods and claims that count there."""
    nodes = cluster.nodes
    for row in rows:
        name, node = nodes.names[row], nodes.nodes[row]
        if bool(nodes.alive[row]) != (node is not None) or (bool(name) and nodes.rows.get(name) != row):
            yield "I4", f"row {row}: named '{name}', alive {nodes.alive[row]}, node {node is not None}"
        pool = recount.pool_by_selectors(cluster, row)
        number = NO_POOL if not pool else cluster.pools.id(pool)
        if nodes.pool[row] != number:
            yield "I4", f"{name}: in the pool {cluster.pool_of(row)}, by the selectors in '{pool}'"
        if node is not None and cluster.pools.conflicts.get(row, ()) != _contest(recount.owners(cluster, node)):
            yield (
                "I4",
                f"{name}: claimed by {recount.owners(cluster, node)}, known is {cluster.pools.conflicts.get(row)}",
            )
        specs = [record.counted for record in cluster.on_row(row) if record.counted is not None]
        specs += [room.spec for claim in cluster.claims.on_row(row) for room in claim.on(row)]
        used = Counter(nodes.named(nodes.used[:, row]))
        if used != recount.total(specs):
            yield "I2", f"{name}: uses {+used}, its pods and claims {recount.total(specs)}"
        if (int(nodes.scored[0, row]), int(nodes.scored[1, row])) != recount.scored(specs):
            yield "I2", f"{name}: is scored by {nodes.scored[:, row].tolist()}, its pods by {recount.scored(specs)}"
        sizes = (int(nodes.sized[row]), *nodes.twice[:, row].tolist())
        if sizes != recount.sizes(node):
            yield "I2", f"{name}: is sized as {sizes}, and should be as {recount.sizes(node)}"
        if nodes.ports.get(row, {}) != recount.ports(specs):
            yield "I2", f"{name}: has the ports {nodes.ports.get(row)} taken, its pods take {recount.ports(specs)}"


def counts_faults(cluster: Cluster) -> Faults:
    """Check the counts of pods by selector."""
    counts = cluster.nodes.pod_counts
    for count in counts.all():
        rows = recount.selected(cluster, count.selector)
        if count.rows != rows:
            yield "I2", f"{count.selector}: counts the pods {count.rows} by row, and should count {rows}"
    specs = recount.counting_specs(cluster)
    if {count.selector: count.specs for count in counts.all()} != specs:
        yield "I2", f"the specs that count pods are {specs}"
    if counts.apart is not None:
        yield "I2", "a search for victims still counts pods as gone"


def _free_rows_faults(cluster: Cluster) -> Faults:
    """Check the rows without a node: nothing counts there."""
    nodes = cluster.nodes
    free = np.ones(nodes.width, dtype=np.bool_)
    free[list(nodes.rows.values())] = False
    kept = nodes.used.any(axis=0) | nodes.allocatable.any(axis=0) | nodes.scored.any(axis=0) | nodes.alive
    odd = free & (kept | (nodes.pool != NO_POOL))
    if odd.any() or len(nodes._free) != int(free.sum()) or any(nodes.names[row] for row in nodes._free):
        yield "I2", f"something counts on rows without a node: {np.flatnonzero(odd).tolist()}"
    if any(amounts[UNOFFERED].any() for amounts in (nodes.allocatable, nodes.capacity, nodes.used)):
        yield "I2", "a node has, or a pod uses, a resource that no node offers"


def _contest(found: tuple[str, ...]) -> tuple[str, ...]:
    return found if len(found) > 1 else ()


def pools_faults(cluster: Cluster) -> Faults:
    """Check pools as a whole: queues, rows and timers exist for existing pools only."""
    pools, nodes = cluster.pools, cluster.nodes
    names = set(pools.pools)
    if set(cluster.queues) != names or pools.names() != tuple(sorted(names)) or DEFAULT_POOL not in names:
        yield "I4", f"the pools are {sorted(names)}, their queues {sorted(cluster.queues)}, listed {pools.names()}"
    for name in sorted(names):
        yield from pool_faults(cluster, name)
    for row in sorted(cluster.pools.conflicts):
        if nodes.nodes[row] is None:
            yield "I4", f"row {row}: contested, but no node"
    errands = cluster.errands
    left = {*errands.pools(), *errands.relook, *errands.sought}
    strangers = (left | {*cluster.reported, *cluster.outbox}) - names
    if strangers:
        yield "I4", f"something is kept for pools that do not exist: {sorted(strangers)}"
    yield from _ports_index_faults(cluster)


def pool_faults(cluster: Cluster, name: str) -> Faults:
    """Check the rows of one pool."""
    nodes, number, pool = cluster.nodes, cluster.pools.id(name), cluster.pools.pools[name]
    rows = nodes.rows_of_pool(number).tolist()
    fresh = [row for row, other in enumerate(nodes.pool.tolist()) if other == number and nodes.nodes[row] is not None]
    if rows != fresh:
        yield "I4", f"{name}: its rows are {fresh}, remembered are {rows}"
    if name != DEFAULT_POOL and rows and (pool.invalid or pool.selector is None):
        yield "I14", f"{name}: owns nodes although its spec is refused or selects nothing"


def _ports_index_faults(cluster: Cluster) -> Faults:
    carried: dict[tuple[str, int], set[int]] = {}
    for row, counts in cluster.nodes.ports.items():
        for port in counts:
            carried.setdefault((port.protocol, port.port), set()).add(row)
    index = cluster.nodes.port_rows
    if {value: set(index.rows(value)) for value in index.values()} != carried:
        yield "I2", f"the index of host ports differs from the ports of the rows: {carried}"


def claims_faults(cluster: Cluster) -> Faults:
    """Check claims: their owners wait in their home queue, and can use the room."""
    claims = cluster.claims
    everywhere = sorted(claims._by_owner.items())
    by_owner = Counter(claim.owner.pod.uid for _, claim in everywhere)
    by_row = Counter(c.owner.pod.uid for row in claims._by_row for c in claims.on_row(row) if c.rows[0] == row)
    by_pool = Counter(c.owner.pod.uid for pool in claims._by_pool for c in claims.in_pool(pool) if c.pool == pool)
    if not by_owner == by_row == by_pool:
        yield "claims", "the claims by owner, row and pool are not the same"
    for pool in sorted(claims._by_pool):
        orders = [claim.owner.order for claim in claims.in_pool(pool)]
        if orders != sorted(orders):
            yield "claims", f"{pool}: its claims are out of order: {orders}"
    for uid, claim in everywhere:
        owner = cluster.records.get(uid)
        if owner is not claim.owner or owner.queue != claim.pool or owner.home != claim.pool:
            yield "claims", f"{uid}: claims room in {claim.pool} and does not wait there"
        elif [room.record for room in claim.rooms] != list(owner.together):
            yield "claims", f"{uid}: claims room for other pods than those of its unit"
        elif any(room.spec.key != room.record.pod.spec.key for room in claim.rooms):
            yield "claims", f"{uid}: claims room for another spec than its own"
        for row in claim.rows:
            if cluster.pool_of(row) != claim.pool or cluster.nodes.nodes[row] is None:
                yield "claims", f"{uid}: claims room on {cluster.nodes.names[row]}, no node of {claim.pool}"
            elif row not in cluster.errands.rows.get(claim.pool, ()) and not _can_come_true(cluster, claim, row):
                yield "claims", f"{uid}: its claim on {cluster.nodes.names[row]} can never be used"


def _can_come_true(cluster: Cluster, claim: Claim, row: int) -> bool:
    """Return whether the claim fits once the leaving pods are gone, beside the claims of pods ahead of its owner."""
    pods = [record for record in cluster.on_row(row) if not cluster.leaving(record.pod.uid)]
    ahead = [other for other in cluster.claims.on_row(row) if other.owner.order < claim.owner.order]
    own = [room.spec for room in claim.on(row)]
    others = [room.spec for other in ahead for room in other.on(row)]
    specs = [*(r.counted for r in pods if r.counted is not None), *others, *own]
    asked, taken = recount.total(own), recount.total(specs)
    node = cluster.nodes.nodes[row]
    return node is not None and all(taken[name] <= node.allocatable.get(name, 0) for name in asked)


def sums_faults(cluster: Cluster) -> Faults:
    """Check the sums over all pods: loans, names, running pods, and every pool's summary."""
    on_nodes = recount.on_nodes(cluster)
    if len(cluster.running) != len(on_nodes):
        yield "I5", f"{len(cluster.running)} pods are in the table of running pods, {len(on_nodes)} on nodes"
    named = sum(len(pods) for pods in cluster.naming.values())
    if named != sum(bool(record.pod.pool) for record in cluster.records.values()):
        yield "I5", f"{named} pods are kept by the pool that they name"
    unknown = {
        *cluster.unsettled,
        *cluster.victims,
        *cluster.overstayed,
        *cluster.departures.names(),
        *cluster.spared.names(),
    }
    if not unknown <= {record.pod.uid for record in on_nodes}:
        yield "I5", f"known to be on nodes: {sorted(unknown - {r.pod.uid for r in on_nodes})}, which are not"
    if cluster.anti_affinity.terms != recount.anti_affinity(on_nodes):
        yield "I5", f"the anti-affinity of pods on nodes is not what is kept of it: {cluster.anti_affinity.terms}"
    if cluster.storage.users() != recount.claim_users(cluster):
        yield "I5", f"the pods that use claims are not those that are kept: {cluster.storage.users()}"
    yield from _loans_faults(cluster, on_nodes)
    yield from _summary_faults(cluster)


def _loans_faults(cluster: Cluster, on_nodes: list[PodRecord]) -> Faults:
    pods: Counter[tuple[str, str]] = Counter()
    lent: dict[str, Counter[str]] = {}
    borrowed: dict[str, Counter[str]] = {}
    for record in on_nodes:
        loan = recount.loan_of(cluster, record)
        if loan is not None and record.counted is not None:
            pods[loan] += 1
            lent.setdefault(loan[0], Counter()).update(record.counted.request.taken)
            borrowed.setdefault(loan[1], Counter()).update(record.counted.request.taken)
    if cluster.loans.pods() != pods:
        yield "I5", f"the loans are {dict(pods)}, counted are {cluster.loans.pods()}"
    for pool in sorted({*cluster.pools.pools, *cluster.loans._lent, *cluster.loans._borrowed}):
        if cluster.loans.lent(pool) != lent.get(pool, {}) or cluster.loans.borrowed(pool) != borrowed.get(pool, {}):
            yield "I5", f"{pool}: lends {lent.get(pool)}, counted {cluster.loans.lent(pool)}; or borrows otherwise"


def _summary_faults(cluster: Cluster) -> Faults:
    counted, said = recount.summaries(cluster), summarize(cluster)
    if [summary.name for summary in said] != sorted(counted):
        yield "I5", f"summed up are {[summary.name for summary in said]}, the pools are {sorted(counted)}"
    for summary in said:
        if odd := _odd(summary, counted[summary.name]):
            yield "I5", f"{summary.name}: summed up as (is, should be): {odd}"
    for kind in ("capacity", "allocatable"):
        column = getattr(cluster.nodes, kind)
        whole = Counter(cluster.nodes.named(column.sum(axis=1)))
        if whole != Counter({name: sum(getattr(s, kind).get(name, 0) for s in said) for name in whole}):
            yield "I4", f"the {kind} of all pools is not that of the cluster, {+whole}"


def _odd(summary: PoolSummary, counted: Mapping[str, Counter[str]]) -> dict[str, tuple[Counter[str], Counter[str]]]:
    pairs = {kind: (Counter(getattr(summary, kind)), counted[kind]) for kind in recount.KINDS}
    return {kind: pair for kind, pair in pairs.items() if pair[0] != pair[1]}
