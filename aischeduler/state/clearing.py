"""What-if over many rows at once: pods taken off and put on again, and in the end everything as it was.

Laws:
- Amounts are exact integers and the rows' columns are saved: leaving puts the last bit back, whatever happened.
- The journal and the versions do not move: inside, ask the filters themselves, never what is remembered of classes.
"""

from types import TracebackType
from typing import Self

import numpy as np

from aischeduler.state.index import Rows
from aischeduler.state.nodes import NodeTable
from aischeduler.state.running import RunningPods, Slots


class Clearing:
    """One what-if about the pods of `rows`. Nothing else may change the tables while it is open."""

    def __init__(self, nodes: NodeTable, running: RunningPods, rows: Rows) -> None:
        self._nodes = nodes
        self._running = running
        self._rows = rows
        self._columns = [nodes.column(resource) for resource in running.kinds.resources]
        self._used = nodes.used[:, rows]
        self._scored = nodes.scored[:, rows]
        self._ports: list[tuple[bool, int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        nodes = self._nodes
        nodes.used[: len(self._used), self._rows] = self._used
        nodes.scored[:, self._rows] = self._scored
        for taken, slot in reversed(self._ports):
            self._change_ports(slot, take=not taken)

    def take_off(self, slots: Slots) -> None:
        """Count these pods on their rows no more; many may be on one row."""
        self._count(slots, -1)

    def put_on(self, slots: Slots) -> None:
        """Count these pods on their rows again."""
        self._count(slots, 1)

    def _count(self, slots: Slots, sign: int) -> None:
        nodes, kinds = self._nodes, self._running.kinds
        pods = self._running.table[slots]
        rows, kind = pods["row"], pods["kind"]
        amounts = sign * kinds.amounts[kind]
        for i, column in enumerate(self._columns):
            np.add.at(nodes.used[column], rows, amounts[:, i])
        scored = sign * kinds.scored[kind]
        for i in range(len(nodes.scored)):
            np.add.at(nodes.scored[i], rows, scored[:, i])
        for slot in slots[kinds.takes_ports[kind]].tolist():
            self._change_ports(slot, take=sign > 0)
            self._ports.append((sign > 0, slot))

    def _change_ports(self, slot: int, *, take: bool) -> None:
        pod = self._running.table[slot]
        spec, row = self._running.kinds.spec(int(pod["kind"])), int(pod["row"])
        if take:
            self._nodes.take_ports(spec, row)
        else:
            self._nodes.free_ports(spec, row)
