"""The queue of reports that wait to be written: Events, pod conditions and Pool statuses.

Invariants:
- The queue is bounded: a newer report about the same thing replaces the older one, also while that is retried, and the
  oldest is dropped. The status of a Pool is never dropped: there is one per Pool.
- Scheduled Events are written last and dropped first: people act on the others. Statuses of Pools and pods alternate.
- A report yields to Bindings and evictions for a limited time. The later it is after that, the more reports are in
  flight at once, as long as that raises the throughput; see `report_writers`.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, assert_never

from msgspec import Struct

from aischeduler.kube.backoff import Timing
from aischeduler.kube.event_messages import EventMessage
from aischeduler.model.actions import CreatePool, Nominate, ReportGang, ReportPool
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.pod import Pod

WAITING_MAX: Final = 100_000
"""How many reports of one queue may wait, two for each pod of a large burst; beyond that the oldest are dropped."""
YIELD_SECONDS: Final = 10.0
"""How long a report yields to Bindings and evictions."""
POOL_STATUS_YIELD_SECONDS: Final = 5.0
"""The same for the status of a Pool: there are few of them, and people watch them."""
LATE_STEP_SECONDS: Final = 0.008
"""For each such time that the oldest report is late, one more report is in flight beside the Bindings."""
LATE_INITIAL: Final = 24
"""The most late reports in flight while more do not raise the throughput."""
LATE_MAX: Final = 96
"""The most late reports in flight if more do raise it, as at a distant server."""
DELAYED_MAX: Final = 10_000
"""How many reports wait for a later try; beyond that the oldest are dropped."""
RETRIES_AT_ONCE_MAX: Final = 300
"""How many of them are queued again at a time, oldest first."""


class WaitingCondition(Struct, frozen=True):
    """The message of a pending pod, for its condition."""

    pod: Pod
    message: str


ObjectReport = ReportPool | ReportGang
"""The status of an object other than a pod; it is written only if it differs from the stored one."""
Report = EventMessage | WaitingCondition | Nominate | ObjectReport | CreatePool
ReportKey = tuple[str, str]
"""The subject of a report: the newest report of a key replaces the others."""
_Queue = OrderedDict[ReportKey, tuple[Report, float]]
"""Reports, and since when a report of that key has waited."""


class ReportQueue(ABC):
    """Reports that wait or are being written, in two ranks; `on_dropped` is called for each dropped report."""

    def __init__(self, clock: Callable[[], float], on_dropped: Callable[[], None]) -> None:
        self._clock = clock
        self._on_dropped = on_dropped
        self._first: _Queue = OrderedDict()
        self._second: _Queue = OrderedDict()
        self._droppable: tuple[_Queue, ...] = (self._first, self._second)
        """The ranks that are bounded and may be late; the last one is dropped first."""
        self._newest: dict[ReportKey, Report] = {}
        self._ready = asyncio.Semaphore(0)
        self._unfinished = 0
        self._all_finished = asyncio.Event()
        self._all_finished.set()

    @abstractmethod
    def _rank(self, report: Report) -> _Queue:
        """Return the rank of a report."""

    @abstractmethod
    def _order(self) -> tuple[_Queue, ...]:
        """Return the ranks in the order of the next turn."""

    @abstractmethod
    def _yield_seconds(self, queue: _Queue) -> float:
        """Return how many seconds a rank still yields; it is not empty."""

    def put(self, report: Report) -> None:
        """Add a report, or replace the waiting one of its key."""
        key, queue = report_key(report), self._rank(report)
        before = queue.get(key)
        if before is None:
            self._unfinished += 1
            self._all_finished.clear()
        queue[key] = report, before[1] if before is not None else self._clock()
        self._newest[key] = report
        if not self.truncate(WAITING_MAX) and before is None:  # else it takes the turn of the dropped one
            self._ready.release()

    def truncate(self, length: int) -> int:
        """Drop the oldest reports until at most this many wait; return how many were dropped."""
        surplus = max(0, sum(len(rank) for rank in self._droppable) - length)
        for _ in range(surplus):
            oldest = self._pop(reversed(self._droppable))
            self._on_dropped()
            self.forget(oldest)
            self.finish()
        return surplus

    def withdraw(self, *keys: ReportKey) -> None:
        """Remove the reports of these keys, also while they are retried."""
        for key in keys:
            self._newest.pop(key, None)
            for queue in (self._first, self._second):
                if queue.pop(key, None) is not None:
                    self.finish()

    def take(self, *, binds_wait: bool) -> Report | None:
        """Return the next report; a withdrawn report leaves its turn behind.

        If `binds_wait`, only a report that no longer yields is returned.
        """
        ready = [queue for queue in self._order() if queue and (not binds_wait or self._yield_seconds(queue) <= 0)]
        return self._pop(ready) if ready else None

    async def take_late(self, late_in_flight: int) -> Report | None:
        """Return the next report that is late enough to be written beside `late_in_flight` other late ones.

        So the Events of an endless burst of Bindings follow with a delay of some seconds.
        """
        if not self.late_due(late_in_flight) or self._ready.locked():
            return None
        await self._ready.acquire()  # never waits, because no other task acquires it
        return self._pop(self._droppable)

    def late_due(self, late_in_flight: int) -> int:
        """Return how many more late reports may be in flight beside `late_in_flight` others."""
        late_seconds = max((-self._yield_seconds(queue) for queue in self._droppable if queue), default=0.0)
        return max(0, min(LATE_MAX, int(late_seconds / LATE_STEP_SECONDS)) - late_in_flight)

    def yield_seconds(self) -> float:
        """Return how long all waiting reports still yield; 0 if one does not any more."""
        queues = (self._first, self._second)
        return max(0.0, min((self._yield_seconds(queue) for queue in queues if queue), default=0.0))

    def _yield_left(self, queue: _Queue, yield_seconds: float) -> float:
        """Return the rest of the yield time of a rank's oldest report."""
        return next(iter(queue.values()))[1] + yield_seconds - self._clock()

    def _pop(self, queues: Iterable[_Queue]) -> Report:
        """Take the oldest report of the first rank that has one."""
        return next(queue for queue in queues if queue).popitem(last=False)[1][0]

    def is_newest(self, report: Report) -> bool:
        """Say whether this report is the newest of its key and was not withdrawn."""
        return self._newest.get(report_key(report)) is report

    def newest(self, key: ReportKey) -> Report | None:
        """Return the newest report of a key that is neither written nor given up; None where there is none."""
        return self._newest.get(key)

    def contains(self, report: Report) -> bool:
        """Say whether a report of this key waits or is being written."""
        return report_key(report) in self._newest

    def forget(self, report: Report) -> None:
        """Record that a report was written or is given up."""
        if self.is_newest(report):
            del self._newest[report_key(report)]

    def finish(self) -> None:
        """Count a report as finished."""
        self._unfinished -= 1
        if not self._unfinished:
            self._all_finished.set()

    async def wait_for_report(self) -> None:
        """Return once for each report that was added."""
        await self._ready.acquire()

    async def wait_finished(self) -> None:
        """Return once every report is finished."""
        await self._all_finished.wait()


class EventReportQueue(ReportQueue):
    """Events: Scheduled Events come after all others."""

    def _rank(self, report: Report) -> _Queue:
        ordinary = isinstance(report, EventMessage) and report.reason is EventReason.SCHEDULED
        return self._second if ordinary else self._first

    def _order(self) -> tuple[_Queue, ...]:
        return self._first, self._second

    def _yield_seconds(self, queue: _Queue) -> float:
        """Return the shorter rest of both ranks: when one stops yielding, the first rank goes in its place."""
        del queue
        return min(self._yield_left(one, YIELD_SECONDS) for one in (self._first, self._second) if one)


class StatusReportQueue(ReportQueue):
    """Statuses of Pools in the first rank; conditions of pods, statuses of gangs and new Pools in the second."""

    def __init__(self, clock: Callable[[], float], on_dropped: Callable[[], None]) -> None:
        super().__init__(clock, on_dropped)
        self._droppable = (self._second,)
        self._pools_turn = False

    def _rank(self, report: Report) -> _Queue:
        return self._first if isinstance(report, ReportPool) else self._second

    def _order(self) -> tuple[_Queue, ...]:
        self._pools_turn = not self._pools_turn
        return (self._first, self._second) if self._pools_turn else (self._second, self._first)

    def _yield_seconds(self, queue: _Queue) -> float:
        return self._yield_left(queue, POOL_STATUS_YIELD_SECONDS if queue is self._first else YIELD_SECONDS)


class DelayedReports:
    """Reports that wait for a later try; `on_dropped` is called with each that is dropped."""

    def __init__(self, seconds: float, on_dropped: Callable[[Report], None]) -> None:
        self._seconds = seconds
        self._on_dropped = on_dropped
        self._reports: OrderedDict[ReportKey, Report] = OrderedDict()
        self._filled = asyncio.Event()

    def put(self, report: Report) -> None:
        """Add a report, or replace the waiting one of its key."""
        self._reports[report_key(report)] = report
        if len(self._reports) > DELAYED_MAX:
            self._on_dropped(self._reports.popitem(last=False)[1])
        self._filled.set()

    def __contains__(self, key: ReportKey) -> bool:
        """Say whether a report of this key waits."""
        return key in self._reports

    def drop(self, key: ReportKey) -> None:
        """Remove the report of this key."""
        self._reports.pop(key, None)

    async def next(self, timing: Timing) -> list[Report]:
        """Return the oldest waiting reports after their delay."""
        await self._filled.wait()
        await timing.sleep(self._seconds)
        found = [self._reports.popitem(last=False)[1] for _ in range(min(RETRIES_AT_ONCE_MAX, len(self._reports)))]
        if not self._reports:
            self._filled.clear()
        return found


def report_key(report: Report) -> ReportKey:
    """Return the subject of a report."""
    match report:
        case EventMessage(regarding, reason):
            return reason, regarding.uid
        case WaitingCondition(pod):
            return condition_key(pod)
        case Nominate(pod):
            return nomination_key(pod)
        case ReportPool(name):
            return "pool", name
        case ReportGang(gang):
            return "gang", str(gang.key)
        case CreatePool(name):
            return "create", name
        case _:
            assert_never(report)


def report_lane(report: Report) -> str:
    """Return the namespace of the object that a report writes; empty for a Pool."""
    match report:
        case EventMessage(regarding):
            return regarding.namespace
        case WaitingCondition(pod) | Nominate(pod):
            return pod.namespace
        case ReportGang(gang):
            return gang.key.namespace
        case ReportPool() | CreatePool():
            return ""
        case _:
            assert_never(report)


def report_kind(report: Report) -> str:
    """Return the kind of a report, for the log."""
    match report:
        case EventMessage():
            return "event"
        case WaitingCondition():
            return "pod condition"
        case Nominate():
            return "nominated node"
        case ReportPool():
            return "pool status"
        case ReportGang():
            return "gang status"
        case CreatePool():
            return "new pool"
        case _:
            assert_never(report)


def condition_key(pod: Pod) -> ReportKey:
    """Return the key of a pod's condition."""
    return "condition", pod.uid


def nomination_key(pod: Pod) -> ReportKey:
    """Return the key of a pod's nomination."""
    return "nomination", pod.uid
