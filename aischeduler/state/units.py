"""The units of several pods, by name.

Invariants:
- A pod is a member of its unit from its first event to its last.
- A unit is stale from any change of its pods that counts until `engine.units` has formed it again. Of its Bindings only
  the last one counts that the watch shows: until then its pods wait for nothing and none may leave.
- A large unit rests after it was formed, in proportion to its pods; it is formed at once when it can be complete, and
  when it is tried.
- A gang that its pods declare by labels is not here: each of them says all of it.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from aischeduler.model.gang import Gang, GangKey, GangStatus, Lack
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.state.pod_records import PodRecord, PodState, Unit
from aischeduler.state.timers import Timers


class GangTable:
    """The gangs of objects: PodGroups, Jobs and JobSets."""

    def __init__(self) -> None:
        self.by_key: dict[GangKey, Gang] = {}
        self.reported: dict[GangKey, tuple[Gang, GangStatus]] = {}
        """The last reported status of each, and the gang that it was about."""
        self._strangers: dict[GangKey, dict[str, str]] = {}
        """The pods that name a gang and another scheduler: uid -> that scheduler."""
        self._named: dict[str, GangKey] = {}
        """The gang that each of these pods names, by uid."""

    def see(self, gang: Gang) -> bool:
        """Store a gang as its object says it now; return whether that differs from before."""
        differs = self.by_key.get(gang.key) != gang
        self.by_key[gang.key] = gang
        return differs

    def forget(self, key: GangKey) -> bool:
        """Remove the gang of a deleted object; return whether it was known."""
        self.reported.pop(key, None)
        return self.by_key.pop(key, None) is not None

    def note_stranger(self, pod: Pod) -> None:
        """Note a pod of another scheduler that names a gang. It does not count: it starts without the others."""
        if pod.gang is not None and self._named.get(pod.uid) != pod.gang.key:
            self.drop_stranger(pod.uid)
            self._named[pod.uid] = pod.gang.key
            self._strangers.setdefault(pod.gang.key, {})[pod.uid] = pod.scheduler_name

    def drop_stranger(self, uid: str) -> GangKey | None:
        """Forget such a pod; return the gang that it named."""
        key = self._named.pop(uid, None)
        if key is not None:
            del self._strangers[key][uid]
            if not self._strangers[key]:
                del self._strangers[key]
        return key

    def strangers(self, key: GangKey) -> str:
        """Return a sentence about the pods of other schedulers that name the gang; empty where there is none."""
        found = self._strangers.get(key, {})
        names = ", ".join(sorted({*found.values()}))
        return f"{len(found)} pod(s) of another scheduler do not count: {names}." if found else ""

    def of(self, pod: Pod) -> Gang | None:
        """Return the gang of a pod; None where it names none, or none that is known."""
        claim = pod.gang
        return None if claim is None else claim.said or self.by_key.get(claim.key)


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


CLASSES_MAX: Final = 4
"""The most classes of a unit of which each is counted for itself too."""

Classes = tuple[bytes, ...]
"""The keys of the classes of some pods, sorted."""


class ShapePart(Struct, frozen=True, eq=False):
    """Pods of these classes, as many as must fit together; a spec of each class."""

    classes: Classes
    specs: tuple[PodSpec, ...]
    count: int


class Shape(Struct, frozen=True, eq=False):
    """The pods that start together, and where there are several classes but few, those of each class too.

    They start on nodes that share the values of these `labels`, and may span pools or not. Shapes with equal keys are
    equal.
    """

    key: Hashable
    parts: tuple[ShapePart, ...]
    labels: tuple[str, ...] = ()
    spans: bool = False


def shape_of(specs: Sequence[PodSpec], labels: tuple[str, ...] = (), *, spans: bool = False) -> Shape:
    """Return the shape of pods with these specs that start together, on nodes that share the values of these labels."""
    counts = Counter(spec.key for spec in specs)
    by_key = {spec.key: spec for spec in specs}
    classes = tuple(sorted(counts))
    parts = [ShapePart(classes, tuple(by_key[key] for key in classes), len(specs))]
    if 1 < len(classes) <= CLASSES_MAX:
        parts += [ShapePart((key,), (by_key[key],), counts[key]) for key in classes]
    key = tuple((part.classes, part.count) for part in parts), labels, spans
    return Shape(key, tuple(parts), labels, spans)


def shape_of_unit(unit: Unit) -> Shape:
    """Return the shape of a unit that waits."""
    levels = unit.gang.topology if unit.gang is not None else ()
    labels = tuple(level.label for level in levels if level.required)
    return shape_of([record.pod.spec for record in unit.together], labels, spans=unit.spans)
