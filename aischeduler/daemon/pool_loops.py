"""One loop per pool, and one for the work of no pool.

A loop waits for work, decides for a slice of time, passes the actions on, and lets other tasks run.

Invariants:
- Every pool that exists has exactly one loop; a deleted pool has none. The loop of the work of no pool never ends.
- A slice of decisions is about 5 ms long; the number of attempts in it follows from the duration of the last slice.
- An exception never ends the search for pools with work: it is reported, and the search is repeated after a while.
- Pools take turns, and all other tasks that are due run between two slices.
- The event loop pauses only after an answer, and only while more Bindings wait to be sent, others are unanswered, the
  API server has not asked the client to wait, and no event and no pool waits. Without answers there are no pauses.
- A pause delays only answers, watch events and what plugins await around Bindings, by less than the duration of two
  slices of decisions.

Source: interrupt coalescing. A process that wakes up for each answer finds the CPU caches filled by other processes.
Answers that are handled together cost a third less CPU time, and leave more of it to an API server on the same machine.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from aischeduler.model.actions import Action
from aischeduler.observability.health import pool_loop

SLICE_SECONDS: Final = 0.005
"""How long the engine may run before other tasks run."""
ATTEMPTS_MAX: Final = 512
RETRY_FIRST_SECONDS: Final = 0.5
RETRY_LONGEST_SECONDS: Final = 30.0
"""The wait after a failed search for work, at first and at most; it doubles with each failure in a row."""
WAKEUP_SECONDS_MIN: Final = 0.02

Job = Callable[[], Awaitable[None]]
Perform = Callable[[Sequence[Action]], None]
Spawn = Callable[[str, Job], asyncio.Task[None]]
"""Starts a named task that is started again when it fails."""


class Decider(Protocol):
    """The part of the engine that decides; see `engine.scheduler.Scheduler`."""

    def decide(self, pool: str, now: float, limit: int) -> list[Action]:
        """Try at most `limit` pods of a pool, or do the work of no pool."""

    def ready(self, now: float) -> tuple[str, ...]:
        """Return the pools with something to decide."""

    def next_wakeup(self) -> float | None:
        """Return the earliest time at which a pool becomes ready by time alone; None if none does."""

    def loops(self) -> tuple[str, ...]:
        """Return all pools, and the name of the work of no pool."""


class PoolLoops:
    """The loops of all pools.

    `perform` receives the actions; `wait_for_room` waits while too many Bindings of a pool are in flight. `on_failure`
    receives the exceptions of the search for pools with work.
    """

    def __init__(
        self,
        scheduler: Decider,
        perform: Perform,
        wait_for_room: Callable[[str], Awaitable[None]],
        clock: Callable[[], float],
        on_failure: Callable[[str, Exception], None],
    ) -> None:
        self._on_failure = on_failure
        self._retry_seconds = RETRY_FIRST_SECONDS
        self._scheduler = scheduler
        self._perform = perform
        self._wait_for_room = wait_for_room
        self._clock = clock
        self._spawn: Spawn | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._wakes: dict[str, asyncio.Event] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None
        self._search_is_due = False
        self._due: set[str] = set()
        self._held: set[str] = set()
        """The pools whose loops wait for room."""
        self._turn = asyncio.Lock()
        """Held for one slice and until all other due tasks have run; loops get it in the order of their requests."""

    def begin(self, spawn: Spawn) -> None:
        """Start to search for work and to decide."""
        self._spawn = spawn
        self.wake_soon()

    def end(self) -> None:
        """Stop deciding: cancel all loops and the timer."""
        self._spawn = None
        for task in self._tasks.values():
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()

    @property
    def busy(self) -> bool:
        """Return whether a pool has something to decide and has room, or a search for work is due."""
        return self._search_is_due or bool(self._due)

    def wake_soon(self) -> None:
        """Search for work once all tasks that are due now have run."""
        if not self._search_is_due:
            self._search_is_due = True
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        """Give every pool a loop, wake the pools with something to decide, and set the timer for the next wake-up."""
        self._search_is_due = False
        if self._spawn is None:
            return
        try:
            self._search_for_work(self._spawn)
            self._retry_seconds = RETRY_FIRST_SECONDS
        except Exception as error:  # noqa: BLE001 - without another search no pool would ever decide again
            self._on_failure("search for work", error)
            self._search_in(self._retry_seconds)
            self._retry_seconds = min(self._retry_seconds * 2, RETRY_LONGEST_SECONDS)

    def _search_for_work(self, spawn: Spawn) -> None:
        pools = self._scheduler.loops()
        if pools != tuple(self._tasks):
            self._start_and_cancel_loops(dict.fromkeys(pools), spawn)
        for name in self._scheduler.ready(self._clock()):
            self._wakes[name].set()
            if name not in self._held:
                self._due.add(name)
        self._set_timer()

    def _start_and_cancel_loops(self, pools: Mapping[str, None], spawn: Spawn) -> None:
        """Start and cancel loops so that exactly these pools have one, in the order of the pools."""
        for name in [name for name in self._tasks if name not in pools]:
            self._tasks.pop(name).cancel()
            del self._wakes[name]
            self._due.discard(name)
            self._held.discard(name)
        for name in pools:
            if name not in self._tasks:
                self._wakes[name] = asyncio.Event()
                self._tasks[name] = spawn(pool_loop(name), partial(self._run_loop, name))
        self._tasks = {name: self._tasks[name] for name in pools}

    def _on_timer(self) -> None:
        self._timer = None
        self._wake()

    def _set_timer(self) -> None:
        at = self._scheduler.next_wakeup()
        if self._timer is not None:
            if at == self._timer_at:
                return
            self._timer.cancel()
            self._timer = None
        if at is not None:
            self._search_in(max(WAKEUP_SECONDS_MIN, at - self._clock()))
        self._timer_at = at

    def _search_in(self, seconds: float) -> None:
        """Search for work after so many seconds, and not at the time that was set before."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = None
        self._timer = asyncio.get_running_loop().call_later(seconds, self._on_timer)

    async def _run_loop(self, pool: str) -> None:
        wake = self._wakes[pool]
        wake.set()  # after a failure there may be work that no event announces
        attempts = 1
        while True:
            await wake.wait()
            wake.clear()
            self._due.discard(pool)
            self._held.add(pool)
            await self._wait_for_room(pool)
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
    """Return how many attempts fill a slice, given the duration of the last ones."""
    if seconds > SLICE_SECONDS:
        return max(1, attempts // 2)
    return min(ATTEMPTS_MAX, attempts * 2) if seconds < SLICE_SECONDS / 2 else attempts


PAUSE_SECONDS: Final = 0.008


class Answers(Protocol):
    """The state of the answers to Bindings; see `kube.write.binder.Binder`."""

    answered: asyncio.Event
    unanswered: int

    @property
    def throttled(self) -> bool:
        """Return whether the API server has asked the client to wait."""


async def batch_answers(
    answers: Answers, busy: Callable[[], bool], pause: Callable[[float], None] = time.sleep
) -> None:
    """Pause after answers until cancelled; `busy` returns whether there is something else to do."""
    while True:
        await answers.answered.wait()
        answers.answered.clear()
        if answers.unanswered and not answers.throttled and not busy():
            pause(PAUSE_SECONDS)  # blocks the event loop on purpose
        await asyncio.sleep(0)
