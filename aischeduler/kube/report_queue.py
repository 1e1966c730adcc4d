"""What users are still to be told, in the order in which it came up.

Laws:
- What waits is bounded: a newer word about the same thing replaces the older, also one that is being tried again, and
  the oldest is dropped. A Pool's status is never dropped: there are no more of them than Pools.
- Of events, that a pod was bound is said last and dropped first: everything else is what somebody may have to act on.
  Statuses of Pools and of pods take turns.
- A word lets Bindings and evictions go first only so long; the later it is after that, the more are written at once,
  as far as their answers show that more at once are more in all; see `report_lane`.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, assert_never

from aischeduler.kube.event_messages import EventMessage
from aischeduler.model.actions import CreatePool, Nominate, ReportPool
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.pod import Pod

WAITING_MAX: Final = 100_000
"""Reports of one queue that wait to be written, two for each pod of a crowd; beyond that the oldest are dropped."""
YIELD_SECONDS: Final = 10.0
"""How long a report lets Bindings and evictions go first."""
POOL_STATUS_YIELD_SECONDS: Final = 5.0
"""The same for the status of a Pool: there are few of them, and people watch them."""
LATE_STEP_SECONDS: Final = 0.008
"""For each so long that the oldest is late, one more report is written at once beside the Bindings."""
LATE_INITIAL: Final = 24
"""Late reports that are written at once at most where more bring no more answers."""
LATE_MAX: Final = 96
"""The same where more do bring more, as at a server that is far away."""


@dataclass(frozen=True, slots=True)
class WaitingCondition:
    """Why a pod waits, for its status."""

    pod: Pod
    message: str


Report = EventMessage | WaitingCondition | Nominate | ReportPool | CreatePool
StatusReport = WaitingCondition | Nominate | ReportPool
"""What stands in a status until something else does."""
ReportKey = tuple[str, str]
"""What a report speaks of: the newest one of a key replaces the others."""
_Queue = OrderedDict[ReportKey, tuple[Report, float]]
"""Reports, and since when something of that key has waited."""


class ReportQueue(ABC):
    """Reports that wait or are being written, in two ranks; `dropped` hears of each that was dropped here."""

    def __init__(self, clock: Callable[[], float], dropped: Callable[[], None]) -> None:
        self._clock = clock
        self._on_dropped = dropped
        self._first: _Queue = OrderedDict()
        self._second: _Queue = OrderedDict()
        self._droppable: tuple[_Queue, ...] = (self._first, self._second)
        """Of what there may be too much, or many late at once; what is dropped first stands last."""
        self._newest: dict[ReportKey, Report] = {}
        self._ready = asyncio.Semaphore(0)
        self._unfinished = 0
        self._all_finished = asyncio.Event()
        self._all_finished.set()

    @abstractmethod
    def _rank(self, report: Report) -> _Queue:
        """Return where a report waits."""

    @abstractmethod
    def _order(self) -> tuple[_Queue, ...]:
        """Return the ranks in the order in which the next report is looked for."""

    @abstractmethod
    def _yield_seconds(self, queue: _Queue) -> float:
        """Return for how many seconds a rank in which something waits still lets others go first."""

    def put(self, report: Report) -> None:
        """Let a report wait, in the place of an older one of its key."""
        key, queue = report_key(report), self._rank(report)
        before = queue.get(key)
        if before is None:
            self._unfinished += 1
            self._all_finished.clear()
        queue[key] = report, before[1] if before is not None else self._clock()
        self._newest[key] = report
        if not self.truncate(WAITING_MAX) and before is None:  # else it has the turn of the one that was dropped
            self._ready.release()

    def truncate(self, length: int) -> int:
        """Drop the oldest until no more wait than so many; return how many were dropped."""
        surplus = max(0, sum(len(crowd) for crowd in self._droppable) - length)
        for _ in range(surplus):
            oldest = self._pop(reversed(self._droppable))
            self._on_dropped()
            self.forget(oldest)
            self.finish()
        return surplus

    def withdraw(self, *keys: ReportKey) -> None:
        """Say no more what waits under these keys, or is being tried again."""
        for key in keys:
            self._newest.pop(key, None)
            for queue in (self._first, self._second):
                if queue.pop(key, None) is not None:
                    self.finish()

    def take(self, *, others_wait: bool) -> Report | None:
        """Return the report whose turn it is; what was withdrawn left its turn behind.

        Unless `others_wait`, any will do; else only one that need not let others go first any more.
        """
        ready = [queue for queue in self._order() if queue and (not others_wait or self._yield_seconds(queue) <= 0)]
        return self._pop(ready) if ready else None

    async def take_late(self, under_way: int) -> Report | None:
        """Return the next where it is so late that it is to be written beside so many others that are `under_way`.

        So a crowd that is bound without a pause is told of as fast as it is bound, some seconds behind.
        """
        if not self.late_due(under_way) or self._ready.locked():
            return None
        await self._ready.acquire()  # does not wait, as nobody else does
        return self._pop(self._droppable)

    def late_due(self, under_way: int) -> int:
        """Return how many more are so late that they are to be written beside so many that are `under_way`."""
        late_seconds = max((-self._yield_seconds(queue) for queue in self._droppable if queue), default=0.0)
        return max(0, min(LATE_MAX, int(late_seconds / LATE_STEP_SECONDS)) - under_way)

    def yield_seconds(self) -> float:
        """Return how much longer what waits lets others go first; 0 when one of it does not any more."""
        queues = (self._first, self._second)
        return max(0.0, min((self._yield_seconds(queue) for queue in queues if queue), default=0.0))

    def _yield_left(self, queue: _Queue, patience_seconds: float) -> float:
        """Return how much is left of the patience of the oldest of a rank."""
        return next(iter(queue.values()))[1] + patience_seconds - self._clock()

    def _pop(self, queues: Iterable[_Queue]) -> Report:
        """Take the oldest out of the first rank in which something waits."""
        return next(queue for queue in queues if queue).popitem(last=False)[1][0]

    def is_newest(self, report: Report) -> bool:
        """Say whether nothing newer was said of the same, and it was not withdrawn."""
        return self._newest.get(report_key(report)) is report

    def contains(self, report: Report) -> bool:
        """Say whether something of its key waits or is being written."""
        return report_key(report) in self._newest

    def forget(self, report: Report) -> None:
        """Note that a report is written, or never will be."""
        if self.is_newest(report):
            del self._newest[report_key(report)]

    def finish(self) -> None:
        """Count one that was put as dealt with."""
        self._unfinished -= 1
        if not self._unfinished:
            self._all_finished.set()

    async def wait_for_report(self) -> None:
        """Return once for each report that was put."""
        await self._ready.acquire()

    async def wait_finished(self) -> None:
        """Return once everything was dealt with."""
        await self._all_finished.wait()


class EventReportQueue(ReportQueue):
    """Events: what somebody may have to act on, and after it that pods were bound."""

    def _rank(self, report: Report) -> _Queue:
        ordinary = isinstance(report, EventMessage) and report.reason is EventReason.SCHEDULED
        return self._second if ordinary else self._first

    def _order(self) -> tuple[_Queue, ...]:
        return self._first, self._second

    def _yield_seconds(self, queue: _Queue) -> float:
        """Where one rank waits no longer, the first goes in its place."""
        del queue
        return min(self._yield_left(one, YIELD_SECONDS) for one in (self._first, self._second) if one)


class StatusReportQueue(ReportQueue):
    """Statuses of Pools, and of pods; new Pools are among the latter."""

    def __init__(self, clock: Callable[[], float], dropped: Callable[[], None]) -> None:
        super().__init__(clock, dropped)
        self._droppable = (self._second,)
        self._pools_turn = False

    def _rank(self, report: Report) -> _Queue:
        return self._first if isinstance(report, ReportPool) else self._second

    def _order(self) -> tuple[_Queue, ...]:
        self._pools_turn = not self._pools_turn
        return (self._first, self._second) if self._pools_turn else (self._second, self._first)

    def _yield_seconds(self, queue: _Queue) -> float:
        return self._yield_left(queue, POOL_STATUS_YIELD_SECONDS if queue is self._first else YIELD_SECONDS)


def report_key(report: Report) -> ReportKey:
    """Return what a report speaks of."""
    match report:
        case EventMessage(about, reason):
            return reason, about.uid
        case WaitingCondition(pod):
            return condition_key(pod)
        case Nominate(pod):
            return nomination_key(pod)
        case ReportPool(name):
            return "pool", name
        case CreatePool(name):
            return "create", name
        case _:
            assert_never(report)


def report_kind(report: Report) -> str:
    """Return what kind of write a report is, for people."""
    match report:
        case EventMessage():
            return "event"
        case WaitingCondition():
            return "pod condition"
        case Nominate():
            return "nominated node"
        case ReportPool():
            return "pool status"
        case CreatePool():
            return "new pool"
        case _:
            assert_never(report)


def condition_key(pod: Pod) -> ReportKey:
    """Return the key of why a pod waits."""
    return "condition", pod.uid


def nomination_key(pod: Pod) -> ReportKey:
    """Return the key of where a pod holds room."""
    return "nomination", pod.uid
