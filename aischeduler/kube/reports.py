"""Tell users: events, what pods wait for, and the status of Pools. All of it comes after binds and evictions.

Laws:
- Nothing is written while a Binding or an eviction waits; reports never hold back scheduling and never fail it.
- What waits to be said is bounded: a newer word about the same thing replaces the older, also one that is being tried
  again, and the oldest is dropped. A Pool's status is never dropped: there are no more of them than Pools.
- What stands in a status (of a Pool: at the version at which it was read) is said by nobody again: it is tried until it
  is written, refused, or no longer so. Events are dropped after a few tries.
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

from aischeduler.kube import notes, pool_requests, requests
from aischeduler.kube.client import Client, refusal
from aischeduler.kube.documents import UNREADABLE
from aischeduler.kube.errors import ApiError, Failed, GarbledError, RefusedError
from aischeduler.kube.notes import Note
from aischeduler.kube.pace import Backoff, Pace, Rate, Throttle
from aischeduler.kube.wire import Wire
from aischeduler.model.actions import CreatePool, Evict, Nominate, ReportPool, ReportWaiting, Warn
from aischeduler.model.pod import Pod

WAITING_MAX: Final = 100_000
"""Reports that wait to be written, two for each pod of a crowd; beyond that the oldest are dropped."""
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
class _Waiting:
    pod: Pod
    message: str


_Report = Note | _Waiting | Nominate | ReportPool | CreatePool
_Lasting = _Waiting | Nominate | ReportPool
"""What stands in a status until something else does."""
_Key = tuple[str, str]
"""What a report speaks of: the newest one of a key replaces the others."""


@dataclass(slots=True)
class ReportCounts:
    """What became of the reports."""

    written: int = 0
    dropped: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Voice:
    """In whose name events are written, and a clock of unix time in seconds."""

    reporter: notes.Reporter
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
        self._queue: OrderedDict[_Key, _Report] = OrderedDict()
        self._statuses: OrderedDict[_Key, _Report] = OrderedDict()
        self._newest: dict[_Key, _Report] = {}
        self._pools_turn = True
        self._work = asyncio.Semaphore(0)
        self._unwritten = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._said: TTLCache[_Key, str] = TTLCache(REMEMBERED_MAX, QUIET_SECONDS, timer=pace.clock)
        self._conditions: LRUCache[str, str] = LRUCache(REMEMBERED_MAX)
        self._number = int(voice.wall() * 1e6)

    def binding(self, pod: Pod) -> None:
        """Say no more that a pod waits: it is about to be bound, and the API server will say so in its status."""
        self._conditions.pop(pod.uid, None)
        for key in (_condition_key(pod), _nomination_key(pod)):
            self._newest.pop(key, None)
            if self._queue.pop(key, None) is not None:
                self._finish_one()

    def scheduled(self, pod: Pod, node: str) -> None:
        """Say that a pod was bound."""
        self._enqueue(notes.scheduled(pod, node))

    def evicted(self, action: Evict) -> None:
        """Say for whom a pod was evicted."""
        self._enqueue(notes.preempted(action))

    def nominated(self, action: Nominate) -> None:
        """Write for which node a pod holds room; only the newest word on a pod is written."""
        self._enqueue(action)

    def waiting(self, report: ReportWaiting) -> None:
        """Say why a pod waits: by an event and in its status."""
        pod = report.pod
        self._put(notes.failed_scheduling(report))
        if self._conditions.get(pod.uid) != report.message:
            self._conditions[pod.uid] = report.message
            self._enqueue(_Waiting(pod, report.message))

    def warn(self, warning: Warn) -> None:
        """Put a warning on an object."""
        self._put(notes.warning(warning))

    def pool(self, report: ReportPool) -> None:
        """Write a Pool's status; only the newest is written."""
        self._enqueue(report)

    def create(self, action: CreatePool) -> None:
        """Create a Pool object unless there is one."""
        self._enqueue(action)

    async def none_unwritten(self) -> None:
        """Return once everything has been said or dropped."""
        await self._quiet.wait()

    async def run(self, binds_first: Callable[[], Awaitable[None]]) -> None:
        """Write until cancelled; `binds_first` returns once neither Binding nor eviction waits."""
        async with asyncio.TaskGroup() as group:
            for number in range(WRITERS):
                group.create_task(self._write_all(binds_first), name=f"reports {number}")

    def _put(self, note: Note) -> None:
        key = _key(note)
        if self._said.get(key) == note.text:
            return
        self._said[key] = note.text
        self._enqueue(note)

    def _enqueue(self, report: _Report) -> None:
        key = _key(report)
        queue = self._statuses if isinstance(report, ReportPool) else self._queue
        if key not in queue:
            self._unwritten += 1
            self._quiet.clear()
            self._work.release()
        queue[key] = self._newest[key] = report
        if len(self._queue) > WAITING_MAX:
            _, oldest = self._queue.popitem(last=False)
            self._drop(oldest)
            self._finish_one()

    def _take(self) -> _Report | None:
        """Return the oldest report, by turns of Pools and of everything else; what was dropped left its turn behind."""
        first, second = (self._statuses, self._queue) if self._pools_turn else (self._queue, self._statuses)
        self._pools_turn = not self._pools_turn
        queue = first or second
        return queue.popitem(last=False)[1] if queue else None

    def _finish_one(self) -> None:
        self._unwritten -= 1
        if not self._unwritten:
            self._quiet.set()

    async def _write_all(self, binds_first: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._work.acquire()
            await self._rate.pass_through()
            await binds_first()
            report = self._take()
            if report is not None:
                await self._write(report)
                self._finish_one()

    async def _write(self, report: _Report) -> None:
        """Send a report a few times; then what lasts waits anew, and the others are dropped.

        What the server refuses is dropped, and so is what is no longer so.
        """
        backoff = Backoff(self._pace)
        for _ in range(TRIES_MAX):
            await self._throttle.pass_through()
            if not self._is_newest(report) or await self._try(report, backoff):
                return
        if isinstance(report, _Lasting):
            await backoff.wait()
            if self._is_newest(report):
                self._enqueue(report)
        elif self._is_newest(report):
            self._drop(report)

    async def _try(self, report: _Report, backoff: Backoff) -> bool:
        """Send a report once; say whether that was the end of it."""
        try:
            await self._send(report)
        except RefusedError as error:
            if error.status == 401:
                await self._wire.renew()
                return False
            if error.status == 429 or error.status >= 500:
                self._throttle.hold(error.retry_after_seconds or backoff.next_seconds())
                return False
            if error.status == 409 and isinstance(report, ReportPool):
                return False
            self.counts.refused += 1
            self._forget(report)
        except ApiError:
            await backoff.wait()
            return False
        except Exception as error:  # noqa: BLE001 - a bug costs one report, not all that follow
            self._failed("reports", error)
            self._drop(report)
        else:
            self.counts.written += 1
            self._forget(report)
        return True

    async def _send(self, report: _Report) -> None:
        match report:
            case Note():
                self._number += 1
                path, body = notes.event(report, self._number, self._voice.reporter, self._time("microseconds"))
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
        except UNREADABLE as error:
            raise GarbledError(f"GET {path}: {error}") from error
        if not self._is_newest(report):
            return
        patch = pool_requests.status_patch(report, document, self._time("seconds"))
        if patch is not None:
            await self._client.patch(f"{path}/status", patch, requests.MERGE_PATCH)

    def _is_newest(self, report: _Report) -> bool:
        return self._newest.get(_key(report)) is report

    def _drop(self, report: _Report) -> None:
        self.counts.dropped += 1
        self._forget(report)

    def _forget(self, report: _Report) -> None:
        if self._is_newest(report):
            del self._newest[_key(report)]

    def _time(self, precision: str) -> str:
        return requests.time_text(self._voice.wall(), precision)


def _key(report: _Report) -> _Key:
    match report:
        case Note(about, _, reason):
            return reason, about.uid
        case _Waiting(pod):
            return _condition_key(pod)
        case Nominate(pod):
            return _nomination_key(pod)
        case ReportPool(name):
            return "pool", name
        case CreatePool(name):
            return "create", name
        case _:
            assert_never(report)


def _condition_key(pod: Pod) -> _Key:
    return "condition", pod.uid


def _nomination_key(pod: Pod) -> _Key:
    return "nomination", pod.uid
