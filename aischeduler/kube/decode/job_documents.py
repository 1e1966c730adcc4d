"""The Jobs and the JobSets as the API server has them, with the fields that gangs, workloads and elastic jobs need.

Source: batch/v1; JobSet of jobset.x-k8s.io/v1alpha2; Kueue.
"""

from datetime import datetime
from typing import Any, Final

from msgspec import Struct, field

from aischeduler.kube.decode.meta_types import Metadata, OwnerReference
from aischeduler.kube.decode.tenant_terms import WorkloadAnnotations
from aischeduler.model.gang import GANG_KEY, GANG_SPAN_KEY, GANG_TIMEOUT_KEY, GANG_TOPOLOGY_KEY
from aischeduler.model.workload import SUSPENDED_KEY

OWN_MANAGERS: Final = frozenset(("", "kubernetes.io/job-controller", "jobset.sigs.k8s.io/jobset-controller"))
"""The values of managedBy that leave a Job or a JobSet to its own controller."""

INDEXES_LENGTH_MAX: Final = 21
"""The longest pair of indexes of a Job, as "0-4999"."""


class GangAnnotations(WorkloadAnnotations, gc=False):
    """The annotations of an object that concern its gang, and its tenant."""

    gang: str | None = field(name=GANG_KEY, default=None)
    timeout: str | None = field(name=GANG_TIMEOUT_KEY, default=None)
    span: str | None = field(name=GANG_SPAN_KEY, default=None)
    topology: str | None = field(name=GANG_TOPOLOGY_KEY, default=None)
    suspended_for: str | None = field(name=SUSPENDED_KEY, default=None)


class GangMetadata(Metadata, rename="camel", gc=False):
    """The metadata of an object that may declare a gang."""

    creation_timestamp: datetime | None = None
    annotations: GangAnnotations | None = None
    owner_references: list[OwnerReference] | None = None


class ManagerLabels(Struct, gc=False):
    """The label by which Kueue decides when a Job or a JobSet runs."""

    queue: str | None = field(name="kueue.x-k8s.io/queue-name", default=None)


class ManagedMetadata(GangMetadata, rename="camel", gc=False):
    """The metadata of a Job or a JobSet."""

    labels: ManagerLabels | None = None


class TemplateMetadata(Struct, gc=False):
    """The metadata of a template."""

    annotations: GangAnnotations | None = None


class TemplatePart(Struct, gc=False):
    """A pod template, of which only the metadata counts."""

    metadata: TemplateMetadata | None = None


class PodConditionPattern(Struct, gc=False):
    """A condition of failed pods."""

    type: str = ""
    status: str = ""


class FailureRule(Struct, rename="camel", gc=False):
    """What a Job does when a pod fails with one of these conditions; rules about exit codes have none."""

    action: str = ""
    on_pod_conditions: list[PodConditionPattern] | None = None


class FailurePolicy(Struct, gc=False):
    """The rules of a Job, of which the first that applies counts."""

    rules: list[FailureRule] | None = None


class JobSpecPart(Struct, rename="camel", gc=False):
    """The spec of a Job."""

    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str | None = None
    template: TemplatePart | None = None
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    pod_failure_policy: FailurePolicy | None = None
    managed_by: str | None = None
    suspend: bool | None = None


class StatusCondition(Struct, gc=False):
    """A condition of a Job or a JobSet."""

    type: str = ""
    status: str = ""


class JobStatus(Struct, rename="camel", gc=False):
    """The status of a Job: how many of its pods are ready, how many succeeded, and which failed, as "1,3-5"."""

    name: str = ""
    ready: int | None = None
    succeeded: int | None = None
    failed_indexes: str | None = None
    completion_time: str | None = None
    conditions: list[StatusCondition] | None = None


class JobDocument(Struct, gc=False):
    """A Job."""

    metadata: ManagedMetadata
    spec: JobSpecPart | None = None
    status: JobStatus | None = None


class JobTemplatePart(Struct, gc=False):
    """The template of the Jobs of a ReplicatedJob."""

    metadata: TemplateMetadata | None = None
    spec: JobSpecPart | None = None


class ReplicatedJobPart(Struct, rename="camel", gc=False):
    """A ReplicatedJob of a JobSet."""

    name: str = ""
    replicas: int | None = None
    template: JobTemplatePart | None = None
    depends_on: list[Any] | None = None


class StartupPolicyPart(Struct, rename="camel", gc=False):
    """The order in which the Jobs of a JobSet are created."""

    startup_policy_order: str | None = None


class JobSetSpecPart(Struct, rename="camel", gc=False):
    """The spec of a JobSet."""

    replicated_jobs: list[ReplicatedJobPart] | None = None
    startup_policy: StartupPolicyPart | None = None
    managed_by: str | None = None
    suspend: bool | None = None


class JobSetStatus(Struct, rename="camel", gc=False):
    """The status of a JobSet: the same numbers for each ReplicatedJob, by name, in Jobs."""

    replicated_jobs_status: list[JobStatus] | None = None
    terminal_state: str | None = None
    conditions: list[StatusCondition] | None = None


class JobSetDocument(Struct, gc=False):
    """A JobSet."""

    metadata: ManagedMetadata
    spec: JobSetSpecPart | None = None
    status: JobSetStatus | None = None


def ended(status: JobStatus) -> int:
    """Return how many pods of a Job get no successor; text that is no list of indexes counts as none."""
    failed = 0
    for part in filter(None, (status.failed_indexes or "").split(",")):
        first, _, last = part.partition("-")
        if len(part) <= INDEXES_LENGTH_MAX and first.isdecimal() and (last or first).isdecimal():
            failed += int(last or first) - int(first) + 1
    return (status.succeeded or 0) + failed


def count(number: int | None) -> int:
    """Return a number of pods or Jobs, which is 1 where the field is absent."""
    return 1 if number is None else max(number, 0)


def is_managed(labels: ManagerLabels | None, manager: str | None = None) -> bool:
    """Return whether another program decides when an object runs."""
    return bool(labels is not None and labels.queue) or (manager or "") not in OWN_MANAGERS
