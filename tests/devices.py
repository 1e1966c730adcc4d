"""Builders of devices, and of what pods ask of them and have: every amount that matters is written in the test."""

from collections.abc import Mapping

from aischeduler.model.device import (
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    WHOLE,
    Amounts,
    Device,
    DeviceRequest,
    GpuRequest,
    HeldDevice,
    HeldDevices,
    NodeDevices,
    Partition,
)

GIB = 1024**3


def a_gpu(minor: int, *, gib: int = 80, healthy: bool = True, numa: int = -1, pcie: str = "") -> Device:
    """Return a GPU with this much memory; its id has its minor."""
    totals = ((GPU_CORE, WHOLE), (GPU_MEMORY, gib * GIB), (GPU_MEMORY_RATIO, WHOLE))
    return Device(GPU, minor, f"GPU-{minor}", totals, healthy=healthy, numa=numa, pcie=pcie)


def a_device(kind: str, minor: int, *, total: int = WHOLE, healthy: bool = True, pcie: str = "") -> Device:
    """Return a device of another type."""
    return Device(kind, minor, f"{kind}-{minor}", ((kind, total),), healthy=healthy, pcie=pcie)


def devices_of(node: str, *devices: Device, partitions: tuple[Partition, ...] = (), only: bool = False) -> NodeDevices:
    """Return what the Device object of a node says."""
    return NodeDevices(node, devices, partitions=partitions, partitions_only=only, uid=f"uid-device-{node}")


def gpus(node: str, count: int, *, gib: int = 80) -> NodeDevices:
    """Return a node with so many GPUs."""
    return devices_of(node, *(a_gpu(minor, gib=gib) for minor in range(count)))


def asks(
    core: int = 0,
    *,
    ratio: int = 0,
    gib: int = 0,
    count: int = 1,
    vendor: str = "",
    others: Mapping[str, int] | None = None,
) -> DeviceRequest:
    """Return a request for so much of each of `count` GPUs; `core` alone asks for as much ratio."""
    gpu = GpuRequest(count, core, 0 if gib else ratio or core, gib * GIB, vendor) if core or ratio or gib else None
    return DeviceRequest(gpu, tuple(sorted((others or {}).items())), visible=not vendor)


def whole(minor: int, *, gib: int = 80) -> HeldDevice:
    """Return a whole GPU as a pod has it."""
    return part_of(minor, WHOLE, gib=gib)


def part_of(minor: int, share: int, *, gib: int = 80) -> HeldDevice:
    """Return so many hundredths of a GPU as a pod has them."""
    amounts: Amounts = ((GPU_CORE, share), (GPU_MEMORY, gib * GIB * share // WHOLE), (GPU_MEMORY_RATIO, share))
    return HeldDevice(GPU, minor, amounts, f"GPU-{minor}")


def has(*devices: HeldDevice) -> HeldDevices:
    """Return the devices that a pod says to have."""
    return HeldDevices(devices)
