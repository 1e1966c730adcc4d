"""The hard constraints of a pod that Ai-Scheduler does not support, with the field of each, and its volume claims.

Invariants:
- Only constraints that keep a pod pending in kube-scheduler count; preferred terms do not.
- A pod without such constraints costs almost nothing: its volumes are decoded only if their bytes mention a claim.

Source: kube-scheduler's InterPodAffinity, VolumeBinding, VolumeZone and DynamicResources.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Raw

from aischeduler.kube.api_types import PodAffinityPart, PodSpecPart, PodTermPart, SelectorPart, VolumePart
from aischeduler.kube.meta_types import UNREADABLE
from aischeduler.model.selectors import LabelSelector, label_requirement, label_selector
from aischeduler.model.unsupported_constraints import (
    REQUIRED_ANTI_AFFINITY,
    Constraint,
    ConstraintKind,
    PodAffinityTerm,
)
from aischeduler.model.volumes import VolumeClaimUse

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_CLAIM = b"olumeClaim"  # of persistentVolumeClaim, and of the volumeClaimTemplate of an ephemeral volume


def unsupported_constraints(spec: PodSpecPart) -> tuple[Constraint, ...]:
    """Return the unsupported constraints in a fixed order; almost every pod has none."""
    if spec.affinity or spec.resource_claims or _CLAIM in bytes(spec.volumes):
        return tuple(_constraints(spec))
    return ()


def claims_used(pod: str, volumes: Raw) -> tuple[VolumeClaimUse, ...]:
    """Return the claims of a pod's volumes; the claim of an ephemeral volume is named after pod and volume."""
    return tuple(
        VolumeClaimUse(f"spec.volumes[{index}].persistentVolumeClaim", volume.persistent_volume_claim.claim_name)
        if volume.persistent_volume_claim is not None
        else VolumeClaimUse(f"spec.volumes[{index}].ephemeral", f"{pod}-{volume.name}", owned=True)
        for index, volume in enumerate(_volumes(volumes))
        if volume.persistent_volume_claim is not None or volume.ephemeral is not None
    )


def _constraints(spec: PodSpecPart) -> Iterator[Constraint]:
    affinity = spec.affinity
    if affinity is not None:
        if affinity.pod_affinity is not None and affinity.pod_affinity.required:
            yield Constraint(ConstraintKind.POD_AFFINITY, f"spec.affinity.podAffinity.{REQUIRED}")
        if _requires_any(affinity.pod_anti_affinity):
            yield Constraint(ConstraintKind.POD_ANTI_AFFINITY, REQUIRED_ANTI_AFFINITY)
    if spec.resource_claims:
        yield Constraint(ConstraintKind.RESOURCE_CLAIM, "spec.resourceClaims")
    for use in claims_used("", spec.volumes):
        yield Constraint(ConstraintKind.VOLUME_CLAIM, use.field)


def pod_term(field: str, part: PodTermPart) -> PodAffinityTerm:
    """Return the affinity term at the path `field`; raises SelectorError for an invalid selector."""
    among, others = part.label_selector, part.namespace_selector
    return PodAffinityTerm(
        part.topology_key,
        read_selector(f"{field}.labelSelector", among) if among is not None else None,
        tuple(sorted(part.namespaces or ())),
        read_selector(f"{field}.namespaceSelector", others) if others is not None else None,
    )


def read_selector(field: str, part: SelectorPart) -> LabelSelector:
    """Return the label selector at the path `field`; raises SelectorError if it is invalid."""
    expressions = tuple(
        label_requirement(
            f"{field}.matchExpressions[{index}]", one.key or "", one.operator or "", tuple(one.values or ())
        )
        for index, one in enumerate(part.match_expressions or ())
    )
    return label_selector(field, part.match_labels or {}, expressions)


def _requires_any(raw: Raw) -> bool:
    """Say whether there are required terms; terms that cannot be decoded count as required."""
    try:
        part = msgspec.json.decode(raw, type=PodAffinityPart | None) if raw else None
    except UNREADABLE:
        return True
    return part is not None and bool(part.required)


def _volumes(raw: Raw) -> list[VolumePart]:
    """Decode volumes; the API server stores nothing but a list of objects, and anything else counts as none."""
    try:
        return (msgspec.json.decode(raw, type=list[VolumePart] | None) if raw else None) or []
    except UNREADABLE:
        return []
