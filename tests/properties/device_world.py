"""A world of gangs whose nodes have devices: pods have the annotations that Bindings write, and these are recounted.

What a node has does not change; Device objects come, go and tell of devices that are unhealthy.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Final

from aischeduler.kube.decode.pod_devices import read_allocated
from aischeduler.kube.write import pod_writes
from aischeduler.model.actions import Action, Bind
from aischeduler.model.device import (
    GPU,
    RDMA,
    WHOLE,
    Device,
    DeviceRequest,
    HeldDevice,
    HeldDevices,
    NodeDevices,
    Partition,
    PodDevices,
)
from aischeduler.model.device_request import device_request
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.events import Event, Seen, gone
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Pool
from aischeduler.model.resources import ResourceList
from tests.build import replace
from tests.checked_scheduler import CheckedScheduler
from tests.device_rules import COUNTED, DELIVERY, kinds_of, sets
from tests.devices import a_device, a_gpu, devices_of
from tests.properties.test_gangs import GangWorld

ALLOCATED: Final = "scheduling.koordinator.sh/device-allocated"
PREFIXES: Final = {"": (), "koordinator": ("koordinator.sh/",), "both": ("koordinator.sh/", "kubernetes.io/")}
"""Who lists devices on a node, by the prefixes of the names that it writes."""
HARDWARE: Final = {
    one.node: one
    for one in (
        devices_of("n0", a_gpu(0, gib=80), a_gpu(1, gib=80)),
        devices_of("n1", a_gpu(0, gib=16), a_gpu(1, gib=80), a_device(RDMA, 0)),
        devices_of("n2", a_gpu(0, gib=24), a_gpu(1, gib=40), a_gpu(2, gib=40), a_gpu(3, gib=80)),
        devices_of(
            "n3",
            *(a_gpu(minor) for minor in range(3)),
            *(a_device(RDMA, minor) for minor in range(2)),
            partitions=(Partition((0, 2)),),
            only=True,
        ),
        devices_of("n4", a_gpu(1, gib=16), a_gpu(3, gib=16)),
    )
}
"""The devices of each node; of those of n3, two GPUs are given together only as its table says."""
_SUFFIXES: Final = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_QUANTITY: Final = re.compile("([0-9]+)([KMGT]i)?")

Amounts = dict[tuple[str, int], Counter[str]]
"""Type and minor -> dimension -> amount."""


def asks(amounts: ResourceList, *, visible: bool) -> DeviceRequest | None:
    """Return what a pod with these requests asks of devices, as the decoder reads it."""
    asked = device_request(amounts)
    return None if asked is None else replace(asked, visible=visible and asked.gpu is not None)


def published(found: NodeDevices, lists: str) -> dict[str, int]:
    """Return what a node offers of its devices under the names that are listed there."""
    sums: Counter[str] = Counter()
    for device in found.devices:
        sums.update(dict(device.totals))
        sums.update({"gpu": WHOLE, "gpu.shared": WHOLE} if device.type == GPU else {})
    return {prefix + name: amount for prefix in PREFIXES[lists] for name, amount in sorted(sums.items())}


def allocated(text: str) -> Amounts:
    """Return what an annotation says that a pod has, read in a way of its own."""
    found: Amounts = {}
    for kind, devices in json.loads(text or "{}").items():
        for device in devices:
            amounts = {name.partition("/")[2]: _amount(quantity) for name, quantity in device["resources"].items()}
            found.setdefault((kind, device.get("minor", 0)), Counter()).update(amounts)
    return found


def over(found: NodeDevices, texts: Iterable[str]) -> list[str]:
    """Return the devices of which these annotations together give more than there is."""
    totals = {(device.type, device.minor): dict(device.totals) for device in found.devices}
    given: Amounts = {}
    for text in texts:
        for key, amounts in allocated(text).items():
            given.setdefault(key, Counter()).update(amounts)
    return [
        f"{found.node}: {key} gives {amounts[name]} of {name}"
        for key, amounts in sorted(given.items())
        for name in amounts
        if amounts[name] > totals.get(key, {}).get(name, 0)
    ]


def _amount(quantity: str) -> int:
    number = _QUANTITY.fullmatch(quantity)
    assert number is not None, quantity
    return int(number[1]) * _SUFFIXES[number[2] or ""]


class DeviceWorld(GangWorld):
    """A world of gangs with Device objects by node, and the annotations of pods by uid."""

    def __init__(self, *, often: bool = False) -> None:
        self.devices: dict[str, NodeDevices] = {}
        self.annotations: dict[str, dict[str, str]] = {}
        self.listing: dict[str, tuple[str | None, str, int]] = {}
        """Node -> its label of delivery, who lists its devices there, and the GPUs that its kubelet counts."""
        self._sent: dict[tuple[str, str], dict[str, str]] = {}
        """Pod and node -> the annotations of the last Binding that was sent."""
        super().__init__(often=often)

    # Changes of the world.

    def put_devices(self, found: NodeDevices) -> None:
        """Create or change the Device object of a node."""
        self.devices[found.node] = found
        self._happens(Seen(found))

    def end_devices(self, node: str) -> None:
        """Delete the Device object of a node."""
        if self.devices.pop(node, None) is not None:
            self._happens(gone(NodeDevices, node))

    def reported(self, node: str) -> PodDevices:
        """Return which GPUs the kubelet of a node gave to its pods that say of none themselves."""
        ids = [device.id for device in HARDWARE[node].of_type(GPU)]
        found: dict[str, tuple[tuple[str, str], ...]] = {}
        for uid, pod in sorted(self.pods.items()):
            asked = pod.spec.devices.gpu if pod.spec.devices is not None else None
            if pod.node_name == node and asked is not None and pod.devices is None:
                mine, ids = ids[: asked.count], ids[asked.count :]
                found[uid] = tuple((COUNTED, ident) for ident in mine)
        return found

    def deliver(self, name: str, label: str | None, lists: str, counted: int) -> None:
        """Change how a node delivers its devices, and which names of them it lists."""
        self.listing[name] = (label, lists, counted)
        if name in self.nodes:
            self.put(self.nodes[name])

    def put(self, thing: Pod | Node | Pool | DisruptionBudget) -> None:
        if isinstance(thing, Node) and thing.name in self.listing:
            thing = self._listed(thing)
        if isinstance(thing, Pod):
            thing = self._annotated(_asking(thing))
        super().put(thing)
        if isinstance(thing, Pod) and thing.node_name in HARDWARE:
            on_node = (pod.uid for pod in self.pods.values() if pod.node_name == thing.node_name)
            texts = [self.annotations.get(uid, {}).get(ALLOCATED, "") for uid in on_node]
            assert over(HARDWARE[thing.node_name], texts) == []

    def _annotated(self, pod: Pod) -> Pod:
        """Return a pod, on a node with the annotations of its Binding, as the reflector reads it."""
        if not pod.node_name:
            return pod
        before = self.pods.get(pod.uid)
        if before is not None and not before.node_name:
            self.annotations[pod.uid] = self._sent[pod.uid, pod.node_name]
        text, asked = self.annotations.get(pod.uid, {}).get(ALLOCATED), pod.spec.devices
        return replace(pod, devices=read_allocated(text, asked) if text and asked is not None else None)

    def _listed(self, node: Node) -> Node:
        label, lists, counted = self.listing[node.name]
        labels = {key: value for key, value in node.labels.items() if key != DELIVERY}
        amounts = {name: amount for name, amount in node.allocatable.items() if not _is_of_devices(name)}
        amounts |= published(HARDWARE[node.name], lists) | ({COUNTED: counted} if counted else {})
        return replace(
            node,
            labels=labels if label is None else {**labels, DELIVERY: label},
            allocatable=amounts,
            capacity=amounts,
        )

    def _everything(self) -> list[Event]:
        """Return all objects; every second engine hears of Device objects first, the others last."""
        devices = [Seen(found) for _, found in sorted(self.devices.items())]
        others = super()._everything()
        return [*devices, *others] if self.runs % 2 else [*others, *devices]

    def _tell(self, event: Event) -> None:
        if isinstance(event, Seen) and isinstance(event.object, Pod) and not event.object.node_name:
            event = Seen(replace(event.object, devices=None))  # devices are read of pods on nodes
        super()._tell(event)

    # Actions of the engine.

    def _take(self, action: Action) -> None:
        super()._take(action)
        if isinstance(action, Bind):
            annotations = json.loads(pod_writes.binding(action)[1])["metadata"]["annotations"]
            self._sent[action.pod.uid, action.node] = annotations
            rules, asked = self.scheduler.oracle.devices, action.pod.spec.devices
            node, text = self.scheduler.oracle._nodes[action.node], annotations.get(ALLOCATED, "")
            wanted = [kind for kind in kinds_of(asked) if not rules.counts(asked, kind, node)] if asked else []
            assert sorted({kind for kind, _ in allocated(text)}) == sorted(wanted), f"{action.pod.uid} got {text}"

    # At rest.

    def forgotten(self) -> dict[str, tuple[object, object]]:
        """Return the nodes of whose devices a new engine knows something else, with what both know.

        Without those that are kept back until their pools are known: a new engine need not wait for these.
        """
        if self.binds or len(self.scheduler.cluster.claims) or self._unheard:
            return {}
        fresh = CheckedScheduler(self.profile(), "compared", often=False)
        for event in self._everything():
            fresh.observe(event, self.now)
        old, new = known(self.scheduler), known(fresh)
        late = self.scheduler.cluster.unknown_pools.late
        return {name: (old[name], new.get(name)) for name in sorted(old.keys() - late) if old[name] != new.get(name)}

    def _would_fit(self, pods: list[Pod]) -> bool:
        """Return whether a gang waits that fits; not where its order, or who gets which devices, may decide."""
        asked = pods[0].spec.devices
        alike = len({pod.spec.key for pod in pods}) == 1
        simple = asked is None or asked.gpu is None or asked.gpu.count == 1 or asked.gpu.whole
        if (alike and simple) or all(pod.spec.devices is None for pod in pods):
            return super()._would_fit(pods)
        return False

    def _on_node(self, pod: Pod, node: str, room: dict[str, int], placed: list[tuple[Pod, str]]) -> Pod | None:
        asked, rules = pod.spec.devices, self.scheduler.oracle.devices
        if asked is None:
            return super()._on_node(pod, node, room, placed)
        on, there = self.nodes[node], [one for one, at in placed if at == node]
        free = dict.fromkeys(rules.unlisted(on), sys.maxsize)
        if super()._on_node(pod, node, {**room, **free}, placed) is None or rules.short(pod.spec, on, there):
            return None
        left, found = rules.left(on, there), rules.of.get(node)
        chosen: list[HeldDevice] = []
        for kind in kinds_of(asked):
            if found is not None and not rules.counts(asked, kind, on):
                first = sets(asked, kind, found, left)[0]
                chosen += [HeldDevice(kind, one.minor, _share(asked, kind, one)) for one in first]
        unknown = ((GPU, asked.gpu.count),) if asked.gpu and rules.counts(asked, GPU, on) else ()
        return replace(pod, node_name=node, devices=HeldDevices(tuple(chosen), unknown))


def _share(asked: DeviceRequest, kind: str, device: Device) -> tuple[tuple[str, int], ...]:
    """Return what a pod takes of one of its devices."""
    if kind == GPU and asked.gpu is not None:
        return asked.gpu.of(device)
    return ((kind, min(dict(asked.others)[kind], device.total(kind))),)


def _asking(pod: Pod) -> Pod:
    """Return a pod with what it asks of devices, also where its request says that alone."""
    if pod.spec.devices is not None:
        return pod
    return replace(pod, spec=replace(pod.spec, devices=asks(pod.spec.request.amounts, visible=False)))


def _is_of_devices(name: str) -> bool:
    return name == COUNTED or name.startswith(("koordinator.sh/", "kubernetes.io/"))


def known(scheduler: CheckedScheduler) -> dict[str, object]:
    """Return what an engine knows of the devices of each node that has a Device object."""
    nodes = scheduler.cluster.nodes
    found: dict[str, object] = {}
    for name, row in nodes.rows.items():
        if nodes.devices.of(row) is not None:
            unknown = {kind: int(nodes.devices.unknown[at, row]) for kind, at in nodes.devices.types.items()}
            found[name] = (nodes.devices.free_on(row), +Counter(unknown), int(nodes.devices.mode[row]))
    return found
