"""Tell users: events, what pods wait for, and the status of Pools. All of it comes after binds and evictions.

Laws:
- Reports never fail scheduling. In which order they are written, how many wait, and how many are written at once:
  see `report_queue` and `report_lane`.
- An event stays in the API server for an hour, a status takes the place of the one before: so only events are few a
  second unless somebody wants more, and no status waits for them.
- What makes Bindings and evictions wait makes reports wait; what the server says to a report holds back reports alone.
- What stands in a status is said by nobody again: it is tried until it is written, refused, or no longer so. Events are
  dropped after a few tries.
- Nothing is late by the time in which the server stood still: then all would be late when the Bindings of that time go
  out.
- What is refused is logged. A Pool's status is tried again also then, slowly: rights come and go. One that somebody
  else wrote over is written again, at most once a second.
- The same is not said twice in a row about the same object, and why a pod waits not twice for other counts alone; the
  pod's status has the newest.

Source: Kubernetes events.k8s.io/v1, pods/status, and the conventions of conditions.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, assert_never

from cachetools import LRUCache, TTLCache
from structlog.typing import FilteringBoundLogger

from aischeduler.config.schema import EventsConfig
from aischeduler.engine.sentences import without_counts
from aischeduler.kube import event_messages, pod_writes, pool_writes
from aischeduler.kube.api_types import PoolDocument
from aischeduler.kube.backoff import ExponentialBackoff, Rate, Throttle, Timing
from aischeduler.kube.client import Client, refusal
from aischeduler.kube.connection_pool import ConnectionPool
from aischeduler.kube.errors import ApiError, Failed, RefusedError, unheard
from aischeduler.kube.event_messages import EventMessage
from aischeduler.kube.log_limiter import RefusalLog
from aischeduler.kube.pool_status_writer import PoolStatusWriter
from aischeduler.kube.report_queue import (
    EventReportQueue,
    Key,
    Lasting,
    Report,
    ReportQueue,
    StatusReportQueue,
    Waiting,
    condition_key,
    key_of,
    name_of,
    nomination_key,
)
from aischeduler.kube.report_writers import IN_FLIGHT_MAX as LANE_IN_FLIGHT_MAX
from aischeduler.kube.report_writers import ReportWriters
from aischeduler.model.actions import Bind, CreatePool, Evict, Nominate, ReportPool, ReportWaiting, Warn
from aischeduler.model.pod import Pod

IN_FLIGHT_MAX: Final = 2 * LANE_IN_FLIGHT_MAX
"""Of both lanes, events and statuses."""
STATUSES_PER_SECOND: Final = 1000
"""More than a busy server takes: what comes behind the binds is cheapest for everybody when it is done soon."""
STATUSES_BURST: Final = 2000
TRIES_MAX: Final = 3
"""Times that a report is sent before it is dropped."""
REMEMBERED_MAX: Final = 100_000
"""Objects whose last report we remember."""
QUIET_SECONDS: Final = 600.0
"""How long an event is not said again about the same object."""
REASON_QUIET_SECONDS: Final = 300.0
"""How long a pod has no other event that it waits for the same reason, whatever the counts."""
REFUSED_SECONDS: Final = 30.0
"""How long a status that was refused waits."""
OVERWRITTEN_SECONDS: Final = 1.0
"""How long a status that somebody else wrote over waits."""
TIRED_SECONDS: Final = 10.0
"""How long after the server had enough or failed late reports are not written many at once."""
AGAIN_MAX: Final = 300
"""Statuses of Pools that are tried again at one time; those that waited longest come first."""


@dataclass(slots=True)
class ReportCounts:
    """What became of the reports."""

    written: int = 0
    dropped: int = 0
    refused: int = 0


class _Later:
    """Statuses of Pools that wait a while before they are tried again."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._reports: OrderedDict[str, ReportPool] = OrderedDict()
        self._filled = asyncio.Event()

    def put(self, report: ReportPool) -> None:
        self._reports[report.name] = report
        self._filled.set()

    def drop(self, name: str) -> None:
        self._reports.pop(name, None)

    async def next(self, timing: Timing) -> list[ReportPool]:
        """Wait until there are some, and then as long as they have to; return the first of them."""
        await self._filled.wait()
        await timing.sleep(self._seconds)
        found = [self._reports.popitem(last=False)[1] for _ in range(min(AGAIN_MAX, len(self._reports)))]
        if not self._reports:
            self._filled.clear()
        return found


@dataclass(frozen=True, slots=True)
class EventSource:
    """In whose name events are written, and a clock of unix time in seconds."""

    reporter: event_messages.ReportingController
    wall: Callable[[], float]


class Reporter:
    """Writes reports behind the binds."""

    def __init__(
        self,
        connections: ConnectionPool,
        client: Client,
        timing: Timing,
        event_source: EventSource,
        log: FilteringBoundLogger,
    ) -> None:
        self.counts = ReportCounts()
        self._connections = connections
        self._timing = timing
        self._event_source = event_source
        self._log = log
        self._refusals = RefusalLog(log, timing.clock)
        self._pools = PoolStatusWriter(client, event_source.reporter.controller, event_source.wall, log)
        self._refused, self._overwritten = _Later(REFUSED_SECONDS), _Later(OVERWRITTEN_SECONDS)
        self._throttles = timing.throttle, Throttle(timing)
        self._tired = Throttle(timing)
        self._events = self._lane(EventReportQueue, Rate(timing, EventsConfig().per_second, EventsConfig().burst))
        self._statuses = self._lane(StatusReportQueue, Rate(timing, STATUSES_PER_SECOND, STATUSES_BURST))
        self._said: TTLCache[Key, str] = TTLCache(REMEMBERED_MAX, QUIET_SECONDS, timer=timing.clock)
        self._why: TTLCache[tuple[str, int], bool] = TTLCache(REMEMBERED_MAX, REASON_QUIET_SECONDS, timer=timing.clock)
        self._conditions: LRUCache[str, str] = LRUCache(REMEMBERED_MAX)
        self._since: LRUCache[str, str] = LRUCache(REMEMBERED_MAX)
        self._number = int(event_source.wall() * 1e6)
        self._failed: Failed = unheard

    def _lane(self, kind: type[ReportQueue], rate: Rate) -> ReportWriters:
        queue = kind(lambda: self._timing.clock() - self._connections.stood_still_seconds, self._dropped)
        return ReportWriters(queue, self._timing, rate, self._tired, self._write)

    def limit(self, per_second: int, burst: int) -> None:
        """Write at most so many events from now on."""
        self._events.rate.change(per_second, burst)

    def binding(self, pod: Pod) -> None:
        """Say no more that a pod waits: it is about to be bound, and the API server will say so in its status."""
        self._conditions.pop(pod.uid, None)
        self._statuses.queue.withdraw(condition_key(pod), nomination_key(pod))

    def scheduled(self, action: Bind) -> None:
        """Say that a pod was bound."""
        self._enqueue(event_messages.scheduled(action))

    def evicted(self, action: Evict) -> None:
        """Say for whom a pod was evicted."""
        self._enqueue(event_messages.preempted(action))

    def nominated(self, action: Nominate) -> None:
        """Write for which node a pod holds room; only the newest word on a pod is written."""
        self._enqueue(action)

    def waiting(self, report: ReportWaiting) -> None:
        """Say why a pod waits: by an event and in its status."""
        pod = report.pod
        message = event_messages.why_waiting(report)
        reason = pod.uid, hash(without_counts(message))
        if reason not in self._why:
            self._why[reason] = True
            self._enqueue(event_messages.failed_scheduling(report))
        if self._conditions.get(pod.uid) != message:
            self._conditions[pod.uid] = message
            self._enqueue(Waiting(pod, message))

    def since(self, pod: Pod) -> str:
        """Return since when a pod's status is to say that it waits: the same until the watch shows that it says so."""
        return self._since.setdefault(pod.uid, self._time("seconds"))

    def warn(self, warning: Warn) -> None:
        """Put a warning on an object."""
        self._put(event_messages.warning(warning))

    def pool(self, report: ReportPool) -> None:
        """Write a Pool's status; only the newest is written."""
        self._enqueue(report)

    def seen(self, document: PoolDocument) -> None:
        """Take in a Pool as it now is: its status may not be what we wrote."""
        self._pools.seen(document)
        self._look(document.metadata.name)

    def gone(self, name: str) -> None:
        """Take in that there is no Pool of this name."""
        self._pools.gone(name)
        self._refused.drop(name)
        self._overwritten.drop(name)

    def renew(self) -> None:
        """Let the status of every Pool be renewed, or taken over where another scheduler stopped renewing it."""
        for report in self._pools.newest():
            if not self._statuses.queue.knows(report):
                self._enqueue(report)

    def create(self, action: CreatePool) -> None:
        """Create a Pool object unless there is one."""
        self._enqueue(action)

    def hasten(self) -> int:
        """Drop the events that their rate still holds; return how many."""
        return self._events.queue.shorten(self._events.rate.left)

    async def none_unwritten(self) -> None:
        """Return once everything has been said or dropped."""
        await self._events.queue.empty()
        await self._statuses.queue.empty()

    async def run(self, binds_first: Callable[[], Awaitable[None]], failed: Failed) -> None:
        """Write until cancelled; `binds_first` returns once neither Binding nor eviction waits."""
        self._failed = failed
        async with asyncio.TaskGroup() as group:
            for name, lane in (("events", self._events), ("statuses", self._statuses)):
                group.create_task(lane.run(binds_first, failed), name=name)
            for later in (self._refused, self._overwritten):
                group.create_task(self._try_again(later), name="reports again")

    def _put(self, note: EventMessage) -> None:
        key = key_of(note)
        if self._said.get(key) == note.text:
            return
        self._said[key] = note.text
        self._enqueue(note)

    def _enqueue(self, report: Report) -> None:
        if isinstance(report, ReportPool):
            self._refused.drop(report.name)
            self._overwritten.drop(report.name)
        self._queue(report).put(report)

    def _queue(self, report: Report) -> ReportQueue:
        """Return where such reports wait."""
        return self._events.queue if isinstance(report, EventMessage) else self._statuses.queue

    def _dropped(self) -> None:
        self.counts.dropped += 1

    async def _try_again(self, later: _Later) -> None:
        """Let what waits there wait with the others again, one round after the other."""
        while True:
            for report in await later.next(self._timing):
                self._enqueue(report)

    def _look(self, name: str) -> None:
        """Write a Pool's status anew where another one stands in its place, unless one is being written anyway."""
        report = self._pools.overwritten(name)
        if report is not None and not self._statuses.queue.knows(report):
            self._overwritten.put(report)

    async def _write(self, report: Report) -> None:
        """Deal with a report that was taken."""
        try:
            await self._send_until_done(report)
        except Exception as error:  # noqa: BLE001 - a bug costs one report, not all that follow
            self._failed("reports", error)
            self._drop(report)
        self._queue(report).finish()

    async def _send_until_done(self, report: Report) -> None:
        """Send a report a few times; then what lasts waits anew, and the others are dropped.

        What the server refuses is dropped, and so is what is no longer so.
        """
        backoff = ExponentialBackoff(self._timing)
        for _ in range(TRIES_MAX):
            for throttle in self._throttles:
                await throttle.pass_through()
            if not self._queue(report).is_newest(report) or await self._try(report, backoff):
                return
        if isinstance(report, Lasting):
            await backoff.wait()
            if self._queue(report).is_newest(report):
                self._enqueue(report)
        elif self._queue(report).is_newest(report):
            self._drop(report)

    async def _try(self, report: Report, backoff: ExponentialBackoff) -> bool:
        """Send a report once; say whether that was the end of it."""
        try:
            await self._send(report)
        except RefusedError as error:
            if error.status == 401:
                await backoff.wait()
                return False
            if error.status == 429 or error.status >= 500:
                self._throttles[1].hold(error.retry_after_seconds or backoff.next_seconds())
                self._tired.hold(TIRED_SECONDS)
                return False
            if error.status == 409 and isinstance(report, ReportPool):
                return False
            self.counts.refused += 1
            self._refusals.refused(name_of(report), error)
            if isinstance(report, ReportPool) and self._queue(report).is_newest(report):
                self._refused.put(report)
            self._queue(report).forget(report)
        except ApiError:
            self._tired.hold(TIRED_SECONDS)
            await backoff.wait()
            return False
        else:
            self.counts.written += 1
            self._queue(report).forget(report)
            if isinstance(report, ReportPool):
                self._look(report.name)
        return True

    async def _send(self, report: Report) -> None:
        match report:
            case EventMessage():
                self._number += 1
                path, body = event_messages.event(
                    report, self._number, self._event_source.reporter, self._time("microseconds")
                )
                await self._wire_send(b"POST", path, body, pod_writes.JSON)
            case Waiting(pod, message):
                path, body = pod_writes.waiting_condition(pod, message, self.since(pod))
                await self._wire_send(b"PATCH", path, body, pod_writes.STRATEGIC_PATCH)
            case Nominate(pod, node):
                path, body = pod_writes.nomination(pod, node)
                await self._wire_send(b"PATCH", path, body, pod_writes.MERGE_PATCH)
            case ReportPool():
                await self._pools.write(report, self._statuses.queue.is_newest)
            case CreatePool(name, switches):
                await self._create(name, switches)
            case _:
                assert_never(report)

    async def _wire_send(self, method: bytes, path: bytes, body: bytes, content_type: str) -> None:
        answer = await self._connections.send(method, path, body, content_type.encode())
        if answer.status >= 400:
            request = f"{method.decode()} {path.decode()}"
            raise refusal(answer.status, answer.body, answer.retry_after, request)

    async def _create(self, name: str, switches: tuple[str, ...]) -> None:
        path, body = pool_writes.pools_path().encode(), pool_writes.new_pool(name, switches)
        try:
            await self._wire_send(b"POST", path, body, pod_writes.JSON)
        except RefusedError as error:
            if error.status != 409:
                raise
        else:
            self._log.info("pool created", pool=name, reason="there was no Pool object of this name")

    def _drop(self, report: Report) -> None:
        self._dropped()
        self._queue(report).forget(report)

    def _time(self, precision: str) -> str:
        return pod_writes.time_text(self._event_source.wall(), precision)
