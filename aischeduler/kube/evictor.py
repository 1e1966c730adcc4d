"""Send evictions: long-lived tasks take them from one bounded queue, and each eviction gets exactly one outcome.

Invariants:
- `eviction_writes` defines the requests and the meaning of the answers; this module sends and retries them.
- An eviction without an outcome after a few tries is refused; if the victim leaves after all, the watch shows it.
- When the API server is overloaded, all tasks wait, together with the binder and the reporter.
- An internal error costs at most one eviction: it is reported, and the engine gets a refusal.
"""

import asyncio
from collections.abc import Callable
from typing import Final, assert_never

import msgspec
from msgspec import Struct

from aischeduler.kube.backoff import ExponentialBackoff, Timing
from aischeduler.kube.connection_pool import ConnectionPool
from aischeduler.kube.errors import OnInternalError, UnreachableError
from aischeduler.kube.eviction_writes import ConditionSet, Evicted, Eviction, EvictionAnswer, EvictionOutcome, NotNeeded
from aischeduler.kube.known_objects import version_number
from aischeduler.kube.meta_types import UNREADABLE, PartialObjectMetadata
from aischeduler.kube.pod_writes import Throttled, Unauthenticated, Unknown, time_text
from aischeduler.kube.work_queue import WorkQueue
from aischeduler.model.actions import Evict
from aischeduler.model.events import EvictRefusal, EvictRefused

EVICTIONS_IN_FLIGHT: Final = 16
"""How many evictions are in flight."""
WAITING_MAX: Final = 4096
"""How many evictions may be queued; the engine gets a refusal of any more."""

OnOutcome = Callable[[Evict, EvictionOutcome, float], None]
"""Called with an eviction, its outcome, and the seconds since it was submitted."""


class EvictionOptions(Struct, frozen=True):
    """The scheduler's name, whether to use the Eviction API, and a clock in unix seconds."""

    controller: str
    honour_budgets: bool
    wall: Callable[[], float]


class Evictor:
    """Sends submitted evictions, 16 at a time; `work_queue` holds those without an outcome."""

    def __init__(
        self, connections: ConnectionPool, timing: Timing, options: EvictionOptions, on_internal_error: OnInternalError
    ) -> None:
        self.work_queue: WorkQueue[tuple[Evict, float]] = WorkQueue(WAITING_MAX)
        self.newest_version = 0
        """The newest resource version of a pod in an answer."""
        self._connections = connections
        self._timing = timing
        self._throttle = timing.throttle
        self._options = options
        self._on_internal_error = on_internal_error
        self._in_progress: dict[int, tuple[Evict, float]] = {}

    def submit(self, action: Evict) -> bool:
        """Put an eviction at the end of the queue; return False if the queue is full."""
        if self.work_queue.waiting >= WAITING_MAX:
            return False
        self.work_queue.put((action, self._timing.clock()), action.pool)
        return True

    async def run(self, on_outcome: OnOutcome) -> None:
        """Send evictions until cancelled; those that an earlier run left unfinished are refused."""
        for action, since in tuple(self._in_progress.values()):
            self._conclude(action, since, _internal_error(action), on_outcome)
        async with asyncio.TaskGroup() as group:
            for number in range(EVICTIONS_IN_FLIGHT):
                group.create_task(self._evict_all(on_outcome), name=f"evictor {number}")

    async def _evict_all(self, on_outcome: OnOutcome) -> None:
        while True:
            action, since = await self.work_queue.take()
            self._in_progress[id(action)] = action, since
            try:
                outcome = await self._evict(action)
            except Exception as error:  # noqa: BLE001 - an error costs one eviction, not the others
                self._on_internal_error("evictor", error)
                outcome = _internal_error(action)
            self._conclude(action, since, outcome, on_outcome)

    def _conclude(self, action: Evict, since: float, outcome: EvictionOutcome, on_outcome: OnOutcome) -> None:
        self._in_progress.pop(id(action), None)
        self.work_queue.finish()
        try:
            on_outcome(action, outcome, self._timing.clock() - since)
        except Exception as error:  # noqa: BLE001 - an error costs one outcome, not the evictor
            self._on_internal_error("outcome of an eviction", error)

    async def _evict(self, action: Evict) -> EvictionOutcome:
        """Return the outcome of an eviction."""
        if action.victim.terminating:
            return NotNeeded("the victim is terminating")
        eviction = Eviction(action, self._options.controller, honour_budgets=self._options.honour_budgets)
        backoff = ExponentialBackoff(self._timing)
        while True:
            await self._throttle.wait()
            answer = await self._send(eviction)
            match answer:
                case Evicted() | NotNeeded() | EvictRefused():
                    return answer
                case ConditionSet():
                    continue
                case Throttled(seconds):
                    self._throttle.hold_for(seconds)
                case Unauthenticated() | Unknown():
                    await backoff.wait()
                case _:
                    assert_never(answer)

    async def _send(self, eviction: Eviction) -> EvictionAnswer:
        write = eviction.request(time_text(self._options.wall(), "seconds"))
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
