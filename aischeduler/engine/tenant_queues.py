"""Tenant queues in the engine: what an edit of a queue, a workload or the configuration moves.

Invariants:
- A pod of this scheduler counts in its queue and in each ancestor while it is on a row, or owns a claim there: under
  the card of that row. Pods of a queue that does not exist count nowhere, and run on.
- After an edit, the waiting pods of the queue and of all queues below it are tried again. Pods on rows are counted anew
  only where they have other ancestors now, or where other pods may evict them: most edits are of a quota.
"""

from collections.abc import Iterable
from typing import Final

from aischeduler.engine.admission import admit
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.holds import recheck_later
from aischeduler.engine.pod_counting import follow_accounts, refresh
from aischeduler.engine.units import stop_waiting
from aischeduler.model.actions import ObjectRef, ResumeJob, Warn
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.gang import GangKey, GangSource
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.selectors import Labels
from aischeduler.model.tenant_queue import DEFAULT_QUEUE, QueueSource, TenantQueue, TenantSettings
from aischeduler.model.workload import JobRef, Workload
from aischeduler.state.pod_records import PodRecord

FIELDS_NAMED_MAX: Final = 8
LOOK_SECONDS: Final = 0.5
"""How often it is looked whether pods of a suspended Job are left."""
RESUME_SECONDS: Final = 30.0
"""After this time a Job that is still suspended is resumed again: the request may be lost."""


def queue_seen(cluster: Cluster, queue: TenantQueue) -> None:
    """Handle a queue as it is now."""
    before = _standing(cluster, queue.name)
    first, used = not cluster.tenants.queues.in_force, cluster.tenants.in_use
    if not cluster.tenants.queues.see(queue):
        return
    cluster.tenants_changed()
    _note_workloads(cluster, used)
    _warn(cluster, queue)
    _changed(cluster, queue.name, before, everybody=first)


def queue_gone(cluster: Cluster, source: str, name: str) -> None:
    """Remove a queue; its pods run on, and those that wait are held."""
    before = _standing(cluster, name)
    if cluster.tenants.queues.forget(QueueSource(source), name):
        cluster.tenants_changed()
        _changed(cluster, name, before, everybody=not cluster.tenants.queues.in_force)


def queues_served(cluster: Cluster, *, served: bool) -> None:
    """Note whether the API server serves a kind of queues."""
    before, used = cluster.tenants.queues.in_force, cluster.tenants.in_use
    cluster.tenants.queues.serve(served=served)
    cluster.tenants_changed()
    if cluster.tenants.queues.in_force != before:
        _note_workloads(cluster, used)
        _follow(cluster, tuple(cluster.records.values()))


def workload_seen(cluster: Cluster, workload: Workload) -> None:
    """Handle a workload as it is now."""
    used = cluster.tenants.in_use
    if cluster.tenants.see_workload(workload):
        _note_workloads(cluster, used)
        _follow(cluster, cluster.tenants.of_workload(workload.key))
        warn_of_retries(cluster, *workload.key)
        if workload.suspended and not workload.terms.aborts:
            cluster.tenants.resumes.set("/".join(workload.key), cluster.now)
        else:
            cluster.tenants.resumes.drop("/".join(workload.key))


def warn_of_retries(cluster: Cluster, kind: str, namespace: str, name: str) -> None:
    """Warn once of a gang Job that would fail if its pods were evicted: one that this scheduler may not suspend."""
    workload = cluster.tenants.workloads.get((kind, namespace, name))
    gang = cluster.units.gangs.by_key.get(GangKey(GangSource.JOB, namespace, name)) if kind == GangSource.JOB else None
    if workload is None or gang is None or not workload.managed or not 0 <= workload.retries < gang.min_member:
        return
    text = (
        f"If its gang of {gang.min_member} pods is evicted, the Job counts more failures than its backoffLimit of "
        f"{workload.retries} allows, and fails: another program decides whether it is suspended. "
        "A podFailurePolicy that ignores DisruptionTarget prevents that."
    )
    if cluster.warned(f"Job/{workload.uid}/retries", text):
        about = ObjectRef("Job", name, workload.uid, namespace)
        cluster.say(DEFAULT_POOL, Warn(about, EventReason.EVICTION_WOULD_FAIL_JOB, text))


def workload_gone(cluster: Cluster, kind: str, namespace: str, name: str) -> None:
    """Remove a workload; the kind that pods name as their owner goes on to count."""
    records = cluster.tenants.of_workload((kind, namespace, name))
    cluster.tenants.resumes.drop(f"{kind}/{namespace}/{name}")
    if cluster.tenants.forget_workload((kind, namespace, name)):
        _follow(cluster, records)


def resume_jobs(cluster: Cluster, now: float) -> None:
    """Have the Jobs resumed that were suspended to evict their pods, once no pod of them is left on a node."""
    for named in cluster.tenants.resumes.pop_due(now):
        kind, namespace, name = named.split("/")
        workload = cluster.tenants.workloads.get((kind, namespace, name))
        if workload is None or not workload.suspended:
            continue
        left = any(record.counted is not None for record in cluster.tenants.of_workload(workload.key))
        cluster.tenants.resumes.set(named, now + (LOOK_SECONDS if left else RESUME_SECONDS))
        if not left:
            cluster.say(DEFAULT_POOL, ResumeJob(JobRef(kind, namespace, name, workload.uid)))


def settings_changed(cluster: Cluster, settings: TenantSettings) -> None:
    """Let the configuration of queues be as it is now."""
    if settings == cluster.tenants.settings:
        return
    cluster.tenants.settings = settings
    _follow(cluster, tuple(cluster.records.values()))
    may_say_otherwise(cluster)
    _try_again(cluster, cluster.records.values())


def namespace_of_queues(cluster: Cluster, name: str, before: Labels | None, labels: Labels | None) -> None:
    """Have the pods of a namespace tried again that a queue takes now, or no longer; others may stay now."""
    queues = cluster.tenants.queues
    may_say_otherwise(cluster, name)
    turned = [
        queue
        for queue in map(queues.get, queues.names())
        if queue is not None and queue.allowed_namespaces is not None and _takes(queue, before) != _takes(queue, labels)
    ]
    names = tuple(queue.name for queue in turned)
    _try_again(cluster, (record for record in cluster.tenants.in_queues(names) if record.pod.namespace == name))


def may_say_otherwise(cluster: Cluster, namespace: str = "") -> None:
    """Follow a change of who may say that a pod is not preemptable: of all namespaces or, with a name, of this one."""
    for record in cluster.tenants.in_queues(cluster.tenants.named()):
        says = record.counted is not None and not record.tenancy.preemptable
        if says and namespace in ("", record.pod.namespace):
            refresh(cluster, record)
            cluster.row_changed(record.row)


def follow_tenancy(cluster: Cluster, record: PodRecord) -> None:
    """Let a pod be in the queue, and for the service, that count for it now."""
    tenancy = cluster.tenants.tenancy(record.pod) if cluster.ours(record.pod) else record.tenancy
    if tenancy == record.tenancy:
        return
    if record.queue:  # its place and its class there are those of the tenancy before
        stop_waiting(cluster, record, cluster.now)
        _join_again(cluster, record)
        admit(cluster, record, cluster.now)
        return
    _join_again(cluster, record)
    follow_accounts(cluster, record)
    if record.counted is not None:
        refresh(cluster, record)
        cluster.row_changed(record.row)


def _note_workloads(cluster: Cluster, used: bool) -> None:
    """Note of which workloads the pods are that came before they could be in a queue, once they can."""
    if cluster.tenants.in_use and not used:
        note_workloads_again(cluster)


def note_workloads_again(cluster: Cluster) -> None:
    """Note of which workloads the pods are that came before anything asked for it."""
    for record in cluster.records.values():
        if cluster.ours(record.pod):
            cluster.tenants.note_workloads(record)


def _join_again(cluster: Cluster, record: PodRecord) -> None:
    cluster.tenants.leave(record)
    cluster.tenants.join(record)


def _follow(cluster: Cluster, records: Iterable[PodRecord]) -> None:
    for record in records:
        follow_tenancy(cluster, record)


Standing = tuple[tuple[str, ...], tuple[object, ...]]


def _standing(cluster: Cluster, name: str) -> dict[str, Standing]:
    """Return what pods on rows depend on: the ancestors of a queue, and of all below it, and who may evict its pods."""
    queues = cluster.tenants.queues
    found: dict[str, Standing] = {}
    for below in queues.below((name,)):
        chain = queues.chain(below)
        queue = chain[0]
        rules = (queue.priority, queue.reclaimable, queue.min_runtime_seconds)
        found[below] = tuple(member.name for member in chain), rules
    return found


def _changed(cluster: Cluster, name: str, before: dict[str, Standing], *, everybody: bool) -> None:
    """Follow a change of a queue with its pods, and those of all queues below it before and now."""
    after = _standing(cluster, name)
    if everybody or name == DEFAULT_QUEUE:
        _follow(cluster, tuple(cluster.records.values()))
    waiting: list[PodRecord] = []
    for below in sorted({name, *before, *after}):
        stands = before.get(below) == after.get(below)
        for record in cluster.tenants.in_queues((below,)):
            if record.counted is None:
                waiting.append(record)
            if not stands:
                _stands_otherwise(cluster, record)
    _try_again(cluster, waiting)


def _stands_otherwise(cluster: Cluster, record: PodRecord) -> None:
    """Follow a change of the queue of a pod."""
    queue = cluster.tenants.queue_of(record)
    priority = queue.priority if queue is not None else 0
    if record.queue and record.queue_priority != priority:
        stop_waiting(cluster, record, cluster.now)
        _join_again(cluster, record)
        admit(cluster, record, cluster.now)
        return
    record.queue_priority = priority
    cluster.held.move(record, cluster.holders(record))
    follow_accounts(cluster, record)
    if record.counted is not None:
        refresh(cluster, record)
        cluster.row_changed(record.row)


def _try_again(cluster: Cluster, records: Iterable[PodRecord]) -> None:
    """Have the waiting ones of these pods tried again, for which they wait in units."""
    recheck_later(cluster, (record for record in records if record.counted is None))


def _takes(queue: TenantQueue, labels: Labels | None) -> bool:
    allowed = queue.allowed_namespaces
    return allowed is None or (labels is not None and allowed.matches(labels))


def _warn(cluster: Cluster, queue: TenantQueue) -> None:
    """Put Warning events on a queue that cannot be read, or has fields that mean nothing here."""
    about = ObjectRef(queue.source, queue.name, queue.uid)
    if queue.invalid and cluster.warned(f"{queue.source}/{queue.uid}/invalid", queue.invalid):
        text = f"{queue.invalid}. The queue takes no new pods."
        cluster.say(DEFAULT_POOL, Warn(about, EventReason.INVALID_SPEC, text))
    if queue.ignored and cluster.warned(f"{queue.source}/{queue.uid}/ignored", str(queue.generation)):
        named = ", ".join(queue.ignored[:FIELDS_NAMED_MAX])
        text = f"The scheduler does not use these fields of the queue: {named}."
        cluster.say(DEFAULT_POOL, Warn(about, EventReason.IGNORED_QUEUE_FIELDS, text))
