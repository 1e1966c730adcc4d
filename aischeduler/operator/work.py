"""The passes that are due: which BatchProcesses to look at, when, by how many tasks.

Invariants:
- One BatchProcess has at most one pass at a time, and what happens during a pass causes another after it.
- A pass that fails is repeated with growing delays, and delays no other BatchProcess.
- Passes over one BatchProcess keep a distance that grows with their length, so that a large gang that changes all the
  time costs at most a part of one task.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

import structlog

TASKS: Final = 4
DISTANCE_SECONDS: Final = 0.2
DISTANCE_FACTOR: Final = 2.0
RETRY_SECONDS: Final = 1.0
RETRY_SECONDS_MAX: Final = 120.0

K = TypeVar("K", bound=Hashable)


class Passes(Generic[K]):
    """Runs a function for each key that is due. The function returns in how many seconds it is due again, or None."""

    def __init__(self, one: Callable[[K], Awaitable[float | None]]) -> None:
        self._one = one
        self._due: dict[K, float] = {}
        """Key -> when its next pass may begin, on the clock of the event loop."""
        self._running: dict[K, None] = {}
        self._not_before: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._changed = asyncio.Event()

    def mark(self, key: K, delay_seconds: float = 0.0) -> None:
        """Note that a pass is due in this time, or earlier if it was."""
        due = asyncio.get_running_loop().time() + delay_seconds
        self._due[key] = min(due, self._due.get(key, due))
        self._changed.set()

    async def run(self) -> None:
        """Make passes until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._changed.clear()
                wait_seconds = self._start(group)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), wait_seconds)

    def _start(self, group: asyncio.TaskGroup) -> float | None:
        """Start what is due and return when to look again, or None if only a change can help."""
        now = asyncio.get_running_loop().time()
        waits = []
        for key, due in sorted(self._due.items(), key=lambda item: item[1]):
            ready = max(due, self._not_before.get(key, 0.0))
            if key in self._running or len(self._running) >= TASKS:
                continue
            if ready > now:
                waits.append(ready - now)
                continue
            del self._due[key]
            self._running[key] = None
            group.create_task(self._pass(key))
        return min(waits, default=None)

    async def _pass(self, key: K) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        again = None
        try:
            again = await self._one(key)
            self._failures.pop(key, None)
        except Exception as error:  # noqa: BLE001 - whatever fails in one pass harms no other
            self._failures[key] = self._failures.get(key, 0) + 1
            again = min(RETRY_SECONDS * 2 ** min(self._failures[key] - 1, 10), RETRY_SECONDS_MAX)
            structlog.get_logger().warning(
                "pass failed", batch_process=str(key), reason=str(error), again_in_seconds=again
            )
        finally:
            now = loop.time()
            self._running.pop(key, None)
            self._not_before[key] = now + max(DISTANCE_SECONDS, (now - began) * DISTANCE_FACTOR)
            if again is not None:
                self.mark(key, again)
            elif key not in self._due:
                loop.call_later(RETRY_SECONDS_MAX, self._forget, key)
            self._changed.set()

    def _forget(self, key: K) -> None:
        if self._not_before.get(key, 0.0) < asyncio.get_running_loop().time():
            self._not_before.pop(key, None)
