"""Builds the root folder of a node: its sysfs, and what the kubelet keeps."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aischeduler.device_reporter.kubelet import CHECKPOINT


def add_pci(root: Path, path: str, *, numa: int | None = 0) -> Path:
    """Make a PCI device, such as pci0000:00/0000:00:06.0, and its entry of the bus."""
    folder = root / "sys/devices" / path
    folder.mkdir(parents=True)
    if numa is not None:
        (folder / "numa_node").write_text(f"{numa}\n")
    bus = root / "sys/bus/pci/devices"
    bus.mkdir(parents=True, exist_ok=True)
    (bus / folder.name).symlink_to(Path("../../../devices") / path)
    return folder


def add_entry(root: Path, kind: str, name: str, pci: Path, ports: Sequence[str] = ()) -> None:
    """Make the entry of a class for a PCI device, with the states of its ports."""
    entry = pci / kind / name
    for number, state in enumerate(ports, start=1):
        port = entry / "ports" / str(number)
        port.mkdir(parents=True)
        (port / "state").write_text(f"{state}\n")
    entry.mkdir(parents=True, exist_ok=True)
    folder = root / "sys/class" / kind
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).symlink_to(Path("../../devices") / entry.relative_to(root / "sys/devices"))


def add_function(root: Path, pci: Path, number: int, address: str) -> None:
    """Make a virtual function of a PCI device, with an RDMA entry of its own, as a kernel does."""
    function = add_pci(root, str((pci.parent / address).relative_to(root / "sys/devices")))
    (pci / f"virtfn{number}").symlink_to(Path("..") / address)
    (function / "physfn").symlink_to(Path("..") / pci.name)
    add_entry(root, "infiniband", f"vf{number}", function)


def add_rdma(root: Path, address: str = "0000:18:00.0", functions: int = 0, state: str = "4: ACTIVE") -> Path:
    """Make an RDMA adapter below a switch of the root of its bus."""
    pci = add_pci(root, f"pci0000:{address[5:7]}/0000:{address[5:7]}:01.0/{address}", numa=1)
    add_entry(root, "infiniband", f"mlx5_{address[5:7]}", pci, [state])
    for number in reversed(range(functions)):
        add_function(root, pci, number, f"{address[:-1]}{number + 1}")
    return pci


def write_checkpoint(root: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    """Write the file of the kubelet."""
    file = root / CHECKPOINT
    file.parent.mkdir(parents=True, exist_ok=True)
    data = {"PodDeviceEntries": entries, "RegisteredDevices": {"nvidia.com/gpu": ["GPU-0"]}}
    file.write_text(json.dumps({"Data": data, "Checksum": 7}))


def entry(uid: str, ids: object, resource: str = "nvidia.com/gpu") -> dict[str, object]:
    """Return what the file says of one container: ids as a list, or by NUMA node."""
    return {"PodUID": uid, "ContainerName": "main", "ResourceName": resource, "DeviceIDs": ids, "AllocResp": "eA=="}
