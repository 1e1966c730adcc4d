"""The requests of the classes in one queue as a table: one comparison finds the classes that fit into some room.

Invariants:
- A class has one slot; that of a unit of several pods has in each column the smallest request of its pods.
- The columns are those of the node table, so that room and requests are compared as vectors.
- A class that does not request a resource fits where none of it is free, as in the filters.
- A class that requests a resource without a column fits nowhere; once it has a column, the slot is read again.
- A unit whose pods request different resources is not refused here for one of them, with or without a column: what
  a unit may hold as a whole is judged by its shape, so that no column that is left over decides.
"""

from typing import Final

import numpy as np

from aischeduler.model.pod import PodSpec
from aischeduler.state.label_index import Mask
from aischeduler.state.node_table import UNOFFERED, NodeTable
from aischeduler.state.requests import Amounts

SLOTS_FIRST: Final = 16
FREE_SLOT: Final = np.iinfo(np.int64).max
"""The request of an unused slot: more than any room."""


class DemandTable:
    """The requests by slot: `amounts[slot, column]`."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._amounts: Amounts = np.full((SLOTS_FIRST, len(nodes.used)), FREE_SLOT, dtype=np.int64)
        self._specs: dict[int, tuple[PodSpec, ...]] = {}
        """The classes by slot."""
        self._unoffered: set[int] = set()
        """The slots of classes, or of units of which a pod, that request a resource without a column."""
        self._layout = nodes.layout
        self._free = list(range(SLOTS_FIRST - 1, -1, -1))

    def put(self, *specs: PodSpec) -> int:
        """Add the class of this spec, or the unit of pods of these specs; return its slot."""
        self._widen()
        if not self._free:
            slots = len(self._amounts)
            self._amounts = np.vstack((self._amounts, np.full_like(self._amounts, FREE_SLOT)))
            self._free.extend(range(2 * slots - 1, slots - 1, -1))
        slot = self._free.pop()
        self._write(slot, specs)
        return slot

    def drop(self, slot: int) -> None:
        """Remove a class."""
        self._amounts[slot] = FREE_SLOT
        self._unoffered.discard(slot)
        del self._specs[slot]
        self._free.append(slot)

    def fitting(self, room: Amounts) -> Mask:
        """Return a mask of the slots that fit into `room`, a vector by column."""
        self._widen()
        return np.asarray((self._amounts <= np.maximum(room, 0)).all(axis=1))

    def request(self, slot: int) -> Amounts:
        """Return the request of a slot, by column."""
        self._widen()
        request: Amounts = self._amounts[slot].copy()
        return request

    def _write(self, slot: int, specs: tuple[PodSpec, ...]) -> None:
        specs = tuple({spec.key: spec for spec in specs}.values())  # a large unit has few classes
        request = self._nodes.request(specs[0])
        unoffered = bool(request[UNOFFERED])
        if len(specs) > 1:
            of_each = np.stack([self._nodes.request(spec) for spec in specs])
            request = of_each.min(axis=0)
            request[UNOFFERED] = bool(set.intersection(*map(self._without_column, specs)))
            unoffered = bool(of_each[:, UNOFFERED].any())
        self._amounts[slot] = request
        self._specs[slot] = specs
        self._unoffered.discard(slot)
        if unoffered:
            self._unoffered.add(slot)

    def _without_column(self, spec: PodSpec) -> set[str]:
        return {name for name, amount in spec.request.taken.items() if amount and name not in self._nodes.columns}

    def _widen(self) -> None:
        if self._layout != self._nodes.layout:
            self._layout = self._nodes.layout
            self._amounts = np.full((len(self._amounts), len(self._nodes.used)), FREE_SLOT, dtype=np.int64)
            for slot, specs in self._specs.items():
                self._write(slot, specs)
        width = self._amounts.shape[1]
        missing = len(self._nodes.used) - width
        if missing:
            used = self._amounts[:, :1] != FREE_SLOT
            self._amounts = np.hstack((self._amounts, np.where(used, 0, FREE_SLOT).repeat(missing, axis=1)))
            new = {resource for resource, column in self._nodes.columns.items() if column >= width}
            for slot in sorted(self._unoffered):
                specs = self._specs[slot]
                if any(not new.isdisjoint(spec.request.amounts) for spec in specs):
                    self._write(slot, specs)
