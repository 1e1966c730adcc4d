"""PersistentVolumeClaims and PersistentVolumes: their documents, as far as they are read, and the values they become.

Law: a volume that says in any way on which nodes it can be used is tied to nodes.

Source: kube-scheduler's VolumeBinding (node affinity of volumes) and VolumeZone (their labels of zone and region).
"""

from typing import Final

from msgspec import Struct

from aischeduler.kube.api_types import LabelledMetadata, Metadata, Owner, Present
from aischeduler.model.volumes import Volume, VolumeClaim

BOUND: Final = "Bound"
LOST: Final = "Lost"
ZONE_LABELS: Final = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)


class OwnedMetadata(Metadata, rename="camel", gc=False):
    """Metadata of a claim: its owners count."""

    owner_references: list[Owner] | None = None


class ClaimSpecPart(Struct, rename="camel", gc=False):
    """The spec of a PersistentVolumeClaim."""

    volume_name: str | None = None


class ClaimStatus(Struct, gc=False):
    """The status of a PersistentVolumeClaim."""

    phase: str | None = None


class ClaimDocument(Struct, gc=False):
    """A PersistentVolumeClaim."""

    metadata: OwnedMetadata
    spec: ClaimSpecPart | None = None
    status: ClaimStatus | None = None


class VolumeAffinityPart(Struct, gc=False):
    """The nodes of a volume: whether any are required."""

    required: Present | None = None


class VolumeSpecPart(Struct, rename="camel", gc=False):
    """The spec of a PersistentVolume."""

    node_affinity: VolumeAffinityPart | None = None


class VolumeDocument(Struct, gc=False):
    """A PersistentVolume."""

    metadata: LabelledMetadata
    spec: VolumeSpecPart | None = None


def read_claim(document: ClaimDocument) -> VolumeClaim:
    """Return the claim as its spec and status stand."""
    metadata, spec, status = document.metadata, document.spec, document.status
    phase = status.phase if status is not None else None
    return VolumeClaim(
        namespace=metadata.namespace,
        name=metadata.name,
        volume=(spec.volume_name if spec is not None else None) or "",
        bound=phase == BOUND,
        lost=phase == LOST,
        terminating=metadata.deletion_timestamp is not None,
        controller=next((owner.uid for owner in metadata.owner_references or () if owner.controller), ""),
    )


def read_volume(document: VolumeDocument) -> Volume:
    """Return the volume, and what ties it to nodes."""
    spec, labels = document.spec, document.metadata.labels or {}
    if spec is not None and spec.node_affinity is not None and spec.node_affinity.required is not None:
        return Volume(document.metadata.name, "spec.nodeAffinity.required")
    zone = next((label for label in ZONE_LABELS if label in labels), "")
    return Volume(document.metadata.name, f"metadata.labels[{zone}]" if zone else "")
