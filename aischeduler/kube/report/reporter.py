"""Write reports: Events, conditions, nominations, and statuses of Pools and Queues; Bindings and evictions go first.

Invariants:
- A report never fails scheduling. `report_queue` defines what goes next, what waits and what is dropped.
- An Event stays in the API server for an hour, a status replaces the one before. So Events have a low default rate, and
  no status waits for them.
- A pause for Bindings and evictions also pauses reports; an answer to a report pauses reports only, of its namespace
  alone while few are asked to wait. What a single report is asked to wait holds the reports of its key.
- A report of a status is retried until it is written, refused or outdated, because nothing repeats it. An Event is
  dropped after a few tries.
- Time in which the server stalls does not make a report late: else all reports would compete with the Bindings of that
  time.
- Refusals are logged. A status, or a new Pool, is retried slowly even then, because permissions and policies change,
  unless its pod is gone. A status that another client overwrote is written again, at most once a second.
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
from aischeduler.kube.decode.api_types import PoolDocument, QueueDocument
from aischeduler.kube.http.backoff import (
    CLOCK_SECONDS,
    RETRY_AFTER_SECONDS_MAX,
    Throttle,
    Timing,
    TokenBucket,
    backoff_seconds,
)
from aischeduler.kube.http.client import Client, refusal
from aischeduler.kube.http.connection_pool import ConnectionPool
from aischeduler.kube.http.errors import ApiError, OnInternalError, RefusedError, raise_internal_error
from aischeduler.kube.report import event_messages, gang_writes, pool_writes, queue_writes
from aischeduler.kube.report.event_messages import EventMessage
from aischeduler.kube.report.gang_status_writer import GangStatusWriter
from aischeduler.kube.report.log_fields import job_fields
from aischeduler.kube.report.log_sampler import RefusalLog
from aischeduler.kube.report.object_statuses import ObjectStatuses, StatusKind
from aischeduler.kube.report.report_queue import (
    EVENTS,
    Hold,
    Pending,
    PendingReports,
    Report,
    ReportKey,
    WaitingCondition,
    condition_key,
    nomination_key,
    place,
    pool_key,
    queue_key,
)
from aischeduler.kube.write import job_writes, pod_writes
from aischeduler.model.actions import (
    Bind,
    CreatePool,
    Evict,
    Nominate,
    ReportGang,
    ReportPool,
    ReportQueue,
    ReportWaiting,
    Resize,
    ResumeJob,
    Warn,
)
from aischeduler.model.gang import GangKey, GangPhase
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.pod import Pod
from aischeduler.model.times import time_text
from aischeduler.model.workload import JobRef

TRIES_MAX: Final = 3
REMEMBERED_MAX: Final = 100_000
EVENT_REPEAT_SECONDS: Final = 600.0
"""How long the same Event is not repeated for an object."""
REASON_REPEAT_SECONDS: Final = 300.0
"""How long a pod gets no further Event of the same reason with other counts."""
REFUSED_RETRY_SECONDS: Final = 30.0
"""How long a refused status waits for the next try, and with it the newer ones of its object."""
REFUSED_PER_SECOND: Final = 10
OVERWRITTEN_RETRY_SECONDS: Final = 1.0
BINDS_POLL_SECONDS: Final = 0.1
"""How long it may take until reports notice that they are late, or that no Binding is queued any more."""
WRITTEN_POLL_SECONDS: Final = 0.005
"""How often `wait_written` looks, which is called when the scheduler ends."""
ERROR_SECONDS: Final = 0.1
"""The pause after an internal error that cost no report."""


class ReportCounts(Struct):
    """How many reports were written, dropped and refused."""

    written: int = 0
    dropped: int = 0
    refused: int = 0


class Reporter:
    """Writes reports after the Bindings. `controller` sends the Events; `wall` returns unix seconds."""

    def __init__(
        self,
        connections: ConnectionPool,
        client: Client,
        timing: Timing,
        log: FilteringBoundLogger,
        *,
        controller: event_messages.ReportingController,
        wall: Callable[[], float],
    ) -> None:
        self.counts = ReportCounts()
        self.event_rate = TokenBucket(timing.clock, EventsConfig().per_second, EventsConfig().burst)
        self._connections = connections
        self._timing = timing
        self._controller, self._wall = controller, wall
        self._log = log
        self._refusals = RefusalLog(log, timing.clock)
        pools = StatusKind(pool_writes.pool_path, pool_writes.pool_status, self._tell_pools_held, DEFAULT_POOL)
        queues = StatusKind(queue_writes.queue_path, queue_writes.queue_status, self._tell_queues_held)
        self._pool_statuses = ObjectStatuses(pools, client, controller.controller, wall)
        self._queue_statuses = ObjectStatuses(queues, client, controller.controller, wall)
        self._gang_statuses = GangStatusWriter(client, wall)
        self._queue = PendingReports(lambda: timing.clock() - connections.stalled_seconds, self._count_dropped)
        self._throttle = Throttle(timing)
        self._refused_due_at = float("-inf")
        """When the last refused status is tried again."""
        self._changed = asyncio.Event()
        """Set when a report may be written that could not before."""
        self._timer: asyncio.Task[None] | None = None
        self._timer_ends_at = float("inf")
        self._gang_phases: LRUCache[GangKey, GangPhase] = LRUCache(REMEMBERED_MAX)
        self._last_event_texts: TTLCache[ReportKey, str] = TTLCache(
            REMEMBERED_MAX, EVENT_REPEAT_SECONDS, timer=timing.clock
        )
        self._recent_reasons: TTLCache[tuple[str, int], bool] = TTLCache(
            REMEMBERED_MAX, REASON_REPEAT_SECONDS, timer=timing.clock
        )
        self._last_conditions: LRUCache[str, str] = LRUCache(REMEMBERED_MAX)
        self._waiting_since: LRUCache[str, str] = LRUCache(REMEMBERED_MAX)
        self._event_number = int(wall() * 1e6)
        self._on_internal_error: OnInternalError = raise_internal_error

    def set_event_rate(self, per_second: int, burst: int) -> None:
        """Set the rate limit of Events."""
        self.event_rate.set_limits(per_second, burst)
        self._changed.set()

    def withdraw_waiting(self, pod: Pod) -> None:
        """Withdraw the condition and the nomination of a pod that is about to be bound; the API server updates both."""
        if self._queue.get(condition_key(pod)) is not None:  # it is not written, so the next one may say the same
            self._last_conditions.pop(pod.uid, None)
        for key in (condition_key(pod), nomination_key(pod)):
            self._queue.withdraw(key)

    def report_scheduled(self, action: Bind) -> None:
        """Report that a pod was bound."""
        self._put(event_messages.scheduled(action))

    def report_evicted(self, action: Evict, not_suspended: str = "") -> None:
        """Report why a pod was evicted, and why its Job could not be suspended, where that was to stay so."""
        self._put(event_messages.preempted(action, not_suspended))

    def report_suspended(self, action: Evict, job: JobRef) -> None:
        """Report on a Job why it was suspended, and whether it is resumed: its pods, which say why, are soon gone."""
        self._put(event_messages.suspended(action, job))

    def report_resized(self, action: Resize) -> None:
        """Report on an elastic job that its size was changed, and why."""
        if action.instances != action.before:
            self._put(event_messages.resized(action))

    def report_nominated(self, action: Nominate) -> None:
        """Report the node for which a pod is nominated; only the newest one is written."""
        self._put(action)

    def report_waiting(self, report: ReportWaiting) -> None:
        """Report why a pod is pending: by an Event and a condition."""
        pod = report.pod
        message = event_messages.waiting_message(report)
        reason = pod.uid, hash(without_counts(message))
        if reason not in self._recent_reasons:
            self._recent_reasons[reason] = True
            self._put(event_messages.failed_scheduling(report))
        if self._last_conditions.get(pod.uid) != message:
            self._last_conditions[pod.uid] = message
            self._put(WaitingCondition(pod, message, event_messages.condition_reason(report)))

    def waiting_since(self, pod: Pod) -> str:
        """Return since when a pod is pending, for its condition: constant until the watch shows the condition."""
        return self._waiting_since.setdefault(pod.uid, self._time("seconds"))

    def report_warning(self, warning: Warn) -> None:
        """Report a warning about an object."""
        self._put_unless_repeated(event_messages.warning(warning))

    def report_pool(self, report: ReportPool) -> None:
        """Report the status of a Pool; only the newest one is written."""
        self._put(report)

    def report_queue(self, report: ReportQueue) -> None:
        """Report the status of a Queue; only the newest one is written."""
        self._put(report)

    def report_gang(self, report: ReportGang) -> None:
        """Report the status of a gang: into its PodGroup, and by an Event if it was scheduled, failed or is invalid."""
        key = report.gang.key
        message = gang_writes.phase_event(report, self._gang_phases.get(key))
        self._gang_phases[key] = report.status.phase
        if message is not None:
            self._put_unless_repeated(message)
        if gang_writes.object_paths(report.gang):
            self._put(report)

    def pool_seen(self, document: PoolDocument) -> None:
        """Observe a Pool: its status may not be the one that was written."""
        self._pool_statuses.seen(document)
        self._rewrite_overwritten(self._pool_statuses, document.metadata.name)

    def pool_gone(self, name: str) -> None:
        """Observe that a Pool was deleted."""
        self._pool_statuses.gone(name)
        self._queue.withdraw(pool_key(name))

    def queue_seen(self, document: QueueDocument) -> None:
        """Observe a Queue: its status may not be the one that was written."""
        self._queue_statuses.seen(document)
        self._rewrite_overwritten(self._queue_statuses, document.metadata.name)

    def queue_gone(self, name: str) -> None:
        """Observe that a Queue was deleted."""
        self._queue_statuses.gone(name)
        self._queue.withdraw(queue_key(name))

    def renew_statuses(self) -> None:
        """Queue the last status of every Pool and Queue: to renew it, or to take it over from a stopped scheduler."""
        for pool in self._pool_statuses.latest_reports():
            self._put_unless_queued(pool)
        for queue in self._queue_statuses.latest_reports():
            self._put_unless_queued(queue)

    def create_pool(self, action: CreatePool) -> None:
        """Create a Pool unless it exists."""
        self._put(action)

    def resume_job(self, action: ResumeJob) -> None:
        """Resume a Job or a JobSet; where that is refused, the engine asks again."""
        self._put(action)

    def drop_excess_events(self) -> int:
        """Drop the Events that the rate limit delays; return how many."""
        return self._queue.truncate(EVENTS, self.event_rate.available)

    async def wait_written(self) -> None:
        """Return once every report is written or dropped, but for those that wait because they were refused."""
        while self._queue.unfinished:  # noqa: ASYNC110 - only a scheduler that ends waits
            await asyncio.sleep(WRITTEN_POLL_SECONDS)

    async def run(self, wait_for_binds: Callable[[], Awaitable[None]], on_internal_error: OnInternalError) -> None:
        """Write until cancelled; `wait_for_binds` returns once neither a Binding nor an eviction is queued."""
        self._on_internal_error = on_internal_error
        self._timer, self._timer_ends_at = None, float("inf")
        self._queue.put_back()
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    await self._begin_next(wait_for_binds, group)
                except Exception as error:  # noqa: BLE001 - an error costs a pause, not the reports that follow
                    on_internal_error("reporter", error)
                    await self._timing.sleep(ERROR_SECONDS)

    def _put(self, report: Report, hold: Hold | None = None) -> None:
        self._queue.put(report, hold)
        self._changed.set()

    def _put_unless_repeated(self, message: EventMessage) -> None:
        key, _, _ = place(message)
        if self._last_event_texts.get(key) != message.text:
            self._last_event_texts[key] = message.text
            self._put(message)

    def _count_dropped(self) -> None:
        self.counts.dropped += 1

    def _put_unless_queued(self, report: Report, hold: Hold | None = None) -> None:
        key, _, _ = place(report)
        if self._queue.get(key) is None:
            self._put(report, hold)

    def _rewrite_overwritten(
        self, statuses: ObjectStatuses[ReportPool] | ObjectStatuses[ReportQueue], name: str
    ) -> None:
        """Write a status again if another client overwrote it, unless a report of it is queued."""
        report = statuses.overwritten(name)
        if report is not None:
            self._put_unless_queued(report, Hold(OVERWRITTEN_RETRY_SECONDS, idle=True))

    def _tell_pools_held(self, pool: str, holder: str) -> None:
        reason = f"the scheduler {holder} writes the statuses of Pools; their numbers are that scheduler's"
        self._log.warning("pool statuses not written", pool=pool, scheduler=holder, reason=reason)

    def _tell_queues_held(self, queue: str, holder: str) -> None:
        reason = f"the scheduler {holder} writes the statuses of Queues; their numbers are that scheduler's"
        self._log.warning("queue statuses not written", queue=queue, scheduler=holder, reason=reason)

    async def _begin_next(self, wait_for_binds: Callable[[], Awaitable[None]], group: asyncio.TaskGroup) -> None:
        """Begin to write the reports that may be written, or wait for a change."""
        self._changed.clear()
        if self._next(late=False) is None:
            until_event = self.event_rate.seconds_until_token or float("inf")
            self._wake_within(min(self._queue.seconds_until_due(), until_event), group)
            await self._changed.wait()
            return
        late = await _still_waits(wait_for_binds)
        while (entry := self._next(late=late)) is not None:
            self._queue.take(entry)
            if entry.rank in EVENTS:
                self.event_rate.take()
            group.create_task(self._write(entry), name="report")

    def _next(self, *, late: bool) -> Pending | None:
        return self._queue.next(late=late, events=not self.event_rate.seconds_until_token)

    def _wake_within(self, seconds: float, group: asyncio.TaskGroup) -> None:
        """Look at the queue again after this long."""
        ends_at = self._timing.clock() + seconds
        if ends_at >= self._timer_ends_at - CLOCK_SECONDS:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ends_at = ends_at
        self._timer = group.create_task(self._wake(seconds), name="report timer")

    async def _wake(self, seconds: float) -> None:
        await self._timing.sleep(seconds)
        self._timer_ends_at = float("inf")
        self._changed.set()

    async def _write(self, entry: Pending) -> None:
        """Write the newest report of a key, once."""
        report: Report | None = None
        hold: Hold | None = Hold(0.0)
        try:
            await self._timing.throttle.wait()
            await self._throttle.wait(entry.lane)
            report = entry.report
            hold = await self._try(entry, report) if report is not None else None
        except Exception as error:  # noqa: BLE001 - an error costs one report, not those that follow
            self._on_internal_error("reporter", error)
            self._count_dropped()
            hold = None
        finally:
            self._queue.finish(entry, report, hold)
            self._changed.set()
        if isinstance(report, ReportPool):
            self._rewrite_overwritten(self._pool_statuses, report.name)
        elif isinstance(report, ReportQueue):
            self._rewrite_overwritten(self._queue_statuses, report.name)

    async def _try(self, entry: Pending, report: Report) -> Hold | None:
        """Send a report; return how long its next try has to wait, None where it needs none."""
        try:
            await self._send(entry, report)
        except RefusedError as error:
            return self._refused(entry, report, error)
        except ApiError:
            return self._failed(entry, report)
        self.counts.written += 1
        return None

    def _refused(self, entry: Pending, report: Report, error: RefusedError) -> Hold | None:
        if error.status in (401, 429) or error.status >= 500:
            hold = self._failed(entry, report, error.retry_after_seconds)
            if hold is not None and error.status != 401 and not error.has_status:  # the server is overloaded
                self._throttle.hold_for(hold.seconds, entry.lane)
            return hold
        if error.status == 409 and isinstance(report, ReportPool | ReportQueue | ReportGang):
            return self._failed(entry, report)
        self.counts.refused += 1
        self._refusals.refused(entry.key[0], error)
        if isinstance(report, EventMessage | ResumeJob):
            return None
        if isinstance(report, WaitingCondition | Nominate) and (
            error.status == 404 or pod_writes.is_another_uid(error.message)
        ):
            self._last_conditions.pop(report.pod.uid, None)  # should the pod exist, it may say the same again
            return None
        now = self._timing.clock()
        self._refused_due_at = max(now + REFUSED_RETRY_SECONDS, self._refused_due_at + 1 / REFUSED_PER_SECOND)
        return Hold(self._refused_due_at - now, idle=True)

    def _failed(self, entry: Pending, report: Report, retry_after_seconds: float | None = None) -> Hold | None:
        """Count a failure and return how long the next try waits; an Event without a try left is dropped."""
        entry.failures += 1
        if isinstance(report, EventMessage) and entry.report is report and entry.failures >= TRIES_MAX:
            self._count_dropped()
            return None
        asked = min(retry_after_seconds or 0.0, RETRY_AFTER_SECONDS_MAX)
        return Hold(asked or backoff_seconds(entry.failures, self._timing.jitter))

    async def _send(self, entry: Pending, report: Report) -> None:
        match report:
            case EventMessage():
                self._event_number += 1
                path, body = event_messages.event(
                    report, self._event_number, self._controller, self._time("microseconds")
                )
                await self._request(b"POST", path, body, pod_writes.JSON)
            case WaitingCondition(pod, message, why):
                path, body = pod_writes.waiting_condition(pod, message, self.waiting_since(pod), why)
                await self._request(b"PATCH", path, body, pod_writes.STRATEGIC_PATCH)
            case Nominate(pod, node):
                path, body = pod_writes.nomination(pod, node)
                await self._request(b"PATCH", path, body, pod_writes.MERGE_PATCH)
            case ReportPool():
                await self._pool_statuses.write(report, lambda sent: entry.report is sent)
            case ReportQueue():
                await self._queue_statuses.write(report, lambda sent: entry.report is sent)
            case ReportGang():
                await self._gang_statuses.write(report, lambda sent: entry.report is sent)
            case CreatePool(name, switches):
                await self._create(name, switches)
            case ResumeJob(job):
                await self._resume(job)
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

    async def _resume(self, job: JobRef) -> None:
        path, body = job_writes.job_path(job).encode(), job_writes.resume_patch(job)
        await self._request(b"PATCH", path, body, pod_writes.JSON_PATCH)
        self._log.info("resume", **job_fields(job), reason="the pods that were evicted are gone from their nodes")

    def _time(self, precision: str) -> str:
        return time_text(self._wall(), precision)


async def _still_waits(wait_for_binds: Callable[[], Awaitable[None]]) -> bool:
    """Return whether a Binding or an eviction is still queued after a moment."""
    try:
        async with asyncio.timeout(BINDS_POLL_SECONDS):
            await wait_for_binds()
    except TimeoutError:
        return True
    return False
