"""Elastic jobs in the engine: what an event about one changes, and what a pass over their sizes reads of it.

Invariants:
- A job is resized once in its freezing window, counted from the end of its last resize. Adopting it, bringing it within
  its bounds, and taking back growth that found no room, are no resizes.
- What another writer makes of a size is a new size, once. After a second time the job is left alone.
- Service is counted while instances are on nodes and stay. A new job, and one that comes back, begins with the least
  that a job has received.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.elastic_pods import instances_of, kind_of, staying_and_leaving
from aischeduler.engine.elastic_room import JobPods
from aischeduler.engine.holds import recheck_later
from aischeduler.engine.pod_events import pod_seen
from aischeduler.engine.resizing import SHORT_SECONDS, resize_to
from aischeduler.engine.tenant_queues import note_workloads_again
from aischeduler.model.actions import Action, ObjectRef, ResizeReason, Warn
from aischeduler.model.card_shares import counted, gpu_share
from aischeduler.model.device import NVIDIA_GPU
from aischeduler.model.elastic import RESIZE_SECONDS_MAX, WRITTEN_BY_ANOTHER, ElasticJob, ElasticTerms, Problem
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.events import ResizeRefused
from aischeduler.model.names import CPU, DEFAULT_POOL, GPU_SHARE, MEMORY
from aischeduler.model.pool import Namespace
from aischeduler.model.workload import Workload
from aischeduler.policies.elastic import JobShare, score, service
from aischeduler.state.elastic_jobs import ElasticRecord, JobKey
from aischeduler.state.pod_records import USABLE, PodRecord, Unit

NEVER: Final = float("-inf")
PASS_SECONDS: Final = 5.0
"""How often the sizes of all jobs are decided."""
SENT_SECONDS: Final = 10.0
"""After this time a size that was sent and is not shown is sent again."""
WAITS_SECONDS: Final = 10.0
"""After this time a minimum waits, of which an event tells; before, its pods come."""
NOTED_SECONDS: Final = 60.0
"""The service of so much time of one instance is written down once it differs from what is written."""
AGED_SECONDS_MAX: Final = 600.0
"""The longest time after which a waiting minimum keeps its room from others; else two of its windows."""


def elastic_seen(cluster: Cluster, workload: Workload) -> None:
    """Handle a workload as it is now, which may have become elastic, or is so no longer."""
    jobs, known = cluster.elastic, cluster.elastic.by_key.get(workload.key)
    if workload.elastic is None and known is None:
        return
    first, before = not jobs.by_key, _surplus_rule(known)
    claims = known is not None and known.job.problem is None
    record = jobs.see(workload, cluster.now)
    if first and record is not None:
        note_workloads_again(cluster)
    if record is not None and record.job.problem is None and not claims:
        _claim_pods(cluster, record)
    if record is not None:
        _warn(cluster, record)
    if _surplus_rule(record) != before:
        turned(cluster, workload.key)


def levels_seen(cluster: Cluster, namespace: Namespace) -> None:
    """Handle the levels that a namespace allows as they are now: its jobs may be elastic, or no longer."""
    jobs, name = cluster.elastic, namespace.name
    if jobs.levels.get(name) == namespace.levels:
        return
    if namespace.levels is None:
        del jobs.levels[name]
    else:
        jobs.levels[name] = namespace.levels
    for key, record in sorted(jobs.by_key.items()):
        if key[1] == name:
            record.refused = jobs.refusal(name, record.job.terms)
            jobs.touched = True
            _warn(cluster, record)
            turned(cluster, key)


def _surplus_rule(record: ElasticRecord | None) -> object:
    """Return what decides which pods of a job are surplus."""
    if record is None:
        return None
    job = record.job
    return job.terms, record.problem, job.is_finishing, job.suspended, job.ordered, job.part


def elastic_gone(cluster: Cluster, key: JobKey) -> None:
    """Handle a workload that is gone."""
    if key in cluster.elastic.by_key:
        cluster.elastic.forget(key)
        turned(cluster, key)


def turned(cluster: Cluster, key: JobKey) -> None:
    """Have it looked again which pods of a job are surplus, and for which of those that wait others may go."""
    pods = cluster.tenants.of_workload(key)
    for record in pods:
        cluster.units.touch(record)
    recheck_later(cluster, (record for record in pods if record.counted is None))


def resize_refused(cluster: Cluster, event: ResizeRefused) -> None:
    """Handle a size that was not written: it is decided again, at once if the object has changed."""
    record = cluster.elastic.by_key.get((event.kind, event.namespace, event.name))
    if record is None or record.workload.uid != event.uid:
        return
    record.sent = None
    record.rests_until = cluster.now + event.retry_after_seconds
    cluster.elastic.touched = True


def _claim_pods(cluster: Cluster, record: ElasticRecord) -> None:
    """Let the pods of a job that is elastic from now on belong to its gang."""
    for pod in cluster.tenants.of_workload(record.key):
        if pod.pod.gang is None:
            pod_seen(cluster, pod.pod, cluster.now)


def _warn(cluster: Cluster, record: ElasticRecord) -> None:
    """Put an event on a job that is not elastic although it asks to be, or that says what means nothing."""
    workload, problem, about = record.workload, record.problem, _about(record)
    if problem is not None and cluster.warned(f"{workload.uid}/elastic", problem.message):
        cluster.say(DEFAULT_POOL, Warn(about, problem.reason, f"{problem.message}. It keeps its size."))
    ignored = record.job.ignored
    if ignored and cluster.warned(f"{workload.uid}/ignored", ignored):
        cluster.say(DEFAULT_POOL, Warn(about, EventReason.INVALID_ELASTIC, ignored))


def _about(record: ElasticRecord) -> ObjectRef:
    workload = record.workload
    return ObjectRef(workload.kind, workload.name, workload.uid, workload.namespace)


class JobReading(Struct, frozen=True):
    """What a pass has read of a job: its record, the version of its object, and its pods."""

    record: ElasticRecord
    version: str
    share: JobShare
    pods: JobPods


def bounded(job: ElasticJob) -> ElasticTerms:
    """Return the terms of a job, whose maximum is at most what is left of its completions."""
    terms, left = job.terms, job.left
    if left is None or left >= terms.max_instances:
        return terms
    most = max(left, terms.min_instances)
    return replace(terms, max_instances=most, allowed=tuple(size for size in terms.allowed if size <= most))


def settle(cluster: Cluster, record: ElasticRecord, actions: list[Action]) -> None:
    """Adopt a job, bring it within its bounds, and note what another writer did. A suspended one keeps its size."""
    job, now = record.job, cluster.now
    if record.problem is not None or job.is_finishing or job.suspended or record.sent is not None:
        return
    foreign = bool(job.written_size) and job.written_size != job.size
    if not foreign:
        record.foreign_size = None
    elif job.size != record.foreign_size and not _take_note(cluster, record):
        return
    if now < record.rests_until:
        return
    terms = bounded(job)
    fits = terms.at_most(job.size)
    if not job.written_size:
        running = sum(instance.counted is not None for instance in instances_of(cluster, record))
        fits = terms.at_most(min(running, job.size))
    if fits != job.size:
        bounds = f"at least {job.terms.min_instances} and at most {terms.max_instances} instances"
        text = f"It has {bounds}" if job.written_size else f"It becomes elastic, with {bounds}"
        actions.append(resize_to(cluster, record, fits, ResizeReason.ADOPTED, text))
    elif foreign:
        actions.append(resize_to(cluster, record, job.size, ResizeReason.WRITTEN_BY_ANOTHER, WRITTEN_BY_ANOTHER))
    elif not job.written_size:
        actions.append(resize_to(cluster, record, job.size, ResizeReason.NOTED))


def _take_note(cluster: Cluster, record: ElasticRecord) -> bool:
    """Note that another writer has changed the size of a job; return whether the job is resized any more."""
    job, now = record.job, cluster.now
    if now < record.foreign_at + 2 * max(job.terms.freezing_window_seconds, PASS_SECONDS):
        text = f"Another program changes its size too: it was {job.written_size}, and is {job.size}"
        record.left_alone = Problem(EventReason.NOT_ELASTIC, text)
        _warn(cluster, record)
        turned(cluster, record.key)
        return False
    record.foreign_size, record.foreign_at, record.resized_at = job.size, now, now
    return True


def read_job(cluster: Cluster, record: ElasticRecord, actions: list[Action]) -> JobReading | None:
    """Bring a job and what is remembered of it up to date; return what a pass reads, None where it takes no part."""
    job, now = record.job, cluster.now
    if record.sent is not None and now > record.sent.at + SENT_SECONDS:
        record.sent = None
    settle(cluster, record, actions)
    if record.problem is not None or job.finished or job.suspended:
        record.is_new = record.is_new or job.suspended
        record.received_at, record.waits_since = now, None
        return None
    instances, leave = staying_and_leaving(cluster, record)
    record.weigh(max((instance.pod.priority for instance in instances), default=record.priority))
    job = record.job
    on_nodes = sum(instance.counted is not None for instance in instances)
    unit = next((instance.unit for instance in instances if instance.unit is not None), None)
    others = _others(unit, instances)
    placed = [other for other in others if other.counted is not None]
    of_one = max((_score_of(instance) for instance in {one.pod.spec.key: one for one in instances}.values()), default=0)
    of_others = sum(map(_score_of, placed))
    _receive(cluster, record, of_others + of_one * on_nodes)
    settled = on_nodes == len(instances) == record.size and not leave
    resized_at = max(record.resized_at, job.resized_at_seconds or NEVER)
    ended = settled or now >= resized_at + RESIZE_SECONDS_MAX
    if record.resizing and ended and record.sent is None:
        record.resizing = False
        if record.is_read and settled:  # else nobody knows when it ended: its object says when it began
            record.resized_at = resized_at = now
    lacks = _lacks(record, unit, on_nodes, len(placed))
    if lacks and record.waits_since is None:
        record.waits_since = now if record.is_read else _waiting_since(cluster, (*others, *instances))
        turned(cluster, record.key)
    elif not lacks:
        record.waits_since = None
    record.is_read = True
    window = job.terms.freezing_window_seconds
    aged = record.waits_since is not None and now - record.waits_since >= min(2 * window, AGED_SECONDS_MAX)
    if job.is_finishing:
        return None
    free = now >= record.rests_until and (record.sent is None or lacks > 0)  # a waiting one grows later
    share = JobShare(
        name=record.name,
        terms=bounded(job),
        size=record.size,
        service=record.received,
        score=of_one,
        fixed_score=of_others,
        waits=lacks > 0,
        aged=aged,
        frozen=not free or record.resizing or now < resized_at + window,
        grows=settled and _may_grow_again(cluster, record),
        kind=kind_of(instances[0]) if instances else None,
    )
    minimum = _minimum(unit, instances, others, lacks) if lacks else ()
    return JobReading(record, job.version, share, JobPods(instances, on_nodes, job.ordered, minimum))


def _waiting_since(cluster: Cluster, pods: Iterable[PodRecord]) -> float:
    """Return since when a job waits that another scheduler may have known: all its waiting pods exist since then."""
    newest = max((pod.pod.created_seconds for pod in pods if pod.counted is None), default=cluster.now)
    return min(float(newest), cluster.now) if newest else cluster.now


def _may_grow_again(cluster: Cluster, record: ElasticRecord) -> bool:
    """Return whether growth of a job is tried that was taken back: after a window, or once nodes have changed."""
    window = max(record.job.terms.freezing_window_seconds, SHORT_SECONDS)
    return cluster.now >= record.taken_back_at + window or cluster.elastic.nodes_changed_at > record.taken_back_at


def welcome(readings: Iterable[JobReading]) -> list[JobShare]:
    """Return what a pass reads of these jobs; those that are new begin with the least service of the others."""
    found = list(readings)
    known = [reading.record.received for reading in found if not reading.record.is_new]
    least, shares = min(known, default=0), list[JobShare]()
    for reading in found:
        record = reading.record
        if record.is_new:
            record.is_new, record.received = False, max(record.received, least)
        shares.append(replace(reading.share, service=record.received))
    return shares


def take_back(cluster: Cluster, reading: JobReading, actions: list[Action]) -> bool:
    """Take back instances that have found no node for long, or that wait in place of surplus that others took.

    Return whether that was due.
    """
    record, job, now = reading.record, reading.record.job, cluster.now
    waiting = [pod for pod in reading.pods.instances if pod.counted is None]
    on_nodes, gone = len(reading.pods.instances) - len(waiting), _given_up(cluster, record)
    if not waiting or on_nodes < job.terms.min_instances or record.sent is not None:
        record.short_since = None
        return False
    record.short_since = record.short_since if record.short_since is not None else now
    size = bounded(job).at_most(on_nodes)
    if size >= record.size or now < record.rests_until:
        return False
    if now >= record.short_since + SHORT_SECONDS:
        text = f"{len(waiting)} instance(s) found no node within {SHORT_SECONDS:.0f} s"
        actions.append(resize_to(cluster, record, size, ResizeReason.TAKEN_BACK, text))
        return True
    if not gone:
        return False
    for uid in gone[: len(waiting)]:
        del record.given_up[uid]
    size = max(size, bounded(job).at_most(record.size - min(len(gone), len(waiting))))
    text = "The room of its surplus went to another pod"
    actions.append(resize_to(cluster, record, size, ResizeReason.RECLAIMED, text))
    return True


def _given_up(cluster: Cluster, record: ElasticRecord) -> list[str]:
    """Return the surplus (uids) that was evicted and has left; forget what stays after all."""
    gone = list[str]()
    for uid in list(record.given_up):
        pod = cluster.records.get(uid)
        if pod is None or pod.pod.terminating:
            gone.append(uid)
        elif uid not in cluster.leaving_pods.asked:
            del record.given_up[uid]
    return gone


def note_wait(cluster: Cluster, reading: JobReading) -> None:
    """Put an event on a job whose minimum has waited for a moment, once each time that it waits."""
    record, minimum = reading.record, reading.pods.minimum
    if record.waits_since is None or cluster.now < record.waits_since + WAITS_SECONDS or not minimum:
        return
    why = minimum[0].message
    if why and cluster.warned(f"{record.workload.uid}/minimum", str(record.waits_since)):
        least = record.job.terms.min_instances
        text = f"Its minimum of {least} instance{'s' * (least != 1)} waits: {why}"
        cluster.say(minimum[0].home, Warn(_about(record), EventReason.FAILED_SCHEDULING, text))


def note_service(cluster: Cluster, reading: JobReading, actions: list[Action]) -> None:
    """Have the service of a job written down where it is not what its size says."""
    record, share = reading.record, reading.share
    rate = share.fixed_score + share.score * record.job.size
    said = record.noted + service(rate, max(cluster.now - record.noted_at, 0.0), share.terms.weight)
    worth = service(share.fixed_score + share.score, NOTED_SECONDS, share.terms.weight)
    settled = record.sent is None and cluster.now >= max(record.rests_until, record.noted_at + NOTED_SECONDS)
    if settled and worth and abs(record.received - said) > worth:
        actions.append(resize_to(cluster, record, record.size, ResizeReason.NOTED))


def _receive(cluster: Cluster, record: ElasticRecord, of_all: int) -> None:
    """Count the service of a job, whose pods on nodes have this score, since it was counted last.

    Its instances may have come and gone in between: they count as those of now.
    """
    seconds = max(cluster.now - record.received_at, 0.0)
    record.received += service(of_all, seconds, record.job.terms.weight)
    record.received_at = cluster.now


def _score_of(record: PodRecord) -> int:
    """Return how much a pod counts."""
    amounts, share = record.pod.spec.request.amounts, gpu_share(record.pod.spec, record.allocation)
    cards = counted(NVIDIA_GPU, {**amounts, GPU_SHARE: share})
    return score(amounts.get(CPU, 0), amounts.get(MEMORY, 0), cards)


def _others(unit: Unit | None, instances: list[PodRecord]) -> list[PodRecord]:
    """Return the pods of the unit of a job that are no instances of it and do not leave: its master, its servers."""
    if unit is None or len(unit.members) <= len(instances):
        return []
    own = {instance.pod.uid for instance in instances}
    return [record for record in unit.members.values() if record.pod.uid not in own and not record.pod.terminating]


def _lacks(record: ElasticRecord, unit: Unit | None, on_nodes: int, others: int) -> int:
    """Return how many pods a job lacks on nodes of its minimum, or of that of its gang."""
    least = unit.gang.min_member if unit is not None and unit.gang is not None else 0
    return max(record.job.terms.min_instances - on_nodes, least - on_nodes - others, 0)


def _minimum(
    unit: Unit | None, instances: list[PodRecord], others: list[PodRecord], lacks: int
) -> tuple[PodRecord, ...]:
    """Return the waiting pods by which a minimum waits; none where not all that it lacks can be tried."""
    if unit is not None and unit.lead is not None:
        return (unit.lead,)
    waiting = [record for record in (*others, *instances) if record.state in USABLE]
    return tuple(waiting[:lacks]) if len(waiting) >= lacks else ()
