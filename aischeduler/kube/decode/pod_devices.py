"""Read what a pod asks of devices, and what its annotations say of the devices that it may get and that it has.

Invariants:
- Nothing raises: what is wrong with a request or its hints becomes a text that names the field or the annotation.
- A bound pod has what it asks for: its annotations say of which devices, and what follows from these, such as the bytes
  of a ratio. What they say of other types counts for nothing.
- An allocation that cannot be read in full, or is of another amount than the pod asks for, is not read at all.

Source: Koordinator (`apis/extension/device_share.go`), and its proposal for the misspelt names; HAMi's annotations.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import msgspec
from msgspec import Raw, Struct, field
from msgspec.structs import replace

from aischeduler.kube.decode.api_types import PodAnnotations, PodSpecPart, Quantities, SelectorPart
from aischeduler.kube.decode.fields import REQUIREMENTS_MAX, FieldError
from aischeduler.kube.decode.meta_types import UNREADABLE
from aischeduler.kube.decode.pod_affinity import read_selector
from aischeduler.kube.http.errors import INVALID_LENGTH_MAX
from aischeduler.model.decode_errors import decode_problem
from aischeduler.model.device import (
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    KOORDINATOR_PREFIX,
    KUBERNETES_PREFIX,
    NVIDIA_GPU,
    VENDORS,
    WHOLE,
    Amounts,
    DeviceHint,
    DeviceRequest,
    GpuRequest,
    HeldDevice,
    HeldDevices,
    HolderSource,
    TopologyScope,
)
from aischeduler.model.device_request import (
    AMOUNT_MAX,
    DEVICE_HINT_KEY,
    DEVICE_JOINT_KEY,
    GPU_PARTITION_KEY,
    GPU_UUIDS_KEY,
    IN_HUNDREDS,
    DeviceRequestError,
    device_request,
    devices_used,
    is_device_resource,
    is_gpu_resource,
    whole_devices,
)
from aischeduler.model.names import MEMORY
from aischeduler.model.quantity import NANO, QuantityError, parse_nano, parse_units, quantity_text
from aischeduler.model.resources import PodRequest
from aischeduler.model.selectors import LabelSelector, SelectorError
from aischeduler.model.user_text import quoted

if TYPE_CHECKING:
    from functools import _lru_cache_wrapper

FIELDS_NAMED_MAX: Final = 8
"""The most fields that a text names; the others are counted."""
PARTS_KEPT_MAX: Final = 1024
PART_KEPT_BYTES_MAX: Final = 4096
"""A larger part of a container is read anew each time."""
UNKNOWN_MINOR: Final = -1
"""The minor of a device that is known by its id only."""
VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
VIOLATION: Final = "Device Joint-Allocate rules violation"
_OLDER_NAMES: Final = {"gpu-mem": GPU_MEMORY, "gpu-mem-ratio": GPU_MEMORY_RATIO}
_UUIDS: Final = GPU_UUIDS_KEY.encode()
_UUIDS_PATH: Final = f"metadata.annotations['{GPU_UUIDS_KEY}']"
_NAMES: Final = KUBERNETES_PREFIX.encode()
_MEBIBYTE: Final = 2**20
_GIGA: Final = 10**9
_HAMI_SHARE: Final = re.compile(r"([^,\[]+)(?:\[[^,]*\])?,[^,]+,([1-9][0-9]{0,7}),([0-9]{1,3})", re.ASCII)
"""The id of a GPU, of a MIG slice also where it is in the table, then vendor, MiB and hundredths of the cores."""
_HAMI_MARKS: Final = frozenset(":;")
HAMI_NVIDIA: Final = "NVIDIA"
"""The kind of devices in HAMi's annotations that its device plugin for NVIDIA serves."""
T = TypeVar("T")


class _Resources(Struct, gc=False):
    """The requests and limits of a container."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class _FieldRef(Struct, rename="camel", gc=False):
    """The field of a pod that a variable has."""

    field_path: str = ""


class _ValueFrom(Struct, rename="camel", gc=False):
    """Where a variable has its value from."""

    field_ref: _FieldRef | None = None


class _Variable(Struct, rename="camel", gc=False):
    """A variable of a container."""

    name: str = ""
    value_from: _ValueFrom | None = None


class _Selector(SelectorPart, rename="camel", forbid_unknown_fields=True, gc=False):
    """A label selector in which a misspelt field is an error, because without it more would match."""


class _Hint(Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """What `device-allocate-hint` says of a type."""

    selector: _Selector | None = None
    vf_selector: _Selector | None = None
    allocate_strategy: Literal["ApplyForAll", "RequestsAsCount"] | None = None
    required_topology_scope: TopologyScope | None = None
    exclusive_policy: Literal["DeviceLevel", "PCIeLevel"] | None = None


class _Joint(Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """What `device-joint-allocate` says."""

    device_types: list[str] = []
    required_scope: Literal["SamePCIe"] | None = None


class _Partition(Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """What `gpu-partition-spec` says."""

    allocate_policy: Literal["Restricted", "BestEffort"] | None = None
    ring_bus_bandwidth: str | int | None = None


class _Function(Struct, gc=False):
    """A virtual function of an allocation."""

    minor: int = 0
    bus_id: str = field(name="busID", default="")


class _Extension(Struct, gc=False):
    """What an allocation says beside the amounts."""

    vfs: list[_Function] | None = None


class _Allocation(Struct, gc=False):
    """A device in `device-allocated`; `misspelt` are its resources as the proposal has them."""

    minor: int = 0
    resources: Quantities | None = None
    misspelt: Quantities | None = field(name="resouurces", default=None)
    id: str | None = None
    extension: _Extension | None = None


class _MismatchError(ValueError):
    """An allocation that is not what the pod asks for."""


_UNREAD: Final = (*UNREADABLE, QuantityError, _MismatchError)


def read_devices(part: PodSpecPart, request: PodRequest) -> tuple[DeviceRequest | None, str]:
    """Return what a pod asks of devices, None for nothing, and what is wrong with it, empty where nothing is.

    Of an invalid request, as many whole devices are returned as the pod may use where another scheduler bound it.
    """
    every = (*(part.containers or ()), *(part.init_containers or ()))
    if not any(map(is_device_resource, request.amounts)) and not any(_NAMES in bytes(c.resources) for c in every):
        return None, ""
    containers = list(_containers(part))
    problem = next(chain.from_iterable(_unit_problems(path, resources) for path, resources in containers), "")
    try:
        asked = device_request(request.amounts)
        if asked is not None and asked.gpu is not None and asked.gpu.vendor == VENDORS[NVIDIA_GPU]:
            asked = replace(asked, parts=_parts(part))
        return asked, problem[:INVALID_LENGTH_MAX]
    except DeviceRequestError as error:
        problem = problem or f"{error}: {_fields(containers, error.names)}"
        return whole_devices(request.amounts), problem[:INVALID_LENGTH_MAX]


def read_hints(
    asked: DeviceRequest, hint: str | None, joint: str | None, partition: str | None
) -> tuple[DeviceRequest, str]:
    """Return the request with what these annotations add to it, and what is wrong with them, empty where nothing is."""
    found = asked
    try:
        if hint is not None:
            found = replace(found, hints=_hints(asked, hint))
        if joint is not None:
            found = _with_joint(found, joint)
        if partition is not None:
            found = _with_partition(found, partition)
    except (FieldError, SelectorError) as error:
        return asked, str(error)[:INVALID_LENGTH_MAX]
    return found, ""


def read_allocated(text: str, asked: DeviceRequest) -> HeldDevices | None:
    """Return the devices that `device-allocated` says a bound pod has; None where that is not what it asks for.

    Of a type that the annotation leaves out, the pod has unknown devices.
    """
    held: list[HeldDevice] = []
    missing: list[tuple[str, int]] = []
    try:
        said = msgspec.json.decode(text, type=dict[str, Raw])
        for kind, devices in devices_used(asked):
            found = msgspec.json.decode(said.get(kind, b"null"), type=list[_Allocation] | None)
            if found:
                held += _held(kind, found, asked)
            else:
                missing.append((kind, devices))
    except _UNREAD:
        return None
    return HeldDevices(tuple(sorted(held, key=_by_type_and_minor)), tuple(missing)) if held else None


def write_allocated(devices: Sequence[HeldDevice]) -> str:
    """Return `device-allocated` of these devices, as koordlet reads it; {} for none."""
    document: dict[str, list[dict[str, object]]] = {}
    for device in sorted(devices, key=_by_type_and_minor):
        entry: dict[str, object] = {
            "minor": device.minor,
            "resources": {KOORDINATOR_PREFIX + name: _quantity(name, amount) for name, amount in device.amounts},
        }
        if device.id:
            entry["id"] = device.id
        if device.functions:
            entry["extension"] = {"vfs": [{"minor": minor, "busID": bus_id} for minor, bus_id in device.functions]}
        document.setdefault(device.type, []).append(entry)
    return msgspec.json.encode(document, order="deterministic").decode()


def gpu_ids(devices: Sequence[HeldDevice]) -> str:
    """Return the ids of the GPUs among these devices, by minor, separated by commas; empty where one has no id."""
    ids = [device.id for device in sorted(devices, key=_by_type_and_minor) if device.type == GPU]
    return ",".join(ids) if all(ids) else ""


def read_hami(text: str) -> HeldDevices | None:
    """Return the GPUs that HAMi's annotation gives to the containers of a pod, by id; None where it names none.

    Their minors are unknown, and shares of one GPU in several containers add up.
    """
    shares: dict[str, tuple[int, int]] = {}
    slots = text.split(";")
    if slots.pop() or any(slot and not slot.endswith(":") for slot in slots):
        return None
    for entry in (entry for slot in slots for entry in slot.split(":") if entry):
        share = _HAMI_SHARE.fullmatch(entry)
        if share is None:
            return None
        core, memory = shares.get(share[1], (0, 0))
        shares[share[1]] = (core + int(share[3]), memory + int(share[2]) * _MEBIBYTE)
    devices = tuple(
        HeldDevice(GPU, UNKNOWN_MINOR, _some((GPU_CORE, core), (GPU_MEMORY, memory)), uuid)
        for uuid, (core, memory) in sorted(shares.items())
    )
    return HeldDevices(devices, source=HolderSource.HAMI) if devices else None


def write_hami(devices: Sequence[HeldDevice], parts: Sequence[tuple[int, int]]) -> str:
    """Return HAMi's annotation that gives these whole GPUs to the containers of a pod; empty where it cannot say it.

    `parts` are those of the request.
    """
    gpus = [_hami_share(device) for device in sorted(devices, key=_by_type_and_minor) if device.type == GPU]
    if not gpus or not all(gpus) or max((end for _, end in parts), default=0) != len(gpus):
        return ""
    return "".join("".join(gpus[first:end]) + ";" for first, end in parts)


def _hami_share(device: HeldDevice) -> str:
    amounts = dict(device.amounts)
    said = f"{device.id},{HAMI_NVIDIA},{amounts.get(GPU_MEMORY, 0) // _MEBIBYTE},{amounts.get(GPU_CORE, 0)}"
    return f"{said}:" if _HAMI_SHARE.fullmatch(said) and not _HAMI_MARKS.intersection(device.id) else ""


def has_device_wishes(part: PodSpecPart, notes: PodAnnotations | None) -> bool:
    """Return whether annotations or variables may say something of the devices that a pod asks for: few pods do."""
    if notes is not None and (notes.device_hint or notes.device_joint or notes.gpu_partition):
        return True
    for containers in (part.containers, part.init_containers):
        for container in containers or ():
            # the path of an annotation has a quote, which few texts have: one byte is found ten times as fast
            if container.env and b"'" in (env := bytes(container.env)) and _UUIDS in env:
                return True
    return False


def shows_gpus(part: PodSpecPart) -> bool:
    """Return whether each container that asks for GPUs has their ids from the annotation that the Binding writes."""
    containers = (*(part.containers or ()), *(part.init_containers or ()))
    asking = [container for container in containers if _cached(_asks_for_gpus, container.resources)]
    return bool(asking) and all(_cached(_has_variable, container.env) for container in asking)


def _cached(read: "_lru_cache_wrapper[bool]", said: Raw) -> bool:
    """Return what is read of a part of a container, which mostly was read before for another pod."""
    part = bytes(said)
    return read(part) if len(part) <= PART_KEPT_BYTES_MAX else read.__wrapped__(part)


@lru_cache(maxsize=PARTS_KEPT_MAX)
def _asks_for_gpus(resources: bytes) -> bool:
    found = _resources(resources)
    requests = _nano(found.requests) if found is not None else {}
    return any(amount for name, amount in requests.items() if is_gpu_resource(name))


@lru_cache(maxsize=PARTS_KEPT_MAX)
def _has_variable(env: bytes) -> bool:
    """Return whether the variable is from the annotation; of several values of one variable the last counts."""
    try:
        found = msgspec.json.decode(env or b"[]", type=list[_Variable] | None) or []
    except UNREADABLE:
        return False
    values = [variable.value_from for variable in found if variable.name == VISIBLE_DEVICES]
    field_ref = values[-1].field_ref if values and values[-1] is not None else None
    return field_ref is not None and field_ref.field_path == _UUIDS_PATH


def _parts(part: PodSpecPart) -> tuple[tuple[int, int], ...]:
    """Return which of the pod's GPUs each container has: an init container that ends has those of later ones too."""
    taken, found = 0, []
    mains = [(container, True) for container in part.containers or ()]
    for container, stays in (*((one, one.restart_policy == "Always") for one in part.init_containers or ()), *mains):
        resources = _resources(container.resources)
        count = _nano(resources.requests).get(NVIDIA_GPU, 0) // NANO if resources is not None else 0
        found.append((taken, taken + count))
        taken += count if stays else 0
    return tuple(found)


def _containers(part: PodSpecPart) -> Iterator[tuple[str, _Resources]]:
    """Yield the resources of the containers that have some, with their paths."""
    for path, containers in (("spec.containers", part.containers), ("spec.initContainers", part.init_containers)):
        for index, container in enumerate(containers or ()):
            found = _resources(container.resources)
            if found is not None:
                yield f"{path}[{index}].resources", found


def _resources(said: bytes | Raw) -> _Resources | None:
    """Return the resources of a container; who reads its requests reports those that are no JSON."""
    try:
        return msgspec.json.decode(said or b"null", type=_Resources | None)
    except UNREADABLE:
        return None


def _unit_problems(path: str, resources: _Resources) -> Iterator[str]:
    """Yield what the amounts of one container say that no sum says: fractions, and limits above requests."""
    requests = _nano(resources.requests)
    for name, amount in requests.items():
        if amount % NANO:
            said = _said(resources.requests, name)
            yield f"invalid resource unit {name}: {said}: {path}.requests[{name}]: must be a whole number"
    for name, amount in _nano(resources.limits).items():
        if name.startswith(KUBERNETES_PREFIX) and amount > requests.get(name, 0):
            said, requested = _said(resources.limits, name), _said(resources.requests, name)
            why = f"is {requested}, and a device cannot burst to the limit of {said}"
            yield f"invalid resource unit {name}: {said}: {path}.requests[{name}]: {why}"


def _nano(quantities: Quantities | None) -> dict[str, int]:
    """Return the amounts of devices, sorted by name; who reads requests reports those that are no quantities."""
    found: dict[str, int] = {}
    for name, text in sorted((quantities or {}).items()):
        if is_device_resource(name):
            try:
                found[name] = parse_nano(str(text))
            except QuantityError:
                continue
    return found


def _said(quantities: Quantities | None, name: str) -> str:
    return str((quantities or {}).get(name, 0))


def _fields(containers: Iterable[tuple[str, _Resources]], names: Sequence[str]) -> str:
    """Return the fields that add up to what is asked for by these names, with their amounts."""
    found = [
        f"{path}.requests[{name}] is {_said(resources.requests, name)}"
        for path, resources in containers
        for name in names
        if _nano(resources.requests).get(name)
    ]
    more = f" and {len(found) - FIELDS_NAMED_MAX} more" if len(found) > FIELDS_NAMED_MAX else ""
    return ", ".join(found[:FIELDS_NAMED_MAX]) + more


def _hints(asked: DeviceRequest, text: str) -> tuple[tuple[str, DeviceHint], ...]:
    path = f"metadata.annotations[{DEVICE_HINT_KEY}]"
    kinds = [kind for kind, _ in devices_used(asked)]
    found: list[tuple[str, DeviceHint]] = []
    for kind, raw in sorted(_decoded(path, text, dict[str, Raw]).items()):
        if kind not in kinds:
            raise FieldError(f"{path}.{quoted(kind)}: the pod asks for no devices of this type")
        hint = _decoded(f"{path}.{kind}", raw, _Hint)
        found.append((kind, _hint(f"{path}.{kind}", hint, whole=_is_whole(asked, kind))))
    return tuple(found)


def _hint(path: str, hint: _Hint, *, whole: bool) -> DeviceHint:
    if hint.allocate_strategy == "RequestsAsCount" and not whole:
        raise FieldError(f"{path}.allocateStrategy: RequestsAsCount needs a request for whole devices, in hundreds")
    if hint.exclusive_policy == "DeviceLevel" and not whole:
        raise FieldError(f"{path}.exclusivePolicy: DeviceLevel needs a request for whole devices, which nobody shares")
    return DeviceHint(
        selector=_selector(f"{path}.selector", hint.selector),
        function_selector=_selector(f"{path}.vfSelector", hint.vf_selector),
        every=hint.allocate_strategy == "ApplyForAll",
        count=hint.allocate_strategy == "RequestsAsCount",
        scope=hint.required_topology_scope,
        exclusive=hint.exclusive_policy == "PCIeLevel",
    )


def _is_whole(asked: DeviceRequest, kind: str) -> bool:
    """Return whether whole devices of the type are asked for; of a further type only its node knows."""
    if kind == GPU:
        return asked.gpu is not None and asked.gpu.whole
    return kind in IN_HUNDREDS and dict(asked.others)[kind] % WHOLE == 0


def _selector(path: str, part: _Selector | None) -> LabelSelector | None:
    if part is None:
        return None
    found = read_selector(path, part)
    if len(found.requirements) > REQUIREMENTS_MAX:
        raise FieldError(f"{path}: has {len(found.requirements)} requirements, which is more than {REQUIREMENTS_MAX}")
    return found


def _with_joint(asked: DeviceRequest, text: str) -> DeviceRequest:
    path = f"metadata.annotations[{DEVICE_JOINT_KEY}]"
    joint = _decoded(path, text, _Joint)
    kinds = [kind for kind, _ in devices_used(asked)]
    for kind in joint.device_types:
        if kind not in kinds:
            raise FieldError(f"{path}.deviceTypes: the pod asks for no {quoted(kind)} ({VIOLATION})")
    if len(joint.device_types) < 2 or len(set(joint.device_types)) != len(joint.device_types):
        raise FieldError(f'{path}.deviceTypes: must name two types or more, each once, such as ["gpu", "rdma"]')
    return replace(asked, joint=tuple(joint.device_types), same_pcie=joint.required_scope is not None)


def _with_partition(asked: DeviceRequest, text: str) -> DeviceRequest:
    path = f"metadata.annotations[{GPU_PARTITION_KEY}]"
    partition = _decoded(path, text, _Partition)
    if asked.gpu is None:
        raise FieldError(f"{path}: the pod asks for no GPUs")
    try:
        bandwidth = parse_units(str(partition.ring_bus_bandwidth or 0)) // _GIGA
    except QuantityError as error:
        raise FieldError(f"{path}.ringBusBandwidth: {error}") from error
    if bandwidth < 0:
        raise FieldError(f"{path}.ringBusBandwidth: {partition.ring_bus_bandwidth} is below zero")
    return replace(asked, restricted=partition.allocate_policy == "Restricted", bandwidth_gbps=bandwidth)


def _decoded(path: str, text: str | Raw, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except UNREADABLE as error:
        raise FieldError(decode_problem(error, path)) from error


def _held(kind: str, said: Sequence[_Allocation], asked: DeviceRequest) -> Iterator[HeldDevice]:
    """Yield the devices of one type that the annotation says; raises where these are not what the pod asks for."""
    hint = asked.hint(kind)
    every = hint is not None and hint.every
    minors = {allocation.minor for allocation in said}
    counted = kind == GPU or kind in IN_HUNDREDS
    if (
        len(minors) < len(said)
        or min(minors) < 0
        or (counted and not every and len(said) != dict(devices_used(asked))[kind])
    ):
        raise _MismatchError
    found = [_amounts(_quantities(allocation)) for allocation in said]
    if kind == GPU and asked.gpu is not None:
        amounts = [_of_gpu(asked.gpu, of_one) for of_one in found]
    else:
        amounts = _of_others(kind, [of_one.get(kind, 0) for of_one in found], asked, every=every)
    for allocation, of_one in zip(said, amounts, strict=True):
        functions = (allocation.extension and allocation.extension.vfs) or ()
        given = tuple((function.minor, function.bus_id) for function in functions)
        yield HeldDevice(kind, allocation.minor, of_one, allocation.id or "", given)


def _quantities(allocation: _Allocation) -> tuple[tuple[str, str | int | float], ...]:
    return (*(allocation.misspelt or {}).items(), *(allocation.resources or {}).items())


@lru_cache(maxsize=PARTS_KEPT_MAX)
def _amounts(quantities: tuple[tuple[str, str | int | float], ...]) -> Mapping[str, int]:
    """Return the amounts of an allocation by dimension, the most where several names are of one."""
    found: dict[str, int] = {}
    for name, text in quantities:
        dimension = name.rpartition("/")[2]
        dimension = _OLDER_NAMES.get(dimension, dimension)
        found[dimension] = max(found.get(dimension, 0), parse_units(str(text)))
        if found[dimension] > AMOUNT_MAX:
            raise _MismatchError
    return found


def _of_gpu(asked: GpuRequest, said: Mapping[str, int]) -> Amounts:
    """Return what the pod has of one GPU: what it asks for, and what only who knows the GPU derives from that."""
    memory = asked.memory_bytes or said.get(GPU_MEMORY, 0)
    ratio = asked.ratio or min(max(said.get(GPU_MEMORY_RATIO, 0), 1), WHOLE)
    return _some((GPU_CORE, asked.core), (GPU_MEMORY, memory), (GPU_MEMORY_RATIO, ratio))


def _of_others(kind: str, said: Sequence[int], asked: DeviceRequest, *, every: bool) -> list[Amounts]:
    amount = dict(asked.others)[kind]
    if min(said) <= 0 or (any(of_one != amount for of_one in said) if every else sum(said) != amount):
        raise _MismatchError
    return [((kind, of_one),) for of_one in said]


def _some(*amounts: tuple[str, int]) -> Amounts:
    """Return the amounts above zero; they are given sorted by dimension."""
    return tuple(named for named in amounts if named[1] > 0)


def _quantity(dimension: str, amount: int) -> str:
    return quantity_text(MEMORY if dimension == GPU_MEMORY else dimension, amount)


def _by_type_and_minor(device: HeldDevice) -> tuple[str, int]:
    return device.type, device.minor
