"""A trial over many rows at once: remove pods and add them again; at the end the table is as before.

Invariants:
- The amounts of the rows are saved, and the end restores them exactly, whatever happened.
- The journal and the versions do not change: inside, call the filters, never read the kept results of classes.
- Each row is judged as if pods had left that row alone; so counts by selector change apart.
- It serves one preemptor: host ports that this pod does not use, and what only scores read, do not change.
"""

from typing import Self

import numpy as np

from aischeduler.model.allocation import allocation_of
from aischeduler.model.pod import PodSpec
from aischeduler.model.topology_spread import PodSelector
from aischeduler.state.index import Rows
from aischeduler.state.nodes import NodeTable
from aischeduler.state.running import RunningPods, Slots


class Clearing:
    """A trial on the pods of `rows`. Nothing else may change the tables while it is open.

    `counts` are the selectors by which rules count pods for the preemptor.
    """

    def __init__(
        self, asker: PodSpec, nodes: NodeTable, running: RunningPods, rows: Rows, counts: tuple[PodSelector, ...] = ()
    ) -> None:
        self._nodes = nodes
        self._running = running
        self._rows = rows
        self._columns = [nodes.column(resource) for resource in running.specs.resources]
        self._used = nodes.used[:, rows]
        self._specs_with_ports = running.specs.holding(asker.host_ports)
        self._ports: list[tuple[int, PodSpec, int]] = []
        """What was done with host ports: 1 or -1, the spec of the pod and its row."""
        self._apart = {selector: np.zeros(nodes.width, dtype=np.int64) for selector in counts}

    def __enter__(self) -> Self:
        self._nodes.pod_counts.apart = self._apart or None
        return self

    def __exit__(self, *error: object) -> None:
        self._nodes.used[:, self._rows] = self._used
        self._nodes.pod_counts.apart = None
        for sign, spec, row in reversed(self._ports):
            self._count_ports(spec, row, -sign)

    def take_off(self, slots: Slots) -> None:
        """Remove these pods from their rows; one row may have several."""
        self._count(slots, -1)

    def put_on(self, slots: Slots) -> None:
        """Add these pods to their rows again."""
        self._count(slots, 1)

    def _count(self, slots: Slots, sign: int) -> None:
        used, specs = self._nodes.used, self._running.specs
        row, number = self._running.table["row"][slots], self._running.table["spec"][slots]
        for column, amounts in zip(self._columns, sign * specs.amounts[number].T, strict=True):
            np.add.at(used[column], row, amounts)
        for selector, gone in self._apart.items():
            count = self._nodes.pod_counts.of(selector)
            counted = np.array([uid in count for uid in self._running.uids_of(slots)], dtype=np.bool_)
            np.add.at(gone, row[counted], -sign)
        if len(self._specs_with_ports):
            with_ports = np.isin(number, self._specs_with_ports)
            for pod_row, pod_number in zip(row[with_ports].tolist(), number[with_ports].tolist(), strict=True):
                spec = specs.spec(pod_number)
                self._count_ports(spec, pod_row, sign)
                self._ports.append((sign, spec, pod_row))

    def _count_ports(self, spec: PodSpec, row: int, sign: int) -> None:
        count = self._nodes.take if sign > 0 else self._nodes.free
        count(allocation_of(spec), row)
