"""Which hard constraints of a pod no rule looks at, and which volume claims it uses.

Laws:
- Only what kube-scheduler keeps a pod waiting for; wishes (preferred terms, ScheduleAnyway) are not named.
- Costs next to nothing for a pod without any: what its volumes are is read only where their bytes speak of a claim.

Source: kube-scheduler's filters InterPodAffinity, PodTopologySpread, VolumeBinding and its kin, DynamicResources.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Raw

from aischeduler.kube.api_types import UNREADABLE, PodAffinityPart, PodSpecPart, PodTermPart, VolumePart
from aischeduler.kube.decode_budget import read_selector
from aischeduler.model.unsupported_constraints import (
    REQUIRED_ANTI_AFFINITY,
    Constraint,
    ConstraintKind,
    PodAffinityTerm,
)
from aischeduler.model.volumes import VolumeClaimUse

SPREAD_ALWAYS: Final = "DoNotSchedule"
"""What whenUnsatisfiable says of a spread constraint that is no mere wish, and what it says where it is absent."""

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_CLAIM = b"olumeClaim"  # of persistentVolumeClaim, and of the volumeClaimTemplate of an ephemeral volume


def unsupported_constraints(spec: PodSpecPart) -> tuple[Constraint, ...]:
    """Return these constraints, in a fixed order; none for almost every pod."""
    if spec.affinity or spec.topology_spread_constraints or spec.resource_claims or _CLAIM in bytes(spec.volumes):
        return tuple(_constraints(spec))
    return ()


def claims_used(pod: str, volumes: Raw) -> tuple[VolumeClaimUse, ...]:
    """Return the claims that the volumes of a pod use; that of an ephemeral volume has the names of pod and volume."""
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
    for index, spread in enumerate(spec.topology_spread_constraints or ()):
        if (spread.when_unsatisfiable or SPREAD_ALWAYS) == SPREAD_ALWAYS:
            yield Constraint(ConstraintKind.TOPOLOGY_SPREAD, f"spec.topologySpreadConstraints[{index}]")
    if spec.resource_claims:
        yield Constraint(ConstraintKind.RESOURCE_CLAIM, "spec.resourceClaims")
    for use in claims_used("", spec.volumes):
        yield Constraint(ConstraintKind.VOLUME_CLAIM, use.field)


def pod_term(field: str, part: PodTermPart) -> PodAffinityTerm:
    """Return the affinity term at the path `field`. Raises SelectorError where one of its selectors cannot be read."""
    among, others = part.label_selector, part.namespace_selector
    return PodAffinityTerm(
        part.topology_key,
        read_selector(f"{field}.labelSelector", among) if among is not None else None,
        tuple(sorted(part.namespaces or ())),
        read_selector(f"{field}.namespaceSelector", others) if others is not None else None,
    )


def _requires_any(raw: Raw) -> bool:
    """Say whether there are required terms; what cannot be read may be some."""
    try:
        part = msgspec.json.decode(raw, type=PodAffinityPart | None) if raw else None
    except UNREADABLE:
        return True
    return part is not None and bool(part.required)


def _volumes(raw: Raw) -> list[VolumePart]:
    """Read volumes; what is no list of objects claims nothing, and the API server stores no such thing."""
    try:
        return (msgspec.json.decode(raw, type=list[VolumePart] | None) if raw else None) or []
    except UNREADABLE:
        return []
