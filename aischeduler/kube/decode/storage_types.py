"""The API objects of storage, and the volumes of pods, as msgspec structs with only the fields that are read.

Invariants: as in `api_types`.
"""

from msgspec import Struct, field

from aischeduler.kube.decode.api_types import ExpressionPart, NodeSelectorPart, Present, SelectorPart
from aischeduler.kube.decode.meta_types import LabelledMetadata, Metadata, OwnerReference

Quantity = str | int | float


class ClassAnnotations(Struct, gc=False):
    """The annotations of claims and volumes that are read; the class of an old object is one."""

    storage_class: str | None = field(name="volume.beta.kubernetes.io/storage-class", default=None)
    bind_completed: str | None = field(name="pv.kubernetes.io/bind-completed", default=None)
    selected_node: str | None = field(name="volume.kubernetes.io/selected-node", default=None)


class ClaimMetadata(Metadata, rename="camel", gc=False):
    """The metadata of a PersistentVolumeClaim."""

    owner_references: list[OwnerReference] | None = None
    annotations: ClassAnnotations | None = None


class StorageAmount(Struct, gc=False):
    """A resource list of which only the storage counts."""

    storage: Quantity | None = None


class StorageRequests(Struct, gc=False):
    """The requests of a claim."""

    requests: StorageAmount | None = None


class ClaimSpecPart(Struct, rename="camel", gc=False):
    """The spec of a PersistentVolumeClaim."""

    volume_name: str | None = None
    storage_class_name: str | None = None
    access_modes: list[str] | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    selector: SelectorPart | None = None
    resources: StorageRequests | None = None


class PhaseStatus(Struct, gc=False):
    """The phase of a claim or volume."""

    phase: str | None = None


class ClaimDocument(Struct, gc=False):
    """A PersistentVolumeClaim."""

    metadata: ClaimMetadata
    spec: ClaimSpecPart | None = None
    status: PhaseStatus | None = None


class VolumeMetadata(LabelledMetadata, rename="camel", gc=False):
    """The metadata of a PersistentVolume."""

    annotations: ClassAnnotations | None = None


class VolumeAffinityPart(Struct, gc=False):
    """The node affinity of a volume."""

    required: NodeSelectorPart | None = None


class ClaimRefPart(Struct, gc=False):
    """The claim of a volume."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class CsiPart(Struct, rename="camel", gc=False):
    """A volume of a CSI driver."""

    driver: str = ""
    volume_handle: str = ""


class VolumeSpecPart(Struct, rename="camel", gc=False):
    """The spec of a PersistentVolume."""

    node_affinity: VolumeAffinityPart | None = None
    storage_class_name: str | None = None
    capacity: StorageAmount | None = None
    access_modes: list[str] | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    claim_ref: ClaimRefPart | None = None
    csi: CsiPart | None = None


class VolumeDocument(Struct, gc=False):
    """A PersistentVolume."""

    metadata: VolumeMetadata
    spec: VolumeSpecPart | None = None
    status: PhaseStatus | None = None


class ClaimSourcePart(Struct, rename="camel", gc=False):
    """The PersistentVolumeClaim that a volume of a pod names."""

    claim_name: str = ""


class VolumeKindPart(Struct, rename="camel", gc=False):
    """A volume of a pod, as far as its kind counts for where the pod runs; equal to an empty one if it does not."""

    persistent_volume_claim: Present | None = None
    ephemeral: Present | None = None
    image: Present | None = None


class VolumePart(Struct, rename="camel", gc=False):
    """A volume of a pod, as far as it decides where the pod may run."""

    name: str = ""
    persistent_volume_claim: ClaimSourcePart | None = None
    ephemeral: Present | None = None


class TopologyTermPart(Struct, rename="camel", gc=False):
    """A term of the allowedTopologies of a class."""

    match_label_expressions: list[ExpressionPart] | None = None


class ClassDocument(Struct, rename="camel", gc=False):
    """A StorageClass."""

    metadata: Metadata
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologyTermPart] | None = None


class DriverLimit(Struct, gc=False):
    """How many volumes of a driver a node can use."""

    count: int | None = None


class NodeDriverPart(Struct, gc=False):
    """A CSI driver on a node."""

    name: str = ""
    allocatable: DriverLimit | None = None


class CsiNodeSpecPart(Struct, gc=False):
    """The spec of a CSINode."""

    drivers: list[NodeDriverPart] | None = None


class CsiNodeDocument(Struct, gc=False):
    """A CSINode."""

    metadata: Metadata
    spec: CsiNodeSpecPart | None = None


class CsiDriverSpecPart(Struct, rename="camel", gc=False):
    """The spec of a CSIDriver."""

    storage_capacity: bool | None = None


class CsiDriverDocument(Struct, gc=False):
    """A CSIDriver."""

    metadata: Metadata
    spec: CsiDriverSpecPart | None = None


class CapacityDocument(Struct, rename="camel", gc=False):
    """A CSIStorageCapacity."""

    metadata: Metadata
    storage_class_name: str = ""
    node_topology: SelectorPart | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None


class AttachedPart(Struct, rename="camel", gc=False):
    """The volume of a VolumeAttachment."""

    persistent_volume_name: str | None = None


class AttachmentSpecPart(Struct, rename="camel", gc=False):
    """The spec of a VolumeAttachment."""

    attacher: str = ""
    node_name: str = ""
    source: AttachedPart | None = None


class AttachmentDocument(Struct, gc=False):
    """A VolumeAttachment."""

    metadata: Metadata
    spec: AttachmentSpecPart | None = None
