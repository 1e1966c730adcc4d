"""The scheduling queue of one pool: active pods, pods in backoff, and pods that wait for an event.

Invariants:
- The order: home pods before borrowers, then priority, creation time, arrival, uid. It does not change while a pod
  waits.
- Parked pods are kept by class: an event that can help a pod can help all pods of its class, and is checked once.
- One pod of a class is woken at a time. A pod that gets room, or leaves, wakes the next pod of its class; a pod that is
  parked again does not. So an event costs one attempt more than it helps pods.
- A unit of several pods is in the queue by its lead; its other pods are only counted.
- A nominated pod is outside this chain: it waits for the room that it claims, and is woken by uid.
- While no pod is active, a pod in backoff after a refusal is tried early; a pod in backoff after an error waits until
  its backoff ends. Source: kube-scheduler since 1.33 (KEP-5142).
- The five-minute flush brings back a pod that waited for an event for five minutes. It shows lost wake-ups.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from heapq import merge
from itertools import chain, islice
from operator import attrgetter
from typing import Final

import numpy as np
from msgspec import Struct, field
from sortedcontainers import SortedKeyList

from aischeduler.model.pod import PodSpec
from aischeduler.model.unsupported_constraints import ConstraintKind
from aischeduler.state.demand_table import DemandTable
from aischeduler.state.groups import Groups
from aischeduler.state.label_index import Mask
from aischeduler.state.node_table import NodeTable
from aischeduler.state.pod_records import USABLE, PodRecord, PodState, Unit
from aischeduler.state.requests import Amounts
from aischeduler.state.transitions import Transition, change_state
from aischeduler.state.units import Shape, shape_of_unit

DOUBLINGS_MAX: Final = 10
"""The most doublings of a backoff: the longest is reached by then."""

PRIORITY_BITS: Final = 32
OrderKey = tuple[bool, int, int, int, str]
"""The queue order, smallest first: borrower, rank, creation in unix seconds, arrival number, uid.

The rank is the negated priority, below that of the tenant queue, unless a plugin sorts the queues.
"""


class Backoff(Struct, frozen=True):
    """The backoff of a pod after a failed attempt: it doubles with each attempt, up to the longest.

    Source: `podInitialBackoffSeconds` and `podMaxBackoffSeconds` of kube-scheduler, and its defaults.
    """

    first_seconds: float = 1.0
    longest_seconds: float = 10.0

    def seconds(self, attempts: int) -> float:
        """Return the backoff after `attempts` + 1 failed attempts."""
        return min(self.first_seconds * (1 << min(attempts, DOUBLINGS_MAX)), self.longest_seconds)


def queue_order(record: PodRecord) -> OrderKey:
    """Return the position of a pod, or of the unit that it leads, in the queue order."""
    pod, unit = record.pod, record.unit
    if unit is not None and unit.lead is record:
        rank = -unit.priority - (record.queue_priority << PRIORITY_BITS) if record.rank is None else record.rank
        return (record.borrower, rank, unit.created_seconds, unit.arrival, pod.uid)
    rank = -pod.priority - (record.queue_priority << PRIORITY_BITS) if record.rank is None else record.rank
    return (record.borrower, rank, pod.created_seconds, record.arrival, pod.uid)


def _end_of_backoff(record: PodRecord) -> tuple[float, OrderKey]:
    return record.backoff_until, queue_order(record)


class QueuedClass(Struct, eq=False):
    """The pods of one class in one queue.

    `pending` is the number of pods without gated ones, `usable` that of the home pods among them that can take room.
    `unit` is the unit of several pods that the class stands for, `spec` that of its lead.
    """

    spec: PodSpec
    slot: int
    parked: "SortedKeyList[PodRecord, OrderKey]"
    nominated: dict[str, PodRecord] = field(default_factory=dict)
    """The nominated pods by uid."""
    pending: int = 0
    usable: int = 0
    short: int = 0
    """The parked pods to which a quota closes nodes that they fit. What holds one holds all that are parked."""
    turn: OrderKey = (False, 0, 0, 0, "")
    """The queue order of `head`, while pods are parked."""
    unit: Unit | None = None
    shape: Shape | None = None
    """The shape of the unit."""

    @property
    def specs(self) -> tuple[bytes, ...]:
        """The keys of the specs of its pods."""
        return (self.spec.key,) if self.shape is None else self.shape.parts[0].classes

    @property
    def moves(self) -> bool:
        """Whether a home pod of the class is active or in backoff."""
        return self.usable > len(self.parked) + len(self.nominated)

    @property
    def takes_room(self) -> bool:
        """Whether one of its pods may take room that it fits."""
        return self.usable > (len(self.parked) if self.short else 0)

    @property
    def head(self) -> PodRecord:
        """The first parked pod; there must be one."""
        return self.parked[0]


def class_key(record: PodRecord) -> bytes:
    """Return the key of a pod's class in a queue.

    Pods that may not preempt form a class of their own. Where a plugin sorts the queue, so do pods of each priority:
    else the first of a class, which is tried for all, would not be the one that may evict most.
    """
    unit, pod = record.unit, record.pod
    if unit is not None and unit.lead is record:
        return unit_key(unit)
    key = pod.spec.key if pod.preempts else without_preemption(pod.spec.key)
    tenancy = record.tenancy
    if tenancy.queue:  # its quota, its service and the word of its workload decide beside its spec
        service = (tenancy.service or "") if tenancy.known else "unseen"
        key += b" in %s as %s" % (tenancy.queue.encode(), service.encode())
    return key if record.rank is None else key + b" %d" % pod.priority


_priority: Final = attrgetter("priority")


def _reach(unit: Unit) -> int:
    return unit.lead.reach if unit.lead is not None else unit.priority


def unit_key(unit: Unit) -> bytes:
    """Return the key of the class that stands for a unit of several pods."""
    return b"unit " + unit.name.encode()


def without_preemption(key: bytes) -> bytes:
    """Return the key of the class of pods with this spec that may not preempt."""
    return key + b"-"


NET_SECONDS: Final = 300.0

Holds = Callable[[Shape, int], bool]
"""Returns whether something may hold a unit of this shape and of at most this priority."""

_turn: Final = attrgetter("turn")


class QueueChanges(Struct):
    """What all queues share: the `pools` whose queue changed since the last read, and borrowers by home.

    `version` grows with every change of a queue, `versions` with those of one queue.
    """

    pools: set[str] = field(default_factory=set)
    version: int = 0
    versions: Counter[str] = field(default_factory=Counter)
    abroad: Groups[str, str, PodRecord] = field(default_factory=Groups)
    """Home pool -> its pods, by uid, that wait in the queues of other pools."""


class PoolQueue:
    """The waiting pods of one pool; `shared` notes every change."""

    def __init__(self, pool: str, nodes: NodeTable, shared: QueueChanges, backoff: Backoff) -> None:
        self.pool = pool
        self._terms = backoff
        self._shared = shared
        self.home_active = 0
        """The number of active home pods."""
        self.borrowers_ask: Counter[str] = Counter()
        """The requests of the borrowers in this queue, by resource."""
        self._records: dict[str, PodRecord] = {}
        self._active: SortedKeyList[PodRecord, OrderKey] = SortedKeyList(key=queue_order)
        self._backoff: SortedKeyList[PodRecord, tuple[float, OrderKey]] = SortedKeyList(key=_end_of_backoff)
        self._early: SortedKeyList[PodRecord, OrderKey] = SortedKeyList(key=queue_order)
        self._classes: dict[bytes, QueuedClass] = {}
        self._by_spec: Groups[bytes, bytes, None] = Groups()
        """Key of a spec -> the classes, by their keys, that have pods with it."""
        self._shapes: Groups[Hashable, int, QueuedClass] = Groups()
        """The classes, by their slots, that stand for units of one shape."""
        self._slots: dict[int, QueuedClass] = {}
        self.of_tenants = 0
        """The number of pods of tenant queues."""
        self._heads: SortedKeyList[QueuedClass, OrderKey] = SortedKeyList(key=_turn)
        self._usable = 0
        self._demand = DemandTable(nodes)
        self._gathering: dict[bytes, tuple[PodSpec, int]] = {}
        """Class -> its spec, and the number of its pods that wait until their unit is complete."""
        self._since: OrderedDict[str, float] = OrderedDict()
        self._counts: Counter[PodState] = Counter()
        self._named: dict[PodState, dict[str, PodRecord]] = {PodState.NOMINATED: {}, PodState.HELD: {}}

    def __len__(self) -> int:
        return len(self._records)

    @property
    def version(self) -> int:
        """Grows with every change of a pod in this queue, or of the pool's own pods in other queues."""
        return self._shared.versions[self.pool]

    def records(self) -> tuple[PodRecord, ...]:
        """Return every record in the queue, in the order in which they came."""
        return tuple(self._records.values())

    def counts(self) -> dict[PodState, int]:
        """Return the number of pods in each state."""
        return {state: self._counts[state] for state in PodState}

    def held(self) -> Counter[ConstraintKind]:
        """Return the number of pods that each kind of constraint holds."""
        kinds = (record.constraint for record in self._named[PodState.HELD].values())
        return Counter(kind for kind in kinds if kind is not None)

    def pending(self) -> tuple[tuple[PodSpec, int], ...]:
        """Return the numbers of pods of one class each, without pods with scheduling gates."""
        tried = tuple((alike.spec, alike.pending) for alike in self._classes.values() if alike.pending)
        return (*tried, *self._gathering.values())

    def add(self, record: PodRecord, now: float) -> None:
        """Add a pod: it is in backoff until its backoff ends, else active."""
        if record.backoff_until > now:
            self._enter(record, Transition.FAILED if record.failed else Transition.BACKS_OFF)
            self._backoff.add(record)
            if not record.failed:
                self._early.add(record)
        else:
            self._enter(record, Transition.READY)
            self._active.add(record)

    def gate(self, record: PodRecord) -> None:
        """Add a gated pod: only a change of the pod, or of its unit, moves it."""
        self._enter(record, Transition.GATED)

    def group(self, record: PodRecord) -> None:
        """Add a pod that waits in the place of the lead of its unit."""
        self._enter(record, Transition.GROUPED)

    def pop(self) -> PodRecord | None:
        """Remove and return the first pod that is ready; None where there is none. `flush` ends backoffs."""
        if self._active:
            record = self._active.pop(0)
            del self._records[record.pod.uid]
            self._leave(record)
            return record
        if not self._early:
            return None
        record = self._early[0]
        self.remove(record)
        return record

    def park(self, record: PodRecord, now: float) -> None:
        """Park a pod that no node fits: it waits for an event that can help it."""
        self._wait(record, Transition.NO_ROOM, now)
        record.back_off(now, self._terms.seconds(record.attempts))
        self._put_parked(record)

    def park_unrefused(self, record: PodRecord, now: float) -> None:
        """Park a pod whose attempt waits for data: none failed, so it has no backoff and may take free room at once."""
        self._wait(record, Transition.NO_ROOM, now)
        record.backoff_until = now
        self._put_parked(record)

    def nominate(self, record: PodRecord, now: float) -> None:
        """Add a nominated pod: it waits for the room that it claims."""
        self._wait(record, Transition.MADE_ROOM, now)

    def hold(self, record: PodRecord, now: float) -> None:
        """Hold a pod: it waits for a change of the pod, or of what holds it."""
        self._wait(record, Transition.REFUSED, now)
        record.back_off(now, self._terms.seconds(record.attempts))

    def retry(self, record: PodRecord, now: float, seconds: float = 0.0) -> None:
        """Add a pod after an error: it waits until its backoff ends, and at least these seconds."""
        record.failed = True
        record.back_off(now, self._terms.seconds(record.attempts))
        record.backoff_until = max(record.backoff_until, now + seconds)
        self.add(record, now)

    def holds(self, record: PodRecord) -> bool:
        """Return whether the pod is in this queue."""
        return self._records.get(record.pod.uid) is record

    def reclass(self, record: PodRecord, change: Callable[[], None]) -> None:
        """Put a pod into another class, whose key `change` gives it; it waits as before."""
        parked = record.state is PodState.PARKED
        if parked:
            self._unpark(record)
        self._count(record, -1)
        try:
            change()
        finally:  # it waits, whatever its key is now
            self._count(record, 1)
            if parked:
                self._put_parked(record)

    def remove(self, record: PodRecord) -> None:
        """Remove a pod, whatever its state."""
        del self._records[record.pod.uid]
        if record.state is PodState.ACTIVE:
            self._active.remove(record)
        elif record.state is PodState.BACKOFF:
            self._backoff.remove(record)
            if not record.failed:
                self._early.remove(record)
        elif record.state is PodState.PARKED:
            self._unpark(record)
        self._since.pop(record.pod.uid, None)
        self._leave(record)

    @property
    def has_parked(self) -> bool:
        """Whether a pod is parked."""
        return bool(self._heads)

    @property
    def highest_parked(self) -> int:
        """The highest priority of the parked pods that come first in their classes; there must be one."""
        first, last = self._heads[0].head, self._heads[-1].head
        if first.rank is None and last.rank is None and not self.of_tenants:
            return first.priority
        return max(alike.head.reach for alike in self._heads)  # a plugin, or tenant queues, sort the queue

    def parked(self, after: OrderKey | None = None) -> tuple[QueuedClass, ...]:
        """Return the classes with parked pods in queue order; with `after`, only those later in the order."""
        return tuple(self._heads.irange_key(after, inclusive=(False, True)))

    def parked_first(self, most: int) -> list[PodRecord]:
        """Return the first parked pods in queue order, at most `most`."""
        classes = self._heads[:most]  # every head of another class comes after all of these heads
        return list(islice(merge(*(alike.parked for alike in classes), key=queue_order), most))

    def parked_within(
        self, room: Amounts, after: OrderKey | None = None, holds: Holds | None = None
    ) -> Iterator[QueuedClass]:
        """Yield the classes with parked pods whose request fits into `room`, in queue order.

        With `after`, only those later in the order; with `holds`, only the units that something may hold as a whole.
        The queue must not change during the iteration.
        """
        if self._heads:
            fitting = self._fitting(room, holds)
            later = self._heads.irange_key(after, inclusive=(False, True))
            yield from (alike for alike in later if fitting[alike.slot])

    def request(self, alike: QueuedClass) -> Amounts:
        """Return the request of a pod of this class, by column of the node table.

        Of a unit it is the smallest of each column: what one of its pods needs at least.
        """
        return self._demand.request(alike.slot)

    @property
    def has_usable(self) -> bool:
        """Whether a home pod that can take room waits in this queue or another."""
        return self._usable > 0 or self.pool in self._shared.abroad

    def usable_within(self, room: Amounts, holds: Holds | None = None) -> tuple[tuple[PodSpec, ...], tuple[Unit, ...]]:
        """Return the home pods in this queue that can take room and whose request fits into `room`.

        They are specs, each class once, and units of several pods, one of whose pods may fit. In a pool that may evict,
        with `holds`, only units that something may hold as a whole, and no parked pod that quotas keep from nodes: it
        fits on no others. The home pods in other queues are added, whatever they request.
        """
        here = (self._slots[slot] for slot in np.flatnonzero(self._fitting(room, holds)).tolist())
        some = (alike for alike in here if (alike.takes_room if holds is not None else alike.usable))
        found: list[tuple[PodSpec, Unit | None]] = [(alike.spec, alike.unit) for alike in some]
        found += ((record.pod.spec, record.leads) for record in self._away())
        specs = {spec.key: spec for spec, unit in found if unit is None}
        return tuple(specs.values()), tuple(unit for _, unit in found if unit is not None)

    def _fitting(self, room: Amounts, holds: Holds | None) -> Mask:
        """Return a mask of the slots whose request fits into `room`; units of one shape request the same."""
        fitting = self._demand.fitting(room)
        for alike in self._shapes.values() if holds is not None else ():
            slots = list(alike)
            if fitting[slots[0]] and holds is not None:
                first = alike[slots[0]]
                assert first.shape is not None, "the class stands for a unit"
                units = (other.unit for other in alike.values() if other.unit is not None)
                fitting[slots] = holds(first.shape, max(map(_reach if self.of_tenants else _priority, units)))
        return fitting

    def _away(self) -> Iterable[PodRecord]:
        """Return the home pods in other queues."""
        return self._shared.abroad.get(self.pool, {}).values()

    def in_state(self, state: PodState) -> tuple[PodRecord, ...]:
        """Return the pods in this state, in queue order."""
        if not self._counts[state]:
            return ()
        found = self._named.get(state, self._records)
        return tuple(sorted((record for record in found.values() if record.state is state), key=queue_order))

    def nominated_within(self, room: Amounts) -> tuple[PodRecord, ...]:
        """Return the nominated pods whose request fits into `room`, in queue order."""
        if not self._counts[PodState.NOMINATED]:
            return ()
        fitting = (self._slots[slot].nominated.values() for slot in np.flatnonzero(self._demand.fitting(room)).tolist())
        return tuple(sorted(chain.from_iterable(fitting), key=queue_order))

    def queued_class(self, key: bytes) -> QueuedClass | None:
        """Return the class of this key; None where no pod of it waits."""
        return self._classes.get(key)

    def classes_of(self, spec: bytes) -> tuple[bytes, ...]:
        """Return the keys of the classes that have pods with the spec of this key."""
        return tuple(self._by_spec.get(spec, ()))

    def wake_next(self, record: PodRecord, now: float, *, at_once: bool = False) -> None:
        """Wake the first parked pod of this pod's class, if there is one; `at_once` skips its backoff."""
        alike = self._classes.get(class_key(record))
        if alike is not None and alike.parked:
            wake = self.wake_at_once if at_once else self._wake
            wake(alike.head, now)

    def wake_at_once(self, record: PodRecord, now: float) -> None:
        """Wake this pod, whatever its state, without backoff."""
        record.backoff_until = now
        self._wake(record, now)

    def flush(self, now: float) -> list[PodRecord]:
        """Wake the pods whose backoff ended, and the pods that waited for five minutes.

        Return the latter, without held pods, which wait for a change of their own, and without pods of a class of which
        another pod is about to be tried, because that pod wakes them.
        """
        caught: list[PodRecord] = []
        keys_away: set[bytes] | None = None
        while self._backoff and self._backoff[0].backoff_until <= now:
            self._wake(self._backoff[0], now)
        while self._since:
            uid, since = next(iter(self._since.items()))
            if since + NET_SECONDS > now:
                break
            record = self._records[uid]
            if keys_away is None:
                keys_away = {class_key(away) for away in self._away()}
            key = class_key(record)  # a pod of this class may be about to be tried here, or wait in another queue
            if record.state is not PodState.HELD and key not in keys_away and not self._classes[key].moves:
                caught.append(record)
            self._wake(record, now)
        return caught

    @property
    def lively(self) -> bool:
        """Whether `pop` returns a pod now."""
        return bool(self._active or self._early)

    def next_wakeup(self) -> float | None:
        """Return when `flush` has something to do; None where no pod waits for time."""
        times = [self._backoff[0].backoff_until] if self._backoff else []
        if self._since:
            times.append(next(iter(self._since.values())) + NET_SECONDS)
        return min(times, default=None)

    def _wake(self, record: PodRecord, now: float) -> None:
        self.remove(record)
        self.add(record, now)

    def _wait(self, record: PodRecord, change: Transition, now: float) -> None:
        record.failed = False
        record.caught = None
        self._enter(record, change)
        self._since[record.pod.uid] = now

    def _enter(self, record: PodRecord, change: Transition) -> None:
        change_state(record, change)
        self._records[record.pod.uid] = record
        record.queue = self.pool
        self._count(record, 1)
        self.of_tenants += bool(record.tenancy.queue)

    def _leave(self, record: PodRecord) -> None:
        self._count(record, -1)
        self.of_tenants -= bool(record.tenancy.queue)
        record.queue = ""

    def _put_parked(self, record: PodRecord) -> None:
        alike = self._classes[class_key(record)]
        alike.parked.add(record)
        if alike.head is record:
            self._take_turn(alike)

    def _unpark(self, record: PodRecord) -> None:
        alike = self._classes[class_key(record)]
        first = alike.head is record
        alike.parked.remove(record)
        if first:
            self._take_turn(alike)

    def _take_turn(self, alike: QueuedClass) -> None:
        """Put a class where its first parked pod is in the order; nowhere without parked pods."""
        self._heads.discard(alike)
        if alike.parked:
            alike.turn = queue_order(alike.head)
            self._heads.add(alike)

    def _count(self, record: PodRecord, sign: int) -> None:
        shared, state = self._shared, record.state
        shared.version += 1
        shared.versions[self.pool] += 1
        shared.pools.add(self.pool)
        self._counts[state] += sign
        if state in self._named:
            self._name(self._named[state], record, sign)
        if state is PodState.GATED:
            self._count_gathering(record, sign)
            return
        home = record.home == self.pool
        if not home:
            self._count_borrower(record, sign)
        if state is PodState.ACTIVE and home:
            self.home_active += sign
        key = class_key(record)
        alike = self._classes.get(key) or self._new_class(key, record)
        alike.pending += sign
        if state is PodState.NOMINATED:
            self._name(alike.nominated, record, sign)
        if home and state in USABLE and not record.broken:
            alike.usable += sign
            self._usable += sign
            if state is PodState.PARKED and record.short:
                alike.short += sign
        if not alike.pending:
            self._drop_class(key, alike)

    def _drop_class(self, key: bytes, alike: QueuedClass) -> None:
        self._demand.drop(alike.slot)
        for spec in alike.specs:
            self._by_spec.drop(spec, key)
        if alike.shape is not None:
            self._shapes.drop(alike.shape.key, alike.slot)
        del self._slots[alike.slot], self._classes[key]

    def _count_borrower(self, record: PodRecord, sign: int) -> None:
        shared, asked = self._shared, self.borrowers_ask
        for member in record.together:
            for resource, amount in member.pod.spec.request.amounts.items():
                asked[resource] += sign * amount
                if not asked[resource]:
                    del asked[resource]
        shared.versions[record.home] += 1
        if sign > 0:
            shared.abroad.put(record.home, record.pod.uid, record)
        else:
            shared.abroad.drop(record.home, record.pod.uid)

    def _count_gathering(self, record: PodRecord, sign: int) -> None:
        """Count a gated pod if it has no scheduling gates, and so waits for the other pods of its unit."""
        spec = record.pod.spec
        if record.unit is None or record.pod.gates:
            return
        _, count = self._gathering.get(spec.key, (spec, 0))
        if count + sign:
            self._gathering[spec.key] = (spec, count + sign)
        else:
            del self._gathering[spec.key]

    def _name(self, named: dict[str, PodRecord], record: PodRecord, sign: int) -> None:
        if sign > 0:
            named[record.pod.uid] = record
        else:
            del named[record.pod.uid]

    def _new_class(self, key: bytes, record: PodRecord) -> QueuedClass:
        specs = [member.pod.spec for member in record.together]
        slot = self._demand.put(*specs)
        parked: SortedKeyList[PodRecord, OrderKey] = SortedKeyList(key=queue_order)
        unit = record.leads
        shape = shape_of_unit(unit) if unit is not None else None
        alike = self._classes[key] = QueuedClass(record.pod.spec, slot, parked, unit=unit, shape=shape)
        if shape is not None:
            self._shapes.put(shape.key, slot, alike)
        for spec in alike.specs:
            self._by_spec.put(spec, key, None)
        self._slots[slot] = alike
        return alike
