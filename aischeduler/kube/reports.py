"""Tell users: events, what pods wait for, and the status of Pools. All of it comes after binds and evictions.

Laws:
- Nothing is written while a Binding or an eviction waits; reports never hold back scheduling and never fail it.
- What waits to be said is bounded: a newer word about the same thing replaces the older, and the oldest is dropped.
- A Pool's status is written at the version at which it was read, and only the newest that we have; what could not be
  written is tried again until it is, or a newer one is there.
- The same is not said twice in a row about the same object.

Source: Kubernetes events.k8s.io/v1, pods/status, and the conventions of conditions.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, assert_never

import msgspec
from cachetools import LRUCache, TTLCache

from aischeduler.kube import pool_requests, requests
from aischeduler.kube.client import Client, refusal
from aischeduler.kube.errors import ApiError, Failed, GarbledError, RefusedError, UnreachableError
from aischeduler.kube.pace import Backoff, Pace, Rate, Throttle
from aischeduler.kube.wire import Wire
from aischeduler.model.actions import CreatePool, Evict, Nominate, ObjectRef, ReportPool, ReportWaiting, Warn
from aischeduler.model.pod import Pod

WAITING_MAX: Final = 20_000
"""Reports that wait to be written; beyond that the oldest are dropped."""
WRITERS: Final = 8
PER_SECOND: Final = 300.0
BURST: Final = 600
TRIES_MAX: Final = 3
"""Times that a report is sent before it is dropped."""
REMEMBERED_MAX: Final = 100_000
"""Objects whose last report we remember."""
QUIET_SECONDS: Final = 600.0
"""How long an event is not said again about the same object."""


@dataclass(frozen=True, slots=True)
class _Event:
    about: ObjectRef
    kind: str
    reason: str
    action: str
    text: str


@dataclass(frozen=True, slots=True)
class _Waiting:
    pod: Pod
    message: str


_Report = _Event | _Waiting | Nominate | ReportPool | CreatePool


@dataclass(slots=True)
class ReportCounts:
    """What became of the reports."""

    written: int = 0
    dropped: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Voice:
    """In whose name events are written, and a clock of unix time in seconds."""

    reporter: requests.Reporter
    wall: Callable[[], float]


class Reports:
    """Writes reports behind the binds."""

    def __init__(self, wire: Wire, client: Client, pace: Pace, voice: Voice, failed: Failed) -> None:
        self.counts = ReportCounts()
        self._wire = wire
        self._client = client
        self._pace = pace
        self._voice = voice
        self._failed = failed
        self._throttle = Throttle(pace)
        self._rate = Rate(pace, PER_SECOND, BURST)
        self._queue: OrderedDict[tuple[str, str], _Report] = OrderedDict()
        self._work = asyncio.Semaphore(0)
        self._unwritten = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._said: TTLCache[tuple[str, str], str] = TTLCache(REMEMBERED_MAX, QUIET_SECONDS, timer=pace.clock)
        self._conditions: LRUCache[str, str] = LRUCache(REMEMBERED_MAX)
        self._statuses: dict[str, ReportPool] = {}
        self._number = int(voice.wall() * 1e6)

    def binding(self, pod: Pod) -> None:
        """Say no more that a pod waits: it is about to be bound, and the API server will say so in its status."""
        self._conditions.pop(pod.uid, None)
        for key in (("condition", pod.uid), ("nomination", pod.uid)):
            if self._queue.pop(key, None) is not None:
                self._finish_one()

    def scheduled(self, pod: Pod, node: str) -> None:
        """Say that a pod was bound."""
        text = f"Successfully assigned {pod.namespace}/{pod.name} to {node}"
        self._enqueue(("Scheduled", pod.uid), _Event(_about(pod), "Normal", "Scheduled", "Binding", text))

    def evicted(self, action: Evict) -> None:
        """Say for whom a pod was evicted."""
        event = _Event(_about(action.victim), "Normal", "Preempted", "Preempting", action.message)
        self._enqueue(("Preempted", action.victim.uid), event)

    def nominated(self, action: Nominate) -> None:
        """Write for which node a pod holds room; only the newest word on a pod is written."""
        self._enqueue(("nomination", action.pod.uid), action)

    def waiting(self, report: ReportWaiting) -> None:
        """Say why a pod waits: by an event and in its status."""
        pod = report.pod
        self._put(_Event(_about(pod), "Warning", "FailedScheduling", "Scheduling", report.message))
        if self._conditions.get(pod.uid) != report.message:
            self._conditions[pod.uid] = report.message
            self._enqueue(("condition", pod.uid), _Waiting(pod, report.message))

    def warn(self, warning: Warn) -> None:
        """Put a warning on an object."""
        self._put(_Event(warning.about, "Warning", warning.reason, "Scheduling", warning.message))

    def pool(self, report: ReportPool) -> None:
        """Write a Pool's status; only the newest is written."""
        self._statuses[report.name] = report
        self._enqueue(("pool", report.name), report)

    def create(self, action: CreatePool) -> None:
        """Create a Pool object unless there is one."""
        self._enqueue(("create", action.name), action)

    async def none_unwritten(self) -> None:
        """Return once everything has been said or dropped."""
        await self._quiet.wait()

    async def run(self, binds_first: Callable[[], Awaitable[None]]) -> None:
        """Write until cancelled; `binds_first` returns once neither Binding nor eviction waits."""
        async with asyncio.TaskGroup() as group:
            for number in range(WRITERS):
                group.create_task(self._write_all(binds_first), name=f"reports {number}")

    def _put(self, event: _Event) -> None:
        key = (event.reason, event.about.uid)
        if self._said.get(key) == event.text:
            return
        self._said[key] = event.text
        self._enqueue(key, event)

    def _enqueue(self, key: tuple[str, str], report: _Report) -> None:
        if key not in self._queue:
            self._unwritten += 1
            self._quiet.clear()
            self._work.release()
        self._queue[key] = report
        if len(self._queue) > WAITING_MAX:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest, report = self._queue.popitem(last=False)
        if isinstance(report, ReportPool):  # nobody would say it again, and of pools there are few: the next one goes
            self._queue[oldest] = report
            _, report = self._queue.popitem(last=False)
            self._forget(report)
        self.counts.dropped += 1
        self._finish_one()

    def _finish_one(self) -> None:
        self._unwritten -= 1
        if not self._unwritten:
            self._quiet.set()

    async def _write_all(self, binds_first: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._work.acquire()
            await self._rate.pass_through()
            await binds_first()
            if self._queue:  # what was dropped left its turn behind
                _, report = self._queue.popitem(last=False)
                await self._write(report)
                self._finish_one()

    async def _write(self, report: _Report) -> None:
        """Send a report a few times; then it is dropped, and so is what the server refuses.

        The status of a Pool is dropped for a newer one alone: nobody would say it again while the Pool rests.
        """
        backoff = Backoff(self._pace)
        for _ in range(TRIES_MAX):
            await self._throttle.pass_through()
            try:
                await self._send(report)
            except UnreachableError:
                await backoff.wait()
            except RefusedError as error:
                if error.status == 401:
                    await self._wire.renew()
                elif error.status == 429 or error.status >= 500:
                    self._throttle.hold(error.retry_after_seconds or backoff.next_seconds())
                elif not (error.status == 409 and isinstance(report, ReportPool)):
                    self.counts.refused += 1
                    self._forget(report)
                    return
            except ApiError:
                break
            except Exception as error:  # noqa: BLE001 - a bug costs one report, not all that follow
                self._failed("reports", error)
                self._forget(report)
                break
            else:
                self.counts.written += 1
                self._forget(report)
                return
        if isinstance(report, ReportPool) and self._is_newest(report):
            await backoff.wait()
            if ("pool", report.name) not in self._queue:
                self._enqueue(("pool", report.name), report)
        else:
            self.counts.dropped += 1

    async def _send(self, report: _Report) -> None:
        match report:
            case _Event(about, kind, reason, action, text):
                self._number += 1
                note = requests.Note(kind, reason, action, text, self._number)
                path, body = requests.event(about, note, self._voice.reporter, self._time("microseconds"))
                await self._wire_send(b"POST", path, body, requests.JSON)
            case _Waiting(pod, message):
                path, body = requests.waiting_condition(pod, message, self._time("seconds"))
                await self._wire_send(b"PATCH", path, body, requests.STRATEGIC_PATCH)
            case Nominate(pod, node):
                path, body = requests.nomination(pod, node)
                await self._wire_send(b"PATCH", path, body, requests.MERGE_PATCH)
            case ReportPool():
                await self._write_status(report)
            case CreatePool(name):
                await self._create(name)
            case _:
                assert_never(report)

    async def _wire_send(self, method: bytes, path: bytes, body: bytes, content_type: str) -> None:
        answer = await self._wire.send(method, path, body, content_type.encode())
        if answer.status >= 400:
            raise refusal(answer.status, answer.body, answer.retry_after)

    async def _create(self, name: str) -> None:
        path, body = pool_requests.pools_path().encode(), pool_requests.new_pool(name)
        try:
            await self._wire_send(b"POST", path, body, requests.JSON)
        except RefusedError as error:
            if error.status != 409:
                raise

    async def _write_status(self, report: ReportPool) -> None:
        """Write the status unless it says the same, there is a newer one, or the Pool is another one by now."""
        path = pool_requests.pool_path(report.name)
        try:
            document: dict[str, Any] = msgspec.json.decode(await self._client.get(path), type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise GarbledError(f"GET {path}: {error}") from error
        if not self._is_newest(report):
            return
        if report.uid and (document.get("metadata") or {}).get("uid") != report.uid:
            return
        patch = pool_requests.status_patch(report, document, self._time("seconds"))
        if patch is not None:
            await self._client.patch(f"{path}/status", patch, requests.MERGE_PATCH)

    def _is_newest(self, report: ReportPool) -> bool:
        return self._statuses.get(report.name) is report

    def _forget(self, report: _Report) -> None:
        if isinstance(report, ReportPool) and self._is_newest(report):
            del self._statuses[report.name]

    def _time(self, precision: str) -> str:
        return requests.time_text(self._voice.wall(), precision)


def _about(pod: Pod) -> ObjectRef:
    return ObjectRef("Pod", pod.name, pod.uid, pod.namespace)
