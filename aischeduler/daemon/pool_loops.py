"""One loop per pool: wait for work, decide for a slice, hand on, let others run.

Laws:
- Loops follow the pools: a pool that comes gets one, a pool that goes takes its own with it.
- A slice of decisions is about 5 ms long; how many attempts that is, is learnt from the last ones.
- An exception never ends the looking for work: it is told, and work is looked for again after a while.
- Pools take turns, and between two slices everything else gets its turn: what is read, sent and answered.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from aischeduler.model.actions import Action
from aischeduler.observability.health import pool_loop

SLICE_SECONDS: Final = 0.005
"""How long the engine may run before others may."""
ATTEMPTS_MAX: Final = 512
"""Most attempts in one call of the engine."""
RETRY_FIRST_SECONDS: Final = 0.5
RETRY_LONGEST_SECONDS: Final = 30.0
"""How long to wait after a failed look for work, at first and at most; each time in a row it is twice as long."""
NAP_SECONDS: Final = 0.02
"""Shortest wait for something that moves by itself."""

Job = Callable[[], Awaitable[None]]
Perform = Callable[[Sequence[Action]], None]
Spawn = Callable[[str, Job], asyncio.Task[None]]
"""Starts a named task that is started again when it fails."""


class Decider(Protocol):
    """The part of the engine that decides; see `engine.scheduler.Scheduler`."""

    def decide(self, pool: str, now: float, limit: int) -> list[Action]:
        """Try at most `limit` pods of a pool."""

    def ready(self, now: float) -> tuple[str, ...]:
        """Return the pools with something to decide."""

    def next_wakeup(self) -> float | None:
        """Return when something moves by itself."""

    def pools(self) -> tuple[str, ...]:
        """Return all pools."""


class PoolLoops:
    """One loop per pool of the scheduler: wait for work, decide for a slice, hand on, let others run.

    `perform` takes the actions; `room` waits while too much of a pool is decided and not yet bound. `failed` hears what
    failed when work was looked for.
    """

    def __init__(
        self,
        scheduler: Decider,
        perform: Perform,
        room: Callable[[str], Awaitable[None]],
        clock: Callable[[], float],
        failed: Callable[[str, Exception], None],
    ) -> None:
        self._failed = failed
        self._retry_seconds = RETRY_FIRST_SECONDS
        self._scheduler = scheduler
        self._perform = perform
        self._room = room
        self._clock = clock
        self._spawn: Spawn | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._wakes: dict[str, asyncio.Event] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at: float | None = None
        self._wake_is_due = False
        self._due: set[str] = set()
        self._held: set[str] = set()
        """The pools that wait for room."""
        self._turn = asyncio.Lock()
        """Held for one slice and until all else that is due has run; who waits gets it in the order of coming."""

    def begin(self, spawn: Spawn) -> None:
        """Decide from now on."""
        self._spawn = spawn
        self.wake_soon()

    def end(self) -> None:
        """Decide no more."""
        self._spawn = None
        for task in self._tasks.values():
            task.cancel()
        if self._alarm is not None:
            self._alarm.cancel()

    @property
    def busy(self) -> bool:
        """Say whether some pool has something to decide and may."""
        return self._wake_is_due or bool(self._due)

    def wake_soon(self) -> None:
        """Look for work once, after all that runs now has run."""
        if not self._wake_is_due:
            self._wake_is_due = True
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        """Follow the scheduler's pools, wake those with something to do, and set the alarm for the next."""
        self._wake_is_due = False
        if self._spawn is None:
            return
        try:
            self._look_for_work(self._spawn)
            self._retry_seconds = RETRY_FIRST_SECONDS
        except Exception as error:  # noqa: BLE001 - without another look nothing would ever be decided again
            self._failed("looking for work", error)
            self._ring_in(self._retry_seconds)
            self._retry_seconds = min(self._retry_seconds * 2, RETRY_LONGEST_SECONDS)

    def _look_for_work(self, spawn: Spawn) -> None:
        pools = self._scheduler.pools()
        if pools != tuple(self._tasks):
            self._follow(dict.fromkeys(pools), spawn)
        for name in self._scheduler.ready(self._clock()):
            self._wakes[name].set()
            if name not in self._held:
                self._due.add(name)
        self._set_alarm()

    def _follow(self, pools: Mapping[str, None], spawn: Spawn) -> None:
        """Let exactly these pools have a loop, in their order."""
        for name in [name for name in self._tasks if name not in pools]:
            self._tasks.pop(name).cancel()
            del self._wakes[name]
            self._due.discard(name)
            self._held.discard(name)
        for name in pools:
            if name not in self._tasks:
                self._wakes[name] = asyncio.Event()
                self._tasks[name] = spawn(pool_loop(name), partial(self._decide_for_ever, name))
        self._tasks = {name: self._tasks[name] for name in pools}

    def _ring(self) -> None:
        self._alarm = None
        self._wake()

    def _set_alarm(self) -> None:
        at = self._scheduler.next_wakeup()
        if self._alarm is not None:
            if at == self._alarm_at:
                return
            self._alarm.cancel()
            self._alarm = None
        if at is not None:
            self._ring_in(max(NAP_SECONDS, at - self._clock()))
        self._alarm_at = at

    def _ring_in(self, seconds: float) -> None:
        """Look for work after so many seconds, whatever was meant to be the next time."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = None
        self._alarm = asyncio.get_running_loop().call_later(seconds, self._ring)

    async def _decide_for_ever(self, pool: str) -> None:
        wake = self._wakes[pool]
        wake.set()  # after a failure there may be work that nobody speaks of again
        attempts = 1
        while True:
            await wake.wait()
            wake.clear()
            self._due.discard(pool)
            self._held.add(pool)
            await self._room(pool)
            self._held.discard(pool)
            self._due.add(pool)
            async with self._turn:
                begun = self._clock()
                try:
                    self._perform(self._scheduler.decide(pool, begun, attempts))
                finally:
                    self._due.discard(pool)
                    self.wake_soon()
                attempts = _attempts(attempts, self._clock() - begun)
                await asyncio.sleep(0)


def _attempts(attempts: int, seconds: float) -> int:
    """Return how many attempts fill a slice, from how long the last ones took."""
    if seconds > SLICE_SECONDS:
        return max(1, attempts // 2)
    return min(ATTEMPTS_MAX, attempts * 2) if seconds < SLICE_SECONDS / 2 else attempts
