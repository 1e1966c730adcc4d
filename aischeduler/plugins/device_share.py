"""DeviceShare: a pod runs where the devices that it asks for are free, and gets particular ones.

Invariants:
- A request for devices by name is for nodes with a Device object. `nvidia.com/gpu` and the like are counts where the
  kubelet chooses the devices, which is so on nodes without Device object too: there the ordinary amounts decide.
- No device is given whose holders are not all known.

Source: DeviceShare of Koordinator (Filter, Reserve); unlike there, a node without Device object gives no devices.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import CannotAllocateError, PlacementRequest, PreFilterState, Scores
from aischeduler.model.allocation import Allocation
from aischeduler.model.device import (
    DEVICES,
    FPGA,
    GPU,
    NVIDIA_GPU,
    RDMA,
    VENDORS,
    WHOLE,
    DeviceRequest,
    GpuRequest,
    HeldDevices,
    HolderSource,
)
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.pool import PlacementStrategy
from aischeduler.plugins.device_choice import (
    Preference,
    asks_for_one_gpu,
    choose,
    choose_one_gpu,
    choose_together,
    fits,
)
from aischeduler.plugins.device_holders import held_by
from aischeduler.state.allocation_parts import AllocationPart
from aischeduler.state.devices import (
    DELIVERY_LABEL,
    GIVES_ANY_COUNT,
    GIVES_COUNTS,
    GIVES_NAMED,
    GIVES_SHOWN,
    GIVES_VENDORS,
    DeliveryMode,
    Devices,
)
from aischeduler.state.label_index import Mask, Rows
from aischeduler.state.node_table import NodeTable
from aischeduler.state.recent_requests import WeightedShapes

NO_DEVICES: Final = "node(s) had no Device object"
UNKNOWN_MODE: Final = f"node(s) had an unknown value of the label {DELIVERY_LABEL}"
COUNTS_ONLY: Final = "node(s) gave whole GPUs by count only"
NAMES_ONLY: Final = "node(s) gave no GPUs by count"
NOT_VISIBLE: Final = "node(s) showed GPUs by a variable that the pod's containers lack"
NO_IDS: Final = "node(s) had a GPU without an id, by which containers would see it"
UNKNOWN_HOLDERS: Final = "node(s) had pods whose devices are not known"
NO_FUNCTIONS: Final[Mapping[tuple[str, int], frozenset[int]]] = {}
_LISTED: Final = (RDMA, FPGA)
"""Beside GPUs, the types that mean devices whether or not a node has them."""
_BY_COUNT: Final = (int(DeliveryMode.NONE), int(DeliveryMode.DEVICE_PLUGIN))
"""The modes of nodes whose kubelets choose GPUs; looking an enumeration up takes long."""
_DEVICE_PLUGIN: Final = int(DeliveryMode.DEVICE_PLUGIN)
_HAMI: Final = int(DeliveryMode.HAMI)
NONE_LEFT: Final = 200
"""The score of a node without free GPUs where pods are packed."""
Codes = npt.NDArray[np.int64]


class _Verdicts:
    """Why each of some rows is refused, the first reason of each; the filter decides on the rows that are left."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.codes: Codes = np.full(len(rows), -1, dtype=np.int64)
        self.reasons: list[str] = []

    def refuse(self, mask: Mask, reason: str) -> None:
        """Refuse the rows of the mask that nothing refused before."""
        if reason not in self.reasons:
            self.reasons.append(reason)
        self.codes[mask & (self.codes < 0)] = self.reasons.index(reason)

    @property
    def passing(self) -> Mask:
        """The rows that nothing refused."""
        mask: Mask = self.codes < 0
        return mask


class DeviceShare:
    """Filter nodes by their devices, and choose devices."""

    name = "DeviceShare"
    static = False
    part = DEVICES
    weight = 2
    """More than the resource scores, which differ by at most 150: to leave no free GPU, not one, is worth 200."""
    normalize = False
    reverse = False
    for_claims = True

    def filter(self, spec: PodSpec, at: NodeView) -> Mask | None:
        """Return the rows with the devices that the pod asks for; None where it asks for none."""
        asked = spec.devices
        if asked is None or not _concerns(asked, at.nodes.devices):
            return None
        quick = _judge_quickly(asked, at)
        return quick if quick is not None else _judge(asked, at).passing

    def resolvable(self, spec: PodSpec, at: NodeView) -> Mask:
        """Return the rows that honour the request, and have as many GPUs as it asks for."""
        asked, devices = spec.devices, at.nodes.devices
        found = _Verdicts(at.rows)
        if asked is not None and asked.gpu is not None and _concerns(asked, devices):
            mode = devices.mode.take(at.rows)
            _judge_delivery(asked, devices, mode, found)
            found.refuse((mode != DeliveryMode.NONE) & (devices.gpus.take(at.rows) < asked.gpu.count), _short(GPU))
        return found.passing

    def reasons(self, spec: PodSpec, at: NodeView) -> Counter[str]:
        """Count each row for its first reason."""
        assert spec.devices is not None, "the filter refused the pod"
        found = _judge(spec.devices, at)
        return Counter(found.reasons[code] for code in found.codes.tolist() if code >= 0)

    def helps(self, spec: PodSpec, node: Node) -> bool:
        """Return True: devices are not read from the node."""
        return True

    def score(self, ask: PlacementRequest, at: NodeView) -> Scores | None:
        """Return 200 where the pod leaves no free GPU, 100 where it leaves one; with Spread the percentage it leaves.

        A pod without GPUs is packed too: the CPU and memory that it takes are not missing beside free GPUs. Where the
        kubelet chooses GPUs, amounts say what is free; with Fragmentation NodeFragmentation says it.

        Source: DeviceShare of Koordinator (LeastAllocated; MostAllocated, though of the GPUs that are left).
        """
        gpu, devices = ask.spec.devices.gpu if ask.spec.devices is not None else None, at.nodes.devices
        if not devices.active or ask.placement is PlacementStrategy.FRAGMENTATION:
            return None
        spread = ask.placement is PlacementStrategy.SPREAD
        if spread and gpu is None:
            return None
        shape = devices.shape_of(ask.spec)
        left = devices.gpus_free.take(at.rows) - shape.gpus * shape.hundredths
        left = np.maximum(left, 0)
        if spread:
            share: Scores = left // np.maximum(devices.gpus.take(at.rows), 1)
            return share
        left *= devices.mode.take(at.rows) != _DEVICE_PLUGIN
        packed: Scores = NONE_LEFT * WHOLE // (WHOLE + left)
        return packed

    def make_part(self, nodes: NodeTable) -> AllocationPart:
        """Return the devices of the table."""
        return nodes.devices

    def allocates(self, spec: PodSpec, nodes: NodeTable) -> bool:
        """Return whether the pod asks for devices, and some node has a Device object."""
        return spec.devices is not None and nodes.devices.active

    def choose(
        self, given: Allocation, spec: PodSpec, at: NodeView, state: PreFilterState | None, placement: PlacementStrategy
    ) -> Allocation:
        """Return the devices that the pod gets; a number of GPUs where the kubelet chooses them."""
        row, devices = int(at.rows[0]), at.nodes.devices
        found, asked = devices.of(row), _of_known_types(spec.devices, devices)
        unknown = HeldDevices()
        if asked.gpu is not None and _by_count(asked, devices.mode[row]):
            unknown = HeldDevices(unknown=((GPU, asked.gpu.count),), source=HolderSource.COUNT)
            asked = replace(asked, gpu=None)
        if found is None or (asked.gpu is None and not asked.others):
            return _with(given, unknown)
        prefer, islands = _preference(placement, devices), devices.islands_on(row)
        if asks_for_one_gpu(asked, prefer):
            percents = devices.hundredths[row].tolist()
            chosen = choose_one_gpu(found, percents, asked, prefer, free=partial(devices.free_on, row), islands=islands)
        else:
            functions = devices.functions_on(row) if asked.hints else NO_FUNCTIONS
            chosen = choose(found, devices.free_on(row), asked, prefer, taken_functions=functions, islands=islands)
        if isinstance(chosen, str):  # the filter let pass what cannot be: no pod is bound without its devices
            raise CannotAllocateError(f"{found.node}: {chosen}")
        by_hami = asked.gpu is not None and bool(devices.mode[row] == _HAMI)
        return _with(given, replace(unknown, devices=chosen, by_hami=by_hami))

    def choose_together(
        self, given: Sequence[Allocation], specs: Sequence[PodSpec], at: NodeView, placement: PlacementStrategy
    ) -> tuple[Allocation, ...]:
        """Return the devices that the pods of a gang on one node get: the best connected ones for all of them."""
        row, devices = int(at.rows[0]), at.nodes.devices
        found, asked = devices.of(row), [_of_known_types(spec.devices, devices) for spec in specs]
        if found is None or any(_by_count(one, devices.mode[row]) for one in asked):
            return tuple(given)
        prefer = _preference(placement, devices)
        chosen = choose_together(found, devices.free_on(row), asked, prefer, taken_functions=devices.functions_on(row))
        if isinstance(chosen, str):
            return tuple(given)
        by_hami = bool(devices.mode[row] == _HAMI)
        return tuple(
            _with(one, HeldDevices(held, by_hami=by_hami and of.gpu is not None))
            for one, held, of in zip(given, chosen, asked, strict=True)
        )

    def bound(self, given: Allocation, pod: Pod, nodes: NodeTable) -> Allocation:
        """Return the devices that the pod says to have, or its kubelet, or a number of which nobody knows which."""
        assert pod.spec.devices is not None, "the pod asks for devices"
        row = nodes.rows.get(pod.node_name)
        found = nodes.devices.of(row) if row is not None else None
        return _with(given, held_by(pod, pod.spec.devices, found))


def _preference(placement: PlacementStrategy, devices: Devices) -> Preference:
    if placement is not PlacementStrategy.FRAGMENTATION:
        return Preference(placement)
    return Preference(placement, _expected(devices.recent.shapes()))


@lru_cache(maxsize=2)
def _expected(shapes: WeightedShapes) -> tuple[tuple[GpuRequest, int], ...]:
    """Return recent requests as those of GPUs, each once: CPU and memory do not tell the GPUs of one node apart."""
    weights: dict[GpuRequest, int] = {}
    for one, weight in shapes:
        request = GpuRequest(one.gpus, one.hundredths, one.hundredths)
        weights[request] = weights.get(request, 0) + weight
    return tuple(weights.items())


def _with(given: Allocation, held: HeldDevices) -> Allocation:
    if not held.devices and not held.unknown:
        return given
    others = (part for part in given.parts if part[0] != DEVICES)
    return replace(given, parts=(*others, (DEVICES, held)))


def _by_count(asked: DeviceRequest, mode: int) -> bool:
    """Return whether the kubelet of a node in this mode chooses the GPUs."""
    return asked.gpu is not None and bool(asked.gpu.vendor) and int(mode) in _BY_COUNT


def _concerns(asked: DeviceRequest, devices: Devices) -> bool:
    """Return whether a node may refuse the request for its devices."""
    if asked.gpu is not None and (devices.active or not asked.gpu.vendor or asked.visible or _has_gpu_wishes(asked)):
        return True
    return any(_is_device(kind, devices) for kind, _ in asked.others)


def _is_device(kind: str, devices: Devices) -> bool:
    """Return whether a name of a further type means devices: else it is an ordinary resource."""
    return kind in _LISTED or devices.knows(kind)


def _of_known_types(asked: DeviceRequest | None, devices: Devices) -> DeviceRequest:
    assert asked is not None, "the pod asks for devices"
    others = tuple((kind, amount) for kind, amount in asked.others if _is_device(kind, devices))
    return asked if others == asked.others else replace(asked, others=others)


def _judge_quickly(asked: DeviceRequest, at: NodeView) -> Mask | None:
    """Return what `_judge` says of GPUs alone, without wishes, in a few steps; None for other requests."""
    gpu, devices, rows = asked.gpu, at.nodes.devices, at.rows
    if gpu is None or asked.others or asked.hints or asked.joint or asked.restricted:
        return None
    if gpu.count > 1 and devices.partitions_only.take(rows).any():
        return None
    mask: Mask
    if gpu.vendor == VENDORS[NVIDIA_GPU] and not asked.visible:
        mask = devices.by_count.take(rows) >= gpu.count
        return mask
    gives, unknown = devices.gives.take(rows), devices.unknown[0].take(rows)
    whole = gpu.core == gpu.ratio == WHOLE
    named = gives & (GIVES_VENDORS if gpu.vendor else GIVES_SHOWN if asked.visible else GIVES_NAMED) != 0
    if not whole:
        mask = named & (devices.with_gpus(gpu, rows) >= gpu.count) & (unknown == 0)
        return mask
    left = devices.whole.take(rows)
    mask = named & (left >= gpu.count) & (unknown == 0)
    if not gpu.vendor:
        return mask
    mask &= devices.is_of(gpu.vendor, rows)
    if asked.visible:
        return mask
    mask |= (gives & GIVES_ANY_COUNT != 0) | ((gives & GIVES_COUNTS != 0) & (left - unknown >= gpu.count))
    return mask


def _judge(asked: DeviceRequest, at: NodeView) -> _Verdicts:
    """Return which rows have the devices, by arrays where these say it, and the others one by one."""
    nodes, rows = at.nodes, at.rows
    devices, found = nodes.devices, _Verdicts(rows)
    mode = devices.mode.take(rows)
    asked = _of_known_types(asked, devices)
    if asked.gpu is not None:
        _judge_delivery(asked, devices, mode, found)
        counted = np.zeros(len(rows), dtype=np.bool_)
        if asked.gpu.vendor:
            counted = mode == DeliveryMode.DEVICE_PLUGIN
            room = devices.whole.take(rows) - devices.unknown_on(rows, GPU)
            found.refuse(counted & (room < asked.gpu.count), _short(GPU))
            counted |= mode == DeliveryMode.NONE
        found.refuse(~counted & (devices.unknown_on(rows, GPU) > 0), UNKNOWN_HOLDERS)
        hint = asked.hint(GPU)
        if hint is None or not (hint.every or hint.count):
            found.refuse(~counted & (devices.with_gpus(asked.gpu, rows) < asked.gpu.count), _short(GPU))
    for kind, amount in asked.others:
        found.refuse(mode == DeliveryMode.NONE, NO_DEVICES)
        found.refuse(devices.unknown_on(rows, kind) > 0, UNKNOWN_HOLDERS)
        hint = asked.hint(kind)
        if hint is None or not (hint.every or hint.count):
            found.refuse(~devices.have(kind, amount, rows), _short(kind))
    _judge_one_by_one(asked, devices, found)
    return found


def _judge_delivery(asked: DeviceRequest, devices: Devices, mode: npt.NDArray[np.int8], found: _Verdicts) -> None:
    """Refuse the rows whose way to deliver GPUs cannot honour the request."""
    gpu = asked.gpu
    assert gpu is not None, "the pod asks for GPUs"
    found.refuse(mode == DeliveryMode.UNKNOWN, UNKNOWN_MODE)
    if gpu.vendor:
        of_hami = mode == DeliveryMode.HAMI
        found.refuse((mode == DeliveryMode.ENV) | (of_hami & (not devices.hami)), NAMES_ONLY)
        found.refuse(of_hami & devices.nameless.take(found.rows), NO_IDS)
        if asked.visible or _has_gpu_wishes(asked):
            found.refuse((mode == DeliveryMode.DEVICE_PLUGIN) | (mode == DeliveryMode.NONE), COUNTS_ONLY)
        return
    found.refuse(mode == DeliveryMode.NONE, NO_DEVICES)
    by_count = (mode == DeliveryMode.DEVICE_PLUGIN) | (mode == DeliveryMode.HAMI)
    found.refuse(by_count | ((mode == DeliveryMode.ENV) & devices.counted.take(found.rows)), COUNTS_ONLY)
    if not asked.visible:
        found.refuse(mode == DeliveryMode.ENV, NOT_VISIBLE)
    found.refuse((mode == DeliveryMode.ENV) & devices.nameless.take(found.rows), NO_IDS)


def _has_gpu_wishes(asked: DeviceRequest) -> bool:
    """Return whether only single GPUs that the scheduler chooses will do."""
    return asked.restricted or GPU in asked.joint or asked.hint(GPU) is not None


def _judge_one_by_one(asked: DeviceRequest, devices: Devices, found: _Verdicts) -> None:
    """Refuse rows that have enough devices but not such as the pod asks for together."""
    several = asked.gpu is not None and asked.gpu.count > 1
    if asked.hints or asked.joint or (asked.restricted and several):
        left = found.passing
    elif several:
        left = found.passing & devices.partitions_only.take(found.rows)
    else:
        return
    for at in np.flatnonzero(left).tolist():
        row = int(found.rows[at])
        node = devices.of(row)
        one = _without_counted(asked, devices.mode[row])
        if node is None or (one.gpu is None and not one.others):
            continue
        reason = fits(node, devices.free_on(row), one, taken_functions=devices.functions_on(row))
        if reason:
            here = np.zeros(len(found.rows), dtype=np.bool_)
            here[at] = True
            found.refuse(here, reason)


def _without_counted(asked: DeviceRequest, mode: int) -> DeviceRequest:
    return replace(asked, gpu=None) if _by_count(asked, mode) else asked


def _short(kind: str) -> str:
    return f"Insufficient {kind} devices"
