"""The devices of nodes, such as GPUs, and what pods ask of them and hold of them.

Invariants:
- A device is identified on its node by type and minor. Its amounts are by dimension, named without a prefix: a GPU has
  `gpu-core` and `gpu-memory-ratio`, of which 100 are a whole card, and `gpu-memory` in bytes; a device of another type
  has one dimension, named as the type.
- A holder has at least one of some dimension. Amounts are exact integers.

Source: the Device objects, pod annotations and resource names of Koordinator (`apis/extension/device_share.go`).
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from aischeduler.model.selectors import LabelSelector

GPU: Final = "gpu"
RDMA: Final = "rdma"
FPGA: Final = "fpga"
GPU_CORE: Final = "gpu-core"
GPU_MEMORY: Final = "gpu-memory"
GPU_MEMORY_RATIO: Final = "gpu-memory-ratio"
GPU_SHARED: Final = "gpu.shared"
GPU_DIMENSIONS: Final = (GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO)
WHOLE: Final = 100
"""The core, ratio, RDMA or FPGA of one whole device."""
KUBERNETES_PREFIX: Final = "kubernetes.io/"
KOORDINATOR_PREFIX: Final = "koordinator.sh/"
DEVICE_PREFIXES: Final = (KUBERNETES_PREFIX, KOORDINATOR_PREFIX)
VENDORS: Final = {"nvidia.com/gpu": "nvidia", "amd.com/gpu": "amd", "dcu.com/gpu": "dcu"}
"""The resource that counts whole GPUs -> its vendor; a Device object without a vendor has those of nvidia."""
NVIDIA_GPU: Final = "nvidia.com/gpu"
DEVICES: Final = "devices"
"""The name of the part of allocations that has devices."""
UNKNOWN_NODE: Final = -1
"""The NUMA node or socket of a device that does not know it."""

Amounts = tuple[tuple[str, int], ...]
"""Dimension and amount, sorted by dimension."""


class VirtualFunction(Struct, frozen=True):
    """A virtual function of a device, with the labels of its group."""

    minor: int
    bus_id: str = ""
    labels: Mapping[str, str] = {}


class Device(Struct, frozen=True):
    """One device of a node. `pcie` names the PCIe root or switch, empty where unknown; `numa` is -1 where unknown."""

    type: str
    minor: int
    id: str
    totals: Amounts
    healthy: bool = True
    numa: int = UNKNOWN_NODE
    pcie: str = ""
    bus_id: str = ""
    labels: Mapping[str, str] = {}
    functions: tuple[VirtualFunction, ...] = ()

    def total(self, dimension: str) -> int:
        """Return how much it has of a dimension; 0 where it has none."""
        return next((amount for name, amount in self.totals if name == dimension), 0)


def free_hundredths(core: int, memory_bytes: int, ratio: int, all_memory_bytes: int) -> int:
    """Return how much of a GPU is free, of the dimension of which least is left."""
    of_memory = memory_bytes * WHOLE // all_memory_bytes if all_memory_bytes else WHOLE
    return max(min(core, ratio, of_memory), 0)


class Partition(Struct, frozen=True):
    """GPUs of a node, by ascending minor, that may be given together; a higher `score` is preferred."""

    minors: tuple[int, ...]
    bandwidth_gbps: int = 0
    score: int = 0


def pair_of(first: int, second: int) -> str:
    """Return the name of a pair of devices, such as 0-1: a text, as keys of JSON are."""
    return f"{first}-{second}" if first < second else f"{second}-{first}"


PodDevices = Mapping[str, tuple[tuple[str, str], ...]]
"""The uid of a pod, as its kubelet knows it -> the resources and ids of its devices, sorted."""


class NodeDevices(Struct, frozen=True):
    """What the Device object of a node says: its devices by type and minor, and what cannot be read as `faults`.

    `partitions` are the sets in which several GPUs may be given; with `partitions_only` no other set is. `links` is the
    number of NVLinks between two GPUs, by `pair_of` their minors. `vendor` is that of its GPUs. `kubelet` are the
    devices that the kubelet gave to pods, as an agent on the node reports them. `registered` says that there is no
    Device object: HAMi registers the GPUs on the node.
    """

    node: str
    devices: tuple[Device, ...] = ()
    partitions: tuple[Partition, ...] = ()
    partitions_only: bool = False
    links: Mapping[str, int] = {}
    vendor: str = "nvidia"
    faults: tuple[str, ...] = ()
    uid: str = ""
    kubelet: PodDevices = {}
    registered: bool = False

    def of_type(self, kind: str) -> tuple[Device, ...]:
        """Return its devices of a type, by minor."""
        return tuple(device for device in self.devices if device.type == kind)


Islands = tuple[frozenset[int], ...]
"""Sets of GPUs of a node, by their minors, that a single GPU rather leaves whole."""


def islands_of(node: NodeDevices) -> Islands:
    """Return the sets of several GPUs that are connected by links, below one PCIe switch, or one partition."""
    below: dict[str, set[int]] = {}
    for gpu in node.of_type(GPU):
        below.setdefault(gpu.pcie, set()).add(gpu.minor)
    linked: list[set[int]] = []
    for name, links in node.links.items():
        if links > 0:
            pair = {int(minor) for minor in name.split("-")}
            joined = pair.union(*(one for one in linked if not one.isdisjoint(pair)))
            linked = [*(one for one in linked if one.isdisjoint(pair)), joined]
    switches = (minors for pcie, minors in below.items() if pcie)
    found = (*linked, *switches, *(set(partition.minors) for partition in node.partitions))
    return tuple(dict.fromkeys(frozenset(minors) for minors in found if len(minors) > 1))


class GpuRequest(Struct, frozen=True):
    """What a pod asks of each of `count` GPUs: `core` and `ratio` of 100, or `memory_bytes` instead of the ratio.

    `vendor` is that of the resource that asks; empty for Koordinator's names.
    """

    count: int
    core: int = 0
    ratio: int = 0
    memory_bytes: int = 0
    vendor: str = ""

    @property
    def whole(self) -> bool:
        """Whether it asks for whole GPUs: a request in bytes does not, however large."""
        return self.ratio == WHOLE and self.core in (0, WHOLE)

    def of(self, device: Device) -> Amounts:
        """Return what it takes of one GPU: bytes decide, and a ratio derived from them is rounded up, at least 1."""
        total = device.total(GPU_MEMORY)
        if self.memory_bytes:
            memory, ratio = self.memory_bytes, max(1, -(-self.memory_bytes * WHOLE // total)) if total else WHOLE
        else:
            memory, ratio = total * self.ratio // WHOLE, self.ratio
        amounts = ((GPU_CORE, self.core), (GPU_MEMORY, memory), (GPU_MEMORY_RATIO, ratio))
        return tuple((dimension, amount) for dimension, amount in amounts if amount)


class TopologyScope(StrEnum):
    """How near the devices of one pod are, the nearest first."""

    DEVICE = "Device"
    PCIE = "PCIe"
    NUMA_NODE = "NUMANode"
    NODE = "Node"


class DeviceHint(Struct, frozen=True):
    """What a pod says of the devices of one type that it may get (`device-allocate-hint`).

    `selector` chooses by the labels of devices, `function_selector` asks for a virtual function of these labels. With
    `every` each device that matches is given, with the pod's amount of each. `scope` is the largest in which all must
    be; None for any. With `exclusive` no other pod has a device of the type below the same PCIe switch.
    """

    selector: LabelSelector | None = None
    function_selector: LabelSelector | None = None
    every: bool = False
    count: bool = False
    """Whether the amount asked for, by hundreds, is a number of devices (`RequestsAsCount`)."""
    scope: TopologyScope | None = None
    exclusive: bool = False


class DeviceRequest(Struct, frozen=True):
    """What a pod asks of devices: GPUs, and of `others` an amount by type, sorted.

    `hints` are by type, sorted. `joint` are the types that are to be near each other, the primary first, and with
    `same_pcie` they must be below the same switches. With `restricted` several GPUs must be one of the node's
    partitions, of at least `bandwidth_gbps`. `visible` says that each container that asks for GPUs has the variable
    NVIDIA_VISIBLE_DEVICES from the annotation that the Binding writes. Where `nvidia.com/gpu` is asked for, `parts` are
    for each container, init containers first, the first of the pod's GPUs that it has and the one after its last.
    """

    gpu: GpuRequest | None = None
    others: Amounts = ()
    hints: tuple[tuple[str, DeviceHint], ...] = ()
    joint: tuple[str, ...] = ()
    same_pcie: bool = False
    restricted: bool = False
    bandwidth_gbps: int = 0
    visible: bool = False
    parts: tuple[tuple[int, int], ...] = ()

    def hint(self, kind: str) -> DeviceHint | None:
        """Return what it says of the devices of a type."""
        return next((hint for name, hint in self.hints if name == kind), None)


class HeldDevice(Struct, frozen=True):
    """What one pod has of one device. `functions` are minors and bus ids of the virtual functions given."""

    type: str
    minor: int
    amounts: Amounts
    id: str = ""
    functions: tuple[tuple[int, str], ...] = ()


class HolderSource(StrEnum):
    """Where it is said which devices a pod has."""

    ALLOCATED = "device-allocated"
    HAMI = "hami"
    CHECKPOINT = "checkpoint"
    COUNT = "count"


class HeldDevices(Struct, frozen=True):
    """The devices that a pod has: the named ones, and an `unknown` number of whole devices by type, sorted.

    With `by_hami` HAMi's device plugin has to be told of the GPUs before the Binding.
    """

    devices: tuple[HeldDevice, ...] = ()
    unknown: Amounts = ()
    source: HolderSource = HolderSource.ALLOCATED
    by_hami: bool = False


NO_DEVICES: Final = HeldDevices()
"""What a pod without a node has, whatever it says."""
