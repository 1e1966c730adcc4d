"""The part of PersistentVolumeClaims and PersistentVolumes that decides whether a pod can be placed.

Source: PersistentVolumeClaim and PersistentVolume of Kubernetes' core API; kube-scheduler's VolumeBinding, VolumeZone.
"""

from dataclasses import dataclass

VolumeClaimKey = tuple[str, str]
"""The namespace and name of a PersistentVolumeClaim."""


@dataclass(frozen=True, slots=True)
class VolumeClaimUse:
    """The use of a PersistentVolumeClaim by a pod: the path of the field, and the claim's name.

    `owned` is True for the claim of an ephemeral volume: the pod must be its controller.
    """

    field: str
    name: str
    owned: bool = False


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """A PersistentVolumeClaim. `volume` is its spec.volumeName.

    `controller` is the uid of its controller; `bound` and `lost` are its phases Bound and Lost.
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
        """The namespace and name of the claim."""
        return self.namespace, self.name


@dataclass(frozen=True, slots=True)
class Volume:
    """A PersistentVolume; `tied_by` is the path of the field that limits it to some nodes, or empty."""

    name: str
    tied_by: str = ""
