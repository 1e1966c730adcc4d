"""The reports that wait to be written: what is kept, what goes next, and what is dropped; without I/O.

Invariants:
- A key has one pending report, the newest. Of one key one write is under way at a time, so an older status is never
  written after a newer one.
- A report that must wait for its next try is held, and a newer one of its key waits with it.
- Statuses go before Events, those of Pools and Queues first, and Scheduled Events last: people act on the others.
  Within a rank the lanes take turns, and each lane is in order of arrival.
- A lane has at most `LANE_IN_FLIGHT_MAX` reports in flight: a namespace that gets no answers delays no other.
- A report yields to Bindings and evictions for a limited time. After that a few are in flight beside them.
- At most `WAITING_MAX` Events and as many statuses wait; beyond that the oldest of the last rank is dropped. The status
  of a Pool or a Queue is never dropped: there is one of each.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, assert_never

from msgspec import Struct

from aischeduler.kube.report.event_messages import EVENT_NAMESPACE, EventMessage
from aischeduler.model.actions import CreatePool, Nominate, ReportGang, ReportPool, ReportQueue, ResumeJob
from aischeduler.model.event_reasons import ConditionReason, EventReason
from aischeduler.model.pod import Pod

REPORTS_IN_FLIGHT_MAX: Final = 96
LANE_IN_FLIGHT_MAX: Final = 12
LATE_IN_FLIGHT_MAX: Final = 32
"""How many may be in flight beside Bindings and evictions that are queued."""
WAITING_MAX: Final = 100_000
"""How many statuses, and how many Events, may wait: two for each pod of a large burst."""
YIELD_SECONDS: Final = 10.0
"""How long a report yields to Bindings and evictions."""
POOL_STATUS_YIELD_SECONDS: Final = 5.0
"""The same for the status of a Pool or a Queue: there are few of them, and people watch them."""


class WaitingCondition(Struct, frozen=True):
    """The message of a pending pod, for its condition, and the reason in one word."""

    pod: Pod
    message: str
    reason: str = ConditionReason.UNSCHEDULABLE


Report = EventMessage | WaitingCondition | Nominate | ReportPool | ReportQueue | ReportGang | CreatePool | ResumeJob
ReportKey = tuple[str, str]
"""The kind of a report, as the log names it, and its object."""


class Rank(IntEnum):
    """Which reports go first."""

    POOLS = 0
    """Statuses of Pools and Queues."""
    STATUSES = 1
    """Conditions and nominations of pods, statuses of gangs, new Pools, resumed Jobs."""
    WARNINGS = 2
    """Events other than those of bound pods."""
    SCHEDULED = 3


EVENTS: Final = (Rank.WARNINGS, Rank.SCHEDULED)


class Hold(Struct, frozen=True):
    """How long a report waits for its next try; `idle` says that a scheduler that ends does not wait for it."""

    seconds: float
    idle: bool = False


@dataclass(eq=False, slots=True)
class Pending:
    """The newest report of a key, None if it was withdrawn during its write; `failures` are those in a row."""

    key: ReportKey
    lane: str
    rank: Rank
    report: Report | None
    failures: int = 0
    ready_at: float | None = field(default=None)
    """Since when it may be written; None while it is held or written."""
    due_at: float | None = field(default=None)
    """When it may be written; None while it is not held."""


Lanes = OrderedDict[str, OrderedDict[ReportKey, Pending]]


class PendingReports:
    """The pending reports. `clock` is in seconds; `on_dropped` is called for each report that is dropped."""

    def __init__(self, clock: Callable[[], float], on_dropped: Callable[[], None]) -> None:
        self._clock = clock
        self._on_dropped = on_dropped
        self._pending: dict[ReportKey, Pending] = {}
        self._waiting: dict[Rank, OrderedDict[ReportKey, Pending]] = {rank: OrderedDict() for rank in Rank}
        """The reports that are not being written, in order of arrival."""
        self._ready: dict[Rank, Lanes] = {rank: OrderedDict() for rank in Rank}
        """Those of them that may be written now; the lanes are in the order of their turns."""
        self._held: list[tuple[float, int, Pending]] = []
        """A heap of the others by due time. An entry whose report has another due time by now is void."""
        self._idle: set[ReportKey] = set()
        self._sequence = count()
        self._in_lane: Counter[str] = Counter()
        self.in_flight = 0

    @property
    def unfinished(self) -> int:
        """How many reports are being written, or will be soon."""
        return len(self._pending) - len(self._idle)

    def get(self, key: ReportKey) -> Report | None:
        """Return the pending report of a key; None where there is none."""
        entry = self._pending.get(key)
        return entry.report if entry is not None else None

    def put(self, report: Report, hold: Hold | None = None) -> None:
        """Add a report that may be written after `hold`, or replace the pending one of its key, in its place."""
        key, lane, rank = place(report)
        entry = self._pending.get(key)
        if entry is not None:
            entry.report = report
            if rank in EVENTS:
                entry.failures = 0  # each Event has its tries; the backoff of a status is that of its object
            return
        entry = self._pending[key] = Pending(key, lane, rank, report)
        self._wait(entry, hold)

    def withdraw(self, key: ReportKey) -> None:
        """Remove the report of this key, also while it is held; what is being written is not tried again."""
        entry = self._pending.get(key)
        if entry is not None:
            entry.report = None
            if key in self._waiting[entry.rank]:
                self._forget(entry)

    def seconds_until_due(self) -> float:
        """Return how long until a held report is due; infinite without one."""
        return self._held[0][0] - self._clock() if self._held else float("inf")

    def next(self, *, late: bool, events: bool) -> Pending | None:
        """Return the report that may be written next; None where none may.

        `late` is for reports that no longer yield alone, and `events` says whether Events may be written.
        """
        self._release_due()
        if self.in_flight >= (LATE_IN_FLIGHT_MAX if late else REPORTS_IN_FLIGHT_MAX):
            return None
        for rank, lanes in self._ready.items():
            if rank in EVENTS and not events:
                continue
            latest = self._clock() - (POOL_STATUS_YIELD_SECONDS if rank is Rank.POOLS else YIELD_SECONDS)
            for lane, entries in lanes.items():  # those that are full are few: each has LANE_IN_FLIGHT_MAX in flight
                entry = next(iter(entries.values()))
                if self._in_lane[lane] < LANE_IN_FLIGHT_MAX and (not late or (entry.ready_at or 0.0) <= latest):
                    return entry
        return None

    def take(self, entry: Pending) -> None:
        """Begin to write the report that `next` returned; its lane is behind all others."""
        self._ready[entry.rank].move_to_end(entry.lane)
        self._leave(entry)
        self.in_flight += 1
        self._in_lane[entry.lane] += 1

    def finish(self, entry: Pending, sent: Report | None, hold: Hold | None) -> None:
        """End a write of `sent`: it is done, or waits for the next try; a newer one waits for its turn or that try."""
        self.in_flight -= 1
        self._in_lane[entry.lane] -= 1
        if not self._in_lane[entry.lane]:
            del self._in_lane[entry.lane]
        if entry.report is None or (hold is None and entry.report is sent):
            del self._pending[entry.key]
            return
        if hold is None:
            entry.failures = 0
        self._wait(entry, hold)

    def put_back(self) -> None:
        """Let the reports wait again whose writers are gone."""
        self.in_flight = 0
        self._in_lane.clear()
        for entry in tuple(self._pending.values()):
            if entry.key not in self._waiting[entry.rank]:
                if entry.report is None:
                    del self._pending[entry.key]
                else:
                    self._wait(entry, None)

    def truncate(self, ranks: tuple[Rank, ...], length: int) -> int:
        """Drop the oldest reports of the last rank until these have at most this many; return how many."""
        surplus = max(0, sum(len(self._waiting[rank]) for rank in ranks) - length)
        for _ in range(surplus):
            queue = next(self._waiting[rank] for rank in reversed(ranks) if self._waiting[rank])
            self._forget(next(iter(queue.values())))
            self._on_dropped()
        return surplus

    def _wait(self, entry: Pending, hold: Hold | None) -> None:
        self._waiting[entry.rank][entry.key] = entry
        if hold is None or hold.seconds <= 0:
            self._make_ready(entry)
        else:
            entry.due_at = self._clock() + hold.seconds
            heappush(self._held, (entry.due_at, next(self._sequence), entry))
            if hold.idle:
                self._idle.add(entry.key)
            if len(self._held) > 2 * len(self._pending) + REPORTS_IN_FLIGHT_MAX:
                self._held = [held for held in self._held if held[2].due_at == held[0]]
                heapify(self._held)
        if entry.rank is not Rank.POOLS:
            self.truncate(EVENTS if entry.rank in EVENTS else (Rank.STATUSES,), WAITING_MAX)

    def _release_due(self) -> None:
        """Make the held reports ready that are due."""
        while self._held and self._held[0][0] <= self._clock():
            due_at, _, entry = heappop(self._held)
            if entry.due_at == due_at:
                entry.due_at = None
                self._idle.discard(entry.key)
                self._make_ready(entry)

    def _make_ready(self, entry: Pending) -> None:
        entry.ready_at = self._clock()
        self._ready[entry.rank].setdefault(entry.lane, OrderedDict())[entry.key] = entry

    def _leave(self, entry: Pending) -> None:
        """Take a report out of those that wait."""
        del self._waiting[entry.rank][entry.key]
        self._idle.discard(entry.key)
        if entry.ready_at is not None:
            lanes = self._ready[entry.rank]
            del lanes[entry.lane][entry.key]
            if not lanes[entry.lane]:
                del lanes[entry.lane]
        entry.ready_at = entry.due_at = None

    def _forget(self, entry: Pending) -> None:
        self._leave(entry)
        del self._pending[entry.key]


def place(report: Report) -> tuple[ReportKey, str, Rank]:
    """Return the key, the lane and the rank of a report.

    A lane is the namespace of what is written, empty for a Pool or a Queue; Events have lanes of their own.
    """
    match report:
        case EventMessage(regarding, reason):
            rank = Rank.SCHEDULED if reason is EventReason.SCHEDULED else Rank.WARNINGS
            return ("event", f"{reason} {regarding.uid}"), f"events/{regarding.namespace or EVENT_NAMESPACE}", rank
        case WaitingCondition(pod):
            return condition_key(pod), pod.namespace, Rank.STATUSES
        case Nominate(pod):
            return nomination_key(pod), pod.namespace, Rank.STATUSES
        case ReportPool(name):
            return pool_key(name), "", Rank.POOLS
        case ReportQueue(name):
            return queue_key(name), "", Rank.POOLS
        case ReportGang(gang):
            return ("gang status", str(gang.key)), gang.key.namespace, Rank.STATUSES
        case CreatePool(name):
            return ("new pool", name), "", Rank.STATUSES
        case ResumeJob(job):
            return ("resumed job", job.uid), job.namespace, Rank.STATUSES
        case _:
            assert_never(report)


def condition_key(pod: Pod) -> ReportKey:
    """Return the key of a pod's condition."""
    return "pod condition", pod.uid


def nomination_key(pod: Pod) -> ReportKey:
    """Return the key of a pod's nomination."""
    return "nominated node", pod.uid


def pool_key(name: str) -> ReportKey:
    """Return the key of a Pool's status."""
    return "pool status", name


def queue_key(name: str) -> ReportKey:
    """Return the key of a Queue's status."""
    return "queue status", name
