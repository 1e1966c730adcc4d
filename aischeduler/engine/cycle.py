"""The scheduling cycle: one attempt to schedule a pod, or the unit that it leads.

`propose` decides, and `apply` does what it says.

Invariants:
- Each warning is written once per pod, and again only with another message.
- A warning changes nothing: the pod is tried like any other.
"""

from typing import Final

from aischeduler.engine.apply import Attempt, NoProposalError, apply
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.holds import ignored
from aischeduler.engine.nominator import clear_nomination, end_claim_of
from aischeduler.engine.pod_classes import take_class, take_profile
from aischeduler.engine.pod_counting import may_stay
from aischeduler.engine.propose import propose
from aischeduler.engine.queueing_hints import offer_ends
from aischeduler.engine.units import form
from aischeduler.engine.unknown_pools import is_missing
from aischeduler.model.actions import Action, pod_warning
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.names import DEFAULT_POOL, GPU_TYPE_KEY, MACHINE_GROUP_KEY, POOL_KEY, can_be_pool_name
from aischeduler.model.pod import Pod
from aischeduler.model.user_text import nearest, quoted
from aischeduler.model.workload import CARD_NAME_KEY, CARD_REQUEST_KEY, PREEMPTABLE_KEY, SERVICE_TYPE_KEY, ServiceType
from aischeduler.state.pod_records import NOWHERE, PodRecord
from aischeduler.state.scheduling_queue import PoolQueue


def warn_pod(cluster: Cluster, record: PodRecord, actions: list[Action]) -> None:
    """Add the new warnings about this pod, or the pods of the unit that it leads, to `actions`."""
    for member in (record,) if record.unit is None else record.together:
        pod = member.pod
        if is_missing(cluster, pod) and cluster.warned(pod.uid, pod.pool):
            actions.append(pod_warning(pod, EventReason.UNKNOWN_POOL, _no_such_pool(pod.pool, cluster.pools.names())))
        if pod.spec.unsupported_constraints and not cluster.profile.hold_unsupported:
            message = ignored(pod.spec.unsupported_constraints)
            if cluster.warned(f"{pod.uid}/{EventReason.UNSUPPORTED_CONSTRAINT}", message):
                actions.append(pod_warning(pod, EventReason.UNSUPPORTED_CONSTRAINT, message))
        if member.tenancy.misspelt or member.tenancy.invalid or not member.tenancy.preemptable:
            _warn_of_terms(cluster, member, actions)
        if pod.spec.gpu_types or pod.spec.machine_group:
            _warn_of_spelling(cluster, pod, actions)


def _warn_of_terms(cluster: Cluster, record: PodRecord, actions: list[Action]) -> None:
    """Warn of a service type that is none, and of a wish not to be preempted that does not count."""
    pod, text = record.pod, record.tenancy.misspelt
    if text and cluster.warned(f"{pod.uid}/{EventReason.UNKNOWN_SERVICE_TYPE}", text):
        near = nearest(text, tuple(ServiceType))
        meant = f" Did you mean {near}?" if near else ""
        message = f"The service type {quoted(text)} (annotation {SERVICE_TYPE_KEY}) is unknown.{meant}"
        actions.append(pod_warning(pod, EventReason.UNKNOWN_SERVICE_TYPE, message))
    invalid = record.tenancy.invalid
    if invalid and CARD_REQUEST_KEY not in invalid and cluster.warned(f"{pod.uid}/{EventReason.UNREADABLE}", invalid):
        actions.append(pod_warning(pod, EventReason.UNREADABLE, f"The pod, or its workload: {invalid}; it is ignored."))
    if not record.tenancy.preemptable and not may_stay(cluster, record):
        where = "nonPreemptibleNamespaces of its Pool and of the configuration"
        message = f"{PREEMPTABLE_KEY} has no effect: {where} do not select the pod's namespace."
        if cluster.warned(f"{pod.uid}/{EventReason.PREEMPTABLE_IGNORED}", message):
            actions.append(pod_warning(pod, EventReason.PREEMPTABLE_IGNORED, message))


def _warn_of_spelling(cluster: Cluster, pod: Pod, actions: list[Action]) -> None:
    """Warn of the first card type, and of the machine group, that no node has while a node has a similar one."""
    spec, nodes = pod.spec, cluster.nodes
    known = nodes.cards.known(nodes) if spec.gpu_types else ()
    near = ((gpu_type, nearest(gpu_type, known)) for gpu_type in spec.gpu_types if gpu_type not in known)
    wrong = next(((gpu_type, meant) for gpu_type, meant in near if meant), None)
    if wrong is not None:
        where = f"annotation {GPU_TYPE_KEY} or {CARD_NAME_KEY}"
        message = f"No node has the GPU type {wrong[0]} ({where}). Did you mean {wrong[1]}?"
        if cluster.warned(f"{pod.uid}/{EventReason.UNKNOWN_GPU_TYPE}", message):
            actions.append(pod_warning(pod, EventReason.UNKNOWN_GPU_TYPE, message))
    group, groups = spec.machine_group, nodes.labels.values(MACHINE_GROUP_KEY)
    meant = nearest(group, groups) if group and group not in groups else ""
    if meant:
        message = f"No node is in the machine group {group} (annotation {MACHINE_GROUP_KEY}). Did you mean {meant}?"
        if cluster.warned(f"{pod.uid}/{EventReason.UNKNOWN_MACHINE_GROUP}", message):
            actions.append(pod_warning(pod, EventReason.UNKNOWN_MACHINE_GROUP, message))


def _no_such_pool(name: str, known: tuple[str, ...]) -> str:
    near = nearest(name, known)
    until = "until it does," if can_be_pool_name(name) else "no Pool can have this name, so"
    home = f"the pod belongs to the pool {DEFAULT_POOL}."
    hint = f" Did you mean {near}?" if near else ""
    return f'The Pool "{name}" does not exist (annotation or label {POOL_KEY}); {until} {home}{hint}'


SEARCH_COST: Final = 64
"""The cost of a search for victims or a lender, in attempts without one."""


def attempt(cluster: Cluster, queue: PoolQueue, record: PodRecord, actions: list[Action], now: float) -> int:
    """Try to schedule a pod that was popped from this queue; add to `actions`.

    Return the cost; an attempt without searches costs 1. Raises NoProposalError.
    """
    record.decision, searches = cluster.next_decision(), cluster.searches.made
    record.broken = record.short = False
    if cluster.has_quotas:
        cluster.held.drop(record.pod.uid)
    if record.unit is not None and cluster.units.outdated(record.unit):
        queue.add(record, now)
        form(cluster, record.unit)
        cluster.turn_is_lost(record)
        return 1
    if record.offered != NOWHERE:
        cluster.withdraw(record)
    try:
        if not cluster.classes.plain and record.leads is None:
            take_profile(cluster, record)
        gate = cluster.gate_of(record.pod) if record.failed else ""
    except Exception as error:
        raise NoProposalError from error
    if gate:
        _gate(cluster, record, gate, now)
        cluster.turn_is_lost(record)
        return 1
    take_class(cluster, record)
    try:
        proposal = propose(cluster, record, queue.pool, now)
    except Exception as error:
        raise NoProposalError from error
    result = apply(Attempt(cluster, queue, record, actions, now), proposal)
    if record.offered != NOWHERE:
        offer_ends(cluster, record)
    if result is not None:
        cluster.counters.attempts[queue.pool, result] += 1
    pods = 1 if record.unit is None else len(record.together)
    return pods + SEARCH_COST * (cluster.searches.made - searches)


def _gate(cluster: Cluster, record: PodRecord, gate: str, now: float) -> None:
    """Gate a pod whose gates were not checked because of an exception."""
    record.message, record.visited = gate, ()
    end_claim_of(cluster, record, now)
    cluster.queues[record.home].gate(record)
    clear_nomination(cluster, record)
    offer_ends(cluster, record)
