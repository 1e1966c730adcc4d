"""What is used of each device of the nodes, and by which pods.

Invariants:
- What the pods on a node have of a device is used; a claim, whose pod is not there yet, has nothing.
- Nodes are by name, devices by type and minor, holders by namespace, name and uid.
- What a pod has of a device that the Device object of its node does not have is `missing`, and used of no device.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from aischeduler.engine.cluster import Cluster
from aischeduler.model.device import Amounts, Device, HeldDevice, HeldDevices, HolderSource, NodeDevices


class DeviceHolder(Struct, frozen=True, order=True):
    """A pod that has something of a device, and where it is said that it has."""

    namespace: str
    name: str
    uid: str
    source: HolderSource


class DeviceUse(Struct, frozen=True):
    """A device and the pods that have some of it; `used` has an amount for each of its dimensions."""

    device: Device
    used: Amounts
    holders: tuple[DeviceHolder, ...]


class UnknownUse(Struct, frozen=True):
    """How many whole devices of a type the holders have, of which nobody knows which."""

    type: str
    devices: int
    holders: tuple[DeviceHolder, ...]


class NodeDeviceUse(Struct, frozen=True):
    """The devices of a node, and what its Device object says that cannot be read."""

    node: str
    devices: tuple[DeviceUse, ...]
    unknown: tuple[UnknownUse, ...]
    missing: tuple[tuple[DeviceHolder, HeldDevice], ...]
    faults: tuple[str, ...]


Held = Sequence[tuple[DeviceHolder, HeldDevices]]
"""What the pods on a node have, by holder."""


def device_use(cluster: Cluster) -> tuple[NodeDeviceUse, ...]:
    """Return the nodes that have a Device object, or of which a pod has a particular device."""
    found: list[NodeDeviceUse] = []
    for node, row in sorted(cluster.nodes.rows.items()):
        listed, held = cluster.nodes.devices.of(row), sorted(_held(cluster, row))
        if listed is not None or any(has.devices for _, has in held):
            found.append(_node_use(listed or NodeDevices(node), held))
    return tuple(found)


def _held(cluster: Cluster, row: int) -> Iterator[tuple[DeviceHolder, HeldDevices]]:
    for (uid, claims), has in cluster.nodes.devices.holders(row).items():
        if not claims:
            pod = cluster.records[uid].pod
            yield DeviceHolder(pod.namespace, pod.name, uid, has.source), has


def _node_use(listed: NodeDevices, held: Held) -> NodeDeviceUse:
    by_minor = {(device.type, device.minor): device for device in listed.devices}
    by_id = {device.id: device for device in listed.devices if device.id}
    shares: dict[tuple[str, int], list[tuple[DeviceHolder, HeldDevice]]] = {key: [] for key in by_minor}
    missing: list[tuple[DeviceHolder, HeldDevice]] = []
    for holder, has in held:
        for part in has.devices:
            # a device whose minor is not known has its id
            device = by_id.get(part.id) if part.minor < 0 else by_minor.get((part.type, part.minor))
            (missing if device is None else shares[device.type, device.minor]).append((holder, part))
    kinds = sorted({kind for _, has in held for kind, _ in has.unknown})
    return NodeDeviceUse(
        listed.node,
        tuple(_use(device, shares[key]) for key, device in sorted(by_minor.items())),
        tuple(_unknown(kind, held) for kind in kinds),
        tuple(missing),
        listed.faults,
    )


def _use(device: Device, shares: Sequence[tuple[DeviceHolder, HeldDevice]]) -> DeviceUse:
    used = dict.fromkeys((dimension for dimension, _ in device.totals), 0)
    for dimension, amount in (one for _, part in shares for one in part.amounts):
        if dimension in used:
            used[dimension] += amount
    return DeviceUse(device, tuple(used.items()), _each_once(holder for holder, _ in shares))


def _unknown(kind: str, held: Held) -> UnknownUse:
    counts = [(holder, count) for holder, has in held for name, count in has.unknown if name == kind]
    return UnknownUse(kind, sum(count for _, count in counts), _each_once(holder for holder, _ in counts))


def _each_once(holders: Iterable[DeviceHolder]) -> tuple[DeviceHolder, ...]:
    return tuple(dict.fromkeys(holders))
