"""Convert a Device object to the devices of its node, and HAMi's annotation of a node to its GPUs.

Invariants:
- Nothing is raised: a device, a table or an entry that cannot be read is left out, and a fault names its field.
- Amounts are rounded down: nothing is given that a device may not have.
- A device that does not say that it is healthy is not.

Source: Device of scheduling.koordinator.sh/v1alpha1 (`device_types.go`), with the tags of the proposal too
(`deviceType`, `resource`, `kubernetes.io/...`); `hami.io/node-nvidia-register` in both of its forms.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct, field
from msgspec.structs import replace

from aischeduler.kube.decode.checkpoint import read_checkpoint
from aischeduler.kube.decode.fields import FieldError
from aischeduler.kube.decode.meta_types import ABSENT, UNREADABLE, Metadata
from aischeduler.model.card_types import card_names
from aischeduler.model.decode_errors import decode_problem
from aischeduler.model.device import (
    DEVICE_PREFIXES,
    GPU,
    GPU_CORE,
    GPU_DIMENSIONS,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    UNKNOWN_NODE,
    WHOLE,
    Amounts,
    Device,
    NodeDevices,
    Partition,
    PodDevices,
    VirtualFunction,
    pair_of,
)
from aischeduler.model.quantity import NANO, QuantityError, parse_nano
from aischeduler.model.user_text import quoted, shown

PARTITIONS_KEY: Final = "scheduling.koordinator.sh/gpu-partitions"
LINKS_KEY: Final = "resource.aibee.cn/gpu-links"
CHECKPOINT_KEYS: Final = ("node.koordinator.sh/devices-checkpoints", "node.koordinator.sh/gpu-checkpoints")

DEVICES_MAX: Final = 64
"""The devices of one type that a node may have."""
TYPES_MAX: Final = 16
FUNCTIONS_MAX: Final = 256
"""The virtual functions of one device: PCIe numbers that many."""
PARTITIONS_MAX: Final = 512
TOTALS_KEPT_MAX: Final = 1024
LINKS_MAX: Final = DEVICES_MAX * DEVICES_MAX
FAULTS_MAX: Final = 8
WHOLE_MAX: Final = 2**31 - 1
AMOUNT_MAX: Final = 2**63 - 1
"""The largest amount that Kubernetes keeps exactly."""
MEBIBYTE: Final = 2**20
GIGA: Final = 10**9

TYPE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
ID: Final = r"[-A-Za-z0-9_.:/]{0,253}"
"""An id is written into annotations as one of several, separated by commas."""
PAIR: Final = re.compile(r"([0-9]{1,9})-([0-9]{1,9})", re.ASCII)
OTHER_DIMENSIONS: Final = {"gpu-mem": GPU_MEMORY, "gpu-mem-ratio": GPU_MEMORY_RATIO}
"""Names of the proposal -> the dimensions that they mean."""
HONOR: Final = "Honor"
HEALTHY: Final = "Healthy"
NVIDIA: Final = "nvidia"
NO_LABELS: Final[Mapping[str, str]] = {}
HOPPER_MODELS: Final = frozenset(("H100", "H800", "H20"))
HOPPER_PARTITIONS: Final = tuple(
    Partition(tuple(range(first, first + count)), score=1) for count in (1, 2, 4, 8) for first in range(0, 8, count)
)
"""The partitions of eight Hopper cards on one board, where the Device object has no table."""
HAMI_FIELDS: Final = ("id", "count", "devmem", "devcore", "type", "numa", "health", "index", "mode")
"""The fields of a device in HAMi's older form; the last two may be missing."""
HAMI_FIELDS_MIN: Final = 7
HAMI_LINK, HAMI_SWITCH = 100, 50
"""The scores of one NVLink between two GPUs, and of a path over one PCIe switch."""
HAMI_SLICES: Final = "mig"
"""The mode of a GPU that HAMi divides into MIG slices: nobody gets it as a whole."""

Whole = Annotated[int, Meta(ge=0, le=WHOLE_MAX)]
Quantity = str | int | float
D = TypeVar("D")


class DeviceAnnotations(Struct, gc=False):
    """The annotations of a Device object that Ai-Scheduler reads, each as JSON."""

    partitions: str | None = field(name=PARTITIONS_KEY, default=None)
    links: str | None = field(name=LINKS_KEY, default=None)
    checkpoint: str | None = field(name=CHECKPOINT_KEYS[0], default=None)
    gpu_checkpoint: str | None = field(name=CHECKPOINT_KEYS[1], default=None)


class DeviceLabels(Struct, gc=False):
    """The labels of a Device object that Ai-Scheduler reads."""

    partition_policy: str | None = field(name="node.koordinator.sh/gpu-partition-policy", default=None)
    vendor: str | None = field(name="node.koordinator.sh/gpu-vendor", default=None)
    model: str | None = field(name="node.koordinator.sh/gpu-model", default=None)


class DeviceMetadata(Metadata, rename="camel", gc=False):
    """The metadata of a Device object, whose name is that of its node."""

    annotations: DeviceAnnotations | None = None
    labels: DeviceLabels | None = None


class DeviceDocument(Struct, gc=False):
    """A Device object. `read_device` reads its spec: one device that cannot be read leaves the others."""

    metadata: DeviceMetadata
    spec: Raw = ABSENT


class _Spec(Struct):
    devices: list[Raw] | None = None


class _Topology(Struct):
    numa: int | None = field(name="nodeID", default=None)
    pcie: str | int | None = field(name="pcieID", default=None)
    bus: str | None = field(name="busID", default=None)


class _Function(Struct):
    minor: int = 0
    bus: str | None = field(name="busID", default=None)


class _FunctionGroup(Struct):
    labels: dict[str, str] | None = None
    vfs: list[_Function] | None = None


class _Condition(Struct):
    type: str = ""
    status: str = ""


class _Device(Struct, rename="camel"):
    """A device in both spellings."""

    type: str | None = None
    device_type: str | None = None
    id: str | None = None
    minor: int | None = None
    health: bool | None = None
    resources: dict[str, Quantity] | None = None
    resource: dict[str, Quantity] | None = None
    topology: _Topology | None = None
    labels: dict[str, str] | None = None
    vf_groups: list[_FunctionGroup] | None = None
    conditions: list[_Condition] | None = None


class _Partition(Struct, rename="camel"):
    minors: list[Whole]
    ring_bus_bandwidth: Quantity | None = None
    allocation_score: Whole | None = None


class _HamiScores(Struct):
    """How well one GPU is connected to others, by their ids, as HAMi's device plugin says it."""

    uuid: str = ""
    score: dict[str, Whole] = {}


class _HamiDevice(Struct):
    """A GPU as HAMi registers it: its JSON leaves out zeros and false."""

    id: Annotated[str, Meta(pattern=rf"\A{ID}\Z", min_length=1)]
    index: Whole = 0
    devmem: Whole = 0
    devcore: Whole = 0
    numa: int = 0
    health: bool = False
    mode: str = ""


def read_device(document: DeviceDocument) -> NodeDevices:
    """Return the devices of the node that a Device object is of."""
    metadata, faults = document.metadata, list[str]()
    annotations, labels = metadata.annotations or DeviceAnnotations(), metadata.labels or DeviceLabels()
    devices = _devices(document.spec, faults)
    partitions: tuple[Partition, ...] = ()
    links: Mapping[str, int] = {}
    if annotations.partitions is None:
        partitions = _known_partitions(labels.model or "", devices)
    else:
        try:
            partitions = _partitions(f"metadata.annotations[{PARTITIONS_KEY}]", annotations.partitions)
        except FieldError as error:
            faults.append(str(error))
    if annotations.links is not None:
        try:
            links = _links(f"metadata.annotations[{LINKS_KEY}]", annotations.links)
        except FieldError as error:
            faults.append(str(error))
    kubelet = _kubelet_devices(annotations, faults)
    return NodeDevices(
        node=metadata.name,
        devices=devices,
        partitions=partitions,
        partitions_only=labels.partition_policy == HONOR,
        links=links,
        vendor=labels.vendor or NVIDIA,
        faults=_limited(faults),
        uid=metadata.uid,
        kubelet=kubelet,
    )


def _kubelet_devices(annotations: DeviceAnnotations, faults: list[str]) -> PodDevices:
    """Return the devices that the kubelet gave to pods."""
    found = dict[str, set[tuple[str, str]]]()
    for key, text in zip(CHECKPOINT_KEYS, (annotations.checkpoint, annotations.gpu_checkpoint), strict=True):
        pods, fault = read_checkpoint(text) if text is not None else ({}, "")
        for uid, held in pods.items():
            found.setdefault(uid, set()).update(held)
        if fault:
            path = f"metadata.annotations[{key}]"
            faults.append(f"{path}{fault}" if fault.startswith("[") else f"{path}: {fault}")
    return {uid: tuple(sorted(found[uid])) for uid in sorted(found)}


def read_hami_node(text: str) -> tuple[Device, ...]:
    """Return the GPUs that HAMi registers on a node, by minor; without those that cannot be read.

    One that HAMi divides into MIG slices is given to nobody: it counts as unhealthy.
    """
    parts = list(_hami_devices(text))
    indexed = len({part.index for part in parts}) == len(parts)
    gpus = [
        Device(
            type=GPU,
            minor=part.index if indexed else position,
            id=part.id,
            totals=_sorted(
                {GPU_CORE: part.devcore or WHOLE, GPU_MEMORY: part.devmem * MEBIBYTE, GPU_MEMORY_RATIO: WHOLE}
            ),
            healthy=part.health and part.mode != HAMI_SLICES,
            numa=max(part.numa, UNKNOWN_NODE),
        )
        for position, part in enumerate(parts)
    ]
    return tuple(sorted(gpus, key=lambda gpu: gpu.minor)[:DEVICES_MAX])


def read_hami_scores(text: str, gpus: tuple[Device, ...]) -> tuple[tuple[Device, ...], tuple[tuple[str, int], ...]]:
    """Return the GPUs with the PCIe switches that HAMi's scores of pairs tell, and the NVLinks of pairs.

    A score is 100 for each NVLink of the pair and, below 100, what their path over PCIe is worth: 50 and more are for
    GPUs below one switch. Scores that cannot be read tell nothing.
    """
    try:
        told = msgspec.json.decode(text, type=list[_HamiScores]) if text else []
    except UNREADABLE:
        return gpus, ()
    minors = {gpu.id: gpu.minor for gpu in gpus}
    found = dict[tuple[int, int], int]()
    for one in told:
        for other, score in one.score.items():
            if one.uuid in minors and other in minors and one.uuid != other:
                first, second = sorted((minors[one.uuid], minors[other]))
                found[first, second] = max(found.get((first, second), 0), score)
    links = tuple((pair_of(*pair), score // HAMI_LINK) for pair, score in sorted(found.items()) if score >= HAMI_LINK)
    switch = {minor: minor for minor in minors.values()}
    for (first, second), score in sorted(found.items()):
        if score % HAMI_LINK >= HAMI_SWITCH:
            kept, joined = switch[first], switch[second]
            switch |= {minor: kept for minor, of in switch.items() if of == joined}
    shared = Counter(switch.values())
    placed = (
        replace(gpu, pcie=f"switch-{switch[gpu.minor]}") if shared[switch[gpu.minor]] > 1 else gpu for gpu in gpus
    )
    return tuple(placed), links


def _devices(spec: Raw, faults: list[str]) -> tuple[Device, ...]:
    """Return the devices by type and minor."""
    found, left_out = dict[tuple[str, int], Device](), Counter[str]()
    counts = Counter[str]()
    for index, raw in enumerate(_listed(spec, faults)):
        path = f"spec.devices[{index}]"
        try:
            device = _device(path, raw)
        except FieldError as error:
            faults.append(str(error))
            continue
        if (device.type, device.minor) in found:
            faults.append(f"{path}.minor: another {device.type} before it has the minor {device.minor}")
        elif counts[device.type] == DEVICES_MAX or (device.type not in counts and len(counts) == TYPES_MAX):
            left_out[device.type] += 1
        else:
            counts[device.type] += 1
            found[device.type, device.minor] = device
    for kind in sorted(left_out):
        limit = f"{DEVICES_MAX} count" if kind in counts else f"{TYPES_MAX} types count"
        faults.append(f"spec.devices: {left_out[kind]} of type {kind} are too many: {limit}")
    return tuple(found[key] for key in sorted(found))


def _listed(spec: Raw, faults: list[str]) -> list[Raw]:
    if not bytes(spec):
        return []
    try:
        part = msgspec.json.decode(spec, type=_Spec | None)
    except UNREADABLE as error:
        faults.append(decode_problem(error, "spec"))
        return []
    return part.devices or [] if part is not None else []


def _device(path: str, raw: Raw) -> Device:
    """Return a device; raises FieldError."""
    part = _decoded(path, raw, _Device)
    kind, ident, topology = part.type or part.device_type or "", part.id or "", part.topology or _Topology()
    if not kind:
        raise FieldError(f"{path}.type: is missing")
    if TYPE.fullmatch(kind) is None or kind in GPU_DIMENSIONS or kind == GPU_SHARED:
        raise FieldError(f"{path}.type: {quoted(kind)} is not a type of devices such as gpu, rdma or fpga")
    if re.fullmatch(ID, ident) is None:
        raise FieldError(f"{path}.id: {quoted(ident)} is not the id of a device")
    minor = part.minor or 0
    if not 0 <= minor <= WHOLE_MAX:
        raise FieldError(f"{path}.minor: must be from 0 to {WHOLE_MAX}, not {shown(minor)}")
    field_name, amounts = ("resources", part.resources) if part.resources else ("resource", part.resource or {})
    sick = any(condition.type == HEALTHY and condition.status == "False" for condition in part.conditions or ())
    return Device(
        type=kind,
        minor=minor,
        id=ident,
        totals=_kept_totals(f"{path}.{field_name}", kind, amounts),
        healthy=part.health is True and not sick,
        numa=max(topology.numa, UNKNOWN_NODE) if topology.numa is not None else UNKNOWN_NODE,
        pcie=str(topology.pcie) if topology.pcie is not None else "",
        bus_id=topology.bus or "",
        labels=part.labels or NO_LABELS,
        functions=_functions(f"{path}.vfGroups", part.vf_groups or ()),
    )


def _kept_totals(path: str, kind: str, given: Mapping[str, Quantity]) -> Amounts:
    """Return what a device has; raises FieldError. Devices that are alike share it."""
    try:
        return _alike(kind, tuple(given.items()))
    except FieldError:
        return _totals(path, kind, given)  # the error names the field


@lru_cache(maxsize=TOTALS_KEPT_MAX)
def _alike(kind: str, given: tuple[tuple[str, Quantity], ...]) -> Amounts:
    return _totals("", kind, dict(given))


def _totals(path: str, kind: str, given: Mapping[str, Quantity]) -> Amounts:
    """Return what a device has: one whole device, but for what it says; raises FieldError."""
    known = GPU_DIMENSIONS if kind == GPU else (kind,)
    said = dict[str, int]()
    for name in sorted(given):
        dimension = _dimension(name)
        if dimension in known:
            where = f"{path}[{name}]"
            amount = _amount(where, given[name])
            if said.setdefault(dimension, amount) != amount:
                raise FieldError(f"{where}: another name of {dimension} has another amount")
    return _sorted({dimension: WHOLE for dimension in known if dimension != GPU_MEMORY} | said)


def _dimension(name: str) -> str:
    """Return the name of a resource without its prefix; empty where it is of no device."""
    prefix = next((prefix for prefix in DEVICE_PREFIXES if name.startswith(prefix)), None)
    dimension = name.removeprefix(prefix) if prefix is not None else ""
    return OTHER_DIMENSIONS.get(dimension, dimension)


def _amount(path: str, quantity: Quantity) -> int:
    """Return a quantity in whole units, rounded down; raises FieldError."""
    try:
        nano = parse_nano(str(quantity))
    except QuantityError as error:
        raise FieldError(f"{path}: {error}") from error
    if not 0 <= nano <= AMOUNT_MAX * NANO:
        raise FieldError(f"{path}: must be from 0 to {AMOUNT_MAX}, not {shown(quantity)}")
    return nano // NANO


def _sorted(totals: Mapping[str, int]) -> Amounts:
    return tuple(sorted((dimension, amount) for dimension, amount in totals.items() if amount))


def _functions(path: str, groups: Iterable[_FunctionGroup]) -> tuple[VirtualFunction, ...]:
    """Return the virtual functions of a device by minor; raises FieldError."""
    found = dict[tuple[int, str], VirtualFunction]()
    for group in groups:
        for part in group.vfs or ():
            one = VirtualFunction(part.minor, part.bus or "", group.labels or {})
            found.setdefault((one.minor, one.bus_id), one)
    if len(found) > FUNCTIONS_MAX:
        raise FieldError(f"{path}: has {len(found)} virtual functions, which is more than {FUNCTIONS_MAX}")
    return tuple(found[key] for key in sorted(found))


def _known_partitions(model: str, devices: tuple[Device, ...]) -> tuple[Partition, ...]:
    """Return the partitions of a board whose cards are of a known model; none of PCIe cards, which have no switch."""
    names = card_names(model)
    if not names or names[-1] not in HOPPER_MODELS or "PCIE" in names[0] or "NVL" in names[0]:
        return ()
    minors = [device.minor for device in devices if device.type == GPU]
    return HOPPER_PARTITIONS if minors == list(range(8)) else ()


def _partitions(path: str, text: str) -> tuple[Partition, ...]:
    """Return the partitions of a table by their size and minors; raises FieldError."""
    found = list[Partition]()
    for count, parts in _decoded(path, text, dict[str, list[_Partition]]).items():
        for index, part in enumerate(parts):
            where, minors = f"{path}.{quoted(count)}[{index}]", tuple(sorted(set(part.minors)))
            if count != str(len(minors)) or len(minors) != len(part.minors):
                raise FieldError(f"{where}.minors: must be {quoted(count)} minors, each once")
            bandwidth = part.ring_bus_bandwidth
            gbps = _amount(f"{where}.ringBusBandwidth", bandwidth) // GIGA if bandwidth is not None else 0
            found.append(Partition(minors, gbps, part.allocation_score or 0))
    if len(found) > PARTITIONS_MAX:
        raise FieldError(f"{path}: has {len(found)} partitions, which is more than {PARTITIONS_MAX}")
    return tuple(sorted(found, key=lambda one: (len(one.minors), one.minors, -one.score, -one.bandwidth_gbps)))


def _links(path: str, text: str) -> Mapping[str, int]:
    """Return the number of links of each pair of GPUs; raises FieldError."""
    found = dict[tuple[int, int], int]()
    links = _decoded(path, text, dict[str, Whole])
    if len(links) > LINKS_MAX:
        raise FieldError(f"{path}: has {len(links)} pairs, which is more than {LINKS_MAX}")
    for name, count in links.items():
        pair = PAIR.fullmatch(name)
        first, second = sorted((int(pair[1]), int(pair[2]))) if pair is not None else (0, 0)
        if first == second:
            raise FieldError(f"{path}: {quoted(name)} is not a pair of minors such as 0-1")
        if found.setdefault((first, second), count) != count:
            raise FieldError(f"{path}: {quoted(name)} has another number of links in the other order")
    return {pair_of(*pair): found[pair] for pair in sorted(found)}


def _hami_devices(text: str) -> Iterator[_HamiDevice]:
    """Yield the devices of either form; the older one numbers them by their place, where it does not by itself."""
    for raw in _hami_parts(text):
        try:
            if isinstance(raw, Raw):
                yield msgspec.json.decode(raw, type=_HamiDevice)
            else:
                yield msgspec.convert(raw, _HamiDevice, strict=False)
        except UNREADABLE:
            continue


def _hami_parts(text: str) -> list[Raw] | list[dict[str, str]]:
    if text.lstrip().startswith("["):
        try:
            return msgspec.json.decode(text, type=list[Raw])
        except UNREADABLE:
            return []
    slots = [slot.strip().split(",") for slot in text.split(":")]
    return [
        {"index": str(place)} | dict(zip(HAMI_FIELDS, slot, strict=False))
        for place, slot in enumerate(slots)
        if len(slot) >= HAMI_FIELDS_MIN
    ]


def _decoded(path: str, body: Raw | str, kind: type[D]) -> D:
    """Decode a part of the object, in which numbers may be texts too; raises FieldError."""
    try:
        return msgspec.json.decode(body, type=kind, strict=isinstance(body, Raw))
    except UNREADABLE as error:
        raise FieldError(decode_problem(error, path)) from error


def _limited(faults: list[str]) -> tuple[str, ...]:
    more = len(faults) - FAULTS_MAX
    return (*faults[:FAULTS_MAX], f"and {more} more") if more > 0 else tuple(faults)
