"""A test oracle of devices: on which nodes a pod gets those that it asks for, beside the pods that are there.

Invariants:
- It sees the events and the Binds of one scheduler, and none of its tables.
- What fits is found by looking at every subset of the devices of a node (`tests/plugins/device_oracle.py`).
- A pod has what its Bind said, else what it says itself, else what its kubelet reports, else so many whole devices of
  which nobody knows which.
- Modes are env, koordlet, device-plugin and hami, and rdma and fpga are the only types beside GPUs.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from aischeduler.model.actions import Bind
from aischeduler.model.device import (
    DEVICES,
    GPU,
    KOORDINATOR_PREFIX,
    WHOLE,
    Device,
    DeviceRequest,
    HeldDevice,
    HeldDevices,
    HolderSource,
    NodeDevices,
)
from aischeduler.model.events import BindRefused, Event, Gone, Seen
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod, PodSpec
from tests.plugins.device_oracle import Oracle

COUNTED = "nvidia.com/gpu"
DELIVERY = "resource.aibee.cn/gpu-delivery"
BY_COUNT = ("", "device-plugin")
"""The modes in which the kubelet chooses the GPUs."""
Left = dict[tuple[str, int], dict[str, int]]
"""Type and minor -> dimension -> what is left."""


class DeviceRules:
    """The devices of nodes, and what pods got, as one scheduler knows it."""

    def __init__(self) -> None:
        self.of: dict[str, NodeDevices] = {}
        self.hami = False
        """Whether nodes of HAMi get pods."""
        self._objects: dict[str, NodeDevices] = {}
        self._nodes: dict[str, Node] = {}
        self._given: dict[str, tuple[str, HeldDevices]] = {}
        """Pods by uid -> the node of their last Bind, and what it gave them."""

    def observe(self, event: Event) -> None:
        """Take note of what the scheduler is told."""
        match event:
            case Seen(NodeDevices() as found):
                self._objects[found.node] = found
                self._look(found.node)
            case Gone("NodeDevices", (name,)):
                self._objects.pop(name, None)
                self._look(name)
            case Seen(Node() as node):
                self._nodes[node.name] = node
                self._look(node.name)
            case Gone("Node", (name,)):
                self._nodes.pop(name, None)
                self._look(name)
            case BindRefused(uid) | Gone("Pod", (uid,)):
                self._given.pop(uid, None)
            case _:
                pass

    def _look(self, name: str) -> None:
        """Note the devices of a node: of its Device object, else those that HAMi registers, where it is one of HAMi."""
        self.of.pop(name, None)
        node, found = self._nodes.get(name), self._objects.get(name)
        if found is not None:
            self.of[name] = found
        elif node is not None and node.hami_gpus and node.labels.get(DELIVERY, "hami") == "hami":
            self.of[name] = NodeDevices(name, node.hami_gpus)

    def given(self, bind: Bind) -> None:
        """Take note of what a pod gets; before the first Device object, nothing is said."""
        held = bind.allocation.part(DEVICES)
        if isinstance(held, HeldDevices):
            self._given[bind.pod.uid] = bind.node, held

    def taken_back(self, bind: Bind) -> None:
        """Forget what a pod gets."""
        self._given.pop(bind.pod.uid, None)

    def mode(self, node: Node) -> str:
        """Return how a node delivers GPUs; empty without Device object."""
        if node.name not in self.of:
            return ""
        shown = "hami" if node.hami_gpus else "device-plugin" if node.allocatable.get(COUNTED, 0) else "env"
        return node.labels.get(DELIVERY) or shown

    def unlisted(self, node: Node) -> frozenset[str]:
        """Return the names that a node need not list, because its devices alone decide."""
        dimensions = {name for device in self._devices(node) for name, _ in device.totals}
        names = {KOORDINATOR_PREFIX + name for name in dimensions}
        if any(device.type == GPU for device in self._devices(node)):
            names |= {KOORDINATOR_PREFIX + "gpu", KOORDINATOR_PREFIX + "gpu.shared", COUNTED}
        return frozenset(names - node.allocatable.keys())

    def short(self, spec: PodSpec, node: Node, there: Iterable[Pod]) -> list[str]:
        """Return the types of which the node has too little for the pod, beside the pods there, or that it refuses."""
        asked, pods = spec.devices, list(there)
        kinds = kinds_of(asked) if asked is not None else ()
        return [kind for kind in kinds if asked is not None and not self._gives(asked, kind, node, pods)]

    def counts(self, asked: DeviceRequest, kind: str, node: Node) -> bool:
        """Say whether the kubelet of a node chooses the devices of a type."""
        return kind == GPU and asked.gpu is not None and bool(asked.gpu.vendor) and self.mode(node) in BY_COUNT

    def _gives(self, asked: DeviceRequest, kind: str, node: Node, pods: list[Pod]) -> bool:
        if kind == GPU and not self._delivers(asked, node):
            return False
        unknown, found = self.unknown(pods)[kind], self.of.get(node.name)
        if asked.gpu is not None and self.counts(asked, kind, node):
            return found is None or self._never_named(node, pods) >= asked.gpu.count + unknown
        return found is not None and not unknown and bool(sets(asked, kind, found, self.left(node, pods)))

    def left(self, node: Node, pods: Iterable[Pod]) -> Left:
        """Return what these pods leave of the devices of a node."""
        left: Left = {(device.type, device.minor): dict(device.totals) for device in self._devices(node)}
        for device in (device for pod in pods for device in self.held(pod).devices):
            of = left.get((device.type, device.minor), {})
            of.update({name: of[name] - amount for name, amount in device.amounts if name in of})
        return left

    def unknown(self, pods: Iterable[Pod]) -> Counter[str]:
        """Return how many devices of each type these pods have of which nobody knows which."""
        found: Counter[str] = Counter()
        for pod in pods:
            found.update(dict(self.held(pod).unknown))
        return found

    def held(self, pod: Pod) -> HeldDevices:
        """Return the devices of a pod on a node, or on its way there."""
        if pod.spec.devices is None:
            return HeldDevices()
        asked, found = pod.spec.devices, self.of.get(pod.node_name)
        node, given = self._given.get(pod.uid, ("", HeldDevices()))
        if node and (not pod.node_name or (node == pod.node_name and given.source is HolderSource.ALLOCATED)):
            return given
        reported = {ident for _, ident in found.kubelet.get(pod.uid, ())} if found is not None else set()
        named = [one for one in found.devices if one.id in reported] if found is not None else []
        if pod.devices is not None or not named:
            return pod.devices or HeldDevices(unknown=_whole(asked))
        rest = Counter(dict(_whole(asked))) - Counter(one.type for one in named)
        return HeldDevices(tuple(HeldDevice(one.type, one.minor, one.totals) for one in named), (*rest.items(),))

    def share(self, pod: Pod, node: Node | None) -> int:
        """Return for how many hundredths of GPUs a pod counts that asks for parts, on a node that it has or may get.

        Bytes are a share of the GPU that it got, a whole one where nobody says which; before that, of the smallest one
        that has them.
        """
        asked = pod.spec.devices.gpu if pod.spec.devices is not None else None
        if asked is None or asked.vendor:
            return 0
        on_its_way = pod.uid in self._given and (node is None or self._given[pod.uid][0] == node.name)
        named = [one for one in self.held(pod).devices if one.type == GPU] if pod.node_name or on_its_way else []
        if named:
            return sum(max(amount for name, amount in one.amounts if name != "gpu-memory") for one in named)
        if not asked.memory_bytes:
            return asked.count * max(asked.core, asked.ratio)
        if pod.node_name or on_its_way:
            return asked.count * WHOLE
        here = [self.of[node.name]] if node is not None and node.name in self.of else []
        sizes = [one.total("gpu-memory") for found in here or self.of.values() for one in found.devices]
        least = min((size for size in sizes if size >= asked.memory_bytes), default=asked.memory_bytes)
        return asked.count * max(asked.core, -(-asked.memory_bytes * WHOLE // least))

    def _delivers(self, asked: DeviceRequest, node: Node) -> bool:
        """Say whether containers get on a node the GPUs of such a request."""
        mode, counted = self.mode(node), node.allocatable.get(COUNTED, 0) > 0
        if asked.gpu is not None and asked.gpu.vendor:
            return mode == "koordlet" or (mode == "hami" and self.hami) or (mode in BY_COUNT and not asked.visible)
        return mode == "koordlet" or (mode == "env" and asked.visible and not counted)

    def _never_named(self, node: Node, pods: list[Pod]) -> int:
        """Return the number of healthy GPUs of which no pod has a part by name."""
        left = self.left(node, pods)
        gpus = [device for device in self._devices(node) if device.type == GPU and device.healthy]
        return sum(left[GPU, gpu.minor] == dict(gpu.totals) for gpu in gpus)

    def _devices(self, node: Node) -> Iterator[Device]:
        found = self.of.get(node.name)
        yield from found.devices if found is not None else ()


def kinds_of(asked: DeviceRequest) -> list[str]:
    """Return the types of devices that a pod asks for."""
    return [*([GPU] if asked.gpu is not None else []), *(kind for kind, _ in asked.others)]


def sets(asked: DeviceRequest, kind: str, found: NodeDevices, left: Left) -> list[tuple[Device, ...]]:
    """Return each set of devices of a type that a pod may get."""
    return Oracle(found, left, asked, {}).sets(kind)


def _whole(asked: DeviceRequest) -> tuple[tuple[str, int], ...]:
    """Return the most devices that a pod may use."""
    gpus = ((GPU, asked.gpu.count),) if asked.gpu is not None else ()
    return (*gpus, *((kind, -(-amount // WHOLE)) for kind, amount in asked.others))
