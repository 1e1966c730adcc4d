"""What a pod says of its gang: a claim.

Invariants:
- Labels and owners are looked at once per distinct bytes; a pod without a gang costs a few comparisons.
- Of several gangs the first source of `GangSource` counts, and `others` has the rest.
- A malformed label or annotation makes the gang invalid; the claim stays.

Source: Coscheduling (label), Volcano (annotations), JobSet (labels), `spec.schedulingGroup` of Kubernetes 1.36.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from msgspec import Struct

from aischeduler.kube.decode.api_types import PodAnnotations, PodDocument, PodSpecPart
from aischeduler.kube.decode.gang_fields import FieldReader
from aischeduler.kube.decode.gang_owners import GangOwners
from aischeduler.kube.decode.meta_types import OwnerReference
from aischeduler.model.gang import (
    GANG_KEY,
    GANG_MIN_KEY,
    GANG_ROLE_KEY,
    GANG_ROLE_MIN_KEY,
    GANG_SIZE_MAX,
    Gang,
    GangClaim,
    GangKey,
    GangSource,
)
from aischeduler.model.selectors import Labels
from aischeduler.model.user_text import quoted

POD_GROUP_LABEL: Final = "scheduling.x-k8s.io/pod-group"
JOB_SET_LABEL: Final = "jobset.sigs.k8s.io/jobset-name"
REPLICATED_JOB_LABEL: Final = "jobset.sigs.k8s.io/replicatedjob-name"
INDEX_LABELS: Final = ("batch.kubernetes.io/job-completion-index", "apps.kubernetes.io/pod-index")
"""The labels with the index of a pod; the first that a pod has counts."""
ASKED: Final = "true"
NAME_LENGTH_MAX: Final = 253
"""The longest name of a gang: that of an object."""
SAID_MAX: Final = 10_000
"""How many gangs of labels are cached, and shared by their pods."""
_NO_ANNOTATIONS: Final = PodAnnotations()


class GangParts(Struct, frozen=True):
    """What labels and owners of a pod say of gangs; a name is empty where there is none.

    `pod_group` is that of Coscheduling, `labelled` the gang of our label, `job` the Job that controls the pod.
    `lone_job` is its uid where the other names are empty, else empty.
    """

    pod_group: str
    labelled: str
    job_set: str
    job: str
    job_uid: str
    lone_job: str = ""


def gang_parts(labels: Labels, owners: Iterable[OwnerReference]) -> GangParts | None:
    """Return what labels and owners say; None where they name no gang and no Job."""
    group, labelled = labels.get(POD_GROUP_LABEL, ""), labels.get(GANG_KEY, "")
    job = next((owner for owner in owners if owner.controller and _is_job(owner)), None)
    if job is not None:
        job_set = labels.get(JOB_SET_LABEL, "")
        return GangParts(group, labelled, job_set, job.name, job.uid, "" if group or labelled or job_set else job.uid)
    return GangParts(group, labelled, "", "", "") if group or labelled else None


def gang_claim(document: PodDocument, labels: Labels, parts: GangParts | None, owners: GangOwners) -> GangClaim | None:
    """Return the claim of a pod; None where it names no gang."""
    annotations = document.metadata.annotations or _NO_ANNOTATIONS
    if not _may_name(document.spec, annotations, parts, owners):
        return None
    named = _named_groups(document, annotations, parts)
    if parts is not None and parts.job and (asking := _asking_owner(document, annotations, parts, owners)) is not None:
        named.append(asking)
    if not named:
        return None
    namespace = document.metadata.namespace
    key, *others = (GangKey(source, namespace, _name(name)) for source, name in named)
    role, said = "", None
    match key.source:
        case GangSource.LABELS:
            role = labels.get(GANG_ROLE_KEY, "")
            said = _said(key, (labels.get(GANG_MIN_KEY), role, labels.get(GANG_ROLE_MIN_KEY)), _further(annotations))
        case GangSource.VOLCANO:
            role = annotations.volcano_task or ""
        case GangSource.JOB_SET:
            role = labels.get(REPLICATED_JOB_LABEL, "")
    return GangClaim(key, role, _index(labels), said, tuple(others))


def _may_name(spec: PodSpecPart, annotations: PodAnnotations, parts: GangParts | None, owners: GangOwners) -> bool:
    """Return whether the pod may name a gang; almost no pod does."""
    if spec.scheduling_group is not None:
        return True
    if annotations.volcano_group or annotations.older_volcano_group:
        return True
    if parts is None or parts.lone_job in owners.plain_jobs:
        return False
    return not (parts.lone_job and owners.silent) or annotations.gang is not None


def _named_groups(
    document: PodDocument, annotations: PodAnnotations, parts: GangParts | None
) -> list[tuple[GangSource, str]]:
    """Return the gangs that the pod names itself, in the order of `GangSource`."""
    named: list[tuple[GangSource, str]] = []
    native = document.spec.scheduling_group
    if native is not None and native.pod_group_name:
        named.append((GangSource.NATIVE, native.pod_group_name))
    if parts is not None and parts.pod_group:
        named.append((GangSource.COSCHEDULING, parts.pod_group))
    volcano = annotations.volcano_group or annotations.older_volcano_group
    if volcano:
        named.append((GangSource.VOLCANO, volcano))
    if parts is not None and parts.labelled:
        named.append((GangSource.LABELS, parts.labelled))
    return named


def _asking_owner(
    document: PodDocument, annotations: PodAnnotations, parts: GangParts, owners: GangOwners
) -> tuple[GangSource, str] | None:
    """Return the JobSet or the Job of the pod that asks for a gang, or may do so.

    An annotation of the pod itself comes from the template of its JobSet, or of its Job where there is no JobSet.
    """
    namespace, asks = document.metadata.namespace, annotations.gang == ASKED
    pending = not document.spec.node_name and document.metadata.deletion_timestamp is None
    if parts.job_set:
        key = GangKey(GangSource.JOB_SET, namespace, parts.job_set)
        if asks or owners.asks(key, "", pending=pending):
            return GangSource.JOB_SET, parts.job_set
    key = GangKey(GangSource.JOB, namespace, parts.job)
    if (asks and not parts.job_set) or owners.asks(key, parts.job_uid, pending=pending):
        return GangSource.JOB, parts.job
    return None


@lru_cache(maxsize=SAID_MAX)
def _said(
    key: GangKey, texts: tuple[str | None, str, str | None], further: tuple[str | None, str | None, str | None]
) -> Gang:
    """Return the gang that the labels of a pod say; `texts` are min, role and the min of the role."""
    minimum, role, role_minimum = texts
    reader = FieldReader(f"the labels of gang {key.namespace}/{key.name}")
    member = reader.number_of_text(f"metadata.labels[{GANG_MIN_KEY}]", minimum, 1, GANG_SIZE_MAX)
    roles: tuple[tuple[str, int], ...] = ()
    if role_minimum is not None:
        least = reader.number_of_text(f"metadata.labels[{GANG_ROLE_MIN_KEY}]", role_minimum, 1, GANG_SIZE_MAX)
        roles = ((role, least),)
        if not role:
            reader.record(f"metadata.labels[{GANG_ROLE_KEY}]: is missing, and {GANG_ROLE_MIN_KEY} needs it")
    timeout, span, topology = reader.annotations(*further)
    return Gang(
        key,
        member,
        timeout_seconds=timeout,
        roles=roles if role else (),
        topology=topology,
        span=span,
        invalid=reader.invalid,
    )


def _further(annotations: PodAnnotations) -> tuple[str | None, str | None, str | None]:
    return annotations.gang_timeout, annotations.gang_span, annotations.gang_topology


def _index(labels: Labels) -> int:
    text = next((labels[label] for label in INDEX_LABELS if label in labels), "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else -1


def _is_job(owner: OwnerReference) -> bool:
    return owner.kind == "Job" and owner.api_version.startswith("batch/")


def _name(name: str) -> str:
    """Return the name of a gang; a text that cannot be a name is shortened and escaped: no object has it."""
    return name if len(name) <= NAME_LENGTH_MAX and name.isprintable() else quoted(name)
