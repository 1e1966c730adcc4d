"""Which devices a bound pod holds: as it says itself, else as HAMi or the kubelet says, else unknown ones.

Invariants:
- A pod has one source. What it says itself is at most what it asks for.
- A device that is named by its id alone is found on the node; one that is not there is an unknown one of its type.

Source: the order of trust is that of who chose: Koordinator's annotation, HAMi's, the kubelet's checkpoint, a count.
"""

from collections import Counter
from collections.abc import Iterable

from msgspec.structs import replace

from aischeduler.model.device import (
    GPU,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    WHOLE,
    Amounts,
    Device,
    DeviceRequest,
    HeldDevice,
    HeldDevices,
    HolderSource,
    NodeDevices,
)
from aischeduler.model.device_request import devices_used, unknown_holder
from aischeduler.model.pod import Pod


def held_by(pod: Pod, asked: DeviceRequest, found: NodeDevices | None) -> HeldDevices:
    """Return what a bound pod holds on a node with these devices; None where it has no Device object."""
    if pod.devices is not None:
        return _located(pod.devices, found)
    given = found.kubelet.get(pod.kubelet_uid or pod.uid, ()) if found is not None else ()
    held = _of_kubelet({device for _, device in given}, asked, found) if found is not None and given else None
    return held or unknown_holder(asked, HolderSource.COUNT)


def _of_kubelet(ids: set[str], asked: DeviceRequest, found: NodeDevices) -> HeldDevices | None:
    """Return the devices of these ids, whole; those of which it names none are unknown. None where it names none."""
    kinds = dict(devices_used(asked))
    devices = [device for device in found.devices if device.id in ids and device.type in kinds]
    if not devices:
        return None
    named = Counter(device.type for device in devices)
    unknown = ((kind, count - named[kind]) for kind, count in kinds.items() if count > named[kind])
    whole = (HeldDevice(device.type, device.minor, device.totals, device.id) for device in devices)
    return HeldDevices(tuple(whole), tuple(unknown), HolderSource.CHECKPOINT)


def _located(held: HeldDevices, found: NodeDevices | None) -> HeldDevices:
    """Return what is held with the minors, and the shares of memory, of devices that are named by their ids alone."""
    if found is None or all(device.minor >= 0 for device in held.devices):
        return held
    by_id = {device.id: device for device in found.devices}
    there = [(device, by_id.get(device.id)) for device in held.devices]
    missing = Counter(device.type for device, on_node in there if on_node is None)
    return replace(
        held,
        devices=tuple(_on(device, on_node) for device, on_node in there if on_node is not None),
        unknown=_sum((*held.unknown, *missing.items())),
    )


def _on(device: HeldDevice, on_node: Device) -> HeldDevice:
    """Return what is held of the device of this id; HAMi gives memory in bytes without the share of it."""
    amounts = dict(device.amounts)
    total = on_node.total(GPU_MEMORY)
    if on_node.type == GPU and GPU_MEMORY in amounts and total:
        amounts.setdefault(GPU_MEMORY_RATIO, max(1, -(-amounts[GPU_MEMORY] * WHOLE // total)))
    return replace(device, minor=on_node.minor, amounts=tuple(sorted(amounts.items())))


def _sum(amounts: Iterable[tuple[str, int]]) -> Amounts:
    """Return the sums by type, sorted."""
    total: Counter[str] = Counter()
    for kind, count in amounts:
        total[kind] += count
    return tuple(sorted(total.items()))
