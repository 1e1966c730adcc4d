"""Sizes that are sent to elastic jobs: by a pass, and in place of evictions of their surplus.

Invariants:
- What is sent is noted at once: until the object shows it, the job has one size under way and gets no other by a pass.
- Evictions of one decision that are surplus of one job go by one smaller size, which ends these pods and no others.
  Where no size does, they are evicted, and the size is lowered once others wait in their place.
"""

from typing import Final

from msgspec.structs import replace

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.elastic_pods import in_end_order, index_of, instances_of, job_of
from aischeduler.model.actions import Evict, Resize, ResizeReason
from aischeduler.state.elastic_jobs import ElasticRecord, JobKey, SentSize

COMPLETED_KINDS: Final = ("Job", "JobSet")
"""The kinds that have completions."""
SHORT_SECONDS: Final = 30.0
"""How long instances of the last growth may wait for a node."""


def resize_to(
    cluster: Cluster, record: ElasticRecord, size: int, reason: ResizeReason, message: str = "", *, decision: str = ""
) -> Resize:
    """Return the action that gives a job this size, by a decision of its own if none is given; it is under way then."""
    workload, job, now = record.workload, record.job, cluster.now
    found = Resize(
        *record.key,
        workload.uid,
        job.version,
        job.size,
        size,
        reason,
        message,
        decision or cluster.next_decision(),
        record.received,
        now,
        part=job.part,
        part_index=job.part_index,
        completions_follow=job.completions_follow if workload.kind in COMPLETED_KINDS else None,
    )
    record.sent = SentSize(size, job.version, now)
    if reason is ResizeReason.TAKEN_BACK:
        record.taken_back_at = now
    return found


def resizing(cluster: Cluster, evicted: list[Evict]) -> list[Evict]:
    """Return these evictions of one decision; those of surplus go by a smaller size of their job."""
    if not cluster.elastic.by_key:
        return evicted
    jobs: dict[JobKey, ElasticRecord] = {}
    for action in evicted:
        job = job_of(cluster, cluster.records[action.victim.uid])
        if job is not None and action.suspends is None:
            jobs[job.key] = job
    resizes = {key: _resize_for(cluster, job, evicted) for key, job in jobs.items()}
    found: list[Evict] = []
    for action in evicted:
        uid = action.victim.uid
        job = job_of(cluster, cluster.records[uid])
        resize = resizes.get(job.key) if job is not None else None
        if job is not None and resize is None and cluster.running.is_surplus(uid):
            job.given_up[uid] = None
        found.append(action if resize is None else replace(action, resizes=resize))
    return found


def _resize_for(cluster: Cluster, job: ElasticRecord, evicted: list[Evict]) -> Resize | None:
    """Return the size by which all victims of a job go and nobody else on a node does; None where there is none.

    A ReplicaSet ends pods by rules of its own: the victims of a Deployment go themselves. So do those of a job that is
    about to end, or is left alone.
    """
    observed = job.job
    is_known = observed.ordered or job.workload.kind in COMPLETED_KINDS  # which instances a smaller size ends
    if not is_known or job.problem is not None or observed.is_finishing or observed.suspended:
        return None
    stay = [instance for instance in instances_of(cluster, job) if instance.counted is not None]
    gone = [record for action in evicted if job_of(cluster, record := cluster.records[action.victim.uid]) is job]
    stays, terms = {record.pod.uid for record in stay}, job.job.terms
    there = in_end_order([*gone, *stay], ordered=job.job.ordered)
    if any(record.pod.uid in stays for record in there[: len(gone)]) or len(stay) < terms.min_instances:
        return None
    lowest = min(map(index_of, gone)) if job.job.ordered else -1
    size = max(lowest, len(stay))  # of those below an index, some may be on no node yet
    action = evicted[0]
    if lowest >= job.job.size:  # its controller is about to end them
        return resize_to(cluster, job, job.job.size, ResizeReason.NOTED, decision=action.decision)
    if terms.at_most(size) != size or size >= job.job.size:
        return None
    by = action.beneficiary
    text = f"Its room goes to the pod {by.namespace}/{by.name}" if by is not None else "Its room is taken back"
    return resize_to(cluster, job, size, ResizeReason.RECLAIMED, text, decision=action.decision)
