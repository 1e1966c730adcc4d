"""The host ports that pods on rows have: a part of their allocations.

Invariant: `rows` has exactly the rows where a protocol and port are in use, on any address.
"""

from collections import Counter

import numpy as np

from aischeduler.model.pod import HostPort, PodSpec
from aischeduler.state.allocation_parts import AllocationPart
from aischeduler.state.label_index import RowIndex
from aischeduler.state.pod_records import AssignedPod
from aischeduler.state.running_pods import RunningPods, Slots


class HostPorts(AllocationPart):
    """The host ports in use: `on` has them by row, each with its number of pods."""

    def __init__(self, width: int) -> None:
        self.on: dict[int, Counter[HostPort]] = {}
        self.rows: RowIndex[tuple[str, int]] = RowIndex(width)

    def take(self, assigned: AssignedPod, *, tentative: bool = False) -> None:  # noqa: ARG002 - trials differ in nothing
        """Take the host ports of a pod from its row."""
        for port in assigned.allocation.host_ports:
            self.add(port, assigned.row)

    def free(self, assigned: AssignedPod, *, tentative: bool = False) -> None:  # noqa: ARG002
        """Undo `take`."""
        for port in assigned.allocation.host_ports:
            self.remove(port, assigned.row)

    def add(self, port: HostPort, row: int) -> None:
        """Count one more pod with this port on a row."""
        self.on.setdefault(row, Counter())[port] += 1
        self.rows.put((port.protocol, port.port), row)

    def remove(self, port: HostPort, row: int) -> None:
        """Count one pod less with this port on a row."""
        counts = self.on[row]
        counts[port] -= 1
        if not counts[port]:
            del counts[port]
        if not any((p.protocol, p.port) == (port.protocol, port.port) for p in counts):
            self.rows.drop((port.protocol, port.port), row)
        if not counts:
            del self.on[row]

    def clearing(self, asker: PodSpec, running: RunningPods) -> "_ClearedPorts | None":
        """Begin a search for victims for a pod that asks for host ports."""
        return _ClearedPorts(self, asker, running) if asker.host_ports else None


class _ClearedPorts:
    """The ports that the asker does not ask for stay as they are."""

    def __init__(self, ports: HostPorts, asker: PodSpec, running: RunningPods) -> None:
        self._ports, self._running = ports, running
        self._specs = running.specs.holding(asker.host_ports)
        self._done: list[tuple[int, HostPort, int]] = []
        """What was done: 1 or -1, the port and its row."""

    def count(self, slots: Slots, sign: int) -> None:
        pods = self._running.pods_in(slots)
        pods = pods.compress(np.isin(pods["spec"], self._specs))
        for row, number in zip(pods["row"].tolist(), pods["spec"].tolist(), strict=True):
            for port in self._running.specs.spec(number).host_ports:
                self._change(sign, port, row)
                self._done.append((sign, port, row))

    def end(self) -> None:
        for sign, port, row in reversed(self._done):
            self._change(-sign, port, row)

    def _change(self, sign: int, port: HostPort, row: int) -> None:
        change = self._ports.add if sign > 0 else self._ports.remove
        change(port, row)
