"""Tenant queues in the engine: whether a queue takes a pod, in which accounts it counts, and what an edit moves.

Invariants:
- A pod of this scheduler counts in its queue and in each ancestor while it is on a row, or owns a claim there: under
  the card of that row. Pods of a queue that does not exist count nowhere, and run on.
- A pod whose queue does not exist, is not open, or does not take its namespace, is held, and tried again when that
  changes. Nothing is evicted for it.
- After an edit, the pods of the queue and of all queues below it are counted anew and tried again.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.holds import recheck_later
from aischeduler.engine.pod_counting import follow_accounts, refresh
from aischeduler.engine.view import View
from aischeduler.model.actions import ObjectRef, Warn
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.selectors import Labels
from aischeduler.model.tenant_queue import DEFAULT_QUEUE, QueueSource, QueueState, TenantQueue, TenantSettings
from aischeduler.model.user_text import nearest
from aischeduler.model.workload import Workload
from aischeduler.state.pod_records import PodRecord

FIELDS_NAMED_MAX: Final = 8


class QueueRefusal(Struct, frozen=True):
    """Why a queue takes no pod: a word, and a sentence."""

    reason: EventReason
    message: str


def queue_refused(cluster: View, record: PodRecord) -> QueueRefusal | None:
    """Return why the pod's queue takes it not, quotas aside; None where it does, or the pod has none."""
    name = record.tenancy.queue
    if not name:
        return None
    queues = cluster.tenants.queues
    queue = queues.get(name)
    if queue is None:
        near = nearest(name, queues.names())
        meant = f" Did you mean {near}?" if near else ""
        return QueueRefusal(EventReason.UNKNOWN_QUEUE, f"The queue {name} does not exist; the pod is held.{meant}")
    if record.tenancy.invalid:
        return QueueRefusal(EventReason.GET_TASK_REQUEST_RESOURCE_FAILED, f"{record.tenancy.invalid}; the pod is held.")
    for member in queues.chain(name):
        if member.invalid:
            return QueueRefusal(EventReason.QUEUE_NOT_ACCEPTED, f"The queue {member.name} is refused: {member.invalid}")
    if problem := queues.problem(queue):
        return QueueRefusal(EventReason.QUEUE_NOT_ACCEPTED, f"The queue {name} takes no pods: {problem}.")
    state, where = queues.state_of(queues.chain(name))
    if state is not QueueState.OPEN:
        of = "" if where == name else f", which is above {name},"
        return QueueRefusal(EventReason.QUEUE_CLOSED, f"The queue {where}{of} is {state.lower()}; the pod is held.")
    namespace, allowed = record.pod.namespace, queue.allowed_namespaces
    labels = cluster.nodes.pod_counts.namespaces.get(namespace)
    if allowed is not None and (labels is None or not allowed.matches(labels)):
        text = f"The queue {name} takes no pods from the namespace {namespace}: its allowedNamespaces do not match."
        return QueueRefusal(EventReason.QUEUE_NAMESPACE_NOT_ALLOWED, text)
    return None


def queue_seen(cluster: Cluster, queue: TenantQueue) -> None:
    """Handle a queue as it is now."""
    before = cluster.tenants.queues.below((queue.name,))
    first = not cluster.tenants.queues.in_force
    if not cluster.tenants.queues.see(queue):
        return
    _warn(cluster, queue)
    _changed(cluster, queue.name, before, everybody=first)


def queue_gone(cluster: Cluster, source: str, name: str) -> None:
    """Remove a queue; its pods run on, and those that wait are held."""
    before = cluster.tenants.queues.below((name,))
    if cluster.tenants.queues.forget(QueueSource(source), name):
        _changed(cluster, name, before, everybody=not cluster.tenants.queues.in_force)


def queues_served(cluster: Cluster, *, served: bool) -> None:
    """Note whether the API server serves a kind of queues."""
    before = cluster.tenants.queues.in_force
    cluster.tenants.queues.served = served
    if cluster.tenants.queues.in_force != before:
        _follow(cluster, tuple(cluster.records.values()))


def workload_seen(cluster: Cluster, workload: Workload) -> None:
    """Handle a workload as it is now."""
    if cluster.tenants.see_workload(workload):
        _follow(cluster, cluster.tenants.of_workload(workload.key))


def workload_gone(cluster: Cluster, kind: str, namespace: str, name: str) -> None:
    """Remove a workload; the kind that pods name as their owner goes on to count."""
    records = cluster.tenants.of_workload((kind, namespace, name))
    if cluster.tenants.forget_workload((kind, namespace, name)):
        _follow(cluster, records)


def settings_changed(cluster: Cluster, settings: TenantSettings) -> None:
    """Let the configuration of queues be as it is now."""
    if settings == cluster.tenants.settings:
        return
    cluster.tenants.settings = settings
    _follow(cluster, tuple(cluster.records.values()))
    _try_again(cluster, cluster.records.values())


def namespace_of_queues(cluster: Cluster, name: str, before: Labels | None, labels: Labels | None) -> None:
    """Have the pods of a namespace tried again that a queue takes now, or no longer."""
    queues = cluster.tenants.queues
    turned = [
        queue
        for queue in map(queues.get, queues.names())
        if queue is not None and queue.allowed_namespaces is not None and _takes(queue, before) != _takes(queue, labels)
    ]
    names = tuple(queue.name for queue in turned)
    _try_again(cluster, (record for record in cluster.tenants.in_queues(names) if record.pod.namespace == name))


def follow_tenancy(cluster: Cluster, record: PodRecord) -> None:
    """Let a pod be in the queue, and for the service, that count for it now."""
    before = record.tenancy
    cluster.tenants.leave(record)
    cluster.tenants.join(record)
    if record.tenancy == before:
        return
    follow_accounts(cluster, record)
    if record.counted is not None:
        refresh(cluster, record)
        cluster.row_changed(record.row)
    _try_again(cluster, (record,))


def _follow(cluster: Cluster, records: Iterable[PodRecord]) -> None:
    for record in records:
        follow_tenancy(cluster, record)


def _changed(cluster: Cluster, name: str, below: tuple[str, ...], *, everybody: bool) -> None:
    """Count the pods of a queue that changed, and of those `below` it before and now, anew; have them tried again."""
    names = tuple(sorted({name, *below, *cluster.tenants.queues.below((name,))}))
    if everybody or name == DEFAULT_QUEUE:
        _follow(cluster, tuple(cluster.records.values()))
    records = cluster.tenants.in_queues(names)
    for record in records:
        follow_accounts(cluster, record)
        if record.counted is not None:
            refresh(cluster, record)
            cluster.row_changed(record.row)
    _try_again(cluster, records)


def _try_again(cluster: Cluster, records: Iterable[PodRecord]) -> None:
    """Have the waiting ones of these pods tried again, for which they wait in units."""
    recheck_later(cluster, (record for record in records if record.counted is None))


def _takes(queue: TenantQueue, labels: Labels | None) -> bool:
    allowed = queue.allowed_namespaces
    return allowed is None or (labels is not None and allowed.matches(labels))


def _warn(cluster: Cluster, queue: TenantQueue) -> None:
    """Put Warning events on a queue that cannot be read, or has fields that mean nothing here."""
    about = ObjectRef("Queue", queue.name, queue.uid)
    if queue.invalid and cluster.warned(f"{queue.source}/{queue.uid}/invalid", queue.invalid):
        text = f"{queue.invalid}. The queue takes no new pods."
        cluster.say(DEFAULT_POOL, Warn(about, EventReason.INVALID_SPEC, text))
    if queue.ignored and cluster.warned(f"{queue.source}/{queue.uid}/ignored", str(queue.generation)):
        named = ", ".join(queue.ignored[:FIELDS_NAMED_MAX])
        text = f"The scheduler does not use these fields of the queue: {named}."
        cluster.say(DEFAULT_POOL, Warn(about, EventReason.IGNORED_QUEUE_FIELDS, text))
