"""Convert the objects that declare gangs to `Gang`: PodGroups of three groups, Jobs and JobSets.

Invariants:
- A malformed field never raises: the gang is invalid, and `invalid` names the object and the field.
- A Job or a JobSet asks for a gang by its annotation, or by that of a pod template in it.
- The minimum of a Job is the number of its pods that exist at one time: the last ones of many may be fewer.
- An elastic one always asks for a gang, of its least number of instances: those above it come and go alone.

Source: PodGroup of scheduling.x-k8s.io/v1alpha1, scheduling.volcano.sh/v1beta1 and scheduling.k8s.io/v1alpha2;
batch/v1; JobSet of jobset.x-k8s.io/v1alpha2.
"""

from collections.abc import Iterator
from typing import Any, Final, TypedDict

from msgspec import Struct
from msgspec.structs import replace

from aischeduler.kube.decode.elastic import read_job_elastic, read_job_set_elastic
from aischeduler.kube.decode.gang import ASKED
from aischeduler.kube.decode.gang_fields import TIMEOUT_SECONDS_MAX, FieldReader
from aischeduler.kube.decode.job_documents import (
    GangAnnotations,
    GangMetadata,
    JobDocument,
    JobSetDocument,
    JobSetSpecPart,
    JobSetStatus,
    JobSpecPart,
    JobStatus,
    ReplicatedJobPart,
    TemplateMetadata,
    count,
    ended,
)
from aischeduler.kube.decode.meta_types import Metadata
from aischeduler.model.elastic import ElasticJob
from aischeduler.model.gang import (
    GANG_KEY,
    GANG_SIZE_MAX,
    Gang,
    GangKey,
    GangSource,
    TopologyLevel,
)

STARTED_PHASES: Final = {
    GangSource.COSCHEDULING: frozenset(("Scheduled", "Scheduling", "Running", "Finished")),
    GangSource.VOLCANO: frozenset(("Running", "Completed")),
}
"""The phases of a PodGroup that has started; "Scheduling" of Coscheduling means that the minimum is on nodes."""
NATIVE_CONDITION: Final = "PodGroupScheduled"


class _Identity(TypedDict):
    """The fields of a gang that come from the metadata of its object."""

    uid: str
    generation: int
    created_seconds: int


_NONE: Final = GangAnnotations()


class PodGroupDocument(Struct, gc=False):
    """A PodGroup of any group. Spec and status are read field by field: a definition may be older than its objects."""

    metadata: GangMetadata
    spec: Any = None
    status: Any = None


def read_pod_group(document: PodGroupDocument, source: GangSource) -> Gang:
    """Return the gang of a PodGroup of Coscheduling or Volcano."""
    key, reader = _key(document.metadata, source), FieldReader(f"PodGroup {_named(document.metadata)}")
    spec, status = reader.typed("spec", document.spec, dict), reader.typed("status", document.status, dict)
    annotations = document.metadata.annotations or _NONE
    seconds, span, topology = reader.annotations(annotations.timeout, annotations.span, annotations.topology)
    member, roles = spec.get("minMember"), tuple[tuple[str, int], ...]()
    if source is GangSource.VOLCANO:
        member = member or 1  # Volcano itself does not tell 0 from an absent field: such a group is no gang
        tasks = reader.typed("spec.minTaskMember", spec.get("minTaskMember"), dict)
        numbers = (
            (task, reader.number(f"spec.minTaskMember.{task}", n, 0, GANG_SIZE_MAX)) for task, n in tasks.items()
        )
        roles = tuple(sorted((task, number) for task, number in numbers if number))
    elif spec.get("scheduleTimeoutSeconds") is not None:
        found = spec["scheduleTimeoutSeconds"]
        seconds = reader.number("spec.scheduleTimeoutSeconds", found, 0, TIMEOUT_SECONDS_MAX)
    return Gang(
        key,
        reader.number("spec.minMember", member, 1, GANG_SIZE_MAX),
        **_identity(document.metadata),
        timeout_seconds=seconds,
        roles=roles,
        topology=topology,
        span=span,
        started=status.get("phase") in STARTED_PHASES[source],
        invalid=reader.invalid,
    )


def read_native_group(document: PodGroupDocument) -> Gang:
    """Return the gang of a PodGroup of the API server itself; the policy `basic` has the minimum 1."""
    reader = FieldReader(f"PodGroup {_named(document.metadata)}")
    spec, status = reader.typed("spec", document.spec, dict), reader.typed("status", document.status, dict)
    annotations = document.metadata.annotations or _NONE
    seconds, span, topology = reader.annotations(annotations.timeout, annotations.span, annotations.topology)
    policy = reader.typed("spec.schedulingPolicy", spec.get("schedulingPolicy"), dict)
    member = 1
    if policy.get("gang") is not None:
        gang = reader.typed("spec.schedulingPolicy.gang", policy["gang"], dict)
        member = reader.number("spec.schedulingPolicy.gang.minCount", gang.get("minCount"), 1, GANG_SIZE_MAX)
    elif policy.get("basic") is None:
        reader.record("spec.schedulingPolicy: has neither gang nor basic")
    return Gang(
        _key(document.metadata, GangSource.NATIVE),
        member,
        **_identity(document.metadata),
        timeout_seconds=seconds,
        topology=(*_native_topology(reader, spec), *topology),
        span=span,
        started=any(
            isinstance(condition, dict)
            and condition.get("type") == NATIVE_CONDITION
            and condition.get("status") == "True"
            for condition in reader.typed("status.conditions", status.get("conditions"), list)
        ),
        invalid=reader.invalid,
    )


def _native_topology(reader: FieldReader, spec: Any) -> Iterator[TopologyLevel]:
    constraints = reader.typed("spec.schedulingConstraints", spec.get("schedulingConstraints"), dict)
    path = "spec.schedulingConstraints.topology"
    for index, constraint in enumerate(reader.typed(path, constraints.get("topology"), list)):
        where = f"{path}[{index}]"
        label = reader.typed(f"{where}.key", reader.typed(where, constraint, dict).get("key"), str)
        yield reader.level(where, label, required=True)


def read_job(document: JobDocument) -> tuple[Gang, bool]:
    """Return the gang of a Job, and whether the Job asks for one."""
    spec, status = document.spec or JobSpecPart(), document.status or JobStatus()
    reader = FieldReader(f"Job {_named(document.metadata)}")
    templates = _annotations(spec.template.metadata if spec.template is not None else None)
    asks, annotations = _asks(reader, document.metadata.annotations or _NONE, [templates])
    elastic, done = _read_elastic(read_job_elastic(document)), ended(status)
    pods = _pods(spec, done) if elastic is None else _least_pods(elastic, spec, done)
    gang = _gang_of_jobs(reader, document.metadata, GangSource.JOB, annotations, {"": pods})
    return _started(gang, status), asks or elastic is not None


def read_job_set(document: JobSetDocument) -> tuple[Gang, bool]:
    """Return the gang of all pods of a JobSet, with its ReplicatedJobs as roles, and whether it asks for one."""
    spec, status = document.spec or JobSetSpecPart(), document.status or JobSetStatus()
    jobs = spec.replicated_jobs or []
    reader = FieldReader(f"JobSet {_named(document.metadata)}")
    templates = [found for job in jobs for found in _template_annotations(job)]
    asks, annotations = _asks(reader, document.metadata.annotations or _NONE, templates)
    ordered = spec.startup_policy is not None and spec.startup_policy.startup_policy_order == "InOrder"
    if ordered or any(job.depends_on for job in jobs):
        field = "spec.startupPolicy" if ordered else "spec.replicatedJobs[].dependsOn"
        reader.record(f"{field}: creates some pods after others have started, so they cannot start together")
    finished = {job_status.name: count(job_status.succeeded or 0) for job_status in status.replicated_jobs_status or ()}
    pods = {
        job.name: max(count(job.replicas) - finished.get(job.name, 0), 0)
        * _pods((job.template and job.template.spec) or JobSpecPart())
        for job in jobs
    }
    elastic = _read_elastic(read_job_set_elastic(document))
    if elastic is not None and not finished.get(elastic.part):
        pods[elastic.part] = elastic.terms.min_instances
    gang = _gang_of_jobs(reader, document.metadata, GangSource.JOB_SET, annotations, pods)
    return _started(gang, *(status.replicated_jobs_status or ())), asks or elastic is not None


def _read_elastic(elastic: ElasticJob | None) -> ElasticJob | None:
    """Return an elastic job that has no problem."""
    return elastic if elastic is not None and elastic.problem is None else None


def _least_pods(elastic: ElasticJob, spec: JobSpecPart, done: int) -> int:
    """Return how many pods of an elastic Job start together once so many have succeeded or failed for good.

    Its present number may be too small still, and its completions with it.
    """
    least = elastic.terms.min_instances
    if spec.completions is None:
        return least
    wanted = max(spec.completions, least) if elastic.completions_follow else spec.completions
    return min(least, max(wanted - done, 0))


def _gang_of_jobs(
    reader: FieldReader,
    metadata: GangMetadata,
    source: GangSource,
    annotations: GangAnnotations,
    pods: dict[str, int],
) -> Gang:
    """Return the gang of Jobs with these numbers of pods by role; the role of a Job alone is empty."""
    seconds, span, topology = reader.annotations(annotations.timeout, annotations.span, annotations.topology)
    total = sum(pods.values())
    if total > GANG_SIZE_MAX:
        reader.record(f"spec: has {total} pods at one time, which is more than {GANG_SIZE_MAX}")
    return Gang(
        _key(metadata, source),
        min(total, GANG_SIZE_MAX),
        **_identity(metadata),
        timeout_seconds=seconds,
        roles=tuple(sorted((role, number) for role, number in pods.items() if role and number)),
        topology=topology,
        span=span,
        invalid=reader.invalid,
    )


def _asks(reader: FieldReader, own: GangAnnotations, templates: list[GangAnnotations]) -> tuple[bool, GangAnnotations]:
    """Return whether one of these annotations asks for a gang, and the first of each further annotation.

    Any value but "false" asks for one: a gang with a misspelt value waits with a reason, rather than start in part.
    """
    reader.switch(f"metadata.annotations[{GANG_KEY}]", own.gang)
    asks = own.gang != "false" if own.gang is not None else any(template.gang == ASKED for template in templates)
    everywhere = (own, *templates)
    further = GangAnnotations(
        timeout=next((annotations.timeout for annotations in everywhere if annotations.timeout is not None), None),
        span=next((annotations.span for annotations in everywhere if annotations.span is not None), None),
        topology=next((annotations.topology for annotations in everywhere if annotations.topology is not None), None),
    )
    return asks, further


def _template_annotations(job: ReplicatedJobPart) -> Iterator[GangAnnotations]:
    """Yield the annotations of the Jobs and of the pods of a ReplicatedJob."""
    if job.template is not None:
        yield _annotations(job.template.metadata)
        pods = job.template.spec.template if job.template.spec is not None else None
        yield _annotations(pods.metadata if pods is not None else None)


def _annotations(metadata: TemplateMetadata | None) -> GangAnnotations:
    return (metadata.annotations if metadata is not None else None) or _NONE


def _pods(spec: JobSpecPart, ended: int = 0) -> int:
    """Return how many pods of a Job exist at one time once so many have succeeded or failed for good."""
    parallelism = count(spec.parallelism)
    return parallelism if spec.completions is None else min(parallelism, max(spec.completions - ended, 0))


def _started(gang: Gang, *statuses: JobStatus) -> Gang:
    """Return the gang; it has started if a pod of it is ready or has succeeded."""
    started = any(status.ready or status.succeeded for status in statuses)
    return replace(gang, started=True) if started else gang


def _identity(metadata: GangMetadata) -> _Identity:
    created = metadata.creation_timestamp
    return {
        "uid": metadata.uid,
        "generation": metadata.generation,
        "created_seconds": int(created.timestamp()) if created is not None else 0,
    }


def _key(metadata: Metadata, source: GangSource) -> GangKey:
    return GangKey(source, metadata.namespace, metadata.name)


def _named(metadata: Metadata) -> str:
    return f"{metadata.namespace}/{metadata.name}"
