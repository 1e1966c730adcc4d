"""The pods that count on rows, as columns, so that a choice of victims reads thousands of pods at once.

Invariants:
- A pod is here exactly while it counts in the node table, with the spec that counts there.
- A pod keeps its slot while it is here; afterwards another pod may get the slot.
- The requests of pods are kept once per spec, under a number.
- Pods of one unit have its number; 0 means a unit of one. A change of one pod counts as a change of the rows of all.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import astuple

from aischeduler.model.card_shares import CARD
from aischeduler.model.names import PODS
from aischeduler.model.pod import HostPort, PodSpec
from aischeduler.state.groups import Groups
from aischeduler.state.kept import ChangeLog, rows_since
from aischeduler.state.label_index import Rows
from aischeduler.state.pod_records import NOWHERE
from aischeduler.state.requests import requested

Slots = npt.NDArray[np.intp]
"""The numbers of slots."""
RunningTable = npt.NDArray[np.void]
"""Running pods: their row, the number of their spec, a field for each of `RunningFacts`, whether they are surplus,
whether they are extra in a tenant queue, and their `turn`: of the tail of their unit, the higher goes first; else 0."""

SLOTS_FIRST: Final = 64
RESOURCES_MIN: Final = 32
"""With fewer resources, none is dropped."""
CHANGES_MAX: Final = 2**12
"""The most changes that the change log keeps."""
ROWS_ONE_BY_ONE: Final = 16
"""Up to this many rows are looked up one by one; for more, one pass over all slots is faster."""


class RunningFacts(Struct, frozen=True, gc=False):
    """What a choice of victims reads of a pod beside its spec.

    `priority` is the highest of its unit. `home` is the number of its home pool; a `borrower` runs in another pool.
    `ours` is True for pods of this scheduler.
    `evictable` pods are pods of this scheduler that are neither guarded nor critical. `leaving` pods are terminating,
    or victims already. A `kept` pod is not evictable because its eviction was, or would be, refused.
    `started_seconds` is in unix seconds, 0 where unknown.
    `queue` is the number of its tenant queue, 0 for none, and `queue_priority` the priority of that. `training` is its
    service type; a `reclaimable` pod may be evicted for inference of another queue. A `shielded` one is evicted for no
    home pod.
    """

    priority: int
    borrower: bool
    evictable: bool
    leaving: bool
    started_seconds: int
    home: int = 0
    ours: bool = True
    unit: int = 0
    kept: bool = False
    queue: int = 0
    queue_priority: int = 0
    training: bool = False
    reclaimable: bool = False
    shielded: bool = False


_NUMBERS: Final = ("home", "queue", "queue_priority")
"""The fields of 32 bits."""


def _fields() -> np.dtype[np.void]:
    """Return the type of a row, the widest fields first: it takes 64 bytes, which a processor reads at once."""
    kinds = {"row": int, "spec": int, **RunningFacts.__annotations__, "surplus": bool, "extra": bool, "turn": int}
    sizes = {"turn": np.int16, **dict.fromkeys(_NUMBERS, np.int32)}
    formats = {name: np.dtype(np.bool_ if kind is bool else sizes.get(name, np.int64)) for name, kind in kinds.items()}
    offsets, end = dict[str, int](), 0
    for name in sorted(formats, key=lambda name: -formats[name].itemsize):
        offsets[name], end = end, end + formats[name].itemsize
    names = [*formats]
    return np.dtype(
        {
            "names": names,
            "formats": [*formats.values()],
            "offsets": [offsets[name] for name in names],
            "itemsize": -(-end // 8) * 8,
        }
    )


_FIELDS: Final = _fields()


class RunningPod(NamedTuple):
    """What decides which pod of a row goes first, and what its end frees, as plain values; see `RunningFacts`."""

    spec: int
    priority: int
    borrower: bool
    evictable: bool
    leaving: bool
    started_seconds: int
    unit: int
    surplus: bool
    turn: int


_AS_POD: Final[Callable[[Any], RunningPod]] = partial(tuple.__new__, RunningPod)
"""Returns a row as values, without a call in Python."""


class Spare(Struct, frozen=True):
    """How many pods of a unit on rows may leave before the others are of no use: in all, and of some roles.

    `roles` has the role of each of its pods by uid, where there are `of_roles`. The pods of `surplus` (uids) go before
    home pods of any priority. Those that are `extra` (uids) are the first of their unit to go, and where tenant queues
    say who may go, the first of all home pods.
    """

    pods: int = 0
    of_roles: tuple[tuple[str, int], ...] = ()
    roles: Mapping[str, str] = field(default_factory=dict)
    surplus: frozenset[str] = frozenset()
    tail: tuple[str, ...] = ()
    """The pods (uids) that go by a smaller size of their elastic job, the first to go first."""
    tail_goes: tuple[int, ...] = ()
    """For each pod of the tail, how many of the tail go with it: those before it, as far as a size ends them all."""
    extra: frozenset[str] = frozenset()

    def turns(self) -> dict[str, int]:
        """Return the turn of each pod of the tail: the first to go has the highest."""
        return {uid: len(self.tail) - place for place, uid in enumerate(self.tail)}


NONE_TO_SPARE: Final = Spare()
NO_SLOTS: Final[Slots] = np.zeros(0, dtype=np.intp)


class RunningPods:
    """The table of the pods on rows. Columns are read by slot: `pods.table["priority"][slots]`."""

    def __init__(self) -> None:
        self.table = np.zeros(SLOTS_FIRST, dtype=_FIELDS)
        self.table["row"] = NOWHERE
        self._as_pods = self.table[[*RunningPod._fields]]
        """The same rows with the fields of `RunningPod` alone: fewer values to make."""
        self.gpu_shares = np.zeros(SLOTS_FIRST, dtype=np.int64)
        """The hundredths of GPUs that the pod in each slot has beside whole ones by count (`card_shares`)."""
        self._shared = False
        """Whether a pod had such a share."""
        self.specs = SpecTable()
        self._changes: ChangeLog[int] = ChangeLog(CHANGES_MAX)
        self._slots: dict[str, int] = {}
        self._uids: list[str] = [""] * SLOTS_FIRST
        self._on_row: defaultdict[int, dict[str, int]] = defaultdict(dict)
        """Row -> its pods: uid -> slot."""
        self._units: Groups[int, int, None] = Groups()
        """Unit -> the slots of its pods."""
        self.of_tenants: set[int] = set()
        """The slots of pods of tenant queues and of shielded pods; without any, tenants change no choice of victims."""
        self.spare: dict[int, Spare] = {}
        """Unit -> how many of its pods may leave before the others are of no use; none where it is not here."""
        self._free = list(range(SLOTS_FIRST - 1, -1, -1))

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, uid: str) -> bool:
        return uid in self._slots

    @property
    def version(self) -> int:
        """Grows with every change."""
        return self._changes.version

    def changed_since(self, version: int) -> list[int] | None:
        """Return the rows whose pods changed after this version, ascending; None where they are no longer kept."""
        changed = rows_since(self._changes, version)
        if not changed or changed[0] >= 0:
            return changed
        units = (-change for change in changed if change < 0)
        slots = [slot for unit in units if unit in self._units for slot in self._units[unit]]
        return sorted({change for change in changed if change >= 0}.union(self.table["row"][slots].tolist()))

    def add(self, uid: str, spec: PodSpec, row: int, facts: RunningFacts, gpu_share: int = 0) -> None:
        """Add a pod to a row."""
        assert uid not in self._slots, "the pod counts on a row already"
        self._changes.note(row)
        if not self._free:
            self._widen()
        slot = self._free.pop()
        self._slots[uid] = slot
        self._uids[slot] = uid
        self._on_row[row][uid] = slot
        self._write(slot, row, self.specs.hold(spec), facts)
        if gpu_share:
            self.gpu_shares[slot], self._shared = gpu_share, True
        if facts.unit:
            self._note(slot)

    def remove(self, uid: str) -> None:
        """Remove a pod from its row."""
        slot = self._slots.pop(uid)
        pod = self.table[slot]
        self._note(slot)
        self._leave_unit(slot)
        self.of_tenants.discard(slot)
        del self._on_row[int(pod["row"])][uid]
        self.specs.release(int(pod["spec"]))
        pod["row"] = NOWHERE
        if self._shared:
            self.gpu_shares[slot] = 0
        self._uids[slot] = ""
        self._free.append(slot)

    def change(self, uid: str, facts: RunningFacts) -> None:
        """Update the facts of a pod."""
        slot = self._slots[uid]
        pod = self.table[slot]
        self._note(slot)
        self._write(slot, int(pod["row"]), int(pod["spec"]), facts)

    def gpu_share_of(self, uid: str) -> int:
        """Return the share of GPUs of a pod."""
        return int(self.gpu_shares[self._slots[uid]]) if self._shared else 0

    def is_surplus(self, uid: str) -> bool:
        """Return whether a pod goes for any home pod, whatever its priority."""
        return bool(self.table["surplus"][self._slots[uid]])

    def set_gpu_share(self, uid: str, gpu_share: int) -> None:
        """Set the share of GPUs of a pod whose devices are others now."""
        slot = self._slots[uid]
        self.gpu_shares[slot], self._shared = gpu_share, True
        self._note(slot)

    def follow_pools(self, rows: Rows, pool: npt.NDArray[np.int32]) -> None:
        """Update which pods are borrowers on rows whose pool changed; `pool` is the pool column of the node table."""
        for row in rows.tolist():
            self._changes.note(row)
        slots = self.slots_on(rows)
        self.table["borrower"][slots] = self.table["home"][slots] != pool[self.table["row"][slots]]
        for slot in slots[self.table["unit"][slots] != 0].tolist():
            self._note(slot)

    def set_spare(self, unit: int, spare: Spare) -> None:
        """Set how many pods of a unit may leave before the others are of no use."""
        before = self.spare.get(unit, NONE_TO_SPARE)
        if unit in self._units and before != spare:
            self._note(next(iter(self._units[unit])))
            if spare == NONE_TO_SPARE:
                del self.spare[unit]
            else:
                self.spare[unit] = spare
            table, named = self.table, any(one.surplus or one.extra or one.tail for one in (before, spare))
            turns = spare.turns() if named else {}
            for slot in self._units[unit] if named else ():
                table["surplus"][slot] = self._uids[slot] in spare.surplus
                table["extra"][slot] = self._uids[slot] in spare.extra and table["queue"][slot] != 0
                table["turn"][slot] = turns.get(self._uids[slot], 0)

    def pods_of_unit(self, unit: int) -> Mapping[int, None]:
        """Return the slots of the pods of a unit."""
        return self._units[unit]

    @property
    def has_units(self) -> bool:
        """Whether a pod on a row belongs to a unit."""
        return bool(self._units)

    def spare_of(self, unit: int) -> Spare:
        """Return how many pods of a unit may leave before the others are of no use."""
        return self.spare.get(unit, NONE_TO_SPARE)

    def work(self, slots: Slots, cards: tuple[str, ...], now_seconds: int) -> npt.NDArray[np.int64]:
        """Return the work of each of these pods until now, in hundredths of card-seconds; `cards` are resources."""
        columns = [number for number, name in enumerate(self.specs.resources) if name in cards]
        count = self.specs.amounts[self.table["spec"][slots]][:, columns].sum(axis=1) * CARD + self.gpu_shares[slots]
        started = self.table["started_seconds"][slots]
        worked: npt.NDArray[np.int64] = count * np.where(started == 0, 0, np.maximum(now_seconds - started, 0))
        return worked

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Let what a search writes into `leaving` last until the end: kept results are not asked meanwhile."""
        before = self.table["leaving"].copy()
        try:
            yield
        finally:
            self.table["leaving"] = before

    def uid_of(self, slot: int) -> str:
        """Return the uid of the pod in a slot."""
        return self._uids[slot]

    def uids_of(self, slots: Slots) -> list[str]:
        """Return the uids of the pods in these slots, in their order."""
        uids = self._uids
        return [uids[slot] for slot in slots.tolist()]

    def slots_of(self, uids: Iterable[str]) -> Slots:
        """Return the slots of these pods, ascending, without pods that are not here."""
        return np.array(sorted(self._slots[uid] for uid in uids if uid in self._slots), dtype=np.intp)

    def on_row(self, row: int) -> tuple[str, ...]:
        """Return the uids of the pods on a row, sorted."""
        return tuple(sorted(self._on_row.get(row, ())))

    def pods_on(self, row: int) -> list[tuple[int, RunningPod]]:
        """Return the slots and the values of the pods on one row, unordered: for few pods faster than columns."""
        slots = self._on_row.get(row, {}).values()
        return list(zip(slots, map(_AS_POD, map(self._as_pods.item, slots)), strict=True))

    def pod_in(self, slot: int) -> RunningPod:
        """Return the values of the pod in a slot."""
        return _AS_POD(self._as_pods.item(slot))

    def pods_in(self, slots: Slots) -> RunningTable:
        """Return a copy of the pods in these slots: `take` copies whole rows, an index each field for itself."""
        return self.table.take(slots)

    def slots_on(self, rows: Rows) -> Slots:
        """Return the slots of all pods on the rows, unordered."""
        if len(rows) <= ROWS_ONE_BY_ONE:
            slots = [slot for row in rows.tolist() for slot in self._on_row.get(row, {}).values()]
            return np.array(slots, dtype=np.intp)
        on = np.zeros(max(int(rows.max()), int(self.table["row"].max())) + 2, dtype=np.bool_)
        on[rows] = True
        return np.flatnonzero(on[self.table["row"]])

    def _note(self, slot: int) -> None:
        """Note a change of a pod: its row, and its unit, whose rows all changed, because its pods are lost together."""
        unit = self._unit_of(slot)
        self._changes.note(int(self.table["row"][slot]))
        if unit:
            self._changes.note(-unit)

    def _unit_of(self, slot: int) -> int:
        return int(self.table["unit"][slot]) if self._units else 0

    def _leave_unit(self, slot: int) -> None:
        unit = self._unit_of(slot)
        if unit:
            self._units.drop(unit, slot)
            if unit not in self._units:
                self.spare.pop(unit, None)
            self.table["unit"][slot] = 0

    def _write(self, slot: int, row: int, number: int, facts: RunningFacts) -> None:
        if (self._units or facts.unit) and facts.unit != self._unit_of(slot):
            self._leave_unit(slot)
            if facts.unit:
                self._units.put(facts.unit, slot, None)
        if facts.queue or facts.shielded:
            self.of_tenants.add(slot)
        elif self.of_tenants:
            self.of_tenants.discard(slot)
        spare, uid = self.spare_of(facts.unit) if facts.unit else NONE_TO_SPARE, self._uids[slot]
        extra = facts.queue != 0 and uid in spare.extra
        turn = spare.turns().get(uid, 0) if spare.tail else 0
        self.table[slot] = (row, number, *astuple(facts), uid in spare.surplus, extra, turn)

    def _widen(self) -> None:
        old = len(self.table)
        wider = np.zeros(old * 2, dtype=_FIELDS)
        wider["row"] = NOWHERE
        wider[:old] = self.table
        self.table, self._as_pods = wider, wider[[*RunningPod._fields]]
        self.gpu_shares = np.pad(self.gpu_shares, (0, old))
        self._uids.extend([""] * old)
        self._free.extend(range(old * 2 - 1, old - 1, -1))


class SpecTable:
    """The requests of pods, once per spec: `amounts` [number, resource], as the node table counts them.

    Each pod takes one of the resource `pods`. When most resources are those of pods of the past, these are dropped.
    """

    def __init__(self) -> None:
        self.resources: dict[str, int] = {PODS: 0}
        self.amounts = np.zeros((SLOTS_FIRST, 1), dtype=np.int64)
        self._resources_most = RESOURCES_MIN
        self._with_ports: set[int] = set()
        self._with_volumes: set[int] = set()
        self._numbers: dict[bytes, int] = {}
        self._specs: dict[int, PodSpec] = {}
        self._pods: Counter[int] = Counter()
        self._free = list(range(SLOTS_FIRST - 1, -1, -1))

    def hold(self, spec: PodSpec) -> int:
        """Return the number of this spec and count one more pod of it."""
        number = self._numbers.get(spec.key)
        if number is None:
            number = self._new(spec)
        self._pods[number] += 1
        return number

    def release(self, number: int) -> None:
        """Count one pod less, and free the number with the last pod."""
        self._pods[number] -= 1
        if not self._pods[number]:
            del self._pods[number], self._numbers[self._specs.pop(number).key]
            self._with_ports.discard(number)
            self._with_volumes.discard(number)
            self._free.append(number)

    def spec(self, number: int) -> PodSpec:
        """Return the spec of this number."""
        return self._specs[number]

    def holding(self, ports: tuple[HostPort, ...]) -> Slots:
        """Return the numbers of the specs that use one of these host ports, on any address, ascending."""
        wanted = {(port.protocol, port.port) for port in ports}
        ports_of = {n: {(port.protocol, port.port) for port in self.spec(n).host_ports} for n in self._with_ports}
        return np.array(sorted(number for number, used in ports_of.items() if used & wanted), dtype=np.intp)

    def with_volumes(self) -> Slots:
        """Return the numbers of the specs that have volumes, ascending."""
        return np.array(sorted(self._with_volumes), dtype=np.intp)

    def _drop_resources(self) -> None:
        """Drop the resources that no pod requests any more."""
        found = dict.fromkeys(resource for spec in self._specs.values() for resource in spec.request.taken)
        kept = [PODS, *(resource for resource in self.resources if resource in found and resource != PODS)]
        self.amounts = self.amounts[:, [self.resources[resource] for resource in kept]]
        self.resources = {resource: column for column, resource in enumerate(kept)}
        self._resources_most = max(RESOURCES_MIN, 2 * len(kept))

    def _new(self, spec: PodSpec) -> int:
        if len(self.resources) > self._resources_most:
            self._drop_resources()
        if not self._free:
            old = len(self.amounts)
            self.amounts = np.pad(self.amounts, ((0, old), (0, 0)))
            self._free.extend(range(old * 2 - 1, old - 1, -1))
        number = self._numbers[spec.key] = self._free.pop()
        self._specs[number] = spec
        self.amounts[number] = 0
        for resource, amount in spec.request.taken.items():
            column = self.resources.setdefault(resource, len(self.resources))
            if column == self.amounts.shape[1]:
                self.amounts = np.pad(self.amounts, ((0, 0), (0, 1)))
            self.amounts[number, column] = requested(amount)
        if spec.host_ports:
            self._with_ports.add(number)
        if spec.volumes is not None:
            self._with_volumes.add(number)
        return number
