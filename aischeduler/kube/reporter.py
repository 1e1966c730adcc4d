"""Write reports: Events, pod conditions, nominations and Pool statuses, all after Bindings and evictions.

Invariants:
- A report never fails scheduling. `report_queue` and `report_writers` define order, bounds and parallelism.
- An Event stays in the API server for an hour, a status replaces the one before. So Events have a low default rate, and
  no status waits for them.
- Of the conditions of a pod, and of its nominations, one at a time is under way: the one that arrives last stays.
- A pause for Bindings and evictions also pauses reports; an answer to a report pauses reports only, of its namespace
  alone while few are asked to wait. What one report is asked to wait holds that report.
- A report of a status is retried until it is written, refused or outdated, because nothing repeats it. An Event is
  dropped after a few tries.
- Time in which the server stalls does not make a report late: else all reports would compete with the Bindings of that
  time.
- Refusals are logged. A status, or a new Pool, is retried slowly even then, because permissions and policies change,
  unless its pod is gone; a newer one waits for that try. A status that another client overwrote is written again, at
  most once a second.
- An Event is not repeated for the same object, and not for other counts of the same reason; the pod's condition has the
  newest message.

Source: Kubernetes events.k8s.io/v1, pods/status, and the conventions of conditions.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, assert_never

from cachetools import LRUCache, TTLCache
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from aischeduler.config.schema import EventsConfig
from aischeduler.engine.propose import without_counts
from aischeduler.kube import event_messages, gang_writes, pod_writes, pool_writes
from aischeduler.kube.api_types import PoolDocument
from aischeduler.kube.backoff import RETRY_AFTER_SECONDS_MAX, ExponentialBackoff, RateLimiter, Throttle, Timing
from aischeduler.kube.client import Client, refusal
from aischeduler.kube.connection_pool import ConnectionPool
from aischeduler.kube.errors import ApiError, OnInternalError, RefusedError, raise_internal_error
from aischeduler.kube.event_messages import EventMessage
from aischeduler.kube.eviction_writes import is_another_uid
from aischeduler.kube.gang_status_writer import GangStatusWriter
from aischeduler.kube.log_sampler import RefusalLog
from aischeduler.kube.pool_status_writer import PoolStatusWriter
from aischeduler.kube.report_queue import (
    DelayedReports,
    EventReportQueue,
    ObjectReport,
    Report,
    ReportKey,
    ReportQueue,
    StatusReportQueue,
    WaitingCondition,
    condition_key,
    nomination_key,
    report_key,
    report_kind,
    report_lane,
)
from aischeduler.kube.report_writers import WRITES_IN_FLIGHT_MAX as LANE_IN_FLIGHT_MAX
from aischeduler.kube.report_writers import ReportWriters
from aischeduler.model.actions import Bind, CreatePool, Evict, Nominate, ReportGang, ReportPool, ReportWaiting, Warn
from aischeduler.model.gang import GangKey, GangPhase
from aischeduler.model.pod import Pod
from aischeduler.model.times import time_text

REPORTS_IN_FLIGHT_MAX: Final = 2 * LANE_IN_FLIGHT_MAX
"""The requests of both queues, Events and statuses."""
STATUSES_PER_SECOND: Final = 1000
"""More than a busy server accepts: statuses behind Bindings cost least if they are written soon."""
STATUSES_BURST: Final = 2000
TRIES_MAX: Final = 3
"""How often a report is sent before it is dropped or queued again."""
REMEMBERED_MAX: Final = 100_000
"""How many objects have their last report remembered."""
EVENT_REPEAT_SECONDS: Final = 600.0
"""How long the same Event is not repeated for an object."""
REASON_REPEAT_SECONDS: Final = 300.0
"""How long a pod gets no further Event of the same reason with other counts."""
REFUSED_RETRY_SECONDS: Final = 30.0
"""How long a refused status waits for the next try, and with it the newer ones of its object."""
OVERWRITTEN_RETRY_SECONDS: Final = 1.0
"""How long an overwritten status waits for the next try."""
CROWDED_RETRY_SECONDS: Final = 2.0
"""How long reports of a namespace whose writers are stuck wait for the next try."""
OVERLOAD_SECONDS: Final = 10.0
"""How long late reports are not written in parallel after an overload or a failure."""


class ReportCounts(Struct):
    """How many reports were written, dropped and refused."""

    written: int = 0
    dropped: int = 0
    refused: int = 0


class EventSource(Struct, frozen=True):
    """The sender of Events, and a clock in unix seconds."""

    controller: event_messages.ReportingController
    wall: Callable[[], float]


class Reporter:
    """Writes reports after the Bindings."""

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
        self._gang_statuses = GangStatusWriter(client, event_source.wall)
        self._gang_phases: LRUCache[GangKey, GangPhase] = LRUCache(REMEMBERED_MAX)
        self._refused, self._overwritten, self._crowded = (
            DelayedReports(seconds, self._drop)
            for seconds in (REFUSED_RETRY_SECONDS, OVERWRITTEN_RETRY_SECONDS, CROWDED_RETRY_SECONDS)
        )
        self._under_way: dict[ReportKey, bool] = {}
        """The conditions and nominations that are being sent, and whether a newer one waits for the answer."""
        self._throttles = timing.throttle, Throttle(timing)
        self._overload = Throttle(timing)
        self._event_writers = self._writers(
            EventReportQueue, RateLimiter(timing, EventsConfig().per_second, EventsConfig().burst)
        )
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
        return ReportWriters(queue, self._timing, rate, self._overload, (self._write, self._put_aside))

    def set_event_rate(self, per_second: int, burst: int) -> None:
        """Set the rate limit of Events."""
        self._event_writers.rate.set_limits(per_second, burst)

    def withdraw_waiting(self, pod: Pod) -> None:
        """Withdraw the condition and the nomination of a pod that is about to be bound; the API server updates both."""
        queue, keys = self._status_writers.queue, (condition_key(pod), nomination_key(pod))
        if queue.newest(keys[0]) is not None:  # it is not written, so the next one may say the same
            self._last_conditions.pop(pod.uid, None)
        queue.withdraw(*keys)

    def report_scheduled(self, action: Bind) -> None:
        """Report that a pod was bound."""
        self._enqueue(event_messages.scheduled(action))

    def report_evicted(self, action: Evict) -> None:
        """Report why a pod was evicted."""
        self._enqueue(event_messages.preempted(action))

    def report_nominated(self, action: Nominate) -> None:
        """Report the node for which a pod is nominated; only the newest one is written."""
        self._enqueue(action)

    def report_waiting(self, report: ReportWaiting) -> None:
        """Report why a pod is pending: by an Event and a condition."""
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
        """Return since when a pod is pending, for its condition: constant until the watch shows the condition."""
        return self._waiting_since.setdefault(pod.uid, self._time("seconds"))

    def report_warning(self, warning: Warn) -> None:
        """Report a warning about an object."""
        self._enqueue_event(event_messages.warning(warning))

    def report_pool(self, report: ReportPool) -> None:
        """Report the status of a Pool; only the newest one is written."""
        self._enqueue(report)

    def report_gang(self, report: ReportGang) -> None:
        """Report the status of a gang: into its PodGroup, and by an Event if it was scheduled, failed or is invalid."""
        key = report.gang.key
        message = gang_writes.phase_event(report, self._gang_phases.get(key))
        self._gang_phases[key] = report.status.phase
        if message is not None:
            self._enqueue_event(message)
        if gang_writes.object_paths(report.gang):
            self._enqueue(report)

    def pool_seen(self, document: PoolDocument) -> None:
        """Observe a Pool: its status may not be the one that was written."""
        self._pool_statuses.pool_seen(document)
        self._rewrite_overwritten(document.metadata.name)

    def pool_gone(self, name: str) -> None:
        """Observe that a Pool was deleted."""
        self._pool_statuses.pool_gone(name)
        for delayed in (self._refused, self._overwritten):
            delayed.drop(("pool", name))
        self._status_writers.queue.withdraw(("pool", name))

    def renew_statuses(self) -> None:
        """Queue the last status of every Pool: to renew it, or to take it over from a scheduler that stopped."""
        for report in self._pool_statuses.latest_reports():
            if not self._status_writers.queue.contains(report):
                self._enqueue(report)

    def create_pool(self, action: CreatePool) -> None:
        """Create a Pool unless it exists."""
        self._enqueue(action)

    def drop_excess_events(self) -> int:
        """Drop the Events that the rate limit delays; return how many."""
        return self._event_writers.queue.truncate(self._event_writers.rate.available)

    async def wait_written(self) -> None:
        """Return once every report is written or dropped."""
        await self._event_writers.queue.wait_finished()
        await self._status_writers.queue.wait_finished()

    async def run(self, wait_for_binds: Callable[[], Awaitable[None]], on_internal_error: OnInternalError) -> None:
        """Write until cancelled; `wait_for_binds` returns once neither a Binding nor an eviction is queued."""
        self._on_internal_error = on_internal_error
        async with asyncio.TaskGroup() as group:
            for name, writers in (("events", self._event_writers), ("statuses", self._status_writers)):
                group.create_task(writers.run(wait_for_binds, on_internal_error), name=name)
            for delayed in (self._refused, self._overwritten, self._crowded):
                group.create_task(self._retry_delayed(delayed), name="delayed reports")

    def _enqueue_event(self, message: EventMessage) -> None:
        key = report_key(message)
        if self._last_event_texts.get(key) == message.text:
            return
        self._last_event_texts[key] = message.text
        self._enqueue(message)

    def _enqueue(self, report: Report) -> None:
        if isinstance(report, ObjectReport):
            self._overwritten.drop(report_key(report))
        self._queue(report).put(report)

    def _queue(self, report: Report) -> ReportQueue:
        """Return the queue of a report."""
        return self._event_writers.queue if isinstance(report, EventMessage) else self._status_writers.queue

    def _count_dropped(self) -> None:
        self.counts.dropped += 1

    async def _retry_delayed(self, delayed: DelayedReports) -> None:
        """Queue delayed reports again, in rounds."""
        while True:
            for report in await delayed.next(self._timing):
                if delayed is self._overwritten or self._queue(report).is_newest(report):
                    self._enqueue(report)

    def _rewrite_overwritten(self, name: str) -> None:
        """Write a status again if another client overwrote it, unless a report of it is queued."""
        report = self._pool_statuses.overwritten(name)
        if report is not None and not self._status_writers.queue.contains(report):
            self._overwritten.put(report)

    async def _write(self, report: Report) -> None:
        """Write a report that was taken from its queue."""
        try:
            await self._send_until_done(report)
        except Exception as error:  # noqa: BLE001 - an error costs one report, not those that follow
            self._on_internal_error("reporter", error)
            self._drop(report)
        self._queue(report).finish()

    def _put_aside(self, report: Report) -> None:
        """Let a report of a namespace whose writers are stuck wait for a later try."""
        if self._queue(report).is_newest(report):
            self._crowded.put(report)
        self._queue(report).finish()

    async def _send_until_done(self, report: Report) -> None:
        """Send a report up to TRIES_MAX times; then drop an Event, and queue anything else again.

        An outdated report is dropped.
        """
        backoff = ExponentialBackoff(self._timing)
        for _ in range(TRIES_MAX):
            for throttle in self._throttles:
                await throttle.wait(report_lane(report))
            if not self._queue(report).is_newest(report) or self._waits(report) or await self._try(report, backoff):
                return
        if not isinstance(report, EventMessage):
            await backoff.wait()
            if self._queue(report).is_newest(report):
                self._enqueue(report)
        elif self._queue(report).is_newest(report):
            self._drop(report)

    def _waits(self, report: Report) -> bool:
        """Return whether another report of this key is being sent, or was refused; the newest one is queued again."""
        key = report_key(report)
        if key in self._refused:
            self._refused.put(report)
            return True
        if key in self._under_way:
            self._under_way[key] = True
        return key in self._under_way

    async def _try(self, report: Report, backoff: ExponentialBackoff) -> bool:
        """Send a report once; return whether it is finished."""
        try:
            await self._send(report)
        except RefusedError as error:
            if error.status == 401:
                await backoff.wait()
                return False
            if error.status == 429 or error.status >= 500:
                await self._wait_as_asked(report, error, backoff)
                return False
            if error.status == 409 and isinstance(report, ObjectReport):
                return False
            self.counts.refused += 1
            self._refusals.refused(report_kind(report), error)
            self._refuse(report, error)
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

    async def _wait_as_asked(self, report: Report, error: RefusedError, backoff: ExponentialBackoff) -> None:
        """Wait until the next try of a report: with this one alone, or with all that share the overload."""
        seconds = error.retry_after_seconds or backoff.next_seconds()
        if error.has_status:
            await self._timing.sleep(min(seconds, RETRY_AFTER_SECONDS_MAX))
        else:
            self._throttles[1].hold_for(seconds, report_lane(report))
            self._overload.hold_for(OVERLOAD_SECONDS)

    def _refuse(self, report: Report, error: RefusedError) -> None:
        """Give up a refused report, or keep the newest of its key for a later try."""
        gone = isinstance(report, WaitingCondition | Nominate) and (
            error.status == 404 or is_another_uid(error.message)
        )
        if gone:
            self._last_conditions.pop(report_key(report)[1], None)  # should the pod exist, it may say the same again
        newest = self._queue(report).newest(report_key(report))
        if gone or isinstance(report, EventMessage):
            self._queue(report).forget(report)
        elif newest is not None:
            self._refused.put(newest)

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
                await self._change_pod(condition_key(pod), path, body, pod_writes.STRATEGIC_PATCH)
            case Nominate(pod, node):
                path, body = pod_writes.nomination(pod, node)
                await self._change_pod(nomination_key(pod), path, body, pod_writes.MERGE_PATCH)
            case ReportPool():
                await self._pool_statuses.write(report, self._status_writers.queue.is_newest)
            case ReportGang():
                await self._gang_statuses.write(report, self._status_writers.queue.is_newest)
            case CreatePool(name, switches):
                await self._create(name, switches)
            case _:
                assert_never(report)

    async def _change_pod(self, key: ReportKey, path: bytes, body: bytes, content_type: str) -> None:
        """Send the patch of a pod's status; then queue the report that waited for the answer."""
        self._under_way[key] = False
        try:
            await self._request(b"PATCH", path, body, content_type)
        finally:
            newest = self._status_writers.queue.newest(key)
            if self._under_way.pop(key) and newest is not None:
                self._enqueue(newest)

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
        return time_text(self._event_source.wall(), precision)
