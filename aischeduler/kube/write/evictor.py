"""Send evictions: long-lived tasks take them from one bounded queue, and each eviction gets exactly one outcome.

Invariants:
- `eviction_writes` defines the requests and the meaning of the answers; this module sends and retries them.
- An eviction without an outcome after a few tries is refused; if the victim leaves after all, the watch shows it.
- When the API server is overloaded, all tasks wait, together with the binder and the reporter. An eviction that waits
  for its next try holds no task, and a pool that gets no answers leaves some tasks for other pools.
- An internal error costs at most one eviction, and those that go together with it before they are sent: it is
  reported, and the engine gets a refusal.
"""

import asyncio
from collections.abc import Callable
from typing import Final, assert_never

import msgspec
from msgspec import Struct

from aischeduler.kube.decode.meta_types import UNREADABLE, PartialObjectMetadata
from aischeduler.kube.elastic_kinds import COLLECTIONS, Collections
from aischeduler.kube.http.backoff import ExponentialBackoff, Timing
from aischeduler.kube.http.connection_pool import ConnectionPool
from aischeduler.kube.http.errors import OnInternalError, UnreachableError
from aischeduler.kube.watch.known_objects import version_number
from aischeduler.kube.write.eviction_writes import (
    Evicted,
    Eviction,
    EvictionAnswer,
    EvictionOutcome,
    NextRequest,
    NotNeeded,
    NotShown,
    Rehearsals,
    Rehearsed,
)
from aischeduler.kube.write.job_writes import JobWrite, JobWrites
from aischeduler.kube.write.pod_writes import Throttled, Unauthenticated, Unknown
from aischeduler.kube.write.work_queue import WorkQueue
from aischeduler.model.actions import Evict
from aischeduler.model.contract import AskedWork
from aischeduler.model.events import EvictRefusal, EvictRefused
from aischeduler.model.times import time_text

EVICTIONS_IN_FLIGHT: Final = 16
"""How many evictions of a pool are in flight."""
RESERVED: Final = 4
EVICTIONS_IN_FLIGHT_MAX: Final = EVICTIONS_IN_FLIGHT + RESERVED
UNSHOWN_SECONDS: Final = 0.1
"""How often an eviction is looked at whose victim the watch does not show on its node yet."""
WAITING_MAX: Final = 4096
"""How many evictions may be queued; the engine gets a refusal of any more."""

OnEvictionOutcome = Callable[[Evict, EvictionOutcome, float], None]
"""Called with an eviction, its outcome, and the seconds since it was submitted."""
OnJobWrite = Callable[[Evict, JobWrite], None]
"""Called once with each write to a Job that has ended, and the eviction that sent it."""


def _ignore(_action: Evict, _job_write: JobWrite) -> None:
    return


class PendingEviction(Struct, eq=False):
    """A submitted eviction, its time, and how far it is."""

    action: Evict
    submitted_at: float
    eviction: Eviction
    backoff: ExponentialBackoff


class Evictor:
    """Sends submitted evictions; `work_queue` holds those without an outcome.

    `controller` is the scheduler's name; with `honour_budgets`, the Eviction API is used; `wall` returns unix seconds;
    `engine` knows what it asks for.
    """

    def __init__(
        self,
        connections: ConnectionPool,
        timing: Timing,
        on_internal_error: OnInternalError,
        *,
        controller: str,
        honour_budgets: bool,
        wall: Callable[[], float],
        engine: AskedWork,
        collections: Collections = COLLECTIONS,
    ) -> None:
        self.work_queue: WorkQueue[PendingEviction] = WorkQueue(WAITING_MAX, EVICTIONS_IN_FLIGHT, RESERVED)
        self.newest_version = 0
        """The newest resource version of a pod in an answer."""
        self._connections = connections
        self._timing = timing
        self._throttle = timing.throttle
        self._controller, self._honour_budgets, self._wall, self._engine = controller, honour_budgets, wall, engine
        self._on_internal_error = on_internal_error
        self._in_progress: dict[int, PendingEviction] = {}
        """What a task works on, or what waits for its next try."""
        self._rehearsals: Rehearsals[PendingEviction] = Rehearsals()
        self._job_writes = JobWrites(collections)
        self._on_job_write: OnJobWrite = _ignore

    def submit(self, action: Evict) -> bool:
        """Put an eviction at the end of the queue; return False if the queue is full.

        Those that go together are queued together or not at all.
        """
        if self.work_queue.unfinished >= WAITING_MAX and not self._rehearsals.has_begun(action):
            return False
        if action.together > 1:
            self._rehearsals.begin(action)
        job_write = self._job_writes.of(action)
        eviction = Eviction(action, self._controller, honour_budgets=self._honour_budgets, job_write=job_write)
        pending = PendingEviction(action, self._timing.clock(), eviction, ExponentialBackoff(self._timing))
        self.work_queue.put(pending, action.pool)
        return True

    async def run(self, on_outcome: OnEvictionOutcome, on_job_write: OnJobWrite = _ignore) -> None:
        """Send evictions until cancelled; those that an earlier run left unfinished are refused."""
        self._on_job_write = on_job_write
        for pending in tuple(self._in_progress.values()):
            self._go_on(pending, _internal_error(pending.action), on_outcome)
        self.work_queue.leave_all()
        async with asyncio.TaskGroup() as group:
            for number in range(EVICTIONS_IN_FLIGHT_MAX):
                group.create_task(self._evict_all(on_outcome, group), name=f"evictor {number}")

    async def _evict_all(self, on_outcome: OnEvictionOutcome, group: asyncio.TaskGroup) -> None:
        pool: str | None = None
        while True:
            pending = await self.work_queue.take(pool)
            pool = pending.action.pool
            self._in_progress[id(pending)] = pending
            outcome: Rehearsed | EvictionOutcome | float
            try:
                outcome = await self._evict(pending)
            except Exception as error:  # noqa: BLE001 - an error costs one eviction, not the others
                self._on_internal_error("evictor", error)
                outcome = _internal_error(pending.action)
            if isinstance(outcome, float):
                group.create_task(self._put_back(pending, outcome), name="eviction later")
            else:
                self._go_on(pending, outcome, on_outcome)

    def _go_on(
        self, pending: PendingEviction, outcome: Rehearsed | EvictionOutcome, on_outcome: OnEvictionOutcome
    ) -> None:
        """Conclude an eviction, or send those that are rehearsed together once all of them are."""
        self._in_progress.pop(id(pending), None)
        settled = [(pending, outcome)]
        if pending.eviction.rehearses:
            settled = self._rehearsals.answered(pending.action, pending, outcome)
        for eviction, said in settled:
            if isinstance(said, Rehearsed):
                eviction.eviction.go_on()
                self.work_queue.put_back(eviction, eviction.action.pool)
            else:
                self._conclude(eviction, said, on_outcome)

    async def _put_back(self, pending: PendingEviction, seconds: float) -> None:
        """Queue an eviction again after this time."""
        await self._timing.sleep(seconds)
        del self._in_progress[id(pending)]
        self.work_queue.put_back(pending, pending.action.pool)

    def _conclude(self, pending: PendingEviction, outcome: EvictionOutcome, on_outcome: OnEvictionOutcome) -> None:
        pending.eviction.release()
        self.work_queue.finish()
        try:
            on_outcome(pending.action, outcome, self._timing.clock() - pending.submitted_at)
        except Exception as error:  # noqa: BLE001 - an error costs one outcome, not the evictor
            self._on_internal_error("outcome of an eviction", error)

    async def _evict(self, pending: PendingEviction) -> Rehearsed | EvictionOutcome | float:
        """Return the outcome of an eviction or of its dry runs, or the seconds until its next try."""
        action, eviction, pool = pending.action, pending.eviction, pending.action.pool
        if action.victim.terminating:
            return NotNeeded("the victim is terminating")
        while True:
            await self._throttle.wait(pool)
            answer = eviction.withheld(self._engine) or await self._send(eviction)
            if (job_write := eviction.news()) is not None:
                self._on_job_write(action, job_write)
            match answer:
                case Rehearsed() | Evicted() | NotNeeded() | EvictRefused():
                    return answer
                case NextRequest():
                    continue
                case NotShown():
                    return UNSHOWN_SECONDS
                case Throttled(seconds):
                    self._throttle.hold_for(seconds, pool)
                case Unauthenticated():
                    return pending.backoff.next_seconds()
                case Unknown():
                    return max(pending.backoff.next_seconds(), answer.retry_after_seconds)
                case _:
                    assert_never(answer)

    async def _send(self, eviction: Eviction) -> EvictionAnswer:
        write = eviction.request(time_text(self._wall()))
        try:
            answer = await self._connections.send(
                write.method.encode(), write.path.encode(), write.body, write.content_type.encode()
            )
        except UnreachableError as error:
            return eviction.no_answer(str(error))
        except Exception as error:  # noqa: BLE001 - an error costs one eviction, not the others
            self._on_internal_error("evictor", error)
            return eviction.no_answer(f"the request could not be sent: {error!r}")
        if answer.status < 300:
            self.newest_version = max(self.newest_version, _version(answer.body))
        return eviction.read_answer(answer.status, answer.retry_after, answer.body)


def _internal_error(action: Evict) -> EvictRefused:
    return EvictRefused(action.victim.uid, EvictRefusal.UNAVAILABLE, "an internal error of the scheduler")


def _version(body: bytes) -> int:
    """Return the resource version of the pod in an answer; 0 if there is none."""
    try:
        named = msgspec.json.decode(body, type=PartialObjectMetadata)
    except UNREADABLE:
        return 0
    return (version_number(named.metadata.resource_version) or 0) if named.kind == "Pod" else 0
