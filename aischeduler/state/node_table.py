"""The node table: one row per node, numpy columns; nothing loops over nodes in Python.

Invariants:
- Amounts are exact int64. An amount above `AMOUNT_MAX` counts as that: no machine has more.
- A resource has a column of its own once a node offers it, or a pod on a row requests it. All other resources share
  one column of zeros: a pod that requests one fits nowhere, and leaves nothing behind. When most columns are those of
  resources of the past, an event of a node drops these; `layout` grows, and any column may have another number.
- `version` grows with every change; the change log has the rows that changed, so that readers read only those again.
- `static_version` grows when labels, taints, cordons, features, rare types or the set of nodes change, from which masks
  are built; a log has the rows. `unlabelled_version` grows with each of these but labels, which have a version of their
  own, as images have. `pool_version` grows when a node changes its pool, `offered_version` when it may offer other
  amounts.
- A node that is gone while pods still count on it stays as a stub, on which no pod can be placed.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import IntFlag
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from aischeduler.model.allocation import NO_ALLOCATION
from aischeduler.model.device import DEVICES, NodeDevices
from aischeduler.model.names import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from aischeduler.model.node import Node, Taint
from aischeduler.model.pod import PodSpec
from aischeduler.state.allocation_parts import AllocationPart
from aischeduler.state.cards import Cards
from aischeduler.state.devices import Devices
from aischeduler.state.host_ports import HostPorts
from aischeduler.state.image_index import ImageIndex
from aischeduler.state.kept import ChangeLog, Stamp, StatePart, Versions, reading, rows_since
from aischeduler.state.label_index import LabelIndex, Mask, RowIndex, Rows
from aischeduler.state.pod_counts import PodCounts
from aischeduler.state.pod_records import AssignedPod
from aischeduler.state.requests import AMOUNT_MAX, Amounts, Wanted, WantedRequests
from aischeduler.state.storage import Storage

NO_POOL: Final = -1
"""The number of a row in no pool."""


class PoolRows:
    """The `rows` of all pools, grouped by pool; `numbers` are the pools that have rows, ascending.

    Sums over a pool's rows are exact int64.
    """

    def __init__(self, pool: npt.NDArray[np.int32], alive: Mask) -> None:
        rows = np.flatnonzero(alive & (pool != NO_POOL))
        self.rows: Rows = rows[np.argsort(pool[rows], kind="stable")]
        self.numbers, self._starts = np.unique(pool[self.rows], return_index=True)
        self.places = {number: place for place, number in enumerate(self.numbers.tolist())}

    def sums(self, column: Amounts) -> Amounts:
        """Return the sums of a column (or of several) over the rows of each pool; the last axis follows `numbers`."""
        return np.add.reduceat(column[..., self.rows], self._starts, axis=-1, dtype=np.int64)

    def any(self, mask: Mask) -> Mask:
        """Return for each pool whether the mask is True on one of its rows."""
        return np.logical_or.reduceat(mask[self.rows], self._starts)


class Change(IntFlag):
    """The changes of a row that may help a waiting pod."""

    NONE = 0
    ROOM = 1
    """More became allocatable."""
    LABELS = 2
    TAINTS = 4
    CORDON = 8
    FEATURES = 32
    JOINED = 16
    """The node is new."""


UNLABELLED: Final = Change.TAINTS | Change.CORDON | Change.FEATURES | Change.JOINED
"""The changes of what masks are built from, but labels."""
STATIC: Final = UNLABELLED | Change.LABELS
"""The changes of what masks are built from."""
MAY_MOVE: Final = Change.LABELS | Change.JOINED
"""The changes that may put a node into another pool, or another place of a topology."""


Column = npt.NDArray[np.int64]

InstanceSize = tuple[tuple[str, int], ...]
"""What an instance of an elastic job takes of each resource, sorted by resource."""

CPU_AND_MEMORY: Final = slice(0, 2)
"""The columns of CPU and memory, which scores read together."""
ALWAYS: Final = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)
"""The resources that have a column from the start."""
UNOFFERED: Final = len(ALWAYS)
"""The column of all resources that have none of their own; always zero."""
COLUMNS_MIN: Final = 32
"""With fewer columns, none is dropped."""
WIDTH_FIRST: Final = 64
FEW_ROWS: Final = 16
"""Fewer rows than this are counted one by one, which is faster."""
CHANGES_PER_ROW: Final = 4
"""The changes that the change log keeps, per row of the table: for more, one pass over all rows is faster."""
NODES_MAX: Final = 2**20
"""The most rows: a tie rank has room for these."""
READ_FOR_PODS: Final = reading(StatePart.ROWS)
READ_FOR_VOLUMES: Final = reading(StatePart.ROWS, StatePart.STORAGE)


class NodeTable:
    """All nodes. A column has `width` entries; `rows` has the rows in use: name -> row."""

    def __init__(self, cards: Cards | None = None) -> None:
        self.width, self.cards = WIDTH_FIRST, cards or Cards()
        self.rows, self.names = dict[str, int](), [""] * self.width
        self.nodes: list[Node | None] = [None] * self.width
        self.columns: dict[str, int] = {name: i for i, name in enumerate(ALWAYS)}
        """Resource -> its own column."""
        self.layout, self._columns_most = 0, COLUMNS_MIN
        self.allocatable = np.zeros((UNOFFERED + 1, self.width), dtype=np.int64)
        self.capacity = np.zeros_like(self.allocatable)
        self.used = np.zeros_like(self.allocatable)
        """The requests of pods and claims."""
        self.scored = np.zeros((2, self.width), dtype=np.int64)
        """The CPU and memory in use as scores count them: a container without requests counts as a small one."""
        self.sized = np.zeros(self.width, dtype=np.int64)
        """How many of CPU and memory the node offers: 0, 1 or 2."""
        self.twice: npt.NDArray[np.float64] = np.full((2, self.width), np.inf)
        """Twice its CPU and memory, infinite where it lacks one: the divisor of half shares in the balance score."""
        self.alive: Mask = np.zeros(self.width, dtype=np.bool_)
        self.cordoned: Mask = np.zeros(self.width, dtype=np.bool_)
        self.pool: npt.NDArray[np.int32] = np.full(self.width, NO_POOL, dtype=np.int32)
        self.labels, self.images = LabelIndex(self.width), ImageIndex()
        self.taints: RowIndex[Taint] = RowIndex(self.width)
        self.features: RowIndex[str] = RowIndex(self.width)
        self.ports, self.pod_counts, self.storage = HostPorts(self.width), PodCounts(), Storage()
        self.devices = Devices(self.width)
        self.instances: Mapping[int, tuple[InstanceSize, ...]] = {}
        """Pool -> the sizes of the instances of its elastic jobs; scores depend on them."""
        self.parts: dict[str, AllocationPart] = {
            "ports": self.ports,
            "volumes": self.storage,
            DEVICES: self.devices,
        }
        """What pods have for themselves on rows, by the name of the part."""
        self.tentative: Counter[int] = Counter()
        """The rows that open trials changed: the versions and the change log tell nothing of these changes."""
        self.trial_rows: list[int] = []
        """The rows as the open trials changed them, or changed them back; another list once the last has ended."""
        self.trial = Stamp()
        """The version of what the open trials have changed: 0 where none is open."""
        self.torn = False
        """Whether an exception ended a step of a trial: what counts on rows may be wrong."""
        self.unlabelled_version, self.offered_version, self.pool_version, self._grouped_version = 0, 0, 0, -1
        self._pool_rows, self._pool_rows_version = dict[int, Rows](), 0
        self._grouped: PoolRows | None = None
        self._changes: ChangeLog[int] = ChangeLog(CHANGES_PER_ROW * self.width)
        self._static: ChangeLog[int] = ChangeLog(CHANGES_PER_ROW * self.width)
        self._free = list(range(self.width - 1, -1, -1))
        self._ranks: Column | None = None
        self._wanted = WantedRequests()

    def see(self, node: Node) -> tuple[int, Change]:
        """Store a node as it is now; return its row and the changes that may help a waiting pod."""
        row = self.row(node.name)
        old = self.nodes[row]
        if old == node:
            return row, Change.NONE
        before = old or Node(node.name)
        if before.images != node.images:
            self.images.change(row, before.images, node.images)
            if old is not None and replace(old, images=node.images) == node:
                self.nodes[row] = node
                return row, Change.NONE
        change = self._static_change(row, before, node)
        if self.devices.active:
            self.devices.see_node(row, node)
        if self._set_allocatable(row, node):
            change |= Change.ROOM
        self.nodes[row] = node
        if old is None:
            self.alive[row] = True
            change |= Change.JOINED
        if change & STATIC:
            self.touch_static(row, labels_alone=not change & UNLABELLED)
        else:
            self.touch(row)
        return row, change

    def see_devices(self, name: str, found: NodeDevices | None) -> tuple[int, bool]:
        """Store the devices of a node, None where it has no Device object any more; return its row.

        True says that pods on any row may hold devices that were not counted before (`Devices.see`).
        """
        row = self.row(name)
        node = self.nodes[row]
        anew = self.devices.see(row, found, node)
        if node is not None:
            self._set_allocatable(row, node)
        self.touch(row)
        self.release_stub(row)
        return row, anew

    def node(self, name: str) -> Node | None:
        """Return the node of this name, None where it does not exist."""
        row = self.rows.get(name)
        return self.nodes[row] if row is not None else None

    def has(self, name: str) -> bool:
        """Return whether a node of this name exists."""
        return self.node(name) is not None

    def forget(self, name: str) -> int | None:
        """Remove a node; return its row, or None if it was unknown. Its pods keep counting on a stub."""
        node = self.node(name)
        if node is None:
            return None
        row = self.rows[name]
        self._static_change(row, node, Node(name))
        self.images.change(row, node.images, ())
        self._set_allocatable(row, Node(name), gone=True)
        self.nodes[row] = None
        self.devices.see_node(row, None)
        self.alive[row] = False
        self.touch_static(row)
        self.release_stub(row)
        return row

    def row(self, name: str) -> int:
        """Return the row of this name, a new stub where no such node was seen yet."""
        row = self.rows.get(name)
        if row is None:
            if not self._free:
                self._widen()
            row = self._free.pop()
            self.rows[name] = row
            self.names[row] = name
            self.storage.used.stale[row] = None
            self._rank_anew()
        return row

    def add(self, assigned: AssignedPod) -> None:
        """Add a pod to its row."""
        self._add(assigned, 1)

    def remove(self, assigned: AssignedPod) -> None:
        """Remove a pod from its row."""
        self._add(assigned, -1)

    def count_tentatively(self, pods: Sequence[AssignedPod], sign: int) -> None:
        """Add (1) or remove (-1) pods of one spec for a trial: no version changes."""
        self.trial.change()
        rows = [assigned.row for assigned in pods]
        self.trial_rows += rows
        self._sum(pods[0].spec, rows, sign)
        counting = self.pod_counts.used
        for assigned in pods:
            if counting or assigned.allocation is not NO_ALLOCATION:
                self._share(assigned, sign, tentative=True)

    def release_stub(self, row: int) -> None:
        """Free the row of a node that is gone once no pod counts on it, and its Device object is gone too."""
        if self.nodes[row] is not None or self.used[self.columns[PODS], row] or self.devices.of(row) is not None:
            return
        del self.rows[self.names[row]]
        self.names[row] = ""
        self._free.append(row)
        self._rank_anew()

    def column(self, resource: str) -> int:
        """Return the column of a resource: `UNOFFERED` where it has none of its own."""
        return self.columns.get(resource, UNOFFERED)

    def named(self, amounts: Column) -> dict[str, int]:
        """Return amounts by column as amounts by resource name."""
        by_column = amounts.tolist()
        return {resource: by_column[column] for resource, column in self.columns.items()}

    @property
    def version(self) -> int:
        """Grows with every change."""
        return self._changes.version

    def version_for(self, spec: PodSpec) -> Versions:
        """Return the versions of all that filters read for a pod of this class."""
        return READ_FOR_PODS(self) if spec.volumes is None else READ_FOR_VOLUMES(self)

    def changed_since(self, version: int) -> list[int] | None:
        """Return the rows that changed after this version, ascending; None where the changes are no longer kept."""
        return rows_since(self._changes, version)

    def touch(self, row: int) -> None:
        """Note that a row changed."""
        self._changes.note(row)

    def touch_rows(self) -> None:
        """Note that every row changed, though not what masks are built from."""
        self._changes.note_all()

    def expect(self, instances: Mapping[int, tuple[InstanceSize, ...]]) -> None:
        """Take note of the sizes of the instances of elastic jobs, by the number of the pool."""
        if instances != self.instances:
            self.instances = instances
            self.touch_rows()

    @property
    def static_version(self) -> int:
        """Grows with every change of what masks are built from."""
        return self._static.version

    def static_since(self, version: int) -> list[int] | None:
        """Return the rows of which that changed after this version, ascending; None where all rows may have changed."""
        return rows_since(self._static, version)

    def touch_static(self, row: int, *, labels_alone: bool = False) -> None:
        """Note that a row changed, and what masks are built from too."""
        self._static.note(row)
        self.unlabelled_version += not labels_alone
        self.touch(row)

    def touch_counts(self) -> None:
        """Note that pods count differently although no row changed: what was found before may not hold any more."""
        self._changes.note(0)  # the version grows; reading one row again changes nothing

    def ranks(self) -> Column:
        """Return per row the position of its node in the order of names, which decides every tie."""
        if self._ranks is None:
            ranks = np.zeros(self.width, dtype=np.int64)
            ranks[[self.rows[name] for name in sorted(self.rows)]] = np.arange(len(self.rows))
            self._ranks = ranks
        return self._ranks

    def rows_of_pool(self, pool: int) -> Rows:
        """Return the rows of a pool's nodes, ascending; the caller must not change them."""
        if self._pool_rows_version != self.pool_version:
            self._pool_rows.clear()
            self._pool_rows_version = self.pool_version
        rows = self._pool_rows.get(pool)
        if rows is None:
            rows = self._pool_rows[pool] = np.flatnonzero((self.pool == pool) & self.alive)
        return rows

    def by_pool(self) -> "PoolRows":
        """Return all rows that belong to a pool, grouped by pool."""
        if self._grouped is None or self._grouped_version != self.pool_version:
            self._grouped, self._grouped_version = PoolRows(self.pool, self.alive), self.pool_version
        return self._grouped

    def wanted(self, spec: PodSpec) -> Wanted:
        """Return the requests of a pod of this class, in the form of the table."""
        return self._wanted.by_class.get(spec.key) or self._wanted.make(spec, self.columns, UNOFFERED, len(self.used))

    def request(self, spec: PodSpec) -> Column:
        """Return the requests of a pod by column; of resources without a column, the largest amount."""
        wanted = self.wanted(spec)
        asked = np.zeros(len(self.used), dtype=np.int64)
        for column, amount in wanted.each:
            asked[column] = max(asked[column], amount)
        return asked

    def room(self, row: int) -> Column:
        """Return what is free on one row, by column; below zero where claims count beside pods that are leaving."""
        left: Column = self.allocatable[:, row] - self.used[:, row]
        return left

    def _add(self, assigned: AssignedPod, sign: int) -> None:
        self._sum_one(assigned.spec, assigned.row, sign)
        self.touch(assigned.row)
        if self.pod_counts.used or assigned.allocation is not NO_ALLOCATION:
            self._share(assigned, sign, tentative=False)

    def _share(self, assigned: AssignedPod, sign: int, *, tentative: bool) -> None:
        """Count (1) a pod by selectors and take its allocation, or undo that (-1)."""
        if sign > 0:
            self.pod_counts.add(assigned.pod, assigned.row, claims=assigned.claims, tentative=tentative)
        else:
            self.pod_counts.remove(assigned.pod, assigned.row, claims=assigned.claims, tentative=tentative)
        for part in self.parts.values() if assigned.allocation is not NO_ALLOCATION else ():
            (part.take if sign > 0 else part.free)(assigned, tentative=tentative)

    def _counted(self, spec: PodSpec) -> Wanted:
        """Return the requests of a pod that counts on a row: each resource gets a column of its own."""
        wanted = self.wanted(spec)
        if not wanted.offered:
            self._give_columns(spec.request.amounts)
            wanted = self.wanted(spec)
        return wanted

    def _sum(self, spec: PodSpec, rows: list[int], sign: int) -> None:
        """Add the requests of a pod to the rows, or subtract them."""
        if len(rows) < FEW_ROWS:
            for row in rows:
                self._sum_one(spec, row, sign)
            return
        wanted, pods = self._counted(spec), sign * np.bincount(rows, minlength=self.width)
        for column, amount in wanted.each:
            self.used[column] += amount * pods
        self.scored += wanted.counted * pods

    def _sum_one(self, spec: PodSpec, row: int, sign: int) -> None:
        wanted = self._counted(spec)
        for column, amount in wanted.each:
            self.used[column, row] += sign * amount
        self.scored[0, row] += sign * wanted.scored_cpu_milli
        self.scored[1, row] += sign * wanted.scored_memory_bytes

    def _static_change(self, row: int, old: Node, new: Node) -> Change:
        change = Change.NONE
        if old.labels != new.labels:
            self.labels.change(row, old.labels, new.labels)
            change |= Change.LABELS
        if old.taints != new.taints:
            for taint in dict.fromkeys(old.taints):
                self.taints.drop(taint, row)
            for taint in dict.fromkeys(new.taints):
                self.taints.put(taint, row)
            change |= Change.TAINTS
        if old.unschedulable != new.unschedulable:
            self.cordoned[row] = new.unschedulable
            change |= Change.CORDON
        if old.features != new.features:
            for feature in old.features:
                self.features.drop(feature, row)
            for feature in new.features:
                self.features.put(feature, row)
            change |= Change.FEATURES
        return change

    def _set_allocatable(self, row: int, node: Node, *, gone: bool = False) -> bool:
        """Write the amounts of a node, which are none once it is gone; return whether an allocatable amount grew."""
        if len(self.columns) > self._columns_most and not self.tentative:
            self._drop_columns()
        offered = self.devices.offers(row, node) if self.devices.active and not gone else {}
        self._give_columns((*node.allocatable, *node.capacity, *offered))
        old = self.allocatable[:, row].copy()
        self.offered_version += 1
        for amounts, found in ((self.allocatable, node.allocatable), (self.capacity, node.capacity)):
            amounts[:, row] = 0
            for resource, amount in (*offered.items(), *found.items()):
                amounts[self.columns[resource], row] = min(amount, AMOUNT_MAX)
        both = self.allocatable[CPU_AND_MEMORY, row]
        self.sized[row] = np.count_nonzero(both > 0)
        self.twice[:, row] = 2.0 * both if both.min() > 0 else np.inf
        return bool((self.allocatable[:, row] > old).any())

    def _give_columns(self, resources: Iterable[str]) -> None:
        """Give each of these resources a column; drop the kept requests of classes that had none for a resource."""
        missing = sorted({resource for resource in resources if resource not in self.columns})
        if missing:
            self.columns.update((resource, len(self.used) + i) for i, resource in enumerate(missing))
            pad = ((0, len(missing)), (0, 0))
            self.allocatable = np.pad(self.allocatable, pad)
            self.capacity = np.pad(self.capacity, pad)
            self.used = np.pad(self.used, pad)
            self._wanted.forget_unoffered()

    def _drop_columns(self) -> None:
        """Drop the columns of resources that no node offers and no pod on a row requests."""
        in_use: Mask = np.asarray(self.allocatable.any(axis=1))
        in_use |= self.capacity.any(axis=1) | self.used.any(axis=1)
        in_use[: UNOFFERED + 1] = True
        kept = np.flatnonzero(in_use)
        number = {int(column): at for at, column in enumerate(kept)}
        self.columns = {resource: number[column] for resource, column in self.columns.items() if in_use[column]}
        self.allocatable, self.capacity, self.used = self.allocatable[kept], self.capacity[kept], self.used[kept]
        self._columns_most = max(COLUMNS_MIN, 2 * len(self.columns))
        self.layout += 1
        self._wanted.forget()

    def _rank_anew(self) -> None:
        """Note that the order of names changed, and with it the keys of every class."""
        self._ranks = None
        self._touch_all()

    def _touch_all(self) -> None:
        """Note that what masks are built from changed for all rows."""
        self._static.note_all()
        self.unlabelled_version += 1

    def _widen(self) -> None:
        old, self.width = self.width, self.width * 2
        self._changes.limit = self._static.limit = CHANGES_PER_ROW * self.width
        assert self.width <= NODES_MAX, "more nodes than the table can hold"
        pad = ((0, 0), (0, self.width - old))
        for name in ("allocatable", "capacity", "used", "scored"):
            setattr(self, name, np.pad(getattr(self, name), pad))
        self.sized = np.pad(self.sized, pad[1])
        self.twice = np.pad(self.twice, pad, constant_values=np.inf)
        self.alive = np.pad(self.alive, pad[1])
        self.cordoned = np.pad(self.cordoned, pad[1])
        self.pool = np.pad(self.pool, pad[1], constant_values=NO_POOL)
        self.names.extend([""] * (self.width - old))
        self.nodes.extend([None] * (self.width - old))
        self._free.extend(range(self.width - 1, old - 1, -1))
        self.labels.widen(self.width)
        self.taints.widen(self.width)
        self.ports.rows.widen(self.width)
        self.devices.widen(self.width)
        self.features.widen(self.width)
        self._touch_all()
