"""The queue of one pool: active, backoff, and the places of pods that wait for an event.

Laws:
- Order is priority, first-seen time, arrival, uid; a record's order never changes while it is inside.
- Parked pods are kept by class: what can help one can help all that are alike, so an event is judged once a class.
- Of a class, one pod at a time is woken. Whoever is placed, or leaves, wakes the next; whoever parks again ends the
  chain. So an event costs as many attempts as pods can use it, and one more.
- While nothing is active, pods that only back off from a refusal are tried early; those that back off from an error
  wait their time out. Source: kube-scheduler since 1.33 (KEP-5142).
- The net brings back what was parked or held for five minutes. It exists to be counted, not to be needed.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from sortedcontainers import SortedKeyList

from aischeduler.model.pod import PodSpec
from aischeduler.state.records import OrderKey, Place, PodRecord

NET_SECONDS: Final = 300.0


@dataclass(slots=True)
class ParkedClass:
    """The parked pods of one class. `rejectors` are the filters that refused the one parked last."""

    spec: PodSpec
    records: "SortedKeyList[PodRecord, OrderKey]"
    rejectors: tuple[str, ...] = ()


def _order(record: PodRecord) -> OrderKey:
    return record.order


def _time(record: PodRecord) -> tuple[float, OrderKey]:
    return (record.backoff_until, record.order)


class PoolQueue:
    """One pool's waiting pods."""

    def __init__(self, pool: str) -> None:
        self.pool = pool
        self.net_saves = 0
        self._records: dict[str, PodRecord] = {}
        self._active: SortedKeyList[PodRecord, OrderKey] = SortedKeyList(key=_order)
        self._backoff: SortedKeyList[PodRecord, tuple[float, OrderKey]] = SortedKeyList(key=_time)
        self._early: SortedKeyList[PodRecord, OrderKey] = SortedKeyList(key=_order)
        self._parked: dict[bytes, ParkedClass] = {}
        self._since: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    def records(self) -> tuple[PodRecord, ...]:
        """Return every waiting record, in the order in which they came in."""
        return tuple(self._records.values())

    def counts(self) -> dict[Place, int]:
        """Return how many wait in each place."""
        counts = dict.fromkeys(Place, 0)
        for record in self._records.values():
            counts[record.place] += 1
        return counts

    def add(self, record: PodRecord, now: float) -> None:
        """Let a pod in: one that is still backing off waits for time, others are active."""
        self._records[record.pod.uid] = record
        record.queue = self.pool
        self._enqueue(record, now)

    def gate(self, record: PodRecord) -> None:
        """Let a pod in that may not be tried: nothing but its own change moves it."""
        self._records[record.pod.uid] = record
        record.queue = self.pool
        record.place = Place.GATED

    def pop(self, now: float) -> PodRecord | None:
        """Take the pod whose turn it is; None when none is ready."""
        self.flush(now)
        if self._active:
            record = self._active[0]
        elif self._early:
            record = self._early[0]
        else:
            return None
        self.remove(record)
        return record

    def park(self, record: PodRecord, rejectors: tuple[str, ...], now: float) -> None:
        """Let a refused pod wait for an event that one of these filters calls helpful."""
        spec = record.pod.spec
        alike = self._parked.get(spec.key)
        if alike is None:
            alike = self._parked[spec.key] = ParkedClass(spec, SortedKeyList(key=_order))
        alike.rejectors = rejectors
        alike.records.add(record)
        self._wait(record, Place.PARKED, now)

    def hold(self, record: PodRecord, now: float) -> None:
        """Let a pod wait for its own change."""
        self._wait(record, Place.HELD, now)

    def retry(self, record: PodRecord, now: float) -> None:
        """Let a pod wait its backoff out after an error."""
        record.failed = True
        record.back_off(now)
        self.add(record, now)

    def remove(self, record: PodRecord) -> None:
        """Take a pod out, wherever it waits here."""
        del self._records[record.pod.uid]
        match record.place:
            case Place.ACTIVE:
                self._active.remove(record)
            case Place.BACKOFF:
                self._backoff.remove(record)
                if not record.failed:
                    self._early.remove(record)
            case Place.PARKED:
                self._unpark(record)
            case Place.HELD:
                del self._since[record.pod.uid]
            case Place.GATED | Place.ASSUMED | Place.BOUND:
                pass
        record.queue = ""

    def parked(self) -> tuple[ParkedClass, ...]:
        """Return the parked classes, the one that came first in front."""
        return tuple(self._parked.values())

    def wake_next(self, spec: PodSpec, now: float) -> None:
        """Wake the first parked pod of this class, if there is one."""
        alike = self._parked.get(spec.key)
        if alike is not None:
            self._wake(alike.records[0], now)

    def flush(self, now: float) -> None:
        """Move what time has released: backoffs that are over, and what the net catches."""
        while self._backoff and self._backoff[0].backoff_until <= now:
            self._wake(self._backoff[0], now)
        while self._since:
            uid, since = next(iter(self._since.items()))
            if since + NET_SECONDS > now:
                break
            record = self._records[uid]
            record.saved = True
            self._wake(record, now)

    def ready(self, now: float) -> bool:
        """Say whether `pop` would return a pod."""
        wakeup = self.next_wakeup()
        return bool(self._active or self._early) or (wakeup is not None and wakeup <= now)

    def next_wakeup(self) -> float | None:
        """Return when time will move something here; None when nothing waits for time."""
        times = [self._backoff[0].backoff_until] if self._backoff else []
        if self._since:
            times.append(next(iter(self._since.values())) + NET_SECONDS)
        return min(times, default=None)

    def _wake(self, record: PodRecord, now: float) -> None:
        self.remove(record)
        self.add(record, now)

    def _enqueue(self, record: PodRecord, now: float) -> None:
        if record.backoff_until > now:
            record.place = Place.BACKOFF
            self._backoff.add(record)
            if not record.failed:
                self._early.add(record)
        else:
            record.place = Place.ACTIVE
            self._active.add(record)

    def _wait(self, record: PodRecord, place: Place, now: float) -> None:
        record.failed = False
        record.saved = False
        record.back_off(now)
        record.place = place
        record.queue = self.pool
        self._records[record.pod.uid] = record
        self._since[record.pod.uid] = now

    def _unpark(self, record: PodRecord) -> None:
        key = record.pod.spec.key
        alike = self._parked[key]
        alike.records.remove(record)
        if not alike.records:
            del self._parked[key]
        del self._since[record.pod.uid]
