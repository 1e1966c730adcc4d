"""The objects of storage.k8s.io that decide where a pod with volumes may run.

Source: StorageClass, CSINode, CSIDriver, CSIStorageCapacity and VolumeAttachment of storage.k8s.io/v1.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from aischeduler.model.selectors import LabelSelector, NodeSelectorTerm

NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
"""The provisioner of a class whose volumes are created by hand."""


class StorageClass(Struct, frozen=True, tag=True):
    """A StorageClass. With `waits` its claims are bound for the node of their first pod (WaitForFirstConsumer).

    `topologies` are the nodes for which its provisioner creates volumes, any of the terms; without terms, all nodes.
    """

    name: str
    provisioner: str = ""
    waits: bool = False
    topologies: tuple[NodeSelectorTerm, ...] = ()

    @property
    def provisions(self) -> bool:
        """Whether volumes of the class can be created on demand."""
        return self.provisioner not in ("", NO_PROVISIONER)


class CsiNode(Struct, frozen=True, tag=True):
    """The CSI drivers of a node: the most volumes by driver."""

    name: str
    limits: Mapping[str, int] = {}


class CsiDriver(Struct, frozen=True, tag=True):
    """A CSI driver; with `tracks_capacity` it provisions only where enough storage is left."""

    name: str
    tracks_capacity: bool = False


class StorageCapacity(Struct, frozen=True, tag=True):
    """The largest volume of a class that can be created for the nodes that `topology` selects; None selects none."""

    namespace: str
    name: str
    storage_class: str
    topology: LabelSelector | None = None
    limit_bytes: int | None = None


class VolumeAttachment(Struct, frozen=True, tag=True):
    """A PersistentVolume that a CSI driver has attached, or is to attach, to a node."""

    name: str
    driver: str
    node: str
    volume: str


StorageObject = StorageClass | CsiNode | CsiDriver | StorageCapacity | VolumeAttachment
"""An object of storage.k8s.io; the kinds are told apart by the names of these types."""
