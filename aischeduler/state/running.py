"""Pods that count on rows, as columns: what a choice of victims reads of thousands of pods at once.

Laws:
- A pod is here exactly while it counts in the node table, with the spec that was counted.
- A slot is a pod's place for as long as it is here; afterwards another pod may get it.
- What pods ask for is kept once per spec: pods of one spec share a kind.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from aischeduler.model.names import PODS
from aischeduler.model.pod import HostPort, PodSpec
from aischeduler.state.index import Rows
from aischeduler.state.journal import Journal
from aischeduler.state.records import NOWHERE
from aischeduler.state.wanted import requested

Slots = npt.NDArray[np.intp]
"""Numbers of slots."""
RunningTable = npt.NDArray[np.void]
"""Running pods, a field for each of `RunningFacts` and their rows and kinds."""

SLOTS_FIRST: Final = 64
CHANGES_MAX: Final = 2**12
"""Changes that are remembered for those who catch up."""
ROWS_ONE_BY_ONE: Final = 16
"""So few rows are looked up one by one; for more, one pass over all slots is cheaper."""


class RunningPod(NamedTuple):
    """A pod on a row, as the table has it; of its facts only what they say of the pod by itself."""

    row: int
    spec: int
    priority: int
    started_seconds: int
    home: int
    ours: bool
    borrower: bool
    evictable: bool
    leaving: bool


_FIELDS: Final = np.dtype(
    [
        ("row", np.int64),
        ("spec", np.int64),
        ("priority", np.int64),
        ("started_seconds", np.int64),
        ("home", np.int64),
        ("ours", np.bool_),
        ("borrower", np.bool_),
        ("evictable", np.bool_),
        ("leaving", np.bool_),
    ],
    align=True,
)


class RunningFacts(Struct, frozen=True, gc=False):
    """What a choice of victims knows of a pod beside its spec.

    `home` is the number of its home pool; `borrower`: that is another pool than its row's. `ours`: we schedule it.
    `evictable`: ours, neither guarded nor critical.
    `leaving`: terminating, or chosen as a victim before. `started_seconds` in unix seconds, 0 where unknown.
    """

    priority: int
    borrower: bool
    evictable: bool
    leaving: bool
    started_seconds: int
    home: int = 0
    ours: bool = True


class RunningPods:
    """The table of pods on rows. Columns are read by slot: `pods.table["priority"][slots]`."""

    def __init__(self) -> None:
        self.table = np.zeros(SLOTS_FIRST, dtype=_FIELDS)
        self.table["row"] = NOWHERE
        self.specs = SpecTable()
        self._journal = Journal(CHANGES_MAX)
        self._slots: dict[str, int] = {}
        self._uids: list[str] = [""] * SLOTS_FIRST
        self._on_row: dict[int, dict[str, int]] = {}
        self._free = list(range(SLOTS_FIRST - 1, -1, -1))

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, uid: str) -> bool:
        return uid in self._slots

    @property
    def version(self) -> int:
        """Grows with every change."""
        return self._journal.version

    def changed_since(self, version: int) -> list[int] | None:
        """Return the rows whose pods changed after this version, ascending; None when it is too long ago to tell."""
        return self._journal.since(version)

    def add(self, uid: str, spec: PodSpec, row: int, facts: RunningFacts) -> None:
        """Take a pod that begins to count on a row."""
        assert uid not in self._slots, "the pod counts on a row already"
        self._journal.note(row)
        if not self._free:
            self._widen()
        slot = self._free.pop()
        self._slots[uid] = slot
        self._uids[slot] = uid
        self._put_on(uid, slot, row)
        self._write(slot, row, self.specs.hold(spec), facts)

    def remove(self, uid: str) -> None:
        """Take out a pod that counts on its row no more."""
        slot = self._slots.pop(uid)
        pod = self.table[slot]
        self._journal.note(int(pod["row"]))
        self._take_off(uid, int(pod["row"]))
        self.specs.release(int(pod["spec"]))
        pod["row"] = NOWHERE
        self._uids[slot] = ""
        self._free.append(slot)

    def move(self, uid: str, row: int) -> None:
        """Count a pod on another row from now on."""
        slot = self._slots[uid]
        self._journal.note(int(self.table[slot]["row"]))
        self._journal.note(row)
        self._take_off(uid, int(self.table[slot]["row"]))
        self._put_on(uid, slot, row)
        self.table[slot]["row"] = row

    def change(self, uid: str, facts: RunningFacts) -> None:
        """Take what is now known of a pod."""
        slot = self._slots[uid]
        pod = self.table[slot]
        self._journal.note(int(pod["row"]))
        self._write(slot, int(pod["row"]), int(pod["spec"]), facts)

    def follow_pools(self, rows: Rows, pool: npt.NDArray[np.int32]) -> None:
        """Take over which pools these rows now belong to: `pool` is the pool column of the node table."""
        for row in rows.tolist():
            self._journal.note(row)
        slots = self.slots_on(rows)
        self.table["borrower"][slots] = self.table["home"][slots] != pool[self.table["row"][slots]]

    def uid_of(self, slot: int) -> str:
        """Return the pod in a slot."""
        return self._uids[slot]

    def uids_of(self, slots: Slots) -> list[str]:
        """Return the pods in these slots, in their order."""
        uids = self._uids
        return [uids[slot] for slot in slots.tolist()]

    def slots_of(self, uids: Iterable[str]) -> Slots:
        """Return the slots of those of these pods that are here, ascending."""
        return np.array(sorted(self._slots[uid] for uid in uids if uid in self._slots), dtype=np.intp)

    def on_row(self, row: int) -> tuple[str, ...]:
        """Return the pods that count on a row, ordered by uid."""
        return tuple(sorted(self._on_row.get(row, ())))

    def pods_on(self, row: int) -> list[tuple[int, RunningPod]]:
        """Return the pods that count on a row with their slots, in no order that means anything."""
        slots = list(self._on_row.get(row, {}).values())
        return [(slot, RunningPod._make(pod)) for slot, pod in zip(slots, self.table[slots].tolist(), strict=True)]

    def slots_on(self, rows: Rows) -> Slots:
        """Return the slots of all pods that count on one of the rows, in no order that means anything."""
        if len(rows) <= ROWS_ONE_BY_ONE:
            slots = [slot for row in rows.tolist() for slot in self._on_row.get(row, {}).values()]
            return np.array(slots, dtype=np.intp)
        on = np.zeros(max(int(rows.max()), int(self.table["row"].max())) + 2, dtype=np.bool_)
        on[rows] = True
        return np.flatnonzero(on[self.table["row"]])

    def _write(self, slot: int, row: int, number: int, facts: RunningFacts) -> None:
        self.table[slot] = (
            row,
            number,
            facts.priority,
            facts.started_seconds,
            facts.home,
            facts.ours,
            facts.borrower,
            facts.evictable,
            facts.leaving,
        )

    def _put_on(self, uid: str, slot: int, row: int) -> None:
        on_row = self._on_row.get(row)
        if on_row is None:
            on_row = self._on_row[row] = {}
        on_row[uid] = slot

    def _take_off(self, uid: str, row: int) -> None:
        on_row = self._on_row[row]
        del on_row[uid]
        if not on_row:
            del self._on_row[row]

    def _widen(self) -> None:
        old = len(self.table)
        wider = np.zeros(old * 2, dtype=_FIELDS)
        wider["row"] = NOWHERE
        wider[:old] = self.table
        self.table = wider
        self._uids.extend([""] * old)
        self._free.extend(range(old * 2 - 1, old - 1, -1))


class SpecTable:
    """What pods ask for, once per spec: `amounts` [number, resource], as the node table counts them.

    The resource `pods` is the one place that each pod takes.
    """

    def __init__(self) -> None:
        self.resources: dict[str, int] = {PODS: 0}
        self.amounts = np.zeros((SLOTS_FIRST, 1), dtype=np.int64)
        self._with_ports: set[int] = set()
        self._numbers: dict[bytes, int] = {}
        self._specs: list[PodSpec | None] = [None] * SLOTS_FIRST
        self._pods = [0] * SLOTS_FIRST
        self._free = list(range(SLOTS_FIRST - 1, -1, -1))

    def hold(self, spec: PodSpec) -> int:
        """Return the number of this spec for one more pod."""
        number = self._numbers.get(spec.key)
        if number is None:
            number = self._new(spec)
        self._pods[number] += 1
        return number

    def release(self, number: int) -> None:
        """Forget the number once the last pod of it is gone."""
        self._pods[number] -= 1
        if not self._pods[number]:
            del self._numbers[self.spec(number).key]
            self._specs[number] = None
            self._with_ports.discard(number)
            self._free.append(number)

    def spec(self, number: int) -> PodSpec:
        """Return what the pods of this number ask for."""
        spec = self._specs[number]
        assert spec is not None, "no pod is of this number"
        return spec

    def holding(self, ports: tuple[HostPort, ...]) -> Slots:
        """Return the numbers whose pods take one of these ports, whatever its address, ascending."""
        wanted = {(port.protocol, port.port) for port in ports}
        return np.array(
            sorted(
                number
                for number in self._with_ports
                if wanted & {(port.protocol, port.port) for port in self.spec(number).host_ports}
            ),
            dtype=np.intp,
        )

    def _new(self, spec: PodSpec) -> int:
        if not self._free:
            self._widen()
        number = self._numbers[spec.key] = self._free.pop()
        self._specs[number] = spec
        self.amounts[number] = 0
        for resource, amount in spec.request.taken.items():
            column = self._column(resource)
            self.amounts[number, column] = requested(amount)
        if spec.host_ports:
            self._with_ports.add(number)
        return number

    def _column(self, resource: str) -> int:
        column = self.resources.get(resource)
        if column is None:
            column = self.resources[resource] = len(self.resources)
            self.amounts = np.pad(self.amounts, ((0, 0), (0, 1)))
        return column

    def _widen(self) -> None:
        old = len(self._specs)
        self.amounts = np.pad(self.amounts, ((0, old), (0, 0)))
        self._specs.extend([None] * old)
        self._pods.extend([0] * old)
        self._free.extend(range(old * 2 - 1, old - 1, -1))
