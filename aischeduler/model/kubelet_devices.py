"""The devices that the kubelet of a node gave to pods, as an agent on the node reports them."""

from collections.abc import Mapping

from msgspec import Struct

PodDevices = Mapping[str, tuple[tuple[str, str], ...]]
"""The uid of a pod -> the resources and ids of its devices, sorted."""


class KubeletAllocations(Struct, frozen=True):
    """The devices that the kubelet of a node gave to pods, and what cannot be read of them as `faults`."""

    node: str
    pods: PodDevices = {}
    faults: tuple[str, ...] = ()
