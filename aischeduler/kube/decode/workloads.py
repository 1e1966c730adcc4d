"""Convert the objects that make pods to `Workload`: what they say of their tenant, and how they bear evictions.

Invariants:
- A malformed annotation never raises: `Workload.terms.invalid` names it, and the others count.
- Of a Job or a JobSet only the annotations of the object itself count: those of its templates are on its pods.
- PodGroups of all groups are of one kind here.

Source: ReplicaSet, StatefulSet and DaemonSet of apps/v1; batch/v1; JobSet of jobset.x-k8s.io/v1alpha2; Kueue;
PodGroup of scheduling.volcano.sh/v1beta1, whose `spec.queue` names the queue of its pods.
"""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from aischeduler.kube.decode.elastic import read_job_elastic, read_job_set_elastic
from aischeduler.kube.decode.gang_objects import PodGroupDocument
from aischeduler.kube.decode.job_documents import (
    GangMetadata,
    JobDocument,
    JobSetDocument,
    JobSetSpecPart,
    JobSpecPart,
    ManagedMetadata,
    is_managed,
)
from aischeduler.kube.decode.meta_types import owner_name
from aischeduler.kube.decode.tenant_terms import WorkloadMetadata, workload_terms
from aischeduler.model.elastic import ElasticJob
from aischeduler.model.tenant_queue import DEFAULT_QUEUE
from aischeduler.model.workload import SUSPENDED_RESTART, Workload

DEPLOYMENT: Final = "Deployment"
REPLICA_SET: Final = "ReplicaSet"
STATEFUL_SET: Final = "StatefulSet"
DAEMON_SET: Final = "DaemonSet"
JOB: Final = "Job"
JOB_SET: Final = "JobSet"
POD_GROUP: Final = "PodGroup"
RETRIES_DEFAULT: Final = 6
"""The backoffLimit of a Job that has none."""
UNLIMITED: Final = -1
IGNORE: Final = "Ignore"
DISRUPTION: Final = "DisruptionTarget"


class WorkloadDocument(Struct, gc=False):
    """An object that makes pods, of which only the metadata counts."""

    metadata: WorkloadMetadata


def read_workload(kind: str, metadata: WorkloadMetadata, elastic: ElasticJob | None = None) -> Workload:
    """Return a workload that can only be evicted pod by pod."""
    return Workload(
        kind,
        metadata.namespace,
        metadata.name,
        metadata.uid,
        owner_name(metadata.owner_references),
        workload_terms(metadata.annotations),
        elastic=elastic,
    )


def read_group_workload(document: PodGroupDocument) -> Workload:
    """Return the workload of a PodGroup."""
    queue = document.spec.get("queue") if isinstance(document.spec, dict) else ""
    if not isinstance(queue, str) or queue == DEFAULT_QUEUE:
        queue = ""  # what Volcano's definition writes where a user says nothing
    return _of_gang(POD_GROUP, document.metadata, queue)


def read_job_workload(document: JobDocument) -> Workload:
    """Return the workload of a Job."""
    spec = document.spec or JobSpecPart()
    workload = _of_gang(JOB, document.metadata, retries=_retries(spec))
    return _with_elastic(_stopped(workload, document.metadata, spec), read_job_elastic(document))


def read_job_set_workload(document: JobSetDocument) -> Workload:
    """Return the workload of a JobSet, which restarts its Jobs by a policy of its own."""
    workload = _of_gang(JOB_SET, document.metadata)
    stopped = _stopped(workload, document.metadata, document.spec or JobSetSpecPart())
    return _with_elastic(stopped, read_job_set_elastic(document))


def _with_elastic(workload: Workload, elastic: ElasticJob | None) -> Workload:
    return replace(workload, elastic=elastic) if elastic is not None else workload


def _stopped(workload: Workload, metadata: ManagedMetadata, spec: JobSpecPart | JobSetSpecPart) -> Workload:
    """Return a Job or a JobSet with who decides whether it runs, and whether this scheduler is to resume it."""
    ours = metadata.annotations is not None and metadata.annotations.suspended_for == SUSPENDED_RESTART
    managed, suspended = is_managed(metadata.labels, spec.managed_by), ours and spec.suspend is True
    return replace(workload, managed=managed, suspended=suspended) if managed or suspended else workload


def _of_gang(kind: str, metadata: GangMetadata, queue: str = "", *, retries: int = UNLIMITED) -> Workload:
    return Workload(
        kind,
        metadata.namespace,
        metadata.name,
        metadata.uid,
        owner_name(metadata.owner_references),
        workload_terms(metadata.annotations, queue),
        retries,
    )


def _retries(spec: JobSpecPart) -> int:
    """Return how many pods of a Job may fail before it fails, as far as evicted ones count as failed.

    With a limit per index, only one that allows no failure at all ends the Job by the eviction of a gang.
    """
    for rule in spec.pod_failure_policy.rules or () if spec.pod_failure_policy is not None else ():
        patterns = rule.on_pod_conditions or ()
        if any(pattern.type == DISRUPTION and pattern.status in ("", "True") for pattern in patterns):
            if rule.action == IGNORE:
                return UNLIMITED
            break
    if spec.backoff_limit_per_index == 0:
        return 0
    return RETRIES_DEFAULT if spec.backoff_limit is None else max(spec.backoff_limit, 0)
