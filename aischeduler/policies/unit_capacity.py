"""Whether rows may hold a unit, by amounts: a quick bound before each search for its rows or its victims.

Invariants:
- No search places a unit that its bound refuses, also not over claims; with a priority, also not by evictions.
- What a row holds is kept by classes; only the rows that changed since are counted again. The rows that open trials
  changed are counted beside that, and nothing is kept of them.
"""

from collections.abc import Hashable
from typing import Final

import numpy as np
from cachetools import LRUCache

from aischeduler.framework.runner import Runner
from aischeduler.model.pod import PodSpec
from aischeduler.policies.eviction_order import Preemptor, gone_for
from aischeduler.state.claims import Claims
from aischeduler.state.label_index import NO_VALUE, Mask, Rows
from aischeduler.state.node_table import Column, NodeTable
from aischeduler.state.running_pods import RunningPods
from aischeduler.state.units import Classes, Shape, ShapePart

KEPT_MAX: Final = 512
"""The most counts by classes that are kept; each takes a number per row."""
ENOUGH: Final = 2**62
ROOMS_MAX: Final = 16
"""The most priorities whose room is kept; each takes some numbers per row."""


_NO_ROWS: Final = np.zeros(0, dtype=np.intp)


class UnitCapacity:
    """The bounds of all units. Numbers of pools are those of the node table."""

    def __init__(self, runner: Runner, running: RunningPods, claims: Claims) -> None:
        self._runner, self._running, self._claims = runner, running, claims
        self._rooms: LRUCache[int | None, _Room] = LRUCache(ROOMS_MAX)
        self._kept: LRUCache[tuple[Classes, int | None], _Count] = LRUCache(KEPT_MAX)
        self._spare: dict[tuple[Hashable, int | None, int | None], int] = {}
        """Shape, pool and priority -> how many pods more than those of a unit may be held, in the state of `_state`."""
        self._state: tuple[int, ...] = ()

    def may_hold(self, shape: Shape, pool: int | None, priority: int | None = None, *, beside: int = 0) -> bool:
        """Return whether the rows of a pool may hold all pods of the shape: their free room, and what is claimed there.

        With a priority, also the room of pods that leave, or that a unit of this priority may evict. Without a pool,
        the rows of all pools count. `beside` is how many pods are about to take room.
        """
        nodes = self._runner.nodes
        if nodes.tentative:
            return self._spare_of(shape, pool, priority) >= beside
        state = nodes.version, self._running.version, nodes.static_version, nodes.pool_version
        if state != self._state:
            self._state = state
            self._spare.clear()
        key = shape.key, pool, priority
        spare = self._spare.get(key)
        if spare is None:
            spare = self._spare[key] = self._spare_of(shape, pool, priority)
        return spare >= beside

    def _spare_of(self, shape: Shape, pool: int | None, priority: int | None) -> int:
        """Return how many pods more than those of a unit of this shape may be held; below zero where it is refused."""
        room = self._rooms.get(priority)
        if room is None:
            room = self._rooms[priority] = _Room(self._runner.nodes, self._running, self._claims, priority)
        spare = ENOUGH
        for part in shape.parts:
            held = self._count_of(part, priority)
            if self._runner.nodes.tentative:
                spare = min(spare, held.in_trial(room, pool) - part.count)
                continue
            held.catch_up(room)
            spare = min(spare, held.sum(pool) - part.count)
            if spare >= 0 and pool is not None and any(held.most(pool, label) < part.count for label in shape.labels):
                return -1
        return spare

    def _count_of(self, part: ShapePart, priority: int | None) -> "_Count":
        kept = self._kept.get((part.classes, priority))
        if kept is None:
            kept = self._kept[part.classes, priority] = _Count(part.specs, self._runner)
        return kept


class _Room:
    """What rows have for a unit of one priority, or without evictions for one of any priority, as far as it is read."""

    def __init__(self, nodes: NodeTable, running: RunningPods, claims: Claims, priority: int | None) -> None:
        self._nodes, self._running, self._claims, self._priority = nodes, running, claims, priority
        self._left: Column = np.zeros((0, 0), dtype=np.int64)
        self._read = (-1, -1)
        self._changed: tuple[tuple[tuple[int, int], ...], Rows | None] = (), None
        """The versions between which the rows were asked last that changed, and these rows."""

    @property
    def version(self) -> tuple[int, int]:
        """The versions of what it is made from."""
        return self._nodes.version, self._running.version if self._priority is not None else 0

    def changed_since(self, version: tuple[int, int]) -> Rows | None:
        """Return the rows that changed after this version, ascending; None where every row counts as changed."""
        between = version, self.version
        if self._changed[0] != between:
            self._changed = between, self._find_changed(version)
        return self._changed[1]

    def _find_changed(self, version: tuple[int, int]) -> Rows | None:
        changed = self._nodes.changed_since(version[0])
        gone = self._running.changed_since(version[1]) if self._priority is not None else ()
        if changed is None or gone is None:
            return None
        return np.array(sorted({*changed, *gone}) if gone else changed, dtype=np.intp)

    def of(self, rows: Rows) -> Column:
        """Return what these rows have [column, one of rows]; no trial may be open."""
        if self._read != self.version or self._left.shape != self._nodes.used.shape:
            changed = self.changed_since(self._read) if self._left.shape == self._nodes.used.shape else None
            if changed is None:
                self._left = self.anew(np.arange(self._nodes.width, dtype=np.intp))
            elif len(changed):
                self._left[:, changed] = self.anew(changed)
            self._read = self.version
        return self._left[:, rows]

    def anew(self, rows: Rows) -> Column:
        """Return what these rows, ascending, have now, also in a trial; nothing is kept."""
        nodes, running = self._nodes, self._running
        room: Column = nodes.allocatable[:, rows] - nodes.used[:, rows]
        places = {row: place for place, row in enumerate(rows.tolist())}
        for claim in self._claims.on_rows(places) if len(self._claims) else ():
            for claimed in claim.rooms:
                if claimed.row in places:
                    room[:, places[claimed.row]] += nodes.request(claimed.spec)
        if self._priority is None:
            return room
        slots = running.slots_on(rows)
        pods = running.pods_in(slots)
        goes = gone_for(Preemptor(self._priority), pods)
        at, amounts = np.searchsorted(rows, pods["row"][goes]), running.specs.amounts[pods["spec"][goes]]
        for resource, number in running.specs.resources.items() if len(at) else ():
            room[nodes.column(resource)] += np.bincount(at, amounts[:, number], len(rows)).astype(np.int64)
        return room


class _Count:
    """How many pods of some classes each row holds by amounts, each counted with the least that one requests."""

    def __init__(self, specs: tuple[PodSpec, ...], runner: Runner) -> None:
        self._specs, self._runner, self._nodes = specs, runner, runner.nodes
        self._on: Column = np.zeros(0, dtype=np.int64)
        self._sums: dict[int | None, int] = {}
        """Pool -> the sum over its rows; None for all rows."""
        self._most: dict[tuple[int, str], int] = {}
        """Pool and label -> the largest sum over the rows that share a value of the label."""
        self._allowed: Mask = np.zeros(0, dtype=np.bool_)
        self._read, self._static, self._pools, self._width = (-1, -1), -1, -1, 0
        self._asked, self._least = _NO_ROWS, np.zeros((0, 1), dtype=np.int64)

    def catch_up(self, room: _Room) -> None:
        """Count the rows that changed since again; no trial may be open."""
        nodes = self._nodes
        changed = self._changed(room)
        if self._pools != nodes.pool_version:
            self._sums.clear()
            self._most.clear()
            self._pools = nodes.pool_version
        if changed is not None and not len(changed):
            self._read = room.version
            return
        self._most.clear()
        if self._static != nodes.static_version or len(self._allowed) != nodes.width:
            every = np.arange(nodes.width, dtype=np.intp)
            masks = [self._runner.allowed(spec, every) for spec in self._specs]
            self._allowed, self._static = np.logical_or.reduce(masks), nodes.static_version
        if changed is None:
            self._sums.clear()
            self._on = self._count(room.of(np.arange(nodes.width, dtype=np.intp)), self._allowed)
        else:
            now = self._count(room.of(changed), self._allowed[changed])
            more = now - self._on[changed]
            if more.any():
                for pool, count in self._by_pool(changed, more):
                    if pool in self._sums:
                        self._sums[pool] += count
                self._on[changed] = now
        self._read = room.version

    def sum(self, pool: int | None) -> int:
        """Return how many pods the rows of a pool hold, or all rows, as of the last reading."""
        found = self._sums.get(pool)
        if found is None:
            on = self._on if pool is None else self._on[self._nodes.rows_of_pool(pool)]
            found = self._sums[pool] = int(on.sum())
        return found

    def most(self, pool: int, label: str) -> int:
        """Return how many pods the rows of a pool hold that share one value of a label, as of the last reading."""
        found = self._most.get((pool, label))
        if found is None:
            rows = self._nodes.rows_of_pool(pool)
            numbers = self._nodes.labels.numbers(label)[rows]
            labelled = numbers != NO_VALUE
            sums = np.bincount(numbers[labelled], self._on[rows][labelled])
            found = self._most[pool, label] = int(sums.max(initial=0))
        return found

    def in_trial(self, room: _Room, pool: int | None) -> int:
        """Return what `sum` returns, with the open trials."""
        nodes, changed = self._nodes, self._changed(room)
        if changed is None or self._static != nodes.static_version or self._pools != nodes.pool_version:
            rows = np.flatnonzero(nodes.alive) if pool is None else nodes.rows_of_pool(pool)
            return int(self._anew(rows, room).sum())
        rows = np.array(sorted({*changed.tolist(), *nodes.tentative}), dtype=np.intp)
        rows = rows if pool is None else rows[nodes.pool[rows] == pool]
        return self.sum(pool) + int(self._anew(rows, room).sum() - self._on[rows].sum())

    def _changed(self, room: _Room) -> Rows | None:
        """Return the rows that changed since the last reading; None where all are to be counted."""
        nodes = self._nodes
        if self._static != nodes.static_version or len(self._on) != nodes.width:
            return None
        return room.changed_since(self._read) if self._read != room.version else _NO_ROWS

    def _anew(self, rows: Rows, room: _Room) -> Column:
        masks = [self._runner.allowed(spec, rows) for spec in self._specs]
        return self._count(room.anew(rows), np.logical_or.reduce(masks))

    def _count(self, room: Column, allowed: Mask) -> Column:
        """Return how many pods rows with this room hold."""
        if self._width != len(room):
            least = np.stack([self._nodes.request(spec) for spec in self._specs]).min(axis=0)
            self._asked, self._width = np.flatnonzero(least), len(room)  # the column of pods at least
            self._least = least[self._asked, None]
        holds: Column = np.minimum.reduce(np.maximum(room[self._asked], 0) // self._least, axis=0) * allowed
        return holds

    def _by_pool(self, rows: Rows, more: Column) -> list[tuple[int | None, int]]:
        grew = [
            (int(self._nodes.pool[row]), int(count)) for row, count in zip(rows.tolist(), more.tolist(), strict=True)
        ]
        return [*grew, (None, int(more.sum()))]
