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

from aischeduler.engine.view import View
from aischeduler.model.workload import Tenancy
from aischeduler.state.elastic_jobs import ElasticRecord, JobKey
from aischeduler.state.label_index import Mask
from aischeduler.state.pod_records import WAITING, PodRecord

Kind = tuple[bytes, str, str, Tenancy]
"""The class of pods, their home pool, their namespace, and their place among the tenant queues."""
INDEX_LABELS: Final = ("batch.kubernetes.io/job-completion-index", "apps.kubernetes.io/pod-index")
"""The labels by which a controller says which of its pods one is."""
OWNERS_MAX: Final = 2
"""The most owners above a pod: its Job or ReplicaSet, and the JobSet or Deployment of that."""


def key_of(owner: str, namespace: str) -> JobKey:
    """Return the key of a workload that is named as Kind/name."""
    kind, _, name = owner.partition("/")
    return kind, namespace, name


def job_of(cluster: View, record: PodRecord) -> ElasticRecord | None:
    """Return the elastic job of which this pod is an instance; None where it is of none."""
    jobs, owner = cluster.elastic.by_key, record.pod.owner
    if not jobs:
        return None
    for _ in range(OWNERS_MAX):
        if not owner:
            return None
        key = key_of(owner, record.pod.namespace)
        job = jobs.get(key)
        if job is not None:
            return job if not job.job.part or _role(record) == job.job.part else None
        workload = cluster.tenants.workloads.get(key)
        owner = workload.owner if workload is not None else ""
    return None


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

    `goes` has for each how many of them go with it, by the largest size that the job may have without it.
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
    goes = [len(ordered) - job.job.terms.at_most(len(ordered) - place) for place in range(1, len(ordered) + 1)]
    tail = [(record.pod.uid, gone) for record, gone in zip(ordered, goes, strict=True)]
    within = [(uid, gone) for place, (uid, gone) in enumerate(tail) if place < gone <= most]
    return Surplus(job, tuple(uid for uid, _ in within), tuple(gone for _, gone in within))


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
    """Return a mask of the rows on which a unit of an elastic job may not start; None where it may on all.

    Those are the rows that are kept for other jobs; of two such jobs, the first may start on the rows of the other.
    """
    job = job_of(cluster, record) if record.leads is not None else None
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
    said = next((pod.labels[label] for label in INDEX_LABELS if label in pod.labels), pod.name.rpartition("-")[2])
    return int(said) if said.isdecimal() else -1
