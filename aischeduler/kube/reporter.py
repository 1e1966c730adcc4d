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

from aischeduler.config.schema import Events
from aischeduler.engine.sentences import without_counts
from aischeduler.kube import event_messages, pod_writes, pool_writes
from aischeduler.kube.api_types import PoolDocument
from aischeduler.kube.backoff import ExponentialBackoff, RateLimiter, Throttle, Timing
from aischeduler.kube.client import Client, refusal
from aischeduler.kube.connection_pool import ConnectionPool
from aischeduler.kube.errors import ApiError, OnInternalError, RefusedError, raise_internal_error
from aischeduler.kube.event_messages import EventMessage
from aischeduler.kube.log_sampler import RefusalLog
from aischeduler.kube.pool_status_writer import PoolStatusWriter
from aischeduler.kube.report_queue import (
    EventReportQueue,
    Report,
    ReportKey,
    ReportQueue,
    StatusReport,
    StatusReportQueue,
    WaitingCondition,
    condition_key,
    nomination_key,
    report_key,
    report_kind,
)
from aischeduler.kube.report_writers import WRITES_IN_FLIGHT_MAX as LANE_IN_FLIGHT_MAX
from aischeduler.kube.report_writers import ReportWriters
from aischeduler.model.actions import Bind, CreatePool, Evict, Nominate, ReportPool, ReportWaiting, Warn
from aischeduler.model.pod import Pod

REPORTS_IN_FLIGHT_MAX: Final = 2 * LANE_IN_FLIGHT_MAX
"""Of both lanes, events and statuses."""
STATUSES_PER_SECOND: Final = 1000
"""More than a busy server takes: what comes behind the binds is cheapest for everybody when it is done soon."""
STATUSES_BURST: Final = 2000
TRIES_MAX: Final = 3
"""Times that a report is sent before it is dropped."""
REMEMBERED_MAX: Final = 100_000
"""Objects whose last report we remember."""
EVENT_REPEAT_SECONDS: Final = 600.0
"""How long an event is not said again about the same object."""
REASON_REPEAT_SECONDS: Final = 300.0
"""How long a pod has no other event that it waits for the same reason, whatever the counts."""
REFUSED_RETRY_SECONDS: Final = 30.0
"""How long a status that was refused waits."""
OVERWRITTEN_RETRY_SECONDS: Final = 1.0
"""How long a status that somebody else wrote over waits."""
OVERLOAD_SECONDS: Final = 10.0
"""How long after the server had enough or failed late reports are not written many at once."""
RETRIES_AT_ONCE_MAX: Final = 300
"""Statuses of Pools that are tried again at one time; those that waited longest come first."""


@dataclass(slots=True)
class ReportCounts:
    """What became of the reports."""

    written: int = 0
    dropped: int = 0
    refused: int = 0


class _DelayedReports:
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
        found = [self._reports.popitem(last=False)[1] for _ in range(min(RETRIES_AT_ONCE_MAX, len(self._reports)))]
        if not self._reports:
            self._filled.clear()
        return found


@dataclass(frozen=True, slots=True)
class EventSource:
    """In whose name events are written, and a clock of unix time in seconds."""

    controller: event_messages.ReportingController
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
        self._pool_statuses = PoolStatusWriter(client, event_source.controller.controller, event_source.wall, log)
        self._refused, self._overwritten = (
            _DelayedReports(REFUSED_RETRY_SECONDS),
            _DelayedReports(OVERWRITTEN_RETRY_SECONDS),
        )
        self._throttles = timing.throttle, Throttle(timing)
        self._overload = Throttle(timing)
        self._event_writers = self._writers(EventReportQueue, RateLimiter(timing, Events().per_second, Events().burst))
        self._status_writers = self._writers(
            StatusReportQueue, RateLimiter(timing, STATUSES_PER_SECOND, STATUSES_BURST)
        )
        self._last_event_texts: TTLCache[ReportKey, str] = TTLCache(
            REMEMBERED_MAX, EVENT_REPEAT_SECONDS, timer=timing.clock
        )
        self._recent_reasons: TTLCache[tuple[str, int], bool] = TTLCache(
            REMEMBERED_MAX, REASON_REPEAT_SECONDS, timer=timing.clock
        )
        self._last_conditions: LRUCache[str, str] = LRUCache(REMEMBERED_MAX)
        self._waiting_since: LRUCache[str, str] = LRUCache(REMEMBERED_MAX)
        self._event_number = int(event_source.wall() * 1e6)
        self._on_internal_error: OnInternalError = raise_internal_error

    def _writers(self, kind: type[ReportQueue], rate: RateLimiter) -> ReportWriters:
        queue = kind(lambda: self._timing.clock() - self._connections.stalled_seconds, self._count_dropped)
        return ReportWriters(queue, self._timing, rate, self._overload, self._write)

    def set_event_rate(self, per_second: int, burst: int) -> None:
        """Write at most so many events from now on."""
        self._event_writers.rate.set_limits(per_second, burst)

    def withdraw_waiting(self, pod: Pod) -> None:
        """Say no more that a pod waits: it is about to be bound, and the API server will say so in its status."""
        self._last_conditions.pop(pod.uid, None)
        self._status_writers.queue.withdraw(condition_key(pod), nomination_key(pod))

    def report_scheduled(self, action: Bind) -> None:
        """Say that a pod was bound."""
        self._enqueue(event_messages.scheduled(action))

    def report_evicted(self, action: Evict) -> None:
        """Say for whom a pod was evicted."""
        self._enqueue(event_messages.preempted(action))

    def report_nominated(self, action: Nominate) -> None:
        """Write for which node a pod holds room; only the newest word on a pod is written."""
        self._enqueue(action)

    def report_waiting(self, report: ReportWaiting) -> None:
        """Say why a pod waits: by an event and in its status."""
        pod = report.pod
        message = event_messages.waiting_message(report)
        reason = pod.uid, hash(without_counts(message))
        if reason not in self._recent_reasons:
            self._recent_reasons[reason] = True
            self._enqueue(event_messages.failed_scheduling(report))
        if self._last_conditions.get(pod.uid) != message:
            self._last_conditions[pod.uid] = message
            self._enqueue(WaitingCondition(pod, message))

    def waiting_since(self, pod: Pod) -> str:
        """Return since when a pod's status is to say that it waits: the same until the watch shows that it says so."""
        return self._waiting_since.setdefault(pod.uid, self._time("seconds"))

    def report_warning(self, warning: Warn) -> None:
        """Put a warning on an object."""
        self._enqueue_event(event_messages.warning(warning))

    def report_pool(self, report: ReportPool) -> None:
        """Write a Pool's status; only the newest is written."""
        self._enqueue(report)

    def pool_seen(self, document: PoolDocument) -> None:
        """Take in a Pool as it now is: its status may not be what we wrote."""
        self._pool_statuses.pool_seen(document)
        self._rewrite_overwritten(document.metadata.name)

    def pool_gone(self, name: str) -> None:
        """Take in that there is no Pool of this name."""
        self._pool_statuses.pool_gone(name)
        self._refused.drop(name)
        self._overwritten.drop(name)

    def renew_statuses(self) -> None:
        """Let the status of every Pool be renewed, or taken over where another scheduler stopped renewing it."""
        for report in self._pool_statuses.latest_reports():
            if not self._status_writers.queue.contains(report):
                self._enqueue(report)

    def create_pool(self, action: CreatePool) -> None:
        """Create a Pool object unless there is one."""
        self._enqueue(action)

    def drop_excess_events(self) -> int:
        """Drop the events that their rate still holds; return how many."""
        return self._event_writers.queue.truncate(self._event_writers.rate.available)

    async def wait_written(self) -> None:
        """Return once everything has been said or dropped."""
        await self._event_writers.queue.wait_finished()
        await self._status_writers.queue.wait_finished()

    async def run(self, binds_first: Callable[[], Awaitable[None]], failed: OnInternalError) -> None:
        """Write until cancelled; `binds_first` returns once neither Binding nor eviction waits."""
        self._on_internal_error = failed
        async with asyncio.TaskGroup() as group:
            for name, lane in (("events", self._event_writers), ("statuses", self._status_writers)):
                group.create_task(lane.run(binds_first, failed), name=name)
            for later in (self._refused, self._overwritten):
                group.create_task(self._retry_delayed(later), name="reports again")

    def _enqueue_event(self, note: EventMessage) -> None:
        key = report_key(note)
        if self._last_event_texts.get(key) == note.text:
            return
        self._last_event_texts[key] = note.text
        self._enqueue(note)

    def _enqueue(self, report: Report) -> None:
        if isinstance(report, ReportPool):
            self._refused.drop(report.name)
            self._overwritten.drop(report.name)
        self._queue(report).put(report)

    def _queue(self, report: Report) -> ReportQueue:
        """Return where such reports wait."""
        return self._event_writers.queue if isinstance(report, EventMessage) else self._status_writers.queue

    def _count_dropped(self) -> None:
        self.counts.dropped += 1

    async def _retry_delayed(self, later: _DelayedReports) -> None:
        """Let what waits there wait with the others again, one round after the other."""
        while True:
            for report in await later.next(self._timing):
                self._enqueue(report)

    def _rewrite_overwritten(self, name: str) -> None:
        """Write a Pool's status anew where another one stands in its place, unless one is being written anyway."""
        report = self._pool_statuses.overwritten(name)
        if report is not None and not self._status_writers.queue.contains(report):
            self._overwritten.put(report)

    async def _write(self, report: Report) -> None:
        """Deal with a report that was taken."""
        try:
            await self._send_until_done(report)
        except Exception as error:  # noqa: BLE001 - a bug costs one report, not all that follow
            self._on_internal_error("reports", error)
            self._drop(report)
        self._queue(report).finish()

    async def _send_until_done(self, report: Report) -> None:
        """Send a report a few times; then what lasts waits anew, and the others are dropped.

        What the server refuses is dropped, and so is what is no longer so.
        """
        backoff = ExponentialBackoff(self._timing)
        for _ in range(TRIES_MAX):
            for throttle in self._throttles:
                await throttle.wait()
            if not self._queue(report).is_newest(report) or await self._try(report, backoff):
                return
        if isinstance(report, StatusReport):
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
                self._throttles[1].hold_for(error.retry_after_seconds or backoff.next_seconds())
                self._overload.hold_for(OVERLOAD_SECONDS)
                return False
            if error.status == 409 and isinstance(report, ReportPool):
                return False
            self.counts.refused += 1
            self._refusals.refused(report_kind(report), error)
            if isinstance(report, ReportPool) and self._queue(report).is_newest(report):
                self._refused.put(report)
            self._queue(report).forget(report)
        except ApiError:
            self._overload.hold_for(OVERLOAD_SECONDS)
            await backoff.wait()
            return False
        else:
            self.counts.written += 1
            self._queue(report).forget(report)
            if isinstance(report, ReportPool):
                self._rewrite_overwritten(report.name)
        return True

    async def _send(self, report: Report) -> None:
        match report:
            case EventMessage():
                self._event_number += 1
                path, body = event_messages.event(
                    report, self._event_number, self._event_source.controller, self._time("microseconds")
                )
                await self._request(b"POST", path, body, pod_writes.JSON)
            case WaitingCondition(pod, message):
                path, body = pod_writes.waiting_condition(pod, message, self.waiting_since(pod))
                await self._request(b"PATCH", path, body, pod_writes.STRATEGIC_PATCH)
            case Nominate(pod, node):
                path, body = pod_writes.nomination(pod, node)
                await self._request(b"PATCH", path, body, pod_writes.MERGE_PATCH)
            case ReportPool():
                await self._pool_statuses.write(report, self._status_writers.queue.is_newest)
            case CreatePool(name, switches):
                await self._create(name, switches)
            case _:
                assert_never(report)

    async def _request(self, method: bytes, path: bytes, body: bytes, content_type: str) -> None:
        answer = await self._connections.send(method, path, body, content_type.encode())
        if answer.status >= 400:
            request = f"{method.decode()} {path.decode()}"
            raise refusal(answer.status, answer.body, answer.retry_after, request)

    async def _create(self, name: str, switches: tuple[str, ...]) -> None:
        path, body = pool_writes.pools_path().encode(), pool_writes.new_pool(name, switches)
        try:
            await self._request(b"POST", path, body, pod_writes.JSON)
        except RefusedError as error:
            if error.status != 409:
                raise
        else:
            self._log.info("pool created", pool=name, reason="there was no Pool object of this name")

    def _drop(self, report: Report) -> None:
        self._count_dropped()
        self._queue(report).forget(report)

    def _time(self, precision: str) -> str:
        return pod_writes.time_text(self._event_source.wall(), precision)
