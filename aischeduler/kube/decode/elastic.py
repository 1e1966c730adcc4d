"""Convert Jobs, JobSets, and objects with `spec.replicas`, that ask to be elastic to `ElasticJob`.

Invariants:
- An object that names neither minimum nor maximum is None, after two comparisons. Nothing here raises.
- An object that another one of Kubernetes controls is None: a controller copies annotations to what it makes, and its
  own object says the number of instances.
- Only one writer chooses a number: what another program decides about is not elastic, and `problem` names that one.
- An object that is being deleted counts as finished.

Source: batch/v1 with elastic Indexed Jobs (KEP-3715); JobSet of jobset.x-k8s.io/v1alpha2, whose Jobs are Indexed unless
they say otherwise (KEP-463); Deployment and StatefulSet of apps/v1; RayCluster and RayJob of ray.io/v1; Kueue.
"""

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

from aischeduler.kube.decode.elastic_terms import (
    ElasticAnnotations,
    Noted,
    annotation_path,
    asks_to_be_elastic,
    read_notes,
    read_terms,
)
from aischeduler.kube.decode.job_documents import (
    JobDocument,
    JobSetDocument,
    JobSetSpecPart,
    JobSetStatus,
    JobSpecPart,
    JobStatus,
    ManagedMetadata,
    ManagerLabels,
    ReplicatedJobPart,
    StatusCondition,
    count,
    ended,
    is_managed,
)
from aischeduler.kube.decode.meta_types import OwnerReference
from aischeduler.kube.decode.tenant_terms import WorkloadMetadata
from aischeduler.model.elastic import ELASTIC_JOB_KEY, ElasticJob, Problem
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.user_text import quoted, shown

CONTROLLERS: Final = frozenset(("JobSet", "Deployment", "ReplicaSet", "StatefulSet"))
"""The kinds whose own objects say how many instances there are."""
MAKERS: Final = frozenset(("CronJob", "TrainingJob"))
"""The kinds that make an object and leave the number of its instances alone."""
INDEXED: Final = "Indexed"
FINISHED: Final = frozenset(("Complete", "Completed", "Failed", "SuccessCriteriaMet", "FailureTarget"))
"""The conditions of a Job or a JobSet that ends, or has ended."""


class ScaledMetadata(WorkloadMetadata, rename="camel", gc=False):
    """The metadata of an object with `spec.replicas`."""

    labels: ManagerLabels | None = None


class ScaledSpecPart(Struct, rename="camel", gc=False):
    """The spec of an object of any kind, whose definition may give these fields any type.

    The last two are those of a RayCluster and a RayJob.
    """

    replicas: Any = None
    enable_in_tree_autoscaling: Any = None
    ray_cluster_spec: Any = None


class ScaledDocument(Struct, gc=False):
    """An object of any kind."""

    metadata: ScaledMetadata
    spec: ScaledSpecPart | None = None


class _Observed(Struct, frozen=True):
    """What an object says of its instances; see `ElasticJob`."""

    size: int
    ordered: bool = False
    completions_follow: bool = False
    succeeded: int = 0
    left: int | None = None
    part: str = ""
    part_index: int = 0
    finished: bool = False
    suspended: bool = False
    problem: Problem | None = None


def read_job_elastic(document: JobDocument) -> ElasticJob | None:
    """Return what a Job says."""
    annotations = document.metadata.annotations
    if annotations is None or not asks_to_be_elastic(annotations):
        return None
    spec, status = document.spec or JobSpecPart(), document.status or JobStatus()
    notes = read_notes(annotations)
    done = bool(status.completion_time) or _has_ended(status.conditions)
    observed = _of_job(spec, status, notes, indexed=spec.completion_mode == INDEXED, finished=done)
    return _read(document.metadata, annotations, notes, observed, manager=spec.managed_by)


def read_job_set_elastic(document: JobSetDocument) -> ElasticJob | None:
    """Return what a JobSet says.

    Its status counts Jobs: how many instances succeeded, the status of the Job says that it controls.
    """
    annotations = document.metadata.annotations
    if annotations is None or not asks_to_be_elastic(annotations):
        return None
    spec, status = document.spec or JobSetSpecPart(), document.status or JobSetStatus()
    notes = read_notes(annotations)
    index = _part_index(spec.replicated_jobs or [], annotations.elastic_job or "")
    if isinstance(index, Problem):
        observed = _Observed(0, problem=index)
    else:
        part = (spec.replicated_jobs or [])[index]
        job = _job_spec(part)
        of_part = [found for found in status.replicated_jobs_status or () if found.name == part.name]
        done = bool(status.terminal_state) or any(found.succeeded for found in of_part)
        observed = _of_job(
            job,
            JobStatus(),
            notes,
            indexed=True,
            finished=done or _has_ended(status.conditions),
            part=part.name,
            part_index=index,
            suspended=spec.suspend is True,
        )
    return _read(document.metadata, annotations, notes, observed, manager=spec.managed_by)


def read_scaled_elastic(
    metadata: ScaledMetadata, replicas: int | None, *, ordered: bool, problem: Problem | None = None
) -> ElasticJob | None:
    """Return what an object with this `spec.replicas` says; a StatefulSet's instances are `ordered`.

    `problem` is what the object has of its own.
    """
    annotations = metadata.annotations
    if annotations is None or not asks_to_be_elastic(annotations):
        return None
    observed = _Observed(count(replicas), ordered, problem=problem)
    return _read(metadata, annotations, read_notes(annotations), observed, manager=None)


def read_object_elastic(document: ScaledDocument, *, ordered: bool, default: int | None = None) -> ElasticJob | None:
    """Return what an object of any kind says; `default` is its size without `spec.replicas`, None where it has none."""
    if not asks_to_be_elastic(document.metadata.annotations):
        return None
    spec = document.spec or ScaledSpecPart()
    replicas = default if spec.replicas is None else spec.replicas
    size = replicas if type(replicas) is int else 0  # a bool is an int too
    problem = _problem_of(spec, replicas)
    return read_scaled_elastic(document.metadata, size, ordered=ordered, problem=problem)


def _problem_of(spec: ScaledSpecPart, replicas: object) -> Problem | None:
    """Return why the size of an object is none that can be written."""
    of_job = spec.ray_cluster_spec if isinstance(spec.ray_cluster_spec, dict) else {}
    if spec.enable_in_tree_autoscaling is True or of_job.get("enableInTreeAutoscaling") is True:
        return not_elastic("Ray's autoscaler scales it")
    if replicas is None:
        return not_elastic("it has no spec.replicas, by which it could be resized")
    if type(replicas) is not int:
        return not_elastic(f"its spec.replicas must be a whole number, not {shown(replicas)}")
    return None


def _read(
    metadata: ManagedMetadata | ScaledMetadata,
    annotations: ElasticAnnotations,
    notes: Noted,
    observed: _Observed,
    *,
    manager: str | None,
) -> ElasticJob | None:
    owner = next((owner for owner in metadata.owner_references or () if owner.controller), None)
    if owner is not None and owner.kind in CONTROLLERS:
        return None
    asked = read_terms(annotations)
    problem = _other_writer(owner, metadata.labels, manager) or asked.problem or observed.problem
    return ElasticJob(
        asked.terms,
        observed.size,
        metadata.resource_version,
        ordered=observed.ordered,
        completions_follow=observed.completions_follow,
        succeeded=observed.succeeded,
        left=observed.left,
        part=observed.part,
        finished=observed.finished or metadata.deletion_timestamp is not None,
        suspended=observed.suspended,
        written_size=notes.size,
        resized_at_seconds=notes.resized_at_seconds,
        service=notes.service,
        service_at_seconds=notes.service_at_seconds,
        by_another=notes.by_another,
        ignored=asked.ignored,
        problem=problem,
        part_index=observed.part_index,
    )


def _other_writer(owner: OwnerReference | None, labels: ManagerLabels | None, manager: str | None) -> Problem | None:
    """Return the problem of an object about which another program decides."""
    if owner is not None and owner.kind not in MAKERS:
        return not_elastic(f"{quoted(f'{owner.kind}/{owner.name}')} controls it")
    if not is_managed(labels, manager):
        return None
    if labels is not None and labels.queue:
        return not_elastic(f"its label kueue.x-k8s.io/queue-name leaves it to Kueue's queue {quoted(labels.queue)}")
    return not_elastic(f"spec.managedBy: {quoted(manager or '')} controls it")


def not_elastic(message: str) -> Problem:
    """Return the problem of an object whose number of instances the scheduler leaves alone."""
    return Problem(EventReason.NOT_ELASTIC, message)


def _part_index(jobs: list[ReplicatedJobPart], name: str) -> int | Problem:
    """Return the place of the ReplicatedJob that is elastic: the named one, else the only one that can be."""
    path = annotation_path(ELASTIC_JOB_KEY)
    fit = [index for index, job in enumerate(jobs) if count(job.replicas) == 1 and _is_indexed(_job_spec(job))]
    if not name:
        if len(fit) == 1:
            return fit[0]
        wanted = "of its replicatedJobs exactly one must have replicas 1 and completionMode Indexed"
        return not_elastic(f"{wanted}, and {len(fit)} have: name one in {path}")
    named = next((index for index, job in enumerate(jobs) if job.name == name), None)
    if named is None:
        return Problem(EventReason.INVALID_ELASTIC, f"{path}: there is no replicatedJob {quoted(name)}")
    if named not in fit:
        wanted = "must have replicas 1 and completionMode Indexed"
        return not_elastic(f"spec.replicatedJobs[{named}]: the replicatedJob {quoted(name)} {wanted}")
    return named


def _job_spec(part: ReplicatedJobPart) -> JobSpecPart:
    return (part.template.spec if part.template is not None else None) or JobSpecPart()


def _is_indexed(spec: JobSpecPart) -> bool:
    """Return whether the Jobs of a ReplicatedJob are Indexed, which the JobSet's own webhook writes by default."""
    return (spec.completion_mode or INDEXED) == INDEXED


def _of_job(
    spec: JobSpecPart,
    status: JobStatus,
    notes: Noted,
    *,
    indexed: bool,
    finished: bool,
    part: str = "",
    part_index: int = 0,
    suspended: bool = False,
) -> _Observed:
    """Return what a Job says, or the only one of a ReplicatedJob; only Indexed ones may change their completions."""
    size, completions = count(spec.parallelism), spec.completions
    follows = notes.completions_follow
    if follows is None:
        follows = completions == size or (completions is None and bool(part))
    follows = follows and indexed
    return _Observed(
        size,
        follows,  # else the controller ends the newest, whatever their indexes
        follows,
        max(status.succeeded or 0, 0),
        None if completions is None or follows else max(completions - ended(status), 0),
        part,
        part_index,
        finished,
        suspended or spec.suspend is True,
    )


def _has_ended(conditions: Iterable[StatusCondition] | None) -> bool:
    return any(condition.type in FINISHED and condition.status == "True" for condition in conditions or ())
