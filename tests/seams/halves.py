"""A device with two halves, as a plugin: pods get one or both, chosen in trials, for claims and for Bindings."""

from collections import Counter

import numpy as np
from msgspec.structs import replace

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import PreFilterState
from aischeduler.model.allocation import Allocation
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.pool import PlacementStrategy
from aischeduler.state.allocation_parts import AllocationPart
from aischeduler.state.label_index import Mask
from aischeduler.state.node_table import NodeTable
from aischeduler.state.pod_records import AssignedPod
from aischeduler.state.running_pods import RunningPods, Slots

HALF = "example.com/half"
"""The resource by which pods ask for halves, and the label by which a bound pod says which it has."""


def chosen_of(allocation: Allocation) -> tuple[str, ...]:
    chosen = allocation.part(HALF)
    return chosen if isinstance(chosen, tuple) else ()


def part_of(nodes: NodeTable) -> "HalvesPart":
    part = nodes.parts[HALF]
    assert isinstance(part, HalvesPart)
    return part


class HalvesPart(AllocationPart):
    """The halves that pods on rows have: `on` has them by row, pod, and whether the pod claims them."""

    def __init__(self) -> None:
        self.on: dict[int, dict[tuple[str, bool], tuple[str, ...]]] = {}

    def free_on(self, row: int) -> list[str]:
        taken = {half for halves in self.on.get(row, {}).values() for half in halves}
        return [half for half in ("left", "right") if half not in taken]

    def take(self, one: AssignedPod, *, tentative: bool) -> None:
        self.on.setdefault(one.row, {})[one.pod.uid, one.claims] = chosen_of(one.allocation)

    def free(self, one: AssignedPod, *, tentative: bool) -> None:
        self.on[one.row].pop((one.pod.uid, one.claims))

    def clearing(self, asker: PodSpec, running: RunningPods) -> "_Cleared | None":
        return _Cleared(self, running) if HALF in asker.request.amounts else None


class _Cleared:
    def __init__(self, part: HalvesPart, running: RunningPods) -> None:
        self._part, self._running = part, running
        self._gone: dict[str, tuple[int, tuple[str, ...]]] = {}

    def count(self, slots: Slots, sign: int) -> None:
        for uid, row in zip(self._running.uids_of(slots), self._running.table["row"][slots].tolist(), strict=True):
            if sign > 0:
                self._put_back(uid)
            elif (uid, False) in self._part.on.get(row, {}):
                self._gone[uid] = row, self._part.on[row].pop((uid, False))

    def end(self) -> None:
        for uid in [*self._gone]:
            self._put_back(uid)

    def _put_back(self, uid: str) -> None:
        if uid in self._gone:
            row, halves = self._gone.pop(uid)
            self._part.on[row][uid, False] = halves


class Halves:
    """The filter and the allocator."""

    name, static, part, for_claims = "Halves", False, HALF, True

    def filter(self, spec: PodSpec, at: NodeView) -> Mask | None:
        asked = spec.request.amounts.get(HALF, 0)
        part = part_of(at.nodes)
        return np.array([len(part.free_on(row)) >= asked for row in at.rows.tolist()]) if asked else None

    def reasons(self, spec: PodSpec, at: NodeView) -> Counter[str]:
        return Counter({"node(s) had no free half": len(at)})

    def helps(self, spec: PodSpec, node: Node) -> bool:
        return True

    def make_part(self, nodes: NodeTable) -> HalvesPart:
        return HalvesPart()

    def allocates(self, spec: PodSpec, nodes: NodeTable) -> bool:
        return HALF in spec.request.amounts

    def choose(
        self, given: Allocation, spec: PodSpec, at: NodeView, state: PreFilterState | None, placement: PlacementStrategy
    ) -> Allocation:
        free = part_of(at.nodes).free_on(int(at.rows[0]))
        return replace(given, parts=((HALF, tuple(free[: spec.request.amounts[HALF]])),))

    def bound(self, given: Allocation, pod: Pod, nodes: NodeTable) -> Allocation:
        return replace(given, parts=((HALF, tuple(pod.labels.get(HALF, "").split("."))),))
