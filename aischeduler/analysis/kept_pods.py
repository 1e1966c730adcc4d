"""Which running pods the rules of tenant queues keep from a waiting pod, and by which rule.

Invariants:
- Whether a pod may go is what `eviction_order` says; here stands only why it stays.
- Only pods are named that hold what the waiting pod lacks on a node that it may use, after all evictions for it.
- Of several rules, one that holds for good is named before `minRuntime`, which ends by itself.
"""

from collections.abc import Iterator

import numpy as np

from aischeduler.analysis.explanation import KeptPods, full_name
from aischeduler.analysis.what_if import Question, may_leave, room_of
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.pod_counting import SYSTEM_NAMESPACE, may_stay
from aischeduler.engine.propose import may_not_preempt
from aischeduler.engine.quotas import quota_of
from aischeduler.model.workload import PREEMPTABLE_KEY, ServiceType
from aischeduler.policies.eviction_order import TenantPreemptor, standing_of
from aischeduler.state.label_index import Rows
from aischeduler.state.pod_records import PodRecord


def kept_pods(question: Question) -> tuple[KeptPods, ...]:
    """Return the pods that stay by each rule, the rules sorted; nothing where there are no tenant queues."""
    cluster, record = question.cluster, question.record
    tenant = cluster.preemptor_of(record).tenant
    if tenant is None or may_not_preempt(cluster, record):
        return ()
    found: dict[tuple[str, bool], list[PodRecord]] = {}
    ends = cluster.tenants.shields
    for other, lower in _holders(question):
        why, young = _why(cluster, record, tenant, other, lower=lower), False
        if not why and other.pod.uid in ends:
            why, young = f"minRuntime of the queue {other.tenancy.queue} has not passed", True
        if why:
            found.setdefault((why, young), []).append(other)
    return tuple(
        KeptPods(
            why,
            tuple(sorted(full_name(other.pod) for other in others)),
            int(min(ends.at(other.pod.uid) for other in others)) if young else None,
        )
        for (why, young), others in sorted(found.items())
    )


def _holders(question: Question) -> Iterator[tuple[PodRecord, bool]]:
    """Yield the pods that stay and hold what is lacking, each with whether it stands below the waiting one."""
    cluster, spec = question.cluster, question.spec
    table, wanted = cluster.running.table, cluster.nodes.wanted(spec)
    rows = _usable_rows(question)
    with question.beside(question.home), room_of(question, spec, rows, evicting=True):
        lacks = wanted.amounts > (cluster.nodes.allocatable - cluster.nodes.used)[np.ix_(wanted.columns, rows)]
    slots = cluster.running.slots_on(rows[lacks.any(axis=0)])
    slots = slots[table["evictable"][slots] & ~may_leave(question, slots)]
    below = standing_of(table[slots]) < cluster.preemptor_of(question.record).standing
    lacking = {int(row): lacks[:, at] for at, row in enumerate(rows)}
    for uid, slot, lower in zip(cluster.running.uids_of(slots), slots.tolist(), below.tolist(), strict=True):
        record = cluster.records[uid]
        lacks_here = zip(spec.request.taken, lacking[int(table["row"][slot])], strict=True)
        if any(lack and record.pod.spec.request.taken.get(name) for name, lack in lacks_here):
            yield record, lower


def _usable_rows(question: Question) -> Rows:
    """Return the rows at home on which the pod may run, quotas included."""
    cluster, rows = question.cluster, question.rows_of(question.home)
    closed = quota_of(cluster, question.record).closed
    shut = closed[0] if closed else None
    rows = rows[cluster.runner.allowed(question.spec, rows)]
    return rows if shut is None else rows[~shut[rows]]


def _why(cluster: Cluster, asker: PodRecord, tenant: TenantPreemptor, other: PodRecord, *, lower: bool) -> str:
    """Return the rule that keeps a pod for good; empty where there is none. `lower`: it stands below the asker."""
    own, theirs, why = asker.tenancy.queue, other.tenancy, ""
    match tenant.service if tenant.queue else None:
        case ServiceType.TRAINING:
            why = "training evicts nobody"
        case ServiceType.INFERENCE:
            why = _kept_from_inference(cluster, own, tenant.queue_priority, other)
        case _ if not own:
            why = "they have a queue, and it has none: it evicts only such pods" if theirs.queue else ""
        case _ if theirs.queue != own:
            why = f"its own service type is not known, so it evicts only from its queue {own}"
    if not why and own == theirs.queue != "" and not lower:
        why = f"they are of the same queue {own}, and their pod priority is not lower"
    if not why and other.pod.namespace == SYSTEM_NAMESPACE:
        why = f"they are in the namespace {SYSTEM_NAMESPACE}"
    return why or (f'they say {PREEMPTABLE_KEY}: "false"' if may_stay(cluster, other) else "")


def _kept_from_inference(cluster: Cluster, own: str, priority: int, other: PodRecord) -> str:
    """Return what keeps a pod from inference of a queue of this priority, the priorities of pods aside."""
    theirs, queue = other.tenancy, cluster.tenants.queue_of(other)
    if not theirs.queue:
        return "they have no queue, and inference evicts only training of queues"
    if not theirs.known:
        return "their workload was not seen yet"
    if theirs.service is not ServiceType.TRAINING:
        return f"they are {theirs.service or 'of no known service type'}, and inference evicts only training"
    if theirs.queue == own:
        return ""
    if queue is None:
        return f"their queue {theirs.queue} does not exist"
    if not queue.reclaimable:
        return f"reclaimable of the queue {queue.name} is false"
    return (
        f"the priority {queue.priority} of the queue {queue.name} is not below {priority}, that of the queue {own}"
        if queue.priority >= priority
        else ""
    )
