"""Convert the API objects of storage, and the volumes of pods, to model types.

Invariants:
- A pod whose volumes decide nothing costs one look at their kinds.
- A part that the API server would not have stored never raises: a selector that cannot be read selects nothing, an
  amount that cannot be read counts as zero.

Source: core/v1 and storage.k8s.io/v1; kube-scheduler's volume plugins.
"""

from typing import Final

import msgspec
from msgspec import Raw

from aischeduler.kube.decode.api_types import ExpressionPart, NodeSelectorPart, SelectorPart
from aischeduler.kube.decode.meta_types import UNREADABLE
from aischeduler.kube.decode.pod_affinity import read_selector
from aischeduler.kube.decode.storage_types import (
    AttachmentDocument,
    CapacityDocument,
    ClaimDocument,
    ClaimSpecPart,
    ClassAnnotations,
    ClassDocument,
    CsiDriverDocument,
    CsiNodeDocument,
    Quantity,
    VolumeDocument,
    VolumeKindPart,
    VolumePart,
    VolumeSpecPart,
)
from aischeduler.model.quantity import QuantityError, parse_units
from aischeduler.model.selectors import (
    LabelSelector,
    NodeSelectorTerm,
    Operator,
    Requirement,
    SelectorError,
    node_requirement,
)
from aischeduler.model.storage_objects import CsiDriver, CsiNode, StorageCapacity, StorageClass, VolumeAttachment
from aischeduler.model.volumes import ClaimRef, DriverVolume, PodVolumes, Volume, VolumeClaim, VolumeClaimUse

AVAILABLE: Final = "Available"
BLOCK: Final = "Block"
LOST: Final = "Lost"
WAITS: Final = "WaitForFirstConsumer"
NOTHING: Final = LabelSelector((Requirement("", Operator.EXISTS),))
"""A selector that no labels match: none has an empty key."""
_NO_ANNOTATIONS: Final = ClassAnnotations()
_NO_CLAIM: Final = ClaimSpecPart()
_NO_VOLUME: Final = VolumeSpecPart()
_NEUTRAL: Final = VolumeKindPart()
_read_kinds: Final = msgspec.json.Decoder(list[VolumeKindPart] | None).decode


def decides(volumes: Raw) -> bool:
    """Return whether the volumes of a pod, or their images, may count for where it runs; almost no pod has such."""
    if not volumes:
        return False
    try:
        kinds = _read_kinds(volumes)
    except UNREADABLE:
        return True
    return kinds is not None and kinds.count(_NEUTRAL) != len(kinds)


def pod_volumes(namespace: str, pod: str, volumes: Raw) -> PodVolumes | None:
    """Return the claims of a pod of this name; None where it has none.

    The claim of an ephemeral volume is named after pod and volume.
    """
    claims = list[VolumeClaimUse]()
    for index, part in enumerate(_parts(volumes)):
        path = f"spec.volumes[{index}]"
        if part.persistent_volume_claim is not None:
            claims.append(VolumeClaimUse(f"{path}.persistentVolumeClaim", part.persistent_volume_claim.claim_name))
        elif part.ephemeral is not None:
            claims.append(VolumeClaimUse(f"{path}.ephemeral", f"{pod}-{part.name}", owned=True))
    return PodVolumes(namespace, tuple(claims)) if claims else None


def read_claim(document: ClaimDocument) -> VolumeClaim:
    """Return the claim as its spec and status stand."""
    metadata, spec, status = document.metadata, document.spec or _NO_CLAIM, document.status
    annotations = metadata.annotations or _NO_ANNOTATIONS
    old_class, requests = annotations.storage_class, spec.resources.requests if spec.resources is not None else None
    return VolumeClaim(
        namespace=metadata.namespace,
        name=metadata.name,
        volume=spec.volume_name or "",
        bound=annotations.bind_completed is not None and bool(spec.volume_name),
        lost=status is not None and status.phase == LOST,
        terminating=metadata.deletion_timestamp is not None,
        controller=next((owner.uid for owner in metadata.owner_references or () if owner.controller), ""),
        uid=metadata.uid,
        storage_class=old_class if old_class is not None else spec.storage_class_name or "",
        request_bytes=_bytes(requests.storage) if requests is not None and requests.storage is not None else None,
        access_modes=tuple(spec.access_modes or ()),
        block=spec.volume_mode == BLOCK,
        selector=_selector(spec.selector),
        attributes_class=spec.volume_attributes_class_name or "",
        selected_node=annotations.selected_node or "",
        version=metadata.resource_version,
    )


def read_volume(document: VolumeDocument) -> Volume:
    """Return the volume as its spec and status stand."""
    metadata, spec, status = document.metadata, document.spec or _NO_VOLUME, document.status
    old_class = (metadata.annotations or _NO_ANNOTATIONS).storage_class
    ref = spec.claim_ref
    return Volume(
        name=metadata.name,
        affinity=_terms(spec.node_affinity.required) if spec.node_affinity is not None else None,
        labels=metadata.labels or {},
        storage_class=old_class if old_class is not None else spec.storage_class_name or "",
        capacity_bytes=_bytes(spec.capacity.storage or 0) if spec.capacity is not None else 0,
        access_modes=tuple(spec.access_modes or ()),
        block=spec.volume_mode == BLOCK,
        attributes_class=spec.volume_attributes_class_name or "",
        claim=ClaimRef(ref.namespace, ref.name, ref.uid) if ref is not None else None,
        available=status is not None and status.phase == AVAILABLE,
        terminating=metadata.deletion_timestamp is not None,
        driver=DriverVolume(spec.csi.driver, spec.csi.volume_handle) if spec.csi is not None else None,
        version=metadata.resource_version,
    )


def read_class(document: ClassDocument) -> StorageClass:
    """Return the class."""
    terms = (topology.match_label_expressions or () for topology in document.allowed_topologies or ())
    topologies = tuple(NodeSelectorTerm(tuple(_one_of(part) for part in parts)) for parts in terms)
    waits = document.volume_binding_mode == WAITS
    return StorageClass(document.metadata.name, document.provisioner, waits, topologies)


def read_csi_node(document: CsiNodeDocument) -> CsiNode:
    """Return the drivers of a node; a driver without a limit is left out."""
    spec = document.spec
    drivers = spec.drivers if spec is not None and spec.drivers is not None else ()
    counts = ((driver.name, driver.allocatable.count if driver.allocatable is not None else None) for driver in drivers)
    return CsiNode(document.metadata.name, {name: count for name, count in counts if count is not None})


def read_csi_driver(document: CsiDriverDocument) -> CsiDriver:
    """Return the driver."""
    return CsiDriver(document.metadata.name, document.spec is not None and bool(document.spec.storage_capacity))


def read_capacity(document: CapacityDocument) -> StorageCapacity:
    """Return the largest volume that fits: the maximum size if there is one, else the capacity."""
    limit = document.maximum_volume_size if document.maximum_volume_size is not None else document.capacity
    return StorageCapacity(
        document.metadata.namespace,
        document.metadata.name,
        document.storage_class_name,
        _selector(document.node_topology),
        _bytes(limit) if limit is not None else None,
    )


def read_attachment(document: AttachmentDocument) -> VolumeAttachment | None:
    """Return the attachment; None for a volume that is attached without a PersistentVolume."""
    spec = document.spec
    volume = spec.source.persistent_volume_name if spec is not None and spec.source is not None else None
    if spec is None or not spec.attacher or not volume:
        return None
    return VolumeAttachment(document.metadata.name, spec.attacher, spec.node_name, volume)


def _parts(raw: Raw) -> list[VolumePart]:
    """Decode volumes; the API server stores nothing but a list of objects, and anything else counts as none."""
    try:
        return (msgspec.json.decode(raw, type=list[VolumePart] | None) if raw else None) or []
    except UNREADABLE:
        return []


def _bytes(quantity: Quantity) -> int:
    try:
        return parse_units(str(quantity))
    except QuantityError:
        return 0


def _selector(part: SelectorPart | None) -> LabelSelector | None:
    if part is None:
        return None
    try:
        return read_selector("selector", part)
    except SelectorError:
        return NOTHING


def _terms(required: NodeSelectorPart | None) -> tuple[NodeSelectorTerm, ...] | None:
    if required is None:
        return None
    return tuple(
        NodeSelectorTerm(
            tuple(_requirement(part) for part in term.match_expressions or ()),
            tuple(_requirement(part) for part in term.match_fields or ()),
        )
        for term in required.node_selector_terms or ()
    )


def _requirement(part: ExpressionPart) -> Requirement:
    try:
        return node_requirement("nodeAffinity", part.key or "", part.operator or "", tuple(part.values or ()))
    except SelectorError:
        return NOTHING.requirements[0]


def _one_of(part: ExpressionPart) -> Requirement:
    return Requirement(part.key or "", Operator.IN, tuple(part.values or ()))
