"""Carry out evictions: long-lived tasks fed by one bounded queue, each eviction with exactly one end.

Laws:
- What the requests are and what their answers mean is `evictions`; here they are sent, and sent again.
- What cannot be settled within a few tries is refused; that a victim went after all is told by the watch.
- When the API server is tired, all tasks wait, together with those of the binder and of the reports.
- A bug of ours costs one eviction at most: it is told, and the core hears that the victim was not evicted.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, assert_never

import msgspec

from aischeduler.kube.api_types import UNREADABLE, Named
from aischeduler.kube.backoff import ExponentialBackoff, Timing
from aischeduler.kube.connection_pool import ConnectionPool
from aischeduler.kube.errors import Failed, UnreachableError
from aischeduler.kube.eviction import Answer, Ended, Evicted, Eviction, Left, Marked
from aischeduler.kube.known_objects import version_number
from aischeduler.kube.pod_writes import Throttled, Unauthenticated, Unknown, time_text
from aischeduler.kube.work_queue import WorkQueue
from aischeduler.model.actions import Evict
from aischeduler.model.events import EvictRefusal, EvictRefused

IN_FLIGHT: Final = 16
"""Evictions that are carried out at one time."""
WAITING_MAX: Final = 4096
"""Evictions that may wait for a task; the core hears of one more than that as refused."""

Done = Callable[[Evict, Ended, float], None]
"""Hears how an eviction ended, and after how many seconds since it was submitted."""


@dataclass(frozen=True, slots=True)
class EvictionOptions:
    """In whose name we evict, in which way, and a clock of unix time in seconds."""

    controller: str
    honour_budgets: bool
    wall: Callable[[], float]


class Evictor:
    """Evicts what is submitted, 16 at a time; `work_queue` is what has not ended yet."""

    def __init__(self, connections: ConnectionPool, timing: Timing, mandate: EvictionOptions, failed: Failed) -> None:
        self.work_queue: WorkQueue[tuple[Evict, float]] = WorkQueue(WAITING_MAX)
        self.newest = 0
        """The newest version of a pod that an answer has named."""
        self._connections = connections
        self._timing = timing
        self._throttle = timing.throttle
        self._mandate = mandate
        self._failed = failed
        self._in_hand: dict[int, tuple[Evict, float]] = {}

    def submit(self, action: Evict) -> bool:
        """Put an eviction at the end of the queue; False where it is full."""
        if self.work_queue.waiting >= WAITING_MAX:
            return False
        self.work_queue.put((action, self._timing.clock()), action.pool)
        return True

    async def run(self, done: Done) -> None:
        """Evict until cancelled; what an earlier run had in hand is given up."""
        for action, since in tuple(self._in_hand.values()):
            self._conclude(action, since, _given_up(action), done)
        async with asyncio.TaskGroup() as group:
            for number in range(IN_FLIGHT):
                group.create_task(self._evict_all(done), name=f"evictor {number}")

    async def _evict_all(self, done: Done) -> None:
        while True:
            action, since = await self.work_queue.take()
            self._in_hand[id(action)] = action, since
            try:
                ended = await self._evict(action)
            except Exception as error:  # noqa: BLE001 - a bug costs one eviction, not all the others
                self._failed("evictor", error)
                ended = _given_up(action)
            self._conclude(action, since, ended, done)

    def _conclude(self, action: Evict, since: float, ended: Ended, done: Done) -> None:
        self._in_hand.pop(id(action), None)
        self.work_queue.finish()
        try:
            done(action, ended, self._timing.clock() - since)
        except Exception as error:  # noqa: BLE001 - a bug costs one end, not the evictor
            self._failed("end of an eviction", error)

    async def _evict(self, action: Evict) -> Ended:
        """Return the one end of an eviction."""
        if action.victim.terminating:
            return Left("the victim is terminating")
        eviction = Eviction(action, self._mandate.controller, honour_budgets=self._mandate.honour_budgets)
        backoff = ExponentialBackoff(self._timing)
        while True:
            await self._throttle.pass_through()
            answer = await self._send(eviction)
            match answer:
                case Evicted() | Left() | EvictRefused():
                    return answer
                case Marked():
                    continue
                case Throttled(seconds):
                    self._throttle.hold(seconds)
                case Unauthenticated() | Unknown():
                    await backoff.wait()
                case _:
                    assert_never(answer)

    async def _send(self, eviction: Eviction) -> Answer:
        write = eviction.request(time_text(self._mandate.wall(), "seconds"))
        try:
            answer = await self._connections.send(
                write.method.encode(), write.path.encode(), write.body, write.content_type.encode()
            )
        except UnreachableError as error:
            return eviction.unanswered(str(error))
        except Exception as error:  # noqa: BLE001 - a bug costs one eviction, not all the others
            self._failed("evictor", error)
            return eviction.unanswered(f"the request could not be sent: {error!r}")
        if answer.status < 300:
            self.newest = max(self.newest, _version(answer.body))
        return eviction.hear(answer.status, answer.retry_after, answer.body)


def _given_up(action: Evict) -> EvictRefused:
    return EvictRefused(action.victim.uid, EvictRefusal.UNAVAILABLE, "a bug of the scheduler")


def _version(body: bytes) -> int:
    """Return the version of the pod in an answer; 0 where it names none."""
    try:
        named = msgspec.json.decode(body, type=Named)
    except UNREADABLE:
        return 0
    return (version_number(named.metadata.resource_version) or 0) if named.kind == "Pod" else 0
