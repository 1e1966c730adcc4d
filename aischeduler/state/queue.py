"""The queue of one pool: active, backoff, and the states of pods that wait for an event.

Laws:
- Home pods come before borrowers; then priority, first-seen time, arrival, uid. A record's order never changes while
  it is inside.
- Parked pods are kept by class: what can help one can help all that are alike, so an event is judged once a class.
- Of a class, one pod at a time is woken. Whoever gets room, or leaves, wakes the next; whoever parks again ends the
  chain. So an event costs as many attempts as pods can use it, and one more.
- A nominated pod is in no chain: it waits for its own room, and is woken by name.
- While nothing is active, pods that only back off from a refusal are tried early; those that back off from an error
  wait their time out. Source: kube-scheduler since 1.33 (KEP-5142).
- The net brings back what has waited for an event for five minutes. It exists to be counted, not to be needed.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain, islice
from typing import Final

import numpy as np
from sortedcontainers import SortedKeyList

from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.unsupported_constraints import ConstraintKind
from aischeduler.state.demand import Amounts, DemandTable
from aischeduler.state.nodes import NodeTable
from aischeduler.state.records import Backoff, OrderKey, PodRecord, PodState
from aischeduler.state.waiting_class import WaitingClass, class_key

NET_SECONDS: Final = 300.0


def _order(record: PodRecord) -> OrderKey:
    return record.order


def _time(record: PodRecord) -> tuple[float, OrderKey]:
    return (record.backoff_until, record.order)


def _turn(alike: WaitingClass) -> OrderKey:
    return alike.turn


@dataclass(slots=True)
class Stir:
    """What the queues share: which `pools` changed since somebody last took them out, and who waits abroad.

    `version` grows with every change of any queue, `versions` with those of one.
    """

    pools: set[str] = field(default_factory=set)
    version: int = 0
    versions: Counter[str] = field(default_factory=Counter)
    abroad: dict[str, dict[str, PodRecord]] = field(default_factory=dict)
    """Home -> its pods, by uid, that wait in the queues of other pools."""

    def forget_abroad(self, home: str, uid: str) -> None:
        """Believe no more of a pod that it waits in the queue of another pool, if it did."""
        away = self.abroad.get(home, {})
        if away.pop(uid, None) is not None and not away:
            del self.abroad[home]


class PoolQueue:
    """One pool's waiting pods; what happens here is noted in `stir`."""

    def __init__(self, pool: str, nodes: NodeTable, stir: Stir, backoff: Backoff) -> None:
        self.pool = pool
        self._terms = backoff
        self._stir = stir
        self.home_active = 0
        """Home pods that are tried as soon as their turn comes."""
        self.borrowers_ask: Counter[str] = Counter()
        """What the borrowers that wait here ask for, by resource."""
        self._records: dict[str, PodRecord] = {}
        self._active: SortedKeyList[PodRecord, OrderKey] = SortedKeyList(key=_order)
        self._backoff: SortedKeyList[PodRecord, tuple[float, OrderKey]] = SortedKeyList(key=_time)
        self._early: SortedKeyList[PodRecord, OrderKey] = SortedKeyList(key=_order)
        self._classes: dict[bytes, WaitingClass] = {}
        self._slots: dict[int, WaitingClass] = {}
        self._heads: SortedKeyList[WaitingClass, OrderKey] = SortedKeyList(key=_turn)
        self._usable = 0
        self._demand = DemandTable(nodes)
        self._since: OrderedDict[str, float] = OrderedDict()
        self._counts: Counter[PodState] = Counter()
        self._named: dict[PodState, dict[str, PodRecord]] = {PodState.NOMINATED: {}, PodState.HELD: {}}

    def __len__(self) -> int:
        return len(self._records)

    @property
    def version(self) -> int:
        """Grows with every pod that comes, goes or changes its state, here or, of the pool's own, abroad."""
        return self._stir.versions[self.pool]

    def records(self) -> tuple[PodRecord, ...]:
        """Return every waiting record, in the order in which they came in."""
        return tuple(self._records.values())

    def counts(self) -> dict[PodState, int]:
        """Return how many wait in each state."""
        return {state: self._counts[state] for state in PodState}

    def held(self) -> Counter[ConstraintKind]:
        """Return how many are held for each kind of constraint."""
        kinds = (record.constraint for record in self._named[PodState.HELD].values())
        return Counter(kind for kind in kinds if kind is not None)

    def pending(self) -> tuple[tuple[PodSpec, int], ...]:
        """Return how many pods of each class wait, gated ones not counted."""
        return tuple((alike.spec, alike.pending) for alike in self._classes.values() if alike.pending)

    def add(self, record: PodRecord, now: float) -> None:
        """Let a pod in: one that is still backing off waits for time, others are active."""
        if record.backoff_until > now:
            self._enter(record, PodState.BACKOFF)
            self._backoff.add(record)
            if not record.failed:
                self._early.add(record)
        else:
            self._enter(record, PodState.ACTIVE)
            self._active.add(record)

    def gate(self, record: PodRecord) -> None:
        """Let a pod in that may not be tried: nothing but its own change moves it."""
        self._enter(record, PodState.GATED)

    def pop(self) -> PodRecord | None:
        """Take the pod whose turn it is; None when none is ready. What time has released, `flush` moves."""
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
        """Let a refused pod wait for an event that can help."""
        self._wait(record, PodState.PARKED, now)
        record.back_off(now, self._terms)
        alike = self._classes[class_key(record.pod)]
        first = not alike.parked or record.order < alike.turn
        if first and alike.parked:
            self._heads.remove(alike)
        alike.parked.add(record)
        if first:
            alike.turn = record.order
            self._heads.add(alike)

    def nominate(self, record: PodRecord, now: float) -> None:
        """Let a pod wait for the room that it claims."""
        self._wait(record, PodState.NOMINATED, now)

    def hold(self, record: PodRecord, now: float) -> None:
        """Let a pod wait for its own change."""
        self._wait(record, PodState.HELD, now)
        record.back_off(now, self._terms)

    def retry(self, record: PodRecord, now: float) -> None:
        """Let a pod wait its backoff out after an error."""
        record.failed = True
        record.back_off(now, self._terms)
        self.add(record, now)

    def holds(self, record: PodRecord) -> bool:
        """Say whether the pod waits here."""
        return self._records.get(record.pod.uid) is record

    def remove(self, record: PodRecord) -> None:
        """Take a pod out, wherever it waits here."""
        del self._records[record.pod.uid]
        match record.state:
            case PodState.ACTIVE:
                self._active.remove(record)
            case PodState.BACKOFF:
                self._backoff.remove(record)
                if not record.failed:
                    self._early.remove(record)
            case PodState.PARKED:
                alike = self._classes[class_key(record.pod)]
                self._unpark(alike, record)
                del self._since[record.pod.uid]
            case PodState.NOMINATED | PodState.HELD:
                del self._since[record.pod.uid]
            case PodState.GATED | PodState.ASSUMED | PodState.BOUND:
                pass
        self._leave(record)

    @property
    def has_parked(self) -> bool:
        """Say whether some pod is parked."""
        return bool(self._heads)

    @property
    def first_parked(self) -> PodRecord:
        """The parked pod whose turn it is, of all classes; there must be one."""
        return self._heads[0].head

    def parked(self, after: OrderKey | None = None) -> tuple[WaitingClass, ...]:
        """Return the classes with parked pods, by whose turn it is; with `after` only those whose turn is later."""
        return tuple(self._heads if after is None else self._heads.irange_key(after, inclusive=(False, True)))

    def parked_first(self, most: int) -> list[PodRecord]:
        """Return the first parked pods by whose turn it is, at most so many."""
        classes = self._heads[:most]  # of the others, each head comes after as many
        return list(islice(merge(*(alike.parked for alike in classes), key=_order), most))

    def parked_within(self, room: Amounts, after: OrderKey | None = None) -> Iterator[WaitingClass]:
        """Yield the classes with parked pods whose request fits into `room`, by whose turn it is.

        With `after` only those whose turn is later. The queue must not change meanwhile.
        """
        if self._heads:
            fitting = self._demand.fitting(room)
            later = self._heads if after is None else self._heads.irange_key(after, inclusive=(False, True))
            yield from (alike for alike in later if fitting[alike.slot])

    def request(self, alike: WaitingClass) -> Amounts:
        """Return what a pod of this class asks for, by column of the node table."""
        return self._demand.request(alike.slot)

    @property
    def has_usable(self) -> bool:
        """Say whether some home pod waits, here or abroad, that could take room."""
        return self._usable > 0 or self.pool in self._stir.abroad

    def usable_within(self, room: Amounts) -> tuple[PodSpec, ...]:
        """Return what those home pods ask for that wait here and could take room, as far as it fits into `room`.

        Also of those who wait abroad, whatever they ask for; each class once.
        """
        slots = np.flatnonzero(self._demand.fitting(room)).tolist()
        here = (self._slots[slot].spec for slot in slots if self._slots[slot].usable)
        away = (record.pod.spec for record in self._stir.abroad.get(self.pool, {}).values())
        return tuple({spec.key: spec for spec in chain(here, away)}.values())

    def in_state(self, state: PodState) -> tuple[PodRecord, ...]:
        """Return the pods that wait in this state, by whose turn it is."""
        if not self._counts[state]:
            return ()
        found = self._named.get(state, self._records)
        return tuple(sorted((record for record in found.values() if record.state is state), key=_order))

    def nominated_within(self, room: Amounts) -> tuple[PodRecord, ...]:
        """Return the nominated pods that ask for no more than `room`, by whose turn it is."""
        if not self._counts[PodState.NOMINATED]:
            return ()
        fitting = (self._slots[slot].nominated.values() for slot in np.flatnonzero(self._demand.fitting(room)).tolist())
        return tuple(sorted(chain.from_iterable(fitting), key=_order))

    def wake_next(self, pod: Pod, now: float, *, at_once: bool = False) -> None:
        """Wake the first parked pod of this pod's class, if there is one; `at_once` without a backoff."""
        alike = self._classes.get(class_key(pod))
        if alike is not None and alike.parked:
            head = alike.head
            if at_once:
                head.backoff_until = now
            self._wake(head, now)

    def wake_at_once(self, record: PodRecord, now: float) -> None:
        """Wake this pod, whatever it waits for, without a backoff."""
        record.backoff_until = now
        self._wake(record, now)

    def flush(self, now: float) -> list[PodRecord]:
        """Move what time has released: backoffs that are over, and what the net catches.

        Return whom the net caught and no event was about to help: not those who are held, for they wait for themselves,
        nor those of a class of which somebody is about to be tried, for they are next.
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
                keys_away = {class_key(away.pod) for away in self._stir.abroad.get(self.pool, {}).values()}
            if record.state is not PodState.HELD and not self._is_next(record, keys_away):
                caught.append(record)
            self._wake(record, now)
        return caught

    def _is_next(self, record: PodRecord, keys_away: set[bytes]) -> bool:
        """Say whether somebody alike is about to be tried here, or where classes of these keys wait abroad."""
        key = class_key(record.pod)
        return key in keys_away or self._classes[key].moves

    @property
    def lively(self) -> bool:
        """Say whether `pop` would return a pod without time passing."""
        return bool(self._active or self._early)

    def next_wakeup(self) -> float | None:
        """Return when time will move something here; None when nothing waits for time."""
        times = [self._backoff[0].backoff_until] if self._backoff else []
        if self._since:
            times.append(next(iter(self._since.values())) + NET_SECONDS)
        return min(times, default=None)

    def _wake(self, record: PodRecord, now: float) -> None:
        self.remove(record)
        self.add(record, now)

    def _wait(self, record: PodRecord, state: PodState, now: float) -> None:
        record.failed = False
        record.caught = None
        self._enter(record, state)
        self._since[record.pod.uid] = now

    def _enter(self, record: PodRecord, state: PodState) -> None:
        self._records[record.pod.uid] = record
        record.queue = self.pool
        record.state = state
        self._count(record, 1)

    def _leave(self, record: PodRecord) -> None:
        self._count(record, -1)
        record.queue = ""

    def _unpark(self, alike: WaitingClass, record: PodRecord) -> None:
        if record.order != alike.turn:
            alike.parked.remove(record)
            return
        self._heads.remove(alike)
        alike.parked.remove(record)
        if alike.parked:
            alike.turn = alike.head.order
            self._heads.add(alike)

    def _count(self, record: PodRecord, sign: int) -> None:
        stir, state = self._stir, record.state
        stir.version += 1
        stir.versions[self.pool] += 1
        stir.pools.add(self.pool)
        self._counts[state] += sign
        if state in self._named:
            self._name(record, state, sign)
        if state is PodState.GATED:
            return
        home = record.home == self.pool
        if not home:
            for resource, amount in record.pod.spec.request.amounts.items():
                self.borrowers_ask[resource] += sign * amount
            self._note_abroad(record, sign)
        if state is PodState.ACTIVE and home:
            self.home_active += sign
        alike = self._class(record.pod)
        alike.pending += sign
        if state is PodState.NOMINATED and sign > 0:
            alike.nominated[record.pod.uid] = record
        elif state is PodState.NOMINATED:
            del alike.nominated[record.pod.uid]
        if home and record.usable:
            alike.usable += sign
            self._usable += sign
        if not alike.pending:
            self._demand.drop(alike.slot)
            del self._slots[alike.slot]
            del self._classes[class_key(record.pod)]

    def _note_abroad(self, record: PodRecord, sign: int) -> None:
        self._stir.versions[record.home] += 1
        if sign > 0:
            self._stir.abroad.setdefault(record.home, {})[record.pod.uid] = record
            return
        self._stir.forget_abroad(record.home, record.pod.uid)

    def _name(self, record: PodRecord, state: PodState, sign: int) -> None:
        if sign > 0:
            self._named[state][record.pod.uid] = record
        else:
            del self._named[state][record.pod.uid]

    def _class(self, pod: Pod) -> WaitingClass:
        key = class_key(pod)
        alike = self._classes.get(key)
        if alike is None:
            slot = self._demand.put(pod.spec)
            alike = self._classes[key] = WaitingClass(pod.spec, slot, SortedKeyList(key=_order))
            self._slots[slot] = alike
        return alike
