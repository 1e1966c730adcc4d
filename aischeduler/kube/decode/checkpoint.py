"""Convert the kubelet's record of the devices of pods: its own file, or the annotation that an agent writes of it.

Invariants:
- Nothing is raised. An entry that cannot be read is left out, and the others count.
- An id is that of a whole device: what tells the shares of one device apart is left out.

Source: `kubelet_internal_checkpoint` (the device manager of the kubelet), in which the ids are by NUMA node today and
were a list before; PodDevicesEntries of Koordinator's proposal.
"""

from collections import defaultdict
from typing import Final

import msgspec
from msgspec import Raw, Struct, field

from aischeduler.kube.decode.meta_types import UNREADABLE
from aischeduler.model.decode_errors import decode_problem
from aischeduler.model.device import PodDevices

ENTRIES_MAX: Final = 4096
"""The entries of a record that count: a node has some hundred pods."""
SHARE_SEPARATOR: Final = "::"
"""Between the id of a device and the number of a share of it, as time slicing writes."""

DeviceIds = list[str] | dict[str, list[str] | None]


class _Entry(Struct):
    """The devices of one resource of a container, with the keys of the annotation or of the file."""

    pod_uid: str = field(name="podUID", default="")
    resource: str = field(name="resourceName", default="")
    ids: DeviceIds | None = field(name="deviceIDs", default=None)
    file_pod_uid: str = field(name="PodUID", default="")
    file_resource: str = field(name="ResourceName", default="")
    file_ids: DeviceIds | None = field(name="DeviceIDs", default=None)


class _Data(Struct):
    """The part of the file with the entries."""

    entries: list[Raw] | None = field(name="PodDeviceEntries", default=None)


class _File(Struct):
    """The file."""

    data: _Data = field(name="Data")


def read_checkpoint(text: str) -> tuple[PodDevices, str]:
    """Return the devices of each pod, and the first thing that cannot be read; empty if all can be."""
    try:
        if text.lstrip().startswith("{"):
            entries = msgspec.json.decode(text, type=_File).data.entries or []
        else:
            entries = msgspec.json.decode(text, type=list[Raw])
    except UNREADABLE as error:
        return {}, decode_problem(error)
    found: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    faults = [f"has {len(entries)} entries, of which {ENTRIES_MAX} count"] if len(entries) > ENTRIES_MAX else []
    for index, raw in enumerate(entries[:ENTRIES_MAX]):
        try:
            entry = msgspec.json.decode(raw, type=_Entry)
        except UNREADABLE as error:
            faults.append(decode_problem(error, f"[{index}]"))
            continue
        uid, resource = entry.pod_uid or entry.file_pod_uid, entry.resource or entry.file_resource
        if not uid or not resource:
            faults.append(f"[{index}].{'resourceName' if uid else 'podUID'}: is missing")
            continue
        ids = _flat(entry.ids) or _flat(entry.file_ids)
        found[uid].update((resource, one.partition(SHARE_SEPARATOR)[0]) for one in ids if one)
    return {uid: tuple(sorted(found[uid])) for uid in sorted(found)}, next(iter(faults), "")


def _flat(ids: DeviceIds | None) -> list[str]:
    """Return the ids of all NUMA nodes."""
    if isinstance(ids, dict):
        return [one for group in ids.values() for one in group or ()]
    return ids or []
