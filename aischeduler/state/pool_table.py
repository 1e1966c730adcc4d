"""Pools, and the nodes of each.

Invariants:
- A node belongs to the pool whose selector matches it; where none or several match, to the default pool.
- The default pool always exists; the selector of its object is ignored.
- The number of a pool that is gone, and has no rows left, is used again, the smallest first: there are no more numbers
  than there were pools at one time. Nothing keeps a number longer than its pool exists.
- A pool that is refused (`invalid`) or has no selector owns no nodes.
"""

from itertools import count

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.node import Node
from aischeduler.model.pool import Pool
from aischeduler.model.selectors import LabelSelector
from aischeduler.state.node_table import NO_POOL, NodeTable

DEFAULT_ID = 0


class Moved(Struct, frozen=True):
    """A row that changed its pool; `old` is NO_POOL for a row that was in no pool."""

    row: int
    old: int
    new: int


class PoolTable:
    """All pools, each with a number for the `pool` column of the node table.

    `default` is the default pool while it has no object.
    """

    def __init__(self, nodes: NodeTable, default: Pool) -> None:
        self._nodes = nodes
        self.pools: dict[str, Pool] = {DEFAULT_POOL: default}
        self._ids: dict[str, int] = {DEFAULT_POOL: DEFAULT_ID}
        self._names: dict[int, str] = {DEFAULT_ID: DEFAULT_POOL}
        self._sorted: tuple[str, ...] | None = None
        self.conflicts: dict[int, tuple[str, ...]] = {}
        """Row -> the pools that select it, sorted, where there are several."""
        self.conflicts_version = 0
        self.version = 0
        """Grows with every change of a pool."""

    def id(self, name: str) -> int:
        """Return the number of a pool that exists."""
        return self._ids[name]

    def name(self, number: int) -> str:
        """Return the name of the pool of this number."""
        return self._names[number]

    def names(self) -> tuple[str, ...]:
        """Return the names of all pools, sorted."""
        if self._sorted is None:
            self._sorted = tuple(sorted(self.pools))
        return self._sorted

    def home(self, asked: str) -> str:
        """Return the home pool of a pod that names `asked`."""
        return asked if asked in self.pools else DEFAULT_POOL

    def see(self, pool: Pool) -> list[Moved]:
        """Store a pool as it is now; return the rows that moved."""
        self.version += 1
        before = self.pools.get(pool.name)
        if pool.name not in self._ids:
            self._sorted = None
            number = next(number for number in count() if number not in self._names)
            self._ids[pool.name] = number
            self._names[number] = pool.name
        self.pools[pool.name] = pool
        self._note_cards(self._ids[pool.name], pool)
        same = before is not None and (before.selector, before.invalid) == (pool.selector, pool.invalid)
        return [] if same or pool.name == DEFAULT_POOL else self.assign()

    def forget(self, name: str) -> list[Moved]:
        """Remove a pool other than the default pool; return the rows that moved."""
        assert name != DEFAULT_POOL, "the default pool cannot be removed"
        self.version += 1
        self._sorted = None
        del self.pools[name]
        self._note_cards(self._ids[name], None)
        del self._names[self._ids.pop(name)]
        return self.assign()

    def assign(self) -> list[Moved]:
        """Assign every node to its pool; return the rows that moved, ascending."""
        nodes = self._nodes
        owner = np.where(nodes.alive, DEFAULT_ID, NO_POOL).astype(np.int32)
        claims = np.zeros(nodes.width, dtype=np.int32)
        masks: list[tuple[str, npt.NDArray[np.bool_]]] = []
        for name, selector in self._claiming():
            mask = nodes.labels.all_of(selector.requirements) & nodes.alive
            claims += mask
            owner[mask] = self._ids[name]
            masks.append((name, mask))
        contested = claims > 1
        owner[contested] = DEFAULT_ID
        conflicts = {int(r): tuple(n for n, mask in masks if mask[r]) for r in np.flatnonzero(contested)}
        rows = np.flatnonzero(owner != nodes.pool)
        moved = [Moved(int(row), int(nodes.pool[row]), int(owner[row])) for row in rows]
        if conflicts != self.conflicts:
            self.conflicts = conflicts
            self.conflicts_version += 1
        self._move(moved)
        return moved

    def assign_row(self, row: int, node: Node | None) -> Moved | None:
        """Assign one node to its pool; return None where it stays. A node that is gone is in no pool."""
        owners = tuple(self.claimants(node)) if node is not None else ()
        contested = owners if len(owners) > 1 else ()
        if contested != self.conflicts.get(row, ()):
            self.conflicts_version += 1
            self.conflicts.pop(row, None)
            if contested:
                self.conflicts[row] = contested
        number = NO_POOL
        if node is not None:
            number = self._ids[owners[0]] if len(owners) == 1 else DEFAULT_ID
        old = int(self._nodes.pool[row])
        moved = [Moved(row, old, number)] if old != number else []
        self._move(moved)
        return moved[0] if moved else None

    def claimants(self, node: Node) -> list[str]:
        """Return the names of the pools whose selector matches the node, sorted."""
        return [name for name, selector in self._claiming() if selector.matches(node.labels)]

    def conflicting_nodes(self, name: str) -> tuple[str, ...]:
        """Return the names of the nodes that this pool and another both select, sorted."""
        found = (self._nodes.nodes[row] for row, claimants in self.conflicts.items() if name in claimants)
        return tuple(sorted(node.name for node in found if node is not None))

    def rivals(self, name: str) -> tuple[str, ...]:
        """Return the other pools that select nodes of this pool's selector, sorted."""
        return tuple(sorted({pool for pools in self.conflicts.values() if name in pools for pool in pools} - {name}))

    def _claiming(self) -> list[tuple[str, LabelSelector]]:
        pools = (self.pools[name] for name in self.names() if name != DEFAULT_POOL)
        return [(pool.name, pool.selector) for pool in pools if pool.selector is not None and not pool.invalid]

    def _move(self, moved: list[Moved]) -> None:
        for move in moved:
            self._nodes.pool[move.row] = move.new
            if self._nodes.cards.rare_by_pool:
                self._nodes.touch_static(move.row)
        self._nodes.pool_version += bool(moved)

    def _note_cards(self, number: int, pool: Pool | None) -> None:
        """Note the rare types of a pool; where they changed, its nodes are open to others than before."""
        if self._nodes.cards.see_pool(number, pool):
            for row in self._nodes.rows_of_pool(number).tolist():
                self._nodes.touch_static(row)
