"""The units of several pods, by name.

Invariants:
- A pod is a member of its unit from its first event to its last.
- A unit is stale from any change of its pods that counts until `engine.units` has formed it again. Of its Bindings only
  the last one counts that the watch shows: until then its pods wait for nothing and none may leave.
"""

from msgspec.structs import replace

from aischeduler.model.pod import Pod
from aischeduler.state.pod_records import PodRecord, Unit
from aischeduler.state.timers import Timers


class Units:
    """All units that have a name."""

    def __init__(self) -> None:
        self.by_name: dict[str, Unit] = {}
        self.stale: dict[str, Unit] = {}
        """The units that are to be formed again, the first that changed first."""
        self.reranked: dict[str, Unit] = {}
        """The units whose priority changed and whose pods on nodes do not all count with it yet: none between steps."""
        self.again = Timers()
        """When units are formed again whose policy raised."""
        self.deadlines = Timers()
        """When units count as overdue that have not started."""
        self.unfinished = Timers()
        """When units are given up of which some pods are on nodes and too few for a start."""
        self._numbers = 0

    def join(self, record: PodRecord, name: str) -> None:
        """Make a pod a member of the unit of this name; no name means no unit."""
        if not name:
            return
        unit = self.by_name.get(name)
        if unit is None:
            self._numbers += 1
            pod = record.pod
            unit = self.by_name[name] = Unit(name, self._numbers, pod.priority, pod.created_seconds, record.arrival)
        unit.members[record.pod.uid] = record
        record.unit = unit
        self.stale[name] = unit

    def leave(self, record: PodRecord) -> None:
        """Remove a pod from its unit, if it has one."""
        unit, record.unit = record.unit, None
        if unit is None:
            return
        del unit.members[record.pod.uid]
        if unit.members:
            self.stale[unit.name] = unit
        else:
            self.stale.pop(unit.name, None)
            for timers in (self.again, self.deadlines, self.unfinished):
                timers.drop(unit.name)
            del self.by_name[unit.name]

    def touch(self, record: PodRecord) -> None:
        """Note that the place of a pod changed, so that its unit is formed again."""
        if record.unit is not None:
            self.stale[record.unit.name] = record.unit

    def renamed(self, record: PodRecord, before: Pod) -> None:
        """Note that a pod of a unit was `before`; what the scheduler itself writes of it does not count."""
        pod = record.pod
        if pod != replace(
            before, node_name=pod.node_name, nominated_node=pod.nominated_node, said_to_wait=pod.said_to_wait
        ):
            self.touch(record)

    def shown(self, unit: Unit) -> None:
        """Note that the watch shows a pod of this unit on its node."""
        if not unit.started and not unit.binds:
            self.stale[unit.name] = unit
