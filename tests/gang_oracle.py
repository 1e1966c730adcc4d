"""A test oracle of gangs: whether a gang is whole, and with which priority its pods count.

It sees the events of the scheduler, and none of its tables.
"""

from collections.abc import Callable, Mapping

from aischeduler.model.events import Event, Gone, Seen
from aischeduler.model.gang import Gang, GangKey, GangSource
from aischeduler.model.pod import Pod


class GangOracle:
    """Follows the gangs of one scheduler. `on_node` tells whether a pod is on a node, or sent to one."""

    def __init__(self, pods: Mapping[str, Pod], on_node: Callable[[Pod], bool], unit_of: Callable[[Pod], str]) -> None:
        self._pods, self._on_node, self._unit_of = pods, on_node, unit_of
        self._gangs: dict[GangKey, Gang] = {}
        self._whole: set[str] = set()
        """The units that were whole, and of which a pod is still on a node."""

    def observe(self, event: Event) -> None:
        """Take note of what the scheduler is told, after its pods are noted."""
        match event:
            case Seen(Gang() as gang):
                self._gangs[gang.key] = gang
            case Gone("Gang", (source, namespace, name)):
                self._gangs.pop(GangKey(GangSource(source), namespace, name), None)
        for name in {self._unit_of(pod) for pod in self._pods.values() if pod.gang is not None}:
            shown = [pod for pod in self._pods.values() if pod.node_name and self._unit_of(pod) == name]
            if shown and 0 < self._least(name) <= len(shown):
                self._whole.add(name)
            elif not shown:
                self._whole.discard(name)

    def why_whole(self, pod: Pod) -> str:
        """Return why the gang of the pod must not be given up; empty where it may."""
        name = self._unit_of(pod)
        on_nodes = sum(self._on_node(one) for one in self._members(name))
        if pod.gang is None or name in self._whole:
            return "its gang has started"
        return "enough of its gang is on nodes" if on_nodes >= self._least(name) else ""

    def priority(self, pod: Pod) -> int:
        """Return the highest priority of its gang, or its own."""
        name = self._unit_of(pod)
        return max((one.priority for one in self._members(name)), default=pod.priority) if name else pod.priority

    def _members(self, name: str) -> list[Pod]:
        return [one for one in self._pods.values() if self._unit_of(one) == name]

    def _least(self, name: str) -> int:
        claims = [pod.gang for pod in self._members(name) if pod.gang is not None]
        said = [claim.said.min_member for claim in claims if claim.said is not None]
        known = [self._gangs[claim.key].min_member for claim in claims if claim.key in self._gangs]
        return max((*said, *known), default=0)
