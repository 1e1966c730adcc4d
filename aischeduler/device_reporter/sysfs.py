"""Read the PCI devices of a node from the files of its kernel.

Invariants:
- Nothing is written, and nothing raises: what is absent or cannot be read is unknown.
- `root` is the root folder of the node, which may be mounted anywhere: the links of sysfs are relative.
- A virtual function is a part of the device that has it, and no device of its own.

Source: Linux sysfs: `class`, `bus/pci`, `numa_node`, `physfn`, `virtfn*`, and `ports/*/state` of RDMA adapters.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from aischeduler.device_reporter.hardware import Place
from aischeduler.model.device import FPGA, RDMA, UNKNOWN_NODE, WHOLE, Device, VirtualFunction

CLASSES: Final[Mapping[str, tuple[str, ...]]] = {RDMA: ("infiniband",), FPGA: ("fpga_region", "fpga")}
"""The type of a device -> the folders of `/sys/class` that have an entry for each such device."""
_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_ROOT: Final = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_FUNCTION: Final = re.compile(r"virtfn([0-9]{1,5})")


def place_of(root: Path, bus_id: str) -> Place:
    """Return where the PCI device of this address is."""
    return _place((root / "sys/bus/pci/devices" / bus_id).resolve(), bus_id)


def adapters(root: Path, kind: str) -> tuple[Device, ...]:
    """Return the devices of a type, RDMA or FPGA; their minors are in the order of their addresses."""
    found: dict[str, tuple[Path, Path]] = {}
    for name in CLASSES[kind]:
        for entry in _entries(root / "sys/class" / name):
            folder = _pci_folder(entry.resolve())
            if folder is not None and not (folder / "physfn").exists():
                found.setdefault(folder.name, (folder, entry))
    return tuple(_device(kind, minor, *found[bus_id]) for minor, bus_id in enumerate(sorted(found)))


def _device(kind: str, minor: int, folder: Path, entry: Path) -> Device:
    place = _place(folder, folder.name)
    return Device(
        type=kind,
        minor=minor,
        id=place.bus_id,
        totals=((kind, WHOLE),),
        healthy=_has_link(entry),
        numa=place.numa,
        pcie=place.pcie,
        bus_id=place.bus_id,
        functions=tuple(_functions(folder)),
    )


def _has_link(entry: Path) -> bool:
    """Return whether a port of an adapter is active; True for a device without ports."""
    states = [_text(port / "state") for port in _entries(entry / "ports")]
    return not states or any("ACTIVE" in state for state in states)


def _functions(folder: Path) -> Iterator[VirtualFunction]:
    links = {int(found[1]): entry for entry in _entries(folder) if (found := _FUNCTION.fullmatch(entry.name))}
    for number in sorted(links):
        yield VirtualFunction(number, links[number].resolve().name)


def _place(folder: Path, bus_id: str) -> Place:
    text = _text(folder / "numa_node")
    numa = int(text) if re.fullmatch(r"[0-9]{1,5}", text) else UNKNOWN_NODE
    return Place(bus_id, numa, next((part for part in folder.parts if _ROOT.fullmatch(part)), ""))


def _pci_folder(path: Path) -> Path | None:
    """Return the folder of the PCI device that has this entry."""
    return next((folder for folder in path.parents if _ADDRESS.fullmatch(folder.name)), None)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
