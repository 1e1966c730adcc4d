"""The units of several pods, by name.

Invariants:
- A pod is a member of its unit from its first event to its last.
- A unit is stale from any change of its pods that counts until `engine.units` has formed it again. Of its Bindings only
  the last one counts that the watch shows: until then its pods wait for nothing and none may leave.
- A large unit rests after it was formed, in proportion to its pods; it is formed at once when it can be complete, and
  when it is tried.
"""

from typing import Final

from msgspec.structs import replace

from aischeduler.model.gang import Lack
from aischeduler.model.pod import Pod
from aischeduler.state.gangs import GangTable
from aischeduler.state.pod_records import PodRecord, PodState, Unit
from aischeduler.state.timers import Timers

REST_AFTER: Final = 32
"""A unit of more pods than this rests after it was formed."""
REST_SECONDS: Final = 0.001
"""For each of its pods a large unit rests so long: however often its pods change, forming it costs little."""


class Units:
    """All units that have a name."""

    def __init__(self) -> None:
        self.by_name: dict[str, Unit] = {}
        self.gangs = GangTable()
        """The gangs that their objects declare."""
        self.stale: dict[str, Unit] = {}
        """The units that are to be formed again, the first that changed first."""
        self.resting: dict[str, Unit] = {}
        """The units that are to be formed again once they have rested: `again` has the times."""
        self.again = Timers()
        """When units are formed again that rest, or whose policy raised."""
        self.deadlines = Timers()
        """When units count as overdue that have not started."""
        self.unfinished = Timers()
        """When units are given up of which some pods are on nodes and too few for a start."""
        self._numbers = 0

    def go_on_from(self, before: "Units") -> None:
        """Take over what pods do not say: the gangs of objects, and when units are late or given up."""
        self.gangs, self.deadlines, self.unfinished = before.gangs, before.deadlines, before.unfinished

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
        unit.assumed += record.state is PodState.ASSUMED
        unit.unsure = True
        record.unit = unit
        self.changed(unit)

    def leave(self, record: PodRecord) -> None:
        """Remove a pod from its unit, if it has one."""
        unit, record.unit = record.unit, None
        if unit is None:
            return
        del unit.members[record.pod.uid]
        unit.assumed -= record.state is PodState.ASSUMED
        if unit.members:
            self.changed(unit)
        else:
            self.stale.pop(unit.name, None)
            self.resting.pop(unit.name, None)
            for timers in (self.again, self.deadlines, self.unfinished):
                timers.drop(unit.name)
            del self.by_name[unit.name]

    def touch(self, record: PodRecord) -> None:
        """Note that the place of a pod changed, so that its unit is formed again."""
        if record.unit is not None:
            self.changed(record.unit)

    def changed(self, unit: Unit, *, at_once: bool = False) -> None:
        """Have a unit formed again, after its rest or `at_once`."""
        if at_once:
            unit.rests_until = 0.0
            self.resting.pop(unit.name, None)
        if unit.name not in self.resting:
            self.stale[unit.name] = unit

    def outdated(self, unit: Unit) -> bool:
        """Return whether the unit is to be formed again."""
        return unit.name in self.stale or unit.name in self.resting

    def rest(self, unit: Unit) -> None:
        """Let a stale unit rest before it is formed again."""
        del self.stale[unit.name]
        self.resting[unit.name] = unit
        self.again.set(unit.name, unit.rests_until)

    def rested(self, now: float) -> None:
        """Have the units formed again whose time has come."""
        for name in self.again.pop_due(now):
            self.stale.setdefault(name, self.by_name[name])
            self.resting.pop(name, None)

    def formed(self, unit: Unit, lacks: tuple[Lack, ...], now: float) -> None:
        """Note that a unit was formed, and which pods it lacks."""
        self.stale.pop(unit.name, None)
        self.resting.pop(unit.name, None)
        self.again.drop(unit.name)
        unit.lacking = {lack.role: lack.at_least - lack.exist for lack in lacks}
        unit.rests_until = now + REST_SECONDS * len(unit.members) if len(unit.members) > REST_AFTER else now

    def waits(self, record: PodRecord, sign: int) -> None:
        """Count a pod that begins to wait for its unit, or waits no longer; complete units are formed at once."""
        unit, pod = record.unit, record.pod
        if unit is None or not unit.lacking:
            return
        for role in {"", pod.gang.role if pod.gang is not None else ""} & unit.lacking.keys():
            unit.lacking[role] -= sign
        if sign > 0 and max(unit.lacking.values()) <= 0:
            self.changed(unit, at_once=True)

    def renamed(self, record: PodRecord, before: Pod) -> None:
        """Note that a pod of a unit was `before`; what the scheduler itself writes of it does not count."""
        pod = record.pod
        if pod != replace(
            before, node_name=pod.node_name, nominated_node=pod.nominated_node, said_to_wait=pod.said_to_wait
        ):
            self.touch(record)
        if record.unit is not None and pod.gang != before.gang:
            record.unit.unsure = True

    def shown(self, unit: Unit) -> None:
        """Note that the watch shows a pod of this unit on its node."""
        unit.unsure = True
        if not unit.started and not unit.binds:
            self.changed(unit)
