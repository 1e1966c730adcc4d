"""The invariants of the state of an engine, checked on a live one without changing it.

Invariants:
- The names are those of the product's list of invariants. A violation is a bug of the scheduler.
- `check` checks the state between two calls of the engine.
- Overbooked nodes are checked in decisions, not in the state: pods that others bind, and nodes that shrink, overbook
  nodes too.
"""

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress

import numpy as np

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.pod_classes import profiled
from aischeduler.engine.pool_status import summarize
from aischeduler.engine.self_check import Violation
from aischeduler.model.device import DEVICES
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.pod import PodSpec
from aischeduler.state.node_table import NO_POOL, UNOFFERED
from aischeduler.state.pod_records import NOWHERE, WAITING, PodRecord, PodState, Unit
from aischeduler.state.scheduling_queue import queue_order
from tests.invariants import recount
from tests.invariants.queues import queue_faults
from tests.invariants.recount import Faults, unequal


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
        *_groups_faults(cluster),
        *units_faults(cluster),
        *sums_faults(cluster),
    ]
    return tuple(Violation(name, message) for name, message in found)


def records_faults(cluster: Cluster, records: Iterable[PodRecord]) -> Faults:
    """Check pods one by one: each has one state, and everything that is kept of it agrees."""
    for record in records:
        uid, named = record.pod.uid, cluster.naming.get(record.pod.pool, {})
        if cluster.records.get(uid) is not record:
            yield "I1", f"{uid}: its record is kept under another uid"
        yield from unequal(uid, ("I3", "its home is", record.home, recount.home_of(cluster, record)))
        if record.pod.pool and named.get(uid) is not record:
            yield "I5", f"{uid}: not found among the pods that name {record.pod.pool}"
        yield from _waits(cluster, record) if record.state in WAITING else _runs(cluster, record)


def _waits(cluster: Cluster, record: PodRecord) -> Faults:
    uid, queue, state = record.pod.uid, cluster.queues.get(record.queue), record.state
    if record.row != NOWHERE or record.counted is not None or record.loan is not None:
        yield "I1", f"{uid}: waits in {record.queue} and counts on {cluster.nodes.names[record.row]}"
    if queue is None or not queue.holds(record):
        yield "I3", f"{uid}: waits in {record.queue}, whose queue does not have it"
    held_by_gate = _held_by_gate(cluster, record)
    if (
        not record.broken
        and held_by_gate != (state is PodState.GATED)
        and (held_by_gate or not _gated_with_unit(cluster, record))
    ):
        yield "I3", f"{uid}: {state.name} with the gates {record.pod.gates}"
    if profiled(cluster, record.pod) is not record.pod and not record.broken:
        yield "I3", f"{uid}: waits with the profile '{record.pod.spec.profile}', which is not its own"
    if record.borrower and (record.visited[:1] != (record.home,) or record.queue not in record.visited):
        yield "I3", f"{uid}: waits in {record.queue}, but its trip went to {record.visited}"
    if len(set(record.visited)) != len(record.visited):
        yield "I3", f"{uid}: its trip visits a pool twice: {record.visited}"
    if record.visited and state not in (PodState.ACTIVE, PodState.BACKOFF):  # so a borrower is in no other state
        yield "I3", f"{uid}: {state.name} in {record.queue} and still on a trip: {record.visited}"
    if record.pod.spec.invalid and state in (PodState.PARKED, PodState.NOMINATED):
        yield "I14", f"{uid}: its spec is invalid and it is {state.name}"
    if uid in cluster.reservations.unsettled or cluster.leaving(uid) or cluster.leaving_pods.stays(uid):
        yield "I5", f"{uid}: waits, but is kept as a pod on a node"
    yield from _claim_of_waiting(cluster, record)


def _claim_of_waiting(cluster: Cluster, record: PodRecord) -> Faults:
    uid, state = record.pod.uid, record.state
    tried = state in (PodState.ACTIVE, PodState.BACKOFF, PodState.GROUPED)
    later = record.unit is not None and _formed_later(cluster, record.unit)
    if record.nominated and not tried and not later and cluster.claims.room_of(record) is None:
        yield "claims", f"{uid}: {state.name} and shows a nominated node without claimed room"
    claims = cluster.claims.of(uid) is not None
    if state is PodState.NOMINATED and not claims:
        yield "claims", f"{uid}: nominated without a claim"
    if claims and (record.borrower or state not in (PodState.NOMINATED, PodState.ACTIVE, PodState.BACKOFF)):
        yield "claims", f"{uid}: {state.name} in {record.queue} with a claim"


def _held_by_gate(cluster: Cluster, record: PodRecord) -> bool:
    """Return whether a gate holds the pod; where a gate raises, whether the pod is gated."""
    with suppress(Exception):  # a plugin of others: the next attempt asks it again, and reports the exception
        return bool(cluster.gate_of(record.pod))
    return record.state is PodState.GATED


def _gated_with_unit(cluster: Cluster, record: PodRecord) -> bool:
    """Return whether a pod that no gate holds is gated because its unit is not complete, or not formed yet."""
    unit = record.unit
    return record.state is PodState.GATED and unit is not None and (_formed_later(cluster, unit) or bool(unit.message))


def _formed_later(cluster: Cluster, unit: Unit) -> bool:
    return unit.name in cluster.units.stale or unit.name in cluster.units.again


def units_faults(cluster: Cluster) -> Faults:
    """Check the units: their members, and how their pods wait."""
    members: dict[str, dict[str, PodRecord]] = {}
    for uid, record in cluster.records.items():
        name = cluster.unit_name(record.pod)
        if name:
            members.setdefault(name, {})[uid] = record
    if {name: unit.members for name, unit in cluster.units.by_name.items()} != members:
        yield "I3", f"the units are {sorted(cluster.units.by_name)}, the pods name {sorted(members)}"
    for name, unit in cluster.units.by_name.items():
        stale, lead = _formed_later(cluster, unit), unit.lead
        grouped = [one for one in unit.members.values() if one.state is PodState.GROUPED]
        assumed = sum(one.state is PodState.ASSUMED for one in unit.members.values())
        yield from unequal(name, ("I3", "pods whose Binding is not shown are", unit.assumed, assumed))
        wait = f"{unit.required} of {_uids(unit.pods)} wait together, grouped are {_uids(grouped)}"
        if lead is None:
            if unit.pods or (grouped and not stale):
                yield "I3", f"{name}: has no lead; {wait}"
        elif lead not in unit.together or unit.required < 1 or {*grouped, lead} != {*unit.pods}:
            yield "I3", f"{name}: {lead.pod.uid} leads; {wait}"
        if lead is not None and not stale and len({one.home for one in unit.together}) != 1:
            yield "I3", f"{name}: its pods have different home pools"


def _uids(records: Iterable[PodRecord]) -> list[str]:
    return [record.pod.uid for record in records]


def _runs(cluster: Cluster, record: PodRecord) -> Faults:
    uid, row, state = record.pod.uid, record.row, record.state
    node = cluster.nodes.names[row] if row != NOWHERE else ""
    if record.queue or not node or record.counted is None:
        yield "I1", f"{uid}: {state.name} on the node '{node}' and in the queue '{record.queue}'"
        return
    if state is PodState.BOUND and record.pod.node_name != node:
        yield "I1", f"{uid}: counts on {node} and is bound to {record.pod.node_name}"
    if (uid in cluster.reservations.unsettled or uid in cluster.reservations.delayed) != (state is PodState.ASSUMED):
        yield "I1", f"{uid}: {state.name}, its bind is settled: {uid not in cluster.reservations.unsettled}"
    if cluster.claims.of(uid) is not None:
        yield "claims", f"{uid}: {state.name} with a claim"
    yield from unequal(uid, ("I5", "its loan is", record.loan, recount.loan_of(cluster, record)))
    departing, overstayed = uid in cluster.leaving_pods.terminating, uid in cluster.leaving_pods.overstayed
    if departing + overstayed != (record.pod.terminating and state is PodState.BOUND):
        yield "I5", f"{uid}: terminating {record.pod.terminating}, leaving {departing}, overstayed {overstayed}"
    if uid in cluster.claims.planned and (departing or uid in cluster.leaving_pods.asked):
        yield "I7", f"{uid}: its eviction is planned although it is leaving"
    if cluster.budgets.forbids(record.pod) != (uid in cluster.budgets.forbidden):
        yield "I5", f"{uid}: that budgets forbid its eviction is noted: {uid in cluster.budgets.forbidden}"
    if uid in cluster.leaving_pods.asked and (departing or overstayed):
        yield "I7", f"{uid}: its eviction is requested although it is terminating"
    yield from _running_faults(cluster, record, record.counted)


def _running_faults(cluster: Cluster, record: PodRecord, counted: PodSpec) -> Faults:
    """Check the pod's slot among the running pods, and that a victim is evictable."""
    uid, pod, unit, running = record.pod.uid, record.pod, record.unit, cluster.running
    slot = running._slots.get(uid)
    if slot is None or running._uids[slot] != uid or running._on_row.get(record.row, {}).get(uid) != slot:
        yield "I5", f"{uid}: not found among the running pods of {cluster.nodes.names[record.row]}"
        return
    has = {name: running.table[name][slot].item() for name in running.table.dtype.names or ()}
    ours = pod.scheduler_name in cluster.profile.names
    evictable = ours and not pod.guarded and not pod.critical
    should = {
        "row": record.row,
        "priority": pod.priority if unit is None else unit.priority,
        "unit": 0 if unit is None else unit.number,
        "started_seconds": pod.started_seconds,
        "home": cluster.pools.id(recount.home_of(cluster, record)),
        "ours": ours,
        "borrower": recount.home_of(cluster, record) != cluster.pool_of(record.row),
        "leaving": cluster.leaving(uid),
        "surplus": unit is not None and uid in running.spare_of(unit.number).surplus,
        "extra": bool(record.tenancy.queue) and unit is not None and uid in running.spare_of(unit.number).extra,
        "kept": uid in cluster.leaving_pods.spared or uid in cluster.budgets.forbidden,
        "evictable": has["evictable"] and evictable,
    }
    yield from unequal(
        f"{uid}, among the running pods", *(("I5", f"{of} is", has[of], value) for of, value in should.items())
    )
    share, should_share = running.gpu_share_of(uid), recount.gpu_share(counted, record.allocation)
    yield from unequal(f"{uid}, among the running pods", ("I5", "its share of GPUs is", share, should_share))
    if running.specs.spec(has["spec"]).key != counted.key:
        yield "I5", f"{uid}: among the running pods with another spec than it is counted with"
    if uid in cluster.leaving_pods.asked and not evictable:
        yield "I7", f"{uid}: may not be evicted, but its eviction is requested"


def rows_faults(cluster: Cluster, rows: Iterable[int]) -> Faults:
    """Check rows one by one: pool, amounts, scores and ports against the pods and claims that count there."""
    nodes, conflicts = cluster.nodes, cluster.pools.conflicts
    for row in rows:
        name, node = nodes.names[row], nodes.nodes[row]
        if bool(nodes.alive[row]) != (node is not None) or (bool(name) and nodes.rows.get(name) != row):
            yield "I4", f"row {row}: named '{name}', alive {nodes.alive[row]}, node {node is not None}"
        owners = recount.owners(cluster, node) if node is not None else ()
        specs = [record.counted for record in cluster.on_row(row) if record.counted is not None]
        specs += [room.spec for claim in cluster.claims.on_row(row) for room in claim.on(row)]
        sizes = (int(nodes.sized[row]), *nodes.twice[:, row].tolist())
        yield from unequal(
            name,
            ("I4", "is in the pool", cluster.pool_of(row), recount.pool_by_selectors(cluster, row)),
            ("I4", "is contested by", conflicts.get(row, ()), owners if len(owners) > 1 else ()),
            ("I2", "uses", Counter(nodes.named(nodes.used[:, row])), recount.total(specs)),
            ("I2", "is scored by", tuple(nodes.scored[:, row].tolist()), recount.scored(specs)),
            ("I2", "is sized as", sizes, recount.sizes(node)),
            ("I2", "has the taken ports", nodes.ports.on.get(row, {}), recount.ports(specs)),
            (
                "I2",
                "has the used volumes",
                dict(nodes.storage.used.on.get(row, {})),
                recount.used_volumes(specs),
            ),
            ("I2", "has the free devices", nodes.devices.free_on(row), recount.free_devices(cluster, row)),
            (
                "I2",
                "has the unknown devices",
                +Counter({kind: int(nodes.devices.unknown[at, row]) for kind, at in nodes.devices.types.items()}),
                recount.unknown_devices(cluster, row),
            ),
        )
        if nodes.devices.active:
            bare = [
                record.pod.uid
                for record in cluster.on_row(row)
                if record.counted is not None
                and record.counted.devices is not None
                and record.allocation.part(DEVICES) is None
            ]
            yield from unequal(name, ("I2", "has pods that ask for devices and hold none", bare, []))


def counts_faults(cluster: Cluster) -> Faults:
    """Check the counts of pods by selector."""
    counts = cluster.nodes.pod_counts
    for count in counts.all():
        rows, claimed = recount.counted_rows(cluster, count.by), recount.claimed_rows(cluster, count.by)
        yield from unequal(f"{count.by}", ("I2", "counts the pods by row as", count.rows, rows))
        yield from unequal(f"{count.by}", ("I2", "counts the owners of claims by row as", count.claimed, claimed))
        yield from unequal(f"{count.by}", ("I2", "has domains", recount.domains(cluster, count), True))
    users = {count.by: (count.users, dict(count.specs)) for count in counts.all()}
    yield from unequal("counts", ("I2", "the users are", users, recount.interests(cluster)))
    if counts.apart is not None:
        yield "I2", "a search for victims still counts pods as gone"


def _groups_faults(cluster: Cluster) -> Faults:
    delayed = cluster.reservations.delayed
    for decision, group in cluster.reservations.groups.items():
        others = [uid for uid in group.pods if uid not in delayed or delayed[uid][0].decision != decision]
        if others or not group.awaited <= group.pods.keys() or not group.pods:
            yield "I1", f"{decision}: Bindings sent together that are not delayed: {others}, of {[*group.pods]}"


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


def pools_faults(cluster: Cluster) -> Faults:
    """Check pools as a whole: queues, rows and timers exist for existing pools only."""
    pools, deferred = cluster.pools, cluster.deferred
    names = sorted(pools.pools)
    yield from unequal(
        "pools",
        ("I4", "those with a queue are", sorted(cluster.queues), names),
        ("I4", "listed are", pools.names(), tuple(names)),
    )
    if DEFAULT_POOL not in names:
        yield "I4", f"the pools are {names}, without the default pool"
    for name in names:
        yield from pool_faults(cluster, name)
    for row in sorted(pools.conflicts):
        if cluster.nodes.nodes[row] is None:
            yield "I4", f"row {row}: contested, but no node"
    left = {*deferred.agendas, *cluster.said.reported, *cluster.said.outbox}
    if strangers := left.difference(names):
        yield "I4", f"something is kept for pools that do not exist: {sorted(strangers)}"
    carried: dict[tuple[str, int], set[int]] = {}
    for row, counts in cluster.nodes.ports.on.items():
        for port in counts:
            carried.setdefault((port.protocol, port.port), set()).add(row)
    index = cluster.nodes.ports.rows
    indexed = {value: set(index.rows(value)) for value in index.values()}
    yield from unequal("host ports", ("I2", "taken on the rows are", indexed, carried))


def pool_faults(cluster: Cluster, name: str) -> Faults:
    """Check the rows of one pool."""
    nodes, number, pool = cluster.nodes, cluster.pools.id(name), cluster.pools.pools[name]
    rows = nodes.rows_of_pool(number).tolist()
    fresh = [row for row, other in enumerate(nodes.pool.tolist()) if other == number and nodes.nodes[row] is not None]
    yield from unequal(name, ("I4", "its rows are", rows, fresh))
    if name != DEFAULT_POOL and rows and (pool.invalid or pool.selector is None):
        yield "I14", f"{name}: owns nodes although its spec is refused or selects nothing"


def claims_faults(cluster: Cluster) -> Faults:
    """Check claims: their owners wait in their home queue, and can use the room."""
    claims = cluster.claims
    everywhere = sorted(claims._by_owner.items())
    by_owner = Counter(claim.owner.pod.uid for _, claim in everywhere)
    by_row = Counter(c.owner.pod.uid for row in claims._by_row for c in claims.on_row(row) if c.rows[0] == row)
    by_pool = Counter(c.owner.pod.uid for pool in claims._by_pool for c in claims.in_pool(pool) if c.pool == pool)
    if not by_owner == by_row == by_pool:
        yield "claims", f"the claims by owner, row and pool are not the same: {by_owner}, {by_row}, {by_pool}"
    for pool in sorted(claims._by_pool):
        orders = [queue_order(claim.owner) for claim in claims.in_pool(pool)]
        yield from unequal(pool, ("claims", "its claims are in the order", orders, sorted(orders)))
    for uid, claim in everywhere:
        owner = cluster.records.get(uid)
        if owner is not claim.owner or owner.queue != claim.pool or owner.home != claim.pool:
            yield "claims", f"{uid}: claims room in {claim.pool} and does not wait there"
        elif [room.record for room in claim.rooms] != list(owner.together):
            yield "claims", f"{uid}: claims room for other pods than those of its unit"
        elif claim.outdated:
            yield "claims", f"{uid}: claims room for another spec than its own"
        for row in claim.rows:
            if cluster.pool_of(row) != claim.pool or cluster.nodes.nodes[row] is None:
                yield "claims", f"{uid}: claims room on {cluster.nodes.names[row]}, no node of {claim.pool}"
            elif row not in cluster.deferred.look_at(claim.pool).rows and not recount.can_come_true(
                cluster, claim, row
            ):
                yield "claims", f"{uid}: its claim on {cluster.nodes.names[row]} can never be used"


def sums_faults(cluster: Cluster) -> Faults:
    """Check the sums over all pods: loans, names, running pods, and every pool's summary."""
    on_nodes = recount.on_nodes(cluster)
    naming = sum(bool(record.pod.pool) for record in cluster.records.values())
    yield from unequal(
        "sums",
        ("I5", "pods on nodes are", len(cluster.running), len(on_nodes)),
        ("I5", "pods that name a pool are", sum(len(pods) for pods in cluster.naming.values()), naming),
        ("I5", "pods that use claims are", cluster.nodes.storage.users(), recount.claim_users(cluster)),
        ("I5", "the chosen volumes are", cluster.nodes.storage.chosen.all(), recount.chosen_volumes(cluster)),
        ("I5", "the ledger is", cluster.ledger.sums(), recount.ledger(cluster)),
        ("I5", "what waits in tenant queues is", recount.waiting_kept(cluster), recount.waiting(cluster)),
        ("I5", "tenancies are", *recount.tenancies(cluster)),
    )
    known = {
        *cluster.reservations.unsettled,
        *cluster.leaving_pods.asked,
        *cluster.leaving_pods.overstayed,
        *cluster.claims.planned,
        *cluster.budgets.forbidden,
    }
    known.update(cluster.leaving_pods.terminating.names(), cluster.leaving_pods.spared.names())
    if strangers := known.difference(_uids(on_nodes)):
        yield "I5", f"known to be on nodes: {sorted(strangers)}, which are not"
    yield from _summary_faults(cluster)


def _summary_faults(cluster: Cluster) -> Faults:
    counted, said = recount.summaries(cluster), summarize(cluster)
    yield from unequal("summaries", ("I5", "their pools are", [summary.name for summary in said], sorted(counted)))
    for summary in said:
        should = counted[summary.name]
        pairs = (("I5", f"{kind} is", Counter(getattr(summary, kind)), should[kind]) for kind in recount.KINDS)
        yield from unequal(f"the summary of {summary.name}", *pairs)
    for kind in ("capacity", "allocatable"):
        whole = Counter(cluster.nodes.named(getattr(cluster.nodes, kind).sum(axis=1)))
        pools = Counter({name: sum(getattr(summary, kind).get(name, 0) for summary in said) for name in whole})
        yield from unequal("all pools", ("I4", f"their {kind} together is", pools, whole))
