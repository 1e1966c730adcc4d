"""Hard constraints of a pod that no rule of ours looks at, so that its owner is told instead of surprised.

Laws:
- Only what kube-scheduler would keep a pod waiting for; wishes (preferred terms, ScheduleAnyway) are not named.
- Costs next to nothing for a pod without any: what its volumes are is read only where their bytes speak of a claim.
- Bounded: of a pod with many such fields the first are named and the rest are counted.

Source: kube-scheduler's filters InterPodAffinity, PodTopologySpread, VolumeBinding and its kin, DynamicResources.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Raw

from aischeduler.kube.documents import UNREADABLE, PodSpecPart, VolumePart

FIELDS_MAX: Final = 8
"""Fields that are named."""
SPREAD_ALWAYS: Final = "DoNotSchedule"
"""What whenUnsatisfiable says of a spread constraint that is no mere wish, and what it says where it is absent."""

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_CLAIM = b"olumeClaim"  # of persistentVolumeClaim, and of the volumeClaimTemplate of an ephemeral volume


def unobeyed(spec: PodSpecPart) -> tuple[str, ...]:
    """Return the paths of these fields, in a fixed order; none for almost every pod."""
    if spec.affinity or spec.topology_spread_constraints or spec.resource_claims or _CLAIM in bytes(spec.volumes):
        fields = tuple(_fields(spec))
        more = len(fields) - FIELDS_MAX
        return fields if more <= 0 else (*fields[:FIELDS_MAX], f"{more} more fields")
    return ()


def _fields(spec: PodSpecPart) -> Iterator[str]:
    affinity = spec.affinity
    if affinity is not None:
        if affinity.pod_affinity is not None and affinity.pod_affinity.required:
            yield f"spec.affinity.podAffinity.{_REQUIRED}"
        if affinity.pod_anti_affinity is not None and affinity.pod_anti_affinity.required:
            yield f"spec.affinity.podAntiAffinity.{_REQUIRED}"
    for index, spread in enumerate(spec.topology_spread_constraints or ()):
        if (spread.when_unsatisfiable or SPREAD_ALWAYS) == SPREAD_ALWAYS:
            yield f"spec.topologySpreadConstraints[{index}]"
    if spec.resource_claims:
        yield "spec.resourceClaims"
    for index, volume in enumerate(_volumes(spec.volumes)):
        if volume.persistent_volume_claim is not None:
            yield f"spec.volumes[{index}].persistentVolumeClaim"
        elif volume.ephemeral is not None:
            yield f"spec.volumes[{index}].ephemeral"


def _volumes(raw: Raw) -> list[VolumePart]:
    """Read volumes; what is no list of objects claims nothing, and the API server stores no such thing."""
    try:
        return (msgspec.json.decode(raw, type=list[VolumePart] | None) if raw else None) or []
    except UNREADABLE:
        return []
