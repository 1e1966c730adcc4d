"""PersistentVolumeClaims and PersistentVolumes, and what a pod says of its volumes, as far as they decide on nodes.

Source: PersistentVolumeClaim and PersistentVolume of Kubernetes' core API; kube-scheduler's VolumeBinding, VolumeZone,
VolumeRestrictions and NodeVolumeLimits.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from msgspec import Struct

from aischeduler.model.selectors import Labels, LabelSelector, NodeSelectorTerm

VolumeClaimKey = tuple[str, str]
"""The namespace and name of a PersistentVolumeClaim."""

ONE_POD: Final = "ReadWriteOncePod"
"""The access mode of a claim that one pod uses at a time."""


class VolumeClaimUse(Struct, frozen=True):
    """The use of a PersistentVolumeClaim by a pod: the path of the field, and the claim's name.

    `owned` is True for the claim of an ephemeral volume: the pod must be its controller.
    """

    field: str
    name: str
    owned: bool = False


class DiskKind(StrEnum):
    """The kinds of disks that a pod names without a claim; the value is the field of the volume."""

    GCE_PD = "gcePersistentDisk"
    EBS = "awsElasticBlockStore"
    ISCSI = "iscsi"
    RBD = "rbd"
    AZURE_DISK = "azureDisk"
    CINDER = "cinder"
    PORTWORX = "portworxVolume"


class DriverVolume(Struct, frozen=True):
    """A volume as its CSI driver knows it; one of an in-tree plugin is that of the driver that replaced it."""

    driver: str
    handle: str


class Disk(Struct, frozen=True):
    """A disk that a pod names without a claim.

    `name` says which disk it is: the name, the id, the iqn, or pool and image. Disks of RBD are the same where they
    share one of their `monitors` too. `driver` is the disk as the CSI driver knows it that replaced the kind.
    """

    kind: DiskKind
    name: str
    read_only: bool = False
    monitors: tuple[str, ...] = ()
    driver: DriverVolume | None = None


class PodVolumes(Struct, frozen=True):
    """The volumes of a pod that decide where it may run, in the order of its spec."""

    namespace: str
    claims: tuple[VolumeClaimUse, ...] = ()
    disks: tuple[Disk, ...] = ()

    @property
    def keys(self) -> tuple[VolumeClaimKey, ...]:
        """The claims that it uses, each once."""
        return tuple(dict.fromkeys((self.namespace, use.name) for use in self.claims))


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """A PersistentVolumeClaim.

    `volume` is its spec.volumeName; it is `bound` once the volume controller has finished that, and `lost` where the
    volume is gone. `controller` is the uid of its controller. `request_bytes` is None where it requests no storage.
    `selected_node` is the node for which a provisioner is to create a volume. `version` is its resource version, which
    says nothing of the claim.
    """

    namespace: str
    name: str
    volume: str = ""
    bound: bool = False
    lost: bool = False
    terminating: bool = False
    controller: str = ""
    uid: str = ""
    storage_class: str = ""
    request_bytes: int | None = None
    access_modes: tuple[str, ...] = ()
    block: bool = False
    selector: LabelSelector | None = None
    attributes_class: str = ""
    selected_node: str = ""
    version: str = field(default="", compare=False)

    @property
    def key(self) -> VolumeClaimKey:
        """The namespace and name of the claim."""
        return self.namespace, self.name


class ClaimRef(Struct, frozen=True):
    """The claim to which a volume belongs; without a uid, to any claim of this name."""

    namespace: str
    name: str
    uid: str = ""

    def is_to(self, claim: VolumeClaim) -> bool:
        """Return whether the volume belongs to this claim."""
        return (self.namespace, self.name) == claim.key and self.uid in ("", claim.uid)


@dataclass(frozen=True, slots=True)
class Volume:
    """A PersistentVolume.

    `affinity` are the terms of its required node affinity, None where it has none. A volume of an in-tree plugin that a
    CSI driver replaced has the field of the plugin as `plugin`, and as `migrated` the terms that hold on nodes that use
    the driver. `available` is its phase Available; `driver` is None for a volume without a CSI driver.
    """

    name: str
    affinity: tuple[NodeSelectorTerm, ...] | None = None
    labels: Labels = field(default_factory=dict)
    storage_class: str = ""
    capacity_bytes: int = 0
    access_modes: tuple[str, ...] = ()
    block: bool = False
    attributes_class: str = ""
    claim: ClaimRef | None = None
    available: bool = False
    terminating: bool = False
    driver: DriverVolume | None = None
    plugin: str = ""
    migrated: tuple[NodeSelectorTerm, ...] | None = None
    version: str = field(default="", compare=False)


class VolumeChoice(Struct, frozen=True, gc=False):
    """What was chosen for an unbound claim of a pod that was placed on `node`.

    A `volume` that exists, or an empty text: then the provisioner of the claim's class creates one for the node.
    """

    claim: VolumeClaimKey
    claim_uid: str
    volume: str
    node: str


class VolumeWrite(Struct, frozen=True, gc=False):
    """What is to be written so that a claim gets its volume.

    `version` and `claim_version` are the resource versions at the decision. With `prebound` the volume belongs to the
    claim's name already.
    """

    choice: VolumeChoice
    version: str
    claim_version: str
    prebound: bool = False
