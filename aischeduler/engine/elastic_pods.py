"""The pods of elastic jobs: which job a pod is an instance of, which instances go first, and which are surplus.

Invariants:
- The instances that a smaller size ends are those that the controller of the job ends: of an Indexed Job and a
  StatefulSet the highest indexes, of others first those without a node, then the newest.
- Surplus are the instances beyond the minimum. Where another pod needs their room, they go by a smaller size.

Source: the Job controller and the StatefulSet controller of Kubernetes 1.36, as tried.
"""

from collections.abc import Iterable
from itertools import takewhile
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from aischeduler.engine.view import View
from aischeduler.model.gang import Gang, GangClaim, GangKey, GangSource
from aischeduler.model.pod import Pod
from aischeduler.model.workload import Tenancy
from aischeduler.state.elastic_jobs import ElasticRecord, JobKey
from aischeduler.state.label_index import Mask
from aischeduler.state.pod_records import WAITING, PodRecord

Kind = tuple[bytes, str, str, Tenancy]
"""The class of pods, their home pool, their namespace, and their place among the tenant queues."""
INDEX_LABELS: Final = ("batch.kubernetes.io/job-completion-index", "apps.kubernetes.io/pod-index")
"""The labels by which a controller says which of its pods one is."""
_GANG_SOURCES: Final = {"Job": GangSource.JOB, "JobSet": GangSource.JOB_SET}
OWNERS_MAX: Final = 2
"""The most owners above a pod: its Job or ReplicaSet, and the JobSet or Deployment of that."""


def key_of(owner: str, namespace: str) -> JobKey:
    """Return the key of a workload that is named as Kind/name."""
    kind, _, name = owner.partition("/")
    return kind, namespace, name


def job_of(cluster: View, record: PodRecord) -> ElasticRecord | None:
    """Return the elastic job of which this pod is an instance; None where it is of none."""
    job = _above(cluster, record.pod)
    return job if job is None or not job.job.part or _role(record) == job.job.part else None


def _above(cluster: View, pod: Pod) -> ElasticRecord | None:
    """Return the elastic job that made a pod; None where none did."""
    jobs, owner = cluster.elastic.by_key, pod.owner
    if not jobs:
        return None
    for _ in range(OWNERS_MAX):
        if not owner:
            return None
        key = key_of(owner, pod.namespace)
        job = jobs.get(key)
        if job is not None:
            return job
        workload = cluster.tenants.workloads.get(key)
        owner = workload.owner if workload is not None else ""
    return None


def claimed(cluster: View, pod: Pod) -> Pod:
    """Return a pod that names no gang with that of its elastic job, if it is of one that may be resized.

    The pods of a Job start together, as many as its minimum. Those of other kinds start one by one: a StatefulSet makes
    the next one only once the last one is ready.
    """
    job = _above(cluster, pod) if pod.gang is None else None
    if job is None or job.job.problem is not None:
        return pod
    kind, namespace, name = job.key
    source = _GANG_SOURCES.get(kind)
    if source is not None:
        return replace(pod, gang=GangClaim(GangKey(source, namespace, name), index=_labelled_index(pod)))
    key = GangKey(GangSource.WORKLOAD, namespace, f"{kind}/{name}")
    return replace(pod, gang=GangClaim(key, said=Gang(key, 1)))


def instances_of(cluster: View, job: ElasticRecord) -> list[PodRecord]:
    """Return the instances of a job that do not leave, in no order of their own."""
    return staying_and_leaving(cluster, job)[0]


def staying_and_leaving(cluster: View, job: ElasticRecord) -> tuple[list[PodRecord], int]:
    """Return the instances of a job that do not leave, in no order of their own, and the number of those that do."""
    found, part = cluster.tenants.of_workload(job.key), job.job.part
    if part:
        found = [record for record in found if _role(record) == part]
    asked = cluster.leaving_pods.asked
    stay = [record for record in found if not record.pod.terminating and record.pod.uid not in asked]
    return stay, len(found) - len(stay)


def kind_of(record: PodRecord) -> Kind:
    """Return what decides where one more instance like this one may run."""
    return record.pod.spec.key, record.home, record.pod.namespace, record.tenancy


def in_end_order(records: Iterable[PodRecord], *, ordered: bool) -> list[PodRecord]:
    """Return instances in the order in which their controller ends them."""
    if ordered:
        return sorted(records, key=lambda record: (-index_of(record), record.pod.name, record.pod.uid))
    newest = sorted(records, key=lambda record: (-record.pod.created_seconds, record.pod.name, record.pod.uid))
    return sorted(newest, key=lambda record: record.counted is not None)


class Surplus(Struct, frozen=True):
    """The instances on nodes that a job has beyond its minimum, by uid, the first to go first.

    `goes` has for each how many of them go with it, by the largest size that the job may have without it; 0 where it
    goes alone.
    """

    job: ElasticRecord
    tail: tuple[str, ...]
    goes: tuple[int, ...]


def surplus_of(cluster: View, records: list[PodRecord], most: int) -> Surplus | None:
    """Return the surplus of the job of these pods on nodes, at most so many; None where no job of theirs is elastic."""
    job = next((found for record in records if (found := job_of(cluster, record)) is not None), None)
    if job is None or job.problem is not None or job.job.is_finishing or job.job.suspended:
        return None
    of_job = [record for record in records if job_of(cluster, record) is job and not record.pod.terminating]
    ordered = in_end_order(of_job, ordered=job.job.ordered)
    if _go_alone(job):
        tail = tuple(one.pod.uid for one in ordered[: max(min(len(ordered) - job.job.terms.min_instances, most), 0)])
        return Surplus(job, tail, (0,) * len(tail))
    goes = [len(ordered) - job.job.terms.at_most(len(ordered) - place) for place in range(1, len(ordered) + 1)]
    places = [(record.pod.uid, gone) for record, gone in zip(ordered, goes, strict=True)]
    within = [(uid, gone) for place, (uid, gone) in enumerate(places) if place < gone <= most]
    return Surplus(job, tuple(uid for uid, _ in within), tuple(gone for _, gone in within))


def _go_alone(job: ElasticRecord) -> bool:
    """Return whether an instance may be deleted, and the size lowered then, so that no other goes with it.

    Not where its controller makes the same index again, where the next size is smaller by more than one, or where a Job
    counts it as failed.
    """
    return not job.job.ordered and not job.job.terms.allowed and job.workload.retries < 0


def is_beyond_minimum(cluster: View, record: PodRecord) -> bool:
    """Return whether a waiting pod is an instance that its job has beyond its minimum, which is on nodes."""
    return _without_minimum(cluster, record) is None


def wait_for_minimum(cluster: View, record: PodRecord) -> list[PodRecord]:
    """Return the waiting instances of the job of a pod that has left its node, if less than its minimum is on nodes."""
    return [other for other in _without_minimum(cluster, record) or () if other.state in WAITING]


def _without_minimum(cluster: View, record: PodRecord) -> list[PodRecord] | None:
    """Return the instances on no node of the job of this pod; None where its minimum is on nodes.

    They are none where it is an instance of no job that is resized.
    """
    job = job_of(cluster, record)
    if job is None or job.problem is not None:
        return []
    pods: Iterable[PodRecord] = (
        record.unit.members.values() if record.unit is not None else cluster.tenants.of_workload(job.key)
    )
    on_nodes, others = 0, list[PodRecord]()
    for other in pods:
        if other.pod.owner != record.pod.owner or _role(other) != _role(record):
            continue
        if other.counted is None:
            others.append(other)
        elif not cluster.leaving_pods.has(other.pod.uid):
            on_nodes += 1
        if on_nodes >= job.job.terms.min_instances:
            return None
    return others


def kept_from(cluster: View, record: PodRecord) -> Mask | None:
    """Return a mask of the rows on which a pod of a minimum of an elastic job may not start; None where it may on all.

    Those are the rows that are kept for other jobs; of two such jobs, the first may start on the rows of the other.
    """
    job = job_of(cluster, record) if record.leads is not None or not is_beyond_minimum(cluster, record) else None
    if job is None:
        return None
    before = takewhile(lambda key: key != job.key, cluster.elastic.kept)
    kept = {node for key in before for node in cluster.elastic.kept[key]}
    if not kept:
        return None
    rows = [cluster.nodes.rows[node] for node in kept if node in cluster.nodes.rows]
    found: Mask = np.zeros(cluster.nodes.width, dtype=np.bool_)
    found[rows] = True
    return found


def _role(record: PodRecord) -> str:
    return record.pod.gang.role if record.pod.gang is not None else ""


def index_of(record: PodRecord) -> int:
    """Return the index of an instance: its gang says it, a label, or its name; -1 where nothing does."""
    pod = record.pod
    if pod.gang is not None and pod.gang.index >= 0:
        return pod.gang.index
    index = _labelled_index(pod)
    return index if index >= 0 else _number(pod.name.rpartition("-")[2])


def _labelled_index(pod: Pod) -> int:
    return _number(next((pod.labels[label] for label in INDEX_LABELS if label in pod.labels), ""))


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else -1
