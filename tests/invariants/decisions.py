"""The invariants of decisions, checked right after the call of `decide` that returned them.

Invariant: the rest of the call can only make the checks easier to pass, because no pod comes or leaves during the call.
So a decision that fails a check was wrong when it was made. One exception: a pod that lost its claim to a pod ahead,
and was tried again in the same call, has another claim by then. After a Bind, no resource that its pod requests is
overbooked, and no host port is taken twice.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.holds import held_by
from aischeduler.engine.quotas import quota_of
from aischeduler.engine.self_check import Violation
from aischeduler.model.actions import Action, Bind, Evict, EvictionCause
from aischeduler.model.device import DEVICES, HeldDevices
from aischeduler.model.pod import HostPort
from aischeduler.model.workload import ServiceType
from aischeduler.plugins.node_ports import conflict
from aischeduler.state.ledger import BORROWS, LENDS
from aischeduler.state.pod_records import PodRecord, PodState
from aischeduler.state.what_if import Trial
from tests.invariants import recount

Faults = Iterator[tuple[str, str]]


def judge(cluster: Cluster, actions: Iterable[Action]) -> tuple[Violation, ...]:
    """Check what one call of `decide` returned, before the next event."""
    return tuple(Violation(name, message) for name, message in _decision_faults(cluster, actions))


def _decision_faults(cluster: Cluster, actions: Iterable[Action]) -> Faults:
    """Check what one call of `decide` returned, before the next event."""
    actions = list(actions)
    binds = [action for action in actions if isinstance(action, Bind)]
    for action in actions:
        if isinstance(action, Bind):
            first = next(at for at, one in enumerate(binds) if one.decision == action.decision)
            yield from _bind_faults(cluster, action, binds[first:])
        elif isinstance(action, Evict) and action.beneficiary is not None:
            yield from _evict_faults(cluster, action)


def _bind_faults(cluster: Cluster, bind: Bind, since: list[Bind]) -> Faults:
    """Check a Bind; `since` are those of its decision and of later ones."""
    uid, record = bind.pod.uid, cluster.records.get(bind.pod.uid)
    if record is None or record.state is not PodState.ASSUMED or cluster.nodes.names[record.row] != bind.node:
        yield "I1", f"{uid}: bound to {bind.node}, but not assumed there"
        return
    node = cluster.nodes.nodes[record.row]
    if node is None or cluster.pool_of(record.row) != bind.pool:
        yield "I4", f"{uid}: bound to {bind.node}, which is no node of {bind.pool}"
        return
    taken = recount.total(r.counted for r in cluster.on_row(record.row) if r.counted is not None)
    offered = recount.offered(cluster, record.row, node)
    over = {name for name in recount.amounts(bind.pod.spec) if taken[name] > offered.get(name, 0)}
    if over:
        yield "I2", f"{uid}: bound to {bind.node}, where {sorted(over)} are overbooked: {taken}"
    yield from _device_faults(cluster, bind, record)
    others = [port for r in cluster.on_row(record.row) if r is not record for port in _ports(r)]
    if any(conflict(wanted, other) for wanted in bind.pod.spec.host_ports for other in others):
        yield "I2", f"{uid}: bound to {bind.node}, where one of its host ports is taken"
    if not cluster.runner.allowed(bind.pod.spec, np.array([record.row], dtype=np.intp))[0]:
        yield "I2", f"{uid}: bound to {bind.node}, which its spec excludes"
    if bind.pod.spec.invalid or bind.pod.gates:
        yield "I14", f"{uid}: bound although it is gated or its spec is invalid"
    if (held := held_by(cluster, bind.pod)) is not None:
        yield "I14", f"{uid}: bound although its constraint holds it: {held.message}"
    if bind.home_pool != bind.pool:
        yield from _loan_faults(cluster, bind, record, since)


def _device_faults(cluster: Cluster, bind: Bind, record: PodRecord) -> Faults:
    """Check that no device that the pod got is given beyond its total, and none that is unhealthy."""
    held, found = bind.allocation.part(DEVICES), cluster.nodes.devices.of(record.row)
    if not isinstance(held, HeldDevices) or found is None:
        return
    healthy = {(device.type, device.minor) for device in found.devices if device.healthy}
    left = recount.free_devices(cluster, record.row, claims=False)
    for device in held.devices:
        key = device.type, device.minor
        if key not in healthy or min(left[key].values()) < 0:
            yield "I2", f"{bind.pod.uid}: got {key} of {bind.node}, of which is left {left.get(key)}"
    if held.devices and recount.unknown_devices(cluster, record.row)[held.devices[0].type]:
        yield "I2", f"{bind.pod.uid}: got a device of {bind.node}, where pods have unknown ones"


def _ports(record: PodRecord) -> tuple[HostPort, ...]:
    return record.counted.host_ports if record.counted is not None else ()


def _loan_faults(cluster: Cluster, bind: Bind, record: PodRecord, since: list[Bind]) -> Faults:
    """Check a new loan against switches, limits, and the lender's own pods, as they were before the Binds `since`."""
    uid, home, lender = bind.pod.uid, cluster.pools.pools[bind.home_pool], cluster.pools.pools[bind.pool]
    if home.disable_borrowing or home.invalid:
        yield "I8", f"{uid}: borrows from {lender.name}, but {home.name} does not borrow"
    if lender.disable_sharing or lender.invalid:
        yield "I8", f"{uid}: borrows from {lender.name}, which does not share"
    if home.borrowing_pools is not None and lender.name not in home.borrowing_pools:
        yield "I8", f"{uid}: borrows from {lender.name}, but {home.name} may borrow only from {home.borrowing_pools}"
    asked = recount.in_hundredths(recount.charge(bind.pod.spec, record.allocation))
    for kind, limit, sums in (
        ("lendingLimit", lender.lending_limit, cluster.ledger.of(LENDS, lender.name)),
        ("borrowingLimit", home.borrowing_limit, cluster.ledger.of(BORROWS, home.name)),
    ):
        bounds, total = recount.in_hundredths(Counter(limit)), recount.in_hundredths(Counter(sums))
        named = {recount.GPU_SHARE if name == recount.NVIDIA else name for name in limit}
        over = [name for name in sorted(named) if asked[name] and total[name] > bounds[name]]
        if over:
            yield "I8", f"{uid}: {home.name} borrows from {lender.name} beyond its {kind} of {over}"
    with Trial(cluster.nodes) as trial:
        trial.remove([cluster.records[one.pod.uid].assigned for one in since])  # one may be what an own pod waited for
        wanting = _who_want(cluster, bind.pool, record.row)
    if wanting:
        yield "I8", f"{uid}: borrows {bind.node} of {lender.name}, which the pods {wanting} of the lender could use"


def _who_want(cluster: Cluster, lender: str, row: int) -> list[str]:
    """Return the waiting home pods that can use the row: now, or on an empty node where the pool may not preempt."""
    rows = np.array([row], dtype=np.intp)
    evicts = cluster.borrowing.may_evict(cluster.pools.pools[lender])
    could = cluster.runner.passes if evicts else cluster.runner.could_run
    waiting = (record for queue in cluster.queues.values() for record in queue.records() if record.home == lender)
    alone = (record for record in waiting if record.usable and record.leads is None)
    return [
        record.pod.uid for record in alone if could(record.pod.spec, rows)[0] and not _is_closed(cluster, record, row)
    ]


def _is_closed(cluster: Cluster, record: PodRecord, row: int) -> bool:
    """Return whether no quota is left for a waiting pod on this row."""
    quota = quota_of(cluster, record)
    return bool(quota.message) or any(mask is not None and bool(mask[row]) for mask in quota.closed)


def _evict_faults(cluster: Cluster, evict: Evict) -> Faults:
    uid, asker = evict.victim.uid, evict.beneficiary
    victim = cluster.records.get(uid)
    if asker is None or victim is None or victim.counted is None:
        yield "I7", f"{uid}: is to be evicted, but is on no node"
        return
    if _is_lost_with_another(cluster, evict):
        return
    pool, owner = cluster.pool_of(victim.row), cluster.records.get(asker.uid)
    spec = cluster.pools.pools[evict.pool]
    if owner is None or owner.home != pool or evict.pool != pool:
        yield "I7", f"{uid}: is evicted from {pool} for {asker.uid}, which has another home pool"
    if not cluster.ours(victim.pod) or victim.pod.guarded or victim.pod.critical or victim.pod.terminating:
        yield "I7", f"{uid}: may not be evicted"
    borrower = victim.home != pool
    surplus = victim.unit is not None and uid in cluster.running.spare_of(victim.unit.number).surplus
    lower = surplus or _rank(victim) < (_rank(owner) if owner is not None else asker.priority)
    across = owner is not None and not borrower and victim.tenancy.queue != owner.tenancy.queue
    if not borrower and owner is not None and not _tenants_allow(cluster, owner, victim, lower=lower):
        yield "I7", f"{uid}: is evicted for {asker.uid}, which has no higher priority"
    home = EvictionCause.QUEUE_RECLAIMED if across else EvictionCause.PREEMPTED
    home = EvictionCause.SURPLUS_TAKEN if surplus else home
    if evict.cause is not (EvictionCause.RECLAIMED if borrower else home):
        yield "I7", f"{uid}: is {evict.cause}, borrower {borrower}"
    if not cluster.profile.preemption or spec.disable_preemption or not asker.preempts:
        yield "I7", f"{uid}: is evicted for {asker.uid}, for which no pod may be evicted"
    noted = cluster.leaving_pods.asked.get(uid)
    if noted is None or noted.beneficiary != asker.uid or uid in cluster.leaving_pods.spared:
        yield "I7", f"{uid}: is evicted for {asker.uid}, noted is {noted}"
    claim = cluster.claims.of(asker.uid)
    tried_again = owner is not None and owner.decision != evict.decision
    if claim is not None and not tried_again and (victim.row not in claim.rows or uid not in claim.victims):
        yield "I7", f"{uid}: is evicted for {asker.uid}, which claims room on another row"


def _tenants_allow(cluster: Cluster, owner: PodRecord, victim: PodRecord, *, lower: bool) -> bool:
    """Return whether a home pod may be evicted for another, by the table of tenant queues; `lower` by standing."""
    mine, its = owner.tenancy, victim.tenancy
    if not cluster.tenants.queues.in_force or not (mine.queue or its.queue):
        return lower
    if mine.service is ServiceType.TRAINING or victim.pod.namespace == "kube-system":
        return False
    if mine.queue == its.queue:
        return lower and (mine.service is None or its.service is ServiceType.TRAINING)
    queue, others = cluster.tenants.queue_of(owner), cluster.tenants.queue_of(victim)
    if queue is None or others is None or not (mine.known and its.known):
        return False
    takes = mine.service is ServiceType.INFERENCE and its.service is ServiceType.TRAINING
    return takes and others.reclaimable and others.priority < queue.priority


def _rank(record: PodRecord) -> int:
    """Return the priority that counts: the highest of its unit."""
    return record.pod.priority if record.unit is None else record.unit.priority


def _is_lost_with_another(cluster: Cluster, evict: Evict) -> bool:
    """Return whether the victim is of no use without another victim of its unit for the same beneficiary.

    The other may have gone already: the claim names it.
    """
    victim = cluster.records[evict.victim.uid]
    others = [] if victim.unit is None else [one for one in victim.unit.members.values() if one is not victim]
    asked = [cluster.leaving_pods.asked.get(one.pod.uid) for one in others]
    claim = cluster.claims.of(evict.beneficiary.uid) if evict.beneficiary is not None else None
    if victim.unit is not None and claim is not None and len(claim.victims) > 1 and victim.pod.uid in claim.victims:
        return True
    return any(one is not None and one.decision == evict.decision for one in asked)
