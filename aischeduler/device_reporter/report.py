"""What a node is to say of its devices: its Device object, the labels of the node, and the capacity of the node.

Invariants:
- Devices count in the capacity whether or not they are healthy: were it to shrink, a kubelet that starts again would
  refuse pods that run. Health is in the Device object alone.
- What cannot be read now stays as the Device object says, its GPUs as unhealthy. Nothing is forgotten.
- A device that is no GPU keeps its minor as long as it is there. Devices of other types and vendors, and the labels of
  devices, are those that others wrote.
- The kubelet's record leaves out exactly the pods whose own annotation says which devices they have.

Source: Device, node labels and resource names of Koordinator, and the `kubernetes.io/` names of its proposal, each with
the same full total.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from itertools import chain, count, filterfalse
from typing import Any, Final

import msgspec
from msgspec import Struct

from aischeduler.device_reporter.hardware import DriverError, Gpu, Gpus
from aischeduler.kube.decode.device import CHECKPOINT_KEYS, HEALTHY, LINKS_KEY, NVIDIA
from aischeduler.model.device import (
    DEVICE_PREFIXES,
    FPGA,
    GPU,
    GPU_CORE,
    GPU_DIMENSIONS,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    KOORDINATOR_PREFIX,
    RDMA,
    UNKNOWN_NODE,
    VENDORS,
    WHOLE,
    Device,
    PodDevices,
)
from aischeduler.model.quantity import QuantityError, parse_units

Json = dict[str, Any]

DEVICE_VERSION: Final = "scheduling.koordinator.sh/v1alpha1"
MODEL_LABEL: Final = "node.koordinator.sh/gpu-model"
DRIVER_LABEL: Final = "node.koordinator.sh/gpu-driver-version"
VENDOR_LABEL: Final = "node.koordinator.sh/gpu-vendor"
RECORD_BYTES_MAX: Final = 100_000
"""The longest text of the kubelet's record: an object has at most 262,144 bytes of annotations, and two have it."""
LABEL_LENGTH_MAX: Final = 63
LOST: Final = "GpuLost"
LOST_TEXT: Final = "the driver counts the GPU and says nothing of it"
_REPORTED: Final = (GPU, *GPU_DIMENSIONS, RDMA, FPGA)
"""The names of the resources of the node, without their prefix."""
_NO_LABEL: Final = re.compile(r"[^A-Za-z0-9._-]+", re.ASCII)


class Facts(Struct, frozen=True):
    """What is known of a node: `uid` is that of its Node object, and `others` are its devices that are no GPUs.

    `gpus` is the error where the driver does not say them. `problems` are the GPUs that had an Xid, by uuid.
    `held` is what the kubelet says of pods, None where it says nothing; `own` are the uids of the pods that say it
    themselves.
    """

    node: str
    uid: str
    now: str
    gpus: Gpus | DriverError
    others: tuple[Device, ...] = ()
    problems: Mapping[str, str] = {}
    held: PodDevices | None = None
    own: Collection[str] = ()


def device_object(facts: Facts, existing: Json | None) -> Json | None:
    """Return the wanted Device object; None where there is none, and nothing to say.

    A null stands for a label or an annotation that must not be there.
    """
    devices = _devices(facts, existing)
    if not devices and existing is None:
        return None
    owner = {"apiVersion": "v1", "kind": "Node", "name": facts.node, "uid": facts.uid, "controller": True}
    return {
        "apiVersion": DEVICE_VERSION,
        "kind": "Device",
        "metadata": {
            "name": facts.node,
            "labels": labels(facts.gpus),
            "annotations": _annotations(facts, devices),
            "ownerReferences": [owner],
        },
        "spec": {"devices": devices},
    }


def labels(gpus: Gpus | DriverError) -> dict[str, str | None]:
    """Return the labels of the Device object and of the node: nothing of GPUs that cannot be read."""
    if isinstance(gpus, DriverError) or (gpus.lost and not gpus.gpus):
        return {}
    model = gpus.gpus[0].model if gpus.gpus else ""
    return {
        MODEL_LABEL: _label(model.removeprefix("NVIDIA ")),
        DRIVER_LABEL: _label(gpus.driver) if gpus.gpus else None,
        VENDOR_LABEL: NVIDIA if gpus.gpus else None,
    }


def capacity(device: Json) -> dict[str, int]:
    """Return what a node has of each resource by a Device object, under both prefixes, sorted by name."""
    totals: dict[str, int] = {}
    for info in _listed(device):
        for name, quantity in (info.get("resources") or {}).items():
            dimension = name.rpartition("/")[2]
            if dimension in GPU_DIMENSIONS if info["type"] == GPU else dimension == info["type"]:
                totals[dimension] = totals.get(dimension, 0) + _units(quantity)
    if GPU_CORE in totals:
        totals[GPU] = totals[GPU_CORE]
    return {
        f"{prefix}{name}": totals[name] for prefix in DEVICE_PREFIXES for name in sorted(totals) if name in _REPORTED
    }


def status_change(node: Json, wanted: Mapping[str, int], *, complete: bool) -> Json:
    """Return the merge patch that gives the node this capacity, empty for none.

    Where it is `complete`, the node loses the resources of devices that it does not name.
    """
    changed: Json = {}
    for field in ("capacity", "allocatable"):
        have = (node.get("status") or {}).get(field) or {}
        names = [f"{prefix}{name}" for prefix in DEVICE_PREFIXES for name in _REPORTED] if complete else []
        change: Json = dict.fromkeys(name for name in names if name in have and name not in wanted)
        change |= {name: str(wanted[name]) for name in wanted if name not in have or _units(have[name]) != wanted[name]}
        if change:
            changed[field] = change
    return {"status": changed} if changed else {}


def difference(have: Json, wanted: Json) -> Json:
    """Return the merge patch that makes an object as wanted in all that is said; empty for none."""
    changed: Json = {}
    for key, value in wanted.items():
        present = have.get(key)
        if isinstance(value, dict):
            inner = difference(present if isinstance(present, dict) else {}, value)
            if inner:
                changed[key] = inner
        elif value != present:
            changed[key] = value
    return changed


def without_nulls(document: Json) -> Json:
    """Return a document that is to be created."""
    kept = ((key, without_nulls(value) if isinstance(value, dict) else value) for key, value in document.items())
    return {key: value for key, value in kept if value is not None}


def unhealthy(device: Json) -> dict[str, str]:
    """Return why devices of a Device object are unhealthy, by type and id."""
    return {
        f"{info['type']} {info['id']}": (info.get("conditions") or [{}])[0].get("reason", "")
        for info in _listed(device)
        if not info.get("health")
    }


def _devices(facts: Facts, existing: Json | None) -> list[Json]:
    known = _listed(existing)
    before = {(info["type"], info["id"]): info for info in known}
    others = list(chain.from_iterable(_others(facts, kind, before) for kind in (RDMA, FPGA)))
    foreign = [info for info in known if info["type"] not in (GPU, RDMA, FPGA)]
    return _gpus(facts, [info for info in known if info["type"] == GPU], existing) + others + foreign


def _gpus(facts: Facts, known: list[Json], existing: Json | None) -> list[Json]:
    if isinstance(facts.gpus, DriverError):
        vendor = (((existing or {}).get("metadata") or {}).get("labels") or {}).get(VENDOR_LABEL, NVIDIA)
        if vendor != NVIDIA:
            return known
        return [_with_health(info, info, facts.gpus.reason, str(facts.gpus), facts.now) for info in known]
    before = {info["id"]: info for info in known}
    found = [_gpu(gpu, before.get(gpu.uuid, {}), facts) for gpu in facts.gpus.gpus]
    ids, minors = ({info[key] for info in found} for key in ("id", "minor"))
    lost = (
        [info for info in known if info["id"] not in ids and info.get("minor") not in minors] if facts.gpus.lost else []
    )
    return found + [_with_health(info, info, LOST, LOST_TEXT, facts.now) for info in lost]


def _gpu(gpu: Gpu, old: Json, facts: Facts) -> Json:
    amounts = {GPU_CORE: WHOLE, GPU_MEMORY: gpu.memory_bytes, GPU_MEMORY_RATIO: WHOLE}
    info = _info(GPU, gpu.uuid, gpu.minor, amounts) | _topology(gpu.place.numa, gpu.place.pcie, gpu.place.bus_id)
    if gpu.module is not None:
        info["moduleID"] = gpu.module
    return _with_health(info, old, facts.problems.get(gpu.uuid) or gpu.problem, "", facts.now)


def _others(facts: Facts, kind: str, before: Mapping[tuple[object, object], Json]) -> list[Json]:
    """Return the devices of a type by minor: those that are known keep theirs, the others get the free ones."""
    devices = [device for device in facts.others if device.type == kind]
    minors = dict[str, int]()
    for device in devices:
        minor = before.get((kind, device.id), {}).get("minor")
        if isinstance(minor, int) and minor not in minors.values():
            minors[device.id] = minor
    free = filterfalse(frozenset(minors.values()).__contains__, count())
    for device in devices:
        if device.id not in minors:
            minors[device.id] = next(free)
    infos = [_other(device, minors[device.id], before.get((kind, device.id), {}), facts.now) for device in devices]
    return sorted(infos, key=lambda info: (info["minor"], info["id"]))


def _other(device: Device, minor: int, old: Json, now: str) -> Json:
    info = _info(device.type, device.id, minor, dict(device.totals))
    info |= _topology(device.numa, device.pcie, device.bus_id)
    functions = [{"minor": function.minor, "busID": function.bus_id} for function in device.functions]
    if functions:
        groups = old.get("vfGroups") or []
        listed = [function for group in groups for function in group.get("vfs") or ()]
        same = sorted(listed, key=lambda one: one.get("minor", 0)) == functions
        info["vfGroups"] = groups if same else [{"vfs": functions}]
    return _with_health(info, old, "" if device.healthy else "PortDown", "", now)


def _info(kind: str, ident: str, minor: int, amounts: Mapping[str, int]) -> Json:
    resources = {f"{KOORDINATOR_PREFIX}{name}": str(amount) for name, amount in amounts.items() if amount}
    return {"type": kind, "id": ident, "minor": minor, "resources": resources}


def _topology(numa: int, pcie: str, bus_id: str) -> Json:
    return {"topology": {"socketID": UNKNOWN_NODE, "nodeID": numa, "pcieID": pcie, "busID": bus_id}}


def _with_health(info: Json, old: Json, problem: str, message: str, now: str) -> Json:
    """Return a device with its health and the labels that it has; `problem` is empty for a healthy one."""
    found = {key: value for key, value in info.items() if key != "conditions"} | {"health": not problem}
    if old.get("labels"):
        found["labels"] = old["labels"]
    if problem:
        conditions = old.get("conditions") or ()
        earlier = [one for one in conditions if (one.get("type"), one.get("status")) == (HEALTHY, "False")]
        since = next((one.get("lastTransitionTime") for one in earlier), None) or now
        told = {"type": HEALTHY, "status": "False", "reason": problem, "message": message, "lastTransitionTime": since}
        found["conditions"] = [told]
    return found


def _annotations(facts: Facts, devices: list[Json]) -> Json:
    found: Json = {}
    if not isinstance(facts.gpus, DriverError):
        links = {f"{first}-{second}": count for (first, second), count in sorted(facts.gpus.links.items())}
        found[LINKS_KEY] = _text(links) if links else None
    if facts.held is not None:
        record = _record(facts.held, facts.own, _addresses(devices))
        found |= dict.fromkeys(CHECKPOINT_KEYS, record)
    return found


def _record(held: PodDevices, own: Collection[str], known: Collection[str]) -> str | None:
    """Return the record of the pods with GPUs or with known devices; None for none. What is too much is left out."""
    entries: list[Json] = []
    size = 2
    for uid in sorted(held):
        by_resource: dict[str, list[str]] = {}
        for resource, ident in held[uid]:
            by_resource.setdefault(resource, []).append(ident)
        for resource, ids in sorted(by_resource.items()):
            if uid in own or not (_is_gpu(resource) or any(ident in known for ident in ids)):
                continue
            entry = {"podUID": uid, "resourceName": resource, "deviceIDs": sorted(ids)}
            size += len(_text(entry)) + 1
            if size > RECORD_BYTES_MAX:
                return _text(entries)
            entries.append(entry)
    return _text(entries) if entries else None


def _is_gpu(resource: str) -> bool:
    return resource in VENDORS or resource.startswith("nvidia.com/")


def _addresses(devices: Iterable[Json]) -> set[str]:
    """Return all that may identify a device: its id, its PCI address, and those of its functions."""
    found: set[str] = set()
    for info in devices:
        groups = info.get("vfGroups") or ()
        found |= {info.get("id", ""), (info.get("topology") or {}).get("busID", "")}
        found |= {function.get("busID", "") for group in groups for function in group.get("vfs") or ()}
    return found - {""}


def _listed(device: Json | None) -> list[Json]:
    """Return the devices of a Device object that have a type and an id."""
    listed = ((device or {}).get("spec") or {}).get("devices") or []
    return [info for info in listed if isinstance(info.get("type"), str) and isinstance(info.get("id"), str)]


def _label(text: str) -> str | None:
    """Return a text as the value of a label; None where nothing of it remains."""
    return _NO_LABEL.sub("-", text)[:LABEL_LENGTH_MAX].strip("-._") or None


def _units(quantity: object) -> int:
    try:
        return parse_units(str(quantity))
    except QuantityError:
        return 0


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()
