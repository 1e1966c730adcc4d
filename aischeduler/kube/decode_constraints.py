"""The hard constraints of a pod that Ai-Scheduler does not support, with the field of each, and its volume claims.

Invariants:
- Only constraints that keep a pod pending in kube-scheduler count.
- A pod without such constraints costs almost nothing: its volumes are decoded only if their bytes mention a claim.

Source: kube-scheduler's VolumeBinding, VolumeZone and DynamicResources.
"""

from collections.abc import Iterator

import msgspec
from msgspec import Raw

from aischeduler.kube.api_types import PodSpecPart, VolumePart
from aischeduler.kube.meta_types import UNREADABLE
from aischeduler.model.unsupported_constraints import Constraint, ConstraintKind
from aischeduler.model.volumes import VolumeClaimUse

_CLAIM = b"olumeClaim"  # of persistentVolumeClaim, and of the volumeClaimTemplate of an ephemeral volume


def unsupported_constraints(spec: PodSpecPart) -> tuple[Constraint, ...]:
    """Return the unsupported constraints in a fixed order; almost every pod has none."""
    if spec.resource_claims or _CLAIM in bytes(spec.volumes):
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
    if spec.resource_claims:
        yield Constraint(ConstraintKind.RESOURCE_CLAIM, "spec.resourceClaims")
    for use in claims_used("", spec.volumes):
        yield Constraint(ConstraintKind.VOLUME_CLAIM, use.field)


def _volumes(raw: Raw) -> list[VolumePart]:
    """Decode volumes; the API server stores nothing but a list of objects, and anything else counts as none."""
    try:
        return (msgspec.json.decode(raw, type=list[VolumePart] | None) if raw else None) or []
    except UNREADABLE:
        return []
