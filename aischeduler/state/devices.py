"""The devices of all nodes, and which pods have them: a part of allocations.

Invariants:
- `left` has per dimension, row and slot what no pod and no claim holds; it may be below zero while a claim counts
  beside pods that are leaving. A device keeps its slot until the Device object of its node changes.
- What pods hold stays while the Device object is gone, or does not have the device any more: it counts again once the
  object is back.
- Where it is not known which devices a pod holds, a number of whole devices is `unknown` on the row.
- While no Device object was ever seen, no pod holds anything here: `active` is False.
"""

from collections.abc import Mapping
from enum import IntEnum
from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from aischeduler.model.card_shares import Memories
from aischeduler.model.device import (
    DEVICES,
    GPU,
    GPU_DIMENSIONS,
    GPU_MEMORY,
    GPU_SHARED,
    KOORDINATOR_PREFIX,
    NVIDIA_GPU,
    VENDORS,
    WHOLE,
    GpuRequest,
    HeldDevice,
    HeldDevices,
    Islands,
    NodeDevices,
    free_hundredths,
    islands_of,
)
from aischeduler.model.names import CPU, MEMORY
from aischeduler.model.node import Node
from aischeduler.model.pod import PodSpec
from aischeduler.state.allocation_parts import AllocationPart
from aischeduler.state.label_index import Mask, Rows
from aischeduler.state.pod_records import AssignedPod
from aischeduler.state.recent_requests import RecentRequests, RequestShape
from aischeduler.state.running_pods import RunningPods, Slots

Counts = npt.NDArray[np.int64]
DELIVERY_LABEL: Final = "resource.aibee.cn/gpu-delivery"
"""The label of a node that says how containers get the GPUs that are chosen for them."""
HAMI_LABEL: Final = "hami"
SLOTS_FIRST: Final = 8
LAYOUTS_MAX: Final = 1024
"""The most sets of devices whose slots are kept; beyond that all are dropped and made again."""
NO_TYPE: Final = -1
_GPU_TYPE: Final = 0
"""The number of the type of GPUs."""
_CORE, _MEMORY, _RATIO = range(3)
"""The numbers of the dimensions of GPUs, in the order of `GPU_DIMENSIONS`."""


class DeliveryMode(IntEnum):
    """How the containers of a pod get the GPUs of a node. A node without Device object gives no devices by name."""

    NONE = 0
    UNKNOWN = 1
    """The label has another value."""
    ENV = 2
    """NVIDIA_VISIBLE_DEVICES, from an annotation that the Binding writes."""
    KOORDLET = 3
    """Koordinator's node agent reads the allocation."""
    DEVICE_PLUGIN = 4
    """The kubelet chooses whole GPUs, by count."""
    HAMI = 5
    """HAMi's device plugin reads HAMi's annotations."""


GIVES_ANY_COUNT, GIVES_COUNTS, GIVES_NAMED, GIVES_SHOWN, GIVES_VENDORS = 1, 2, 4, 8, 16
"""A count, which the ordinary amounts decide, or the devices that nobody has; what is asked for by name, or by name and
with the variable; and single GPUs for a count."""
NOT_LIMITED: Final = 2**62
"""More GPUs than there are: the ordinary amounts decide."""
_VENDORS: Final = {vendor: number for number, vendor in enumerate(VENDORS.values())}
_NVIDIA: Final = _VENDORS["nvidia"]
_MODES: Final = {
    "env": DeliveryMode.ENV,
    "koordlet": DeliveryMode.KOORDLET,
    "device-plugin": DeliveryMode.DEVICE_PLUGIN,
    HAMI_LABEL: DeliveryMode.HAMI,
}


class _Row(Struct):
    """The devices of one node, and what its pods hold, by uid, and apart from that by claims.

    A pod is there once, but in a trial that counts the same pod several times.
    """

    devices: NodeDevices | None = None
    slots: dict[tuple[str, int], int] = field(default_factory=dict)
    islands: Islands = ()
    holders: dict[tuple[str, bool], list[HeldDevices]] = field(default_factory=dict)


class Devices(AllocationPart):
    """All devices. Arrays are by row and slot; the types and dimensions have numbers in the order they were seen."""

    def __init__(self, width: int) -> None:
        self.active = False
        """Whether a Device object was seen."""
        self.hami = False
        """Whether nodes of HAMi get pods: their Bindings follow HAMi's protocol."""
        self.known: set[str] = set()
        """The types that a Device object has, or had."""
        self.types: dict[str, int] = {GPU: _GPU_TYPE}
        self.dimensions: dict[str, int] = {name: number for number, name in enumerate(GPU_DIMENSIONS)}
        self.left: Counts = np.zeros((len(self.dimensions), width, SLOTS_FIRST), dtype=np.int64)
        self.total = np.zeros_like(self.left)
        self.recent = RecentRequests()
        """What pods that came asked of GPUs."""
        self.kind: npt.NDArray[np.int16] = np.full((width, SLOTS_FIRST), NO_TYPE, dtype=np.int16)
        """The type of the device in each slot, also of those that are unhealthy."""
        self.healthy: Mask = np.zeros((width, SLOTS_FIRST), dtype=np.bool_)
        self.unknown: Counts = np.zeros((1, width), dtype=np.int64)
        """How many whole devices pods hold of which nobody knows which, [type, row]."""
        self.mode: npt.NDArray[np.int8] = np.zeros(width, dtype=np.int8)
        self.whole: Counts = np.zeros(width, dtype=np.int64)
        """How many healthy GPUs nobody holds by name."""
        self.hundredths: Counts = np.zeros((width, SLOTS_FIRST), dtype=np.int64)
        """What is free of each GPU, of the dimension of which least is left: 0 where there is none, or it is sick."""
        self.gpus: Counts = np.zeros(width, dtype=np.int64)
        """How many healthy GPUs there are."""
        self.gpus_free: Counts = np.zeros(width, dtype=np.int64)
        """The sum of `hundredths`."""
        self.by_count: Counts = np.full(width, NOT_LIMITED, dtype=np.int64)
        """How many GPUs a request for nvidia.com/gpu without wishes may be for; many pods ask so."""
        self.gives: npt.NDArray[np.int16] = np.full(width, GIVES_ANY_COUNT, dtype=np.int16)
        """Which requests for GPUs a node honours: a sum of `GIVES_...`."""
        self.nameless: Mask = np.zeros(width, dtype=np.bool_)
        """Whether a GPU has no id."""
        self.partitions_only: Mask = np.zeros(width, dtype=np.bool_)
        self.vendor: npt.NDArray[np.int8] = np.full(width, -1, dtype=np.int8)
        self.counted: Mask = np.zeros(width, dtype=np.bool_)
        """Whether the node lists nvidia.com/gpu: its kubelet gives whole GPUs to pods that ask for a count."""
        self.memories: dict[Memories, int] = {(): 0}
        """The sizes that the GPUs of a node have, each once -> a number."""
        self.memory_numbers: Counts = np.zeros(width, dtype=np.int64)
        self.memories_version = 0
        """Grows with each change of the sizes of a node."""
        self._rows: dict[int, _Row] = {}
        self._layouts: dict[tuple[tuple[str, int], ...], dict[tuple[str, int], int]] = {}
        """The types and minors of devices -> their slots: nodes of one model share them."""

    def of(self, row: int) -> NodeDevices | None:
        """Return what the Device object of a node says; None where there is none."""
        there = self._rows.get(row)
        return there.devices if there is not None else None

    def holders(self, row: int) -> Mapping[tuple[str, bool], HeldDevices]:
        """Return what pods hold on a row: by uid, and whether it is a claim."""
        there = self._rows.get(row)
        return {holder: held[-1] for holder, held in there.holders.items()} if there is not None else {}

    def objects(self) -> list[NodeDevices]:
        """Return what all Device objects say."""
        return [there.devices for there in self._rows.values() if there.devices is not None]

    def knows(self, kind: str) -> bool:
        """Return whether a Device object has, or had, devices of this type."""
        return kind in self.known

    def see(self, row: int, found: NodeDevices | None, node: Node | None) -> bool:
        """Store the Device object of a row, None where it is gone; return whether pods may hold what never counted.

        That is so for the first object, and for one of a type that none had.
        """
        before = (self.active, len(self.known))
        if found is not None:
            self.active = True
            self.known.update(device.type for device in found.devices)
        there = self._rows.setdefault(row, _Row())
        there.devices = found
        self._lay_out(row, there)
        self.see_node(row, node)
        self._drop_empty(row, there)
        return before != (self.active, len(self.known))

    def see_node(self, row: int, node: Node | None) -> None:
        """Note how a node delivers GPUs: by its label, else by what it shows."""
        there = self._rows.get(row)
        self.mode[row] = _mode(there.devices if there is not None else None, node)
        self.counted[row] = node is not None and node.allocatable.get(NVIDIA_GPU, 0) > 0
        self.gives[row] = self._given(row)
        self._count_gpus(row)

    def memories_on(self, row: int) -> Memories:
        """Return the sizes that the GPUs of a row have, each once."""
        return tuple(self.memories)[self.memory_numbers[row]]

    @property
    def there(self) -> Mask:
        """A mask of the rows that have a Device object."""
        mask: Mask = self.mode != DeliveryMode.NONE
        return mask

    def free_hundredths(self) -> Counts:
        """Return per row how much of its GPUs nobody has, in hundredths of them; 0 where there is no Device object."""
        free: Counts = np.maximum(self.gpus_free - self.unknown[_GPU_TYPE] * WHOLE, 0)
        return free

    def offers(self, row: int, node: Node) -> dict[str, int]:
        """Return what a node offers of names that it need not list itself: there the devices alone decide."""
        found = self.of(row)
        if found is None:
            return {}
        sums: dict[str, int] = {}
        for device in found.devices:
            for dimension, amount in device.totals:
                name = KOORDINATOR_PREFIX + dimension
                sums[name] = sums.get(name, 0) + amount
        gpus = len(found.of_type(GPU))
        if gpus:
            sums |= {KOORDINATOR_PREFIX + GPU: gpus * WHOLE, KOORDINATOR_PREFIX + GPU_SHARED: gpus * WHOLE}
            if found.vendor == "nvidia":
                sums[NVIDIA_GPU] = gpus
        return {name: amount for name, amount in sums.items() if name not in node.allocatable}

    def take(self, assigned: AssignedPod, *, tentative: bool = False) -> None:  # noqa: ARG002 - trials differ in nothing
        """Take the devices of a pod from its row."""
        held = assigned.allocation.part(DEVICES)
        if isinstance(held, HeldDevices):
            there = self._rows.get(assigned.row)
            if there is None:
                there = self._rows[assigned.row] = _Row()
            there.holders.setdefault((assigned.pod.uid, assigned.claims), []).append(held)
            self._count(assigned.row, there, held, 1)

    def free(self, assigned: AssignedPod, *, tentative: bool = False) -> None:  # noqa: ARG002
        """Undo `take`."""
        held = assigned.allocation.part(DEVICES)
        if isinstance(held, HeldDevices):
            there, holder = self._rows[assigned.row], (assigned.pod.uid, assigned.claims)
            there.holders[holder].remove(held)
            if not there.holders[holder]:
                del there.holders[holder]
            self._count(assigned.row, there, held, -1)
            self._drop_empty(assigned.row, there)

    def clearing(self, asker: PodSpec, running: RunningPods) -> "_ClearedDevices | None":
        """Begin a search for victims for a pod that asks for devices."""
        return _ClearedDevices(self, running) if asker.devices is not None and self.active else None

    def count_holder(self, row: int, uid: str, sign: int) -> bool:
        """Count what a pod on a row holds again (1), or no longer (-1); return whether it holds something."""
        there = self._rows.get(row)
        held = there.holders.get((uid, False)) if there is not None else None
        if there is None or held is None:
            return False
        for one in held:
            self._count(row, there, one, sign)
        return True

    def free_on(self, row: int) -> dict[tuple[str, int], dict[str, int]]:
        """Return what is free of each device of a row, by type and minor, then by dimension."""
        there = self._rows.get(row)
        if there is None or there.devices is None:
            return {}
        left, numbers, found = self.left[:, row].T.tolist(), self.dimensions, {}
        for device, of in zip(there.devices.devices, left, strict=False):
            found[device.type, device.minor] = {name: of[numbers[name]] for name, _ in device.totals}
        return found

    def islands_on(self, row: int) -> Islands:
        """Return the sets of GPUs of a row that a single GPU rather leaves whole."""
        there = self._rows.get(row)
        return there.islands if there is not None else ()

    def functions_on(self, row: int) -> dict[tuple[str, int], frozenset[int]]:
        """Return the virtual functions that pods have on a row, by the type and minor of the device."""
        taken: dict[tuple[str, int], set[int]] = {}
        there = self._rows.get(row)
        for held in chain.from_iterable(there.holders.values() if there is not None else ()):
            for device in held.devices:
                if device.functions:
                    taken.setdefault((device.type, device.minor), set()).update(minor for minor, _ in device.functions)
        return {device: frozenset(minors) for device, minors in taken.items()}

    def unknown_on(self, rows: Rows, kind: str) -> Counts:
        """Return how many whole devices of a type are held of which nobody knows which, as long as `rows`."""
        number = self.types.get(kind)
        return np.zeros(len(rows), dtype=np.int64) if number is None else self.unknown[number].take(rows)

    def with_gpus(self, asked: GpuRequest, rows: Rows) -> Counts:
        """Return how many healthy GPUs of each row have what is asked of one; none where they are of another vendor."""
        if asked.core == asked.ratio and not (asked.memory_bytes or asked.vendor):  # but where bytes are rounded
            hundredths = self.hundredths.take(rows, axis=0)
            if not (hundredths == asked.ratio - 1).any():
                alike: Counts = (hundredths >= asked.ratio).sum(axis=1)
                return alike
        free, total = self.left[:, rows], self.total[_MEMORY, rows]
        ok = self.healthy[rows] & (self.kind[rows] == _GPU_TYPE) & (free[_CORE] >= asked.core)
        of_gpus = slice(len(GPU_DIMENSIONS))
        ok &= ((free[of_gpus] > 0) | (self.total[of_gpus, rows] == 0)).all(axis=0)  # what is full is given to nobody
        if asked.memory_bytes:
            with np.errstate(divide="ignore"):
                ratio = np.where(total > 0, -(-asked.memory_bytes * WHOLE // np.maximum(total, 1)), WHOLE)
            ok &= (free[_MEMORY] >= asked.memory_bytes) & (free[_RATIO] >= np.maximum(ratio, 1))
        else:
            ok &= (free[_RATIO] >= asked.ratio) & (free[_MEMORY] >= total * asked.ratio // WHOLE)
        if asked.vendor:
            ok &= self.is_of(asked.vendor, rows)[:, None]
        counts: Counts = ok.sum(axis=1)
        return counts

    def is_of(self, vendor: str, rows: Rows) -> Mask:
        """Return a mask of the rows whose GPUs are of a vendor."""
        mask: Mask = self.vendor.take(rows) == _VENDORS[vendor]
        return mask

    def shape_of(self, spec: PodSpec) -> RequestShape:
        """Return what a pod asks for, as far as free GPUs may be of no use for others; memory in bytes as a share."""
        amounts = spec.request.amounts
        gpu = spec.devices.gpu if spec.devices is not None else None
        count, share = (gpu.count, max(gpu.core, gpu.ratio)) if gpu is not None else (0, 0)
        if gpu is not None and gpu.memory_bytes:
            largest = max(int(self.total[_MEMORY].max()), 1)
            share = max(share, min(-(-gpu.memory_bytes * WHOLE // largest), WHOLE))
        return RequestShape(count, share, amounts.get(CPU, 0), amounts.get(MEMORY, 0))

    def have(self, kind: str, amount: int, rows: Rows) -> Mask:
        """Return a mask of the rows with an amount of a further type: a share of a device, or whole ones."""
        number = self.types.get(kind)
        if number is None:
            return np.zeros(len(rows), dtype=np.bool_)
        dimension = self.dimensions.get(kind)
        if dimension is None:  # only a pod asked for the type
            return np.zeros(len(rows), dtype=np.bool_)
        free, total = self.left[dimension, rows], self.total[dimension, rows]
        usable = self.healthy[rows] & (self.kind[rows] == number) & (total > 0)
        one = (usable & (free >= amount) & (amount <= total)).any(axis=1)
        largest = np.maximum(total.max(axis=1, initial=0), 1)
        whole = (usable & (free >= total) & (total == largest[:, None])).sum(axis=1)
        several = (amount % largest == 0) & (whole * largest >= amount)
        mask: Mask = one | several
        return mask

    def widen(self, width: int) -> None:
        """Make room for more rows."""
        more = width - len(self.kind)
        self.left = np.pad(self.left, ((0, 0), (0, more), (0, 0)))
        self.total = np.pad(self.total, ((0, 0), (0, more), (0, 0)))
        self.kind = np.pad(self.kind, ((0, more), (0, 0)), constant_values=NO_TYPE)
        self.healthy = np.pad(self.healthy, ((0, more), (0, 0)))
        self.unknown = np.pad(self.unknown, ((0, 0), (0, more)))
        self.mode = np.pad(self.mode, (0, more))
        self.whole, self.gpus = np.pad(self.whole, (0, more)), np.pad(self.gpus, (0, more))
        self.gpus_free = np.pad(self.gpus_free, (0, more))
        self.by_count = np.pad(self.by_count, (0, more), constant_values=NOT_LIMITED)
        self.hundredths = np.pad(self.hundredths, ((0, more), (0, 0)))
        self.gives = np.pad(self.gives, (0, more), constant_values=GIVES_ANY_COUNT)
        self.nameless = np.pad(self.nameless, (0, more))
        self.partitions_only = np.pad(self.partitions_only, (0, more))
        self.vendor = np.pad(self.vendor, (0, more), constant_values=-1)
        self.counted = np.pad(self.counted, (0, more))
        self.memory_numbers = np.pad(self.memory_numbers, (0, more))

    def _given(self, row: int) -> int:
        """Return which requests for GPUs a node honours."""
        match self.mode[row]:
            case DeliveryMode.NONE:
                return GIVES_ANY_COUNT
            case DeliveryMode.DEVICE_PLUGIN:
                return GIVES_COUNTS
            case DeliveryMode.KOORDLET:
                return GIVES_NAMED | GIVES_SHOWN | GIVES_VENDORS
            case DeliveryMode.ENV if not (self.counted[row] or self.nameless[row]):
                return GIVES_SHOWN
            case DeliveryMode.HAMI if self.hami and not self.nameless[row]:
                return GIVES_VENDORS
            case _:
                return 0

    def _count(self, row: int, there: _Row, held: HeldDevices, sign: int) -> None:
        """Count what a holder has, or no longer; devices that are not there now count once they are."""
        for device in held.devices:
            slot = _slot_of(there, device)
            if slot is None:
                continue
            for dimension, amount in device.amounts:
                number = self.dimensions.get(dimension)
                if number is not None:
                    self.left[number, row, slot] -= sign * amount
            if device.type == GPU:
                self._sum_up(row, slot)
        for kind, count in held.unknown:
            number = self._type(kind)  # first: it may make the array anew
            self.unknown[number, row] += sign * count
            self._count_gpus(row)

    def _sum_up(self, row: int, slot: int) -> None:
        """Write what is free of a GPU once more, as one number."""
        if not self.healthy[row, slot]:
            return
        core, memory, ratio = self.left[: len(GPU_DIMENSIONS), row, slot].tolist()
        all_memory = int(self.total[_MEMORY, row, slot])
        free = free_hundredths(core, memory, ratio, all_memory)
        before, self.hundredths[row, slot] = int(self.hundredths[row, slot]), free
        self.gpus_free[row] += free - before
        if (free >= WHOLE) != (before >= WHOLE):
            self.whole[row] += 1 if free >= WHOLE else -1
            self._count_gpus(row)

    def _count_gpus(self, row: int) -> None:
        """Write `by_count` once more."""
        gives, unknown = int(self.gives[row]), int(self.unknown[_GPU_TYPE, row])
        if gives & GIVES_ANY_COUNT:
            self.by_count[row] = NOT_LIMITED
        elif gives & GIVES_COUNTS:
            self.by_count[row] = self.whole[row] - unknown
        else:
            named = gives & GIVES_VENDORS and not unknown and self.vendor[row] == _NVIDIA
            self.by_count[row] = self.whole[row] if named else 0

    def _lay_out(self, row: int, there: _Row) -> None:
        """Write the arrays of a row anew, from its Device object and its holders."""
        devices = there.devices.devices if there.devices is not None else ()
        self._make_slots(len(devices))
        names = tuple((device.type, device.minor) for device in devices)
        if len(self._layouts) > LAYOUTS_MAX:
            self._layouts.clear()
        there.slots = self._layouts.setdefault(names, {name: slot for slot, name in enumerate(names)})
        there.islands = islands_of(there.devices) if there.devices is not None else ()
        self.left[:, row], self.total[:, row], self.unknown[:, row] = 0, 0, 0
        self.kind[row], self.healthy[row] = NO_TYPE, False
        self.hundredths[row], self.whole[row], self.gpus[row], self.gpus_free[row] = 0, 0, 0, 0
        self.nameless[row] = any(device.type == GPU and not device.id for device in devices)
        self.partitions_only[row] = there.devices is not None and there.devices.partitions_only
        self.vendor[row] = _VENDORS.get(there.devices.vendor, -1) if there.devices is not None else -1
        for slot, device in enumerate(devices):
            self.kind[row, slot], self.healthy[row, slot] = self._type(device.type), device.healthy
            for dimension, amount in device.totals:
                number = self._dimension(dimension)  # first: it may make the array anew
                self.total[number, row, slot] = amount
        sizes = tuple(sorted({device.total(GPU_MEMORY) for device in devices if device.type == GPU} - {0}))
        number = self.memories.setdefault(sizes, len(self.memories))
        if number != self.memory_numbers[row]:
            self.memory_numbers[row] = number
            self.memories_version += 1
        self.left[:, row] = self.total[:, row]
        for slot, device in enumerate(devices):
            if device.type == GPU and device.healthy:
                self.gpus[row] += 1
                self._sum_up(row, slot)
        for held in chain.from_iterable(there.holders.values()):
            self._count(row, there, held, 1)

    def _type(self, kind: str) -> int:
        if kind not in self.types:
            self.types[kind] = len(self.types)
            self.unknown = np.pad(self.unknown, ((0, 1), (0, 0)))
        return self.types[kind]

    def _dimension(self, name: str) -> int:
        if name not in self.dimensions:
            self.dimensions[name] = len(self.dimensions)
            self.left = np.pad(self.left, ((0, 1), (0, 0), (0, 0)))
            self.total = np.pad(self.total, ((0, 1), (0, 0), (0, 0)))
        return self.dimensions[name]

    def _make_slots(self, count: int) -> None:
        more = count - self.kind.shape[1]
        if more > 0:
            self.left = np.pad(self.left, ((0, 0), (0, 0), (0, more)))
            self.total = np.pad(self.total, ((0, 0), (0, 0), (0, more)))
            self.kind = np.pad(self.kind, ((0, 0), (0, more)), constant_values=NO_TYPE)
            self.healthy = np.pad(self.healthy, ((0, 0), (0, more)))
            self.hundredths = np.pad(self.hundredths, ((0, 0), (0, more)))

    def _drop_empty(self, row: int, there: _Row) -> None:
        if there.devices is None and not there.holders:
            del self._rows[row]


class _ClearedDevices:
    """Devices while a search for victims is open: those of pods that are taken off are free."""

    def __init__(self, devices: Devices, running: RunningPods) -> None:
        self._devices, self._running = devices, running
        self._done: list[tuple[int, str, int]] = []

    def count(self, slots: Slots, sign: int) -> None:
        rows = self._running.table["row"][slots].tolist()
        for row, uid in zip(rows, self._running.uids_of(slots), strict=True):
            if self._devices.count_holder(row, uid, sign):
                self._done.append((row, uid, sign))

    def end(self) -> None:
        for row, uid, sign in reversed(self._done):
            self._devices.count_holder(row, uid, -sign)


def _slot_of(there: _Row, held: HeldDevice) -> int | None:
    """Return the slot of a device that a pod holds: a driver that starts again may number the same cards otherwise."""
    slot = there.slots.get((held.type, held.minor))
    devices = there.devices.devices if there.devices is not None else ()
    if not held.id or (slot is not None and devices[slot].id == held.id):
        return slot
    same = (at for at, device in enumerate(devices) if device.id == held.id and device.type == held.type)
    return next(same, slot)


def _mode(found: NodeDevices | None, node: Node | None) -> DeliveryMode:
    """Return how a node delivers GPUs: as its label says, else by what it shows.

    The kubelet lists 0 while it starts, or its device plugin does: it gives the GPUs again afterwards.
    """
    if found is None:
        return DeliveryMode.NONE
    if node is None:
        return DeliveryMode.ENV
    label = node.labels.get(DELIVERY_LABEL)
    if label is not None:
        return _MODES.get(label, DeliveryMode.UNKNOWN)
    if node.hami_gpus:
        return DeliveryMode.HAMI
    return DeliveryMode.DEVICE_PLUGIN if NVIDIA_GPU in node.allocatable else DeliveryMode.ENV
