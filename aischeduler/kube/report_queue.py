"""What users are still to be told, in the order in which it came up.

Laws:
- What waits is bounded: a newer word about the same thing replaces the older, also one that is being tried again, and
  the oldest is dropped. A Pool's status is never dropped: there are no more of them than Pools.
- Pools and everything else take turns.
- A word lets Bindings and evictions go first only so long; the later it is after that, the more are written at once.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, assert_never

from aischeduler.kube.notes import Note
from aischeduler.model.actions import CreatePool, Nominate, ReportPool
from aischeduler.model.pod import Pod

WAITING_MAX: Final = 100_000
"""Reports that wait to be written, two for each pod of a crowd; beyond that the oldest are dropped."""
PATIENCE_SECONDS: Final = 10.0
"""How long a report lets Bindings and evictions go first."""
STATUS_PATIENCE_SECONDS: Final = 5.0
"""The same for the status of a Pool: there are few of them, and people watch them."""
LATE_SECONDS: Final = 0.008
"""For each so long that the oldest is late, one more report is written at once beside the Bindings."""
LATE_MAX: Final = 192
"""Late reports that are written at once at most: more than a crowd's Bindings, for an event costs the server more."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a pod waits, for its status."""

    pod: Pod
    message: str


Report = Note | Waiting | Nominate | ReportPool | CreatePool
Lasting = Waiting | Nominate | ReportPool
"""What stands in a status until something else does."""
Key = tuple[str, str]
"""What a report speaks of: the newest one of a key replaces the others."""
_Queue = OrderedDict[Key, tuple[Report, float]]
"""Reports, and since when something of that key has waited."""


class ReportQueue:
    """Reports that wait or are being written; `dropped` hears of each that was dropped here."""

    def __init__(self, clock: Callable[[], float], dropped: Callable[[], None]) -> None:
        self._clock = clock
        self._dropped = dropped
        self._reports: _Queue = OrderedDict()
        self._statuses: _Queue = OrderedDict()
        self._newest: dict[Key, Report] = {}
        self._pools_turn = True
        self._work = asyncio.Semaphore(0)
        self._unwritten = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    def put(self, report: Report) -> None:
        """Let a report wait, in the place of an older one of its key."""
        key = key_of(report)
        queue = self._statuses if isinstance(report, ReportPool) else self._reports
        before = queue.get(key)
        if before is None:
            self._unwritten += 1
            self._quiet.clear()
            self._work.release()
        queue[key] = report, before[1] if before is not None else self._clock()
        self._newest[key] = report
        if len(self._reports) > WAITING_MAX:
            _, (oldest, _) = self._reports.popitem(last=False)
            self._dropped()
            self.forget(oldest)
            self.finish()

    def withdraw(self, *keys: Key) -> None:
        """Say no more what waits under these keys, or is being tried again."""
        for key in keys:
            self._newest.pop(key, None)
            if self._reports.pop(key, None) is not None:
                self.finish()

    def take(self, *, others_wait: bool) -> Report | None:
        """Return the oldest report, by turns of Pools and of everything else; what was dropped left its turn behind.

        Unless `others_wait`, any will do; else only one that has let others go first for long enough.
        """
        turns = (self._statuses, self._reports) if self._pools_turn else (self._reports, self._statuses)
        self._pools_turn = not self._pools_turn
        for queue in turns:
            if queue and (not others_wait or self._patience(queue) <= 0):
                return queue.popitem(last=False)[1][0]
        return None

    async def take_late(self, under_way: int) -> Report | None:
        """Return the oldest where it is so late that it is to be written beside so many others that are `under_way`.

        So a crowd that is bound without a pause is told of as fast as it is bound, some seconds behind.
        """
        if not self._reports or self._work.locked():
            return None
        if under_way >= min(LATE_MAX, int(-self._patience(self._reports) / LATE_SECONDS)):
            return None
        await self._work.acquire()  # does not wait, as nobody else does
        return self._reports.popitem(last=False)[1][0]

    def patient_seconds(self) -> float:
        """Return how much longer the oldest of what waits lets others go first; 0 when it does not any more."""
        queues = (self._statuses, self._reports)
        return max(0.0, min((self._patience(queue) for queue in queues if queue), default=0.0))

    def _patience(self, queue: _Queue) -> float:
        """Return for how many seconds the oldest of a queue still lets others go first."""
        patience = STATUS_PATIENCE_SECONDS if queue is self._statuses else PATIENCE_SECONDS
        return next(iter(queue.values()))[1] + patience - self._clock()

    def is_newest(self, report: Report) -> bool:
        """Say whether nothing newer was said of the same, and it was not withdrawn."""
        return self._newest.get(key_of(report)) is report

    def knows(self, report: Report) -> bool:
        """Say whether something of its key waits or is being written."""
        return key_of(report) in self._newest

    def forget(self, report: Report) -> None:
        """Note that a report is written, or never will be."""
        if self.is_newest(report):
            del self._newest[key_of(report)]

    def finish(self) -> None:
        """Count one that was put as dealt with."""
        self._unwritten -= 1
        if not self._unwritten:
            self._quiet.set()

    async def filled(self) -> None:
        """Return once for each report that was put."""
        await self._work.acquire()

    async def empty(self) -> None:
        """Return once everything was dealt with."""
        await self._quiet.wait()


def key_of(report: Report) -> Key:
    """Return what a report speaks of."""
    match report:
        case Note(about, reason):
            return reason, about.uid
        case Waiting(pod):
            return condition_key(pod)
        case Nominate(pod):
            return nomination_key(pod)
        case ReportPool(name):
            return "pool", name
        case CreatePool(name):
            return "create", name
        case _:
            assert_never(report)


def name_of(report: Report) -> str:
    """Return what kind of write a report is, for people."""
    match report:
        case Note():
            return "event"
        case Waiting():
            return "pod condition"
        case Nominate():
            return "nominated node"
        case ReportPool():
            return "pool status"
        case CreatePool():
            return "new pool"
        case _:
            assert_never(report)


def condition_key(pod: Pod) -> Key:
    """Return the key of why a pod waits."""
    return "condition", pod.uid


def nomination_key(pod: Pod) -> Key:
    """Return the key of where a pod holds room."""
    return "nomination", pod.uid
