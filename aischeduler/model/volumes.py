"""PersistentVolumeClaims and PersistentVolumes, and what a pod says of its volumes, as far as they decide on nodes.

Source: PersistentVolumeClaim and PersistentVolume of Kubernetes' core API; kube-scheduler's VolumeBinding, VolumeZone,
VolumeRestrictions and NodeVolumeLimits.
"""

from dataclasses import dataclass, field
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


class DriverVolume(Struct, frozen=True):
    """A volume as its CSI driver knows it."""

    driver: str
    handle: str


class PodVolumes(Struct, frozen=True):
    """The volumes of a pod that decide where it may run: those of claims, in the order of its spec."""

    namespace: str
    claims: tuple[VolumeClaimUse, ...] = ()

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

    `affinity` are the terms of its required node affinity, None where it has none. `available` is its phase Available;
    `driver` is None for a volume without a CSI driver.
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
