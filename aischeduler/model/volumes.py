"""Volume claims and volumes, as far as they decide whether a pod can be placed.

Source: PersistentVolumeClaim and PersistentVolume of Kubernetes' core API; kube-scheduler's VolumeBinding, VolumeZone.
"""

from dataclasses import dataclass

VolumeClaimKey = tuple[str, str]
"""Namespace and name of a PersistentVolumeClaim."""


@dataclass(frozen=True, slots=True)
class VolumeClaimUse:
    """The use of a PersistentVolumeClaim by a pod: the path of the field, and the claim's name.

    `owned` where the claim is made for this pod alone, from an ephemeral volume: then the pod must control it.
    """

    field: str
    name: str
    owned: bool = False


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """A PersistentVolumeClaim. `volume` is the volume that it names.

    `controller` is the uid of the owner that controls it; `bound` and `lost` are its phases Bound and Lost.
    """

    namespace: str
    name: str
    volume: str = ""
    bound: bool = False
    lost: bool = False
    terminating: bool = False
    controller: str = ""

    @property
    def key(self) -> VolumeClaimKey:
        """Its namespace and name."""
        return self.namespace, self.name


@dataclass(frozen=True, slots=True)
class Volume:
    """A PersistentVolume; `tied_by` is the path of the field that ties it to some nodes, empty where none does."""

    name: str
    tied_by: str = ""
