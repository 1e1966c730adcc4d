"""The workloads that `explain` names as kind/NAME, the elastic job that each of them is, and their pods.

Invariants:
- Whose pods they are is what their owners say; those of a Job also by the label of the Job controller.
- Pods that wait come before pods on nodes, each in queue order; of those that wait together, only their lead.
"""

from collections.abc import Callable, Sequence
from typing import Final

from aischeduler.analysis.elastic_jobs import JobRow, job_row
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.elastic_pods import OWNERS_MAX
from aischeduler.operator.owner import dns_label
from aischeduler.operator.training_objects import JOB_NAME_LENGTH_MAX, TRAINER
from aischeduler.state.elastic_jobs import JobKey
from aischeduler.state.pod_records import PodRecord
from aischeduler.state.scheduling_queue import queue_order

JOB_LABELS: Final = ("batch.kubernetes.io/job-name", "job-name")
JOB: Final = "Job"
TRAINING_JOB: Final = "TrainingJob"
KINDS: Final = {
    "job": JOB,
    "jobset": "JobSet",
    "deployment": "Deployment",
    "statefulset": "StatefulSet",
    "tj": TRAINING_JOB,
    "trainingjob": TRAINING_JOB,
}
"""The kinds that a target may name beside those of the configuration, by their names on the command line."""


def elastic_row(cluster: Cluster, rows: Sequence[JobRow], key: JobKey) -> JobRow | None:
    """Return the elastic job that a workload is, of a TrainingJob its Job of trainers; None where it is none."""
    kind, namespace, name = key
    named = trainer_of(cluster, namespace, name) if kind == TRAINING_JOB else name
    return job_row(rows, (JOB if kind == TRAINING_JOB else kind,), namespace, named)


def trainer_of(cluster: Cluster, namespace: str, name: str) -> str:
    """Return the name of the Job of a TrainingJob's trainers: the one that it controls, else the one it would make."""
    owner = f"{TRAINING_JOB}/{name}"
    owned = (
        other
        for kind, at, other in sorted(cluster.tenants.workloads)
        if kind == JOB and at == namespace and cluster.tenants.workloads[kind, at, other].owner == owner
    )
    return next(owned, dns_label(f"{name}-{TRAINER}", JOB_NAME_LENGTH_MAX))


def pods_of(cluster: Cluster, key: JobKey) -> list[PodRecord]:
    """Return the unfinished pods of a workload that are of this scheduler."""
    kind, namespace, name = key
    owned = _is_below(cluster, key)
    trainer = trainer_of(cluster, namespace, name) if kind == TRAINING_JOB else name
    labelled = trainer if kind in (JOB, TRAINING_JOB) else ""
    records = {
        record.waits_as
        for record in cluster.records.values()
        if record.pod.namespace == namespace
        and cluster.ours(record.pod)
        and (any(labelled and record.pod.labels.get(label) == labelled for label in JOB_LABELS) or owned(record))
        and (record.queue or record.counted is not None)
    }
    return sorted(records, key=lambda record: (record.counted is not None, queue_order(record)))


def _is_below(cluster: Cluster, key: JobKey) -> Callable[[PodRecord], bool]:
    """Return what says of a pod whether this workload is above it: its owner, or the owner of that."""
    kind, namespace, name = key

    def below(record: PodRecord) -> bool:
        owner = record.pod.owner
        for _ in range(OWNERS_MAX):
            if owner == f"{kind}/{name}":
                return True
            of, _, named = owner.partition("/")
            workload = cluster.tenants.workloads.get((of, namespace, named))
            owner = workload.owner if workload is not None else ""
        return False

    return below
