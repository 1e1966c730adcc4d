"""The passes that are due: which owners of pods to look at, and when.

Invariants:
- One owner has at most one pass at a time, and what happens during a pass causes another after it.
- A pass that fails is repeated with growing delays, and delays no other owner.
- Passes over one owner keep a distance that grows with their length, so that a large gang that changes all the
  time costs at most a part of one slot.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

AT_ONCE: Final = 4
DISTANCE_SECONDS: Final = 0.2
DISTANCE_FACTOR: Final = 2.0
RETRY_SECONDS: Final = 1.0
RETRY_SECONDS_MAX: Final = 120.0


class Passes:
    """Looks at each path that is marked; `look` returns in how many seconds it is due again, or None.

    A path has a task of its own while a pass is due or runs.
    """

    def __init__(self, look: Callable[[str], Awaitable[float | None]]) -> None:
        self._look = look
        self._changed: dict[str, asyncio.Event] = {}
        self._new: asyncio.Queue[str] = asyncio.Queue()
        self._slots = asyncio.Semaphore(AT_ONCE)

    def mark(self, path: str) -> None:
        """Note that a pass is due."""
        if path not in self._changed:
            self._changed[path] = asyncio.Event()
            self._new.put_nowait(path)
        self._changed[path].set()

    async def run(self) -> None:
        """Make passes until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                path = await self._new.get()
                group.create_task(self._follow(path, self._changed[path]))

    async def _follow(self, path: str, changed: asyncio.Event) -> None:
        failures, again_seconds = 0, None
        while changed.is_set() or again_seconds is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(again_seconds):
                    await changed.wait()
            async with self._slots:
                changed.clear()
                began = asyncio.get_running_loop().time()
                try:
                    again_seconds, failures = await self._look(path), 0
                except Exception as error:  # noqa: BLE001 - whatever fails in one pass harms no other
                    failures += 1
                    again_seconds = min(RETRY_SECONDS * 2 ** min(failures - 1, 10), RETRY_SECONDS_MAX)
                    structlog.get_logger().warning(
                        "pass failed", path=path, reason=str(error), again_in_seconds=again_seconds
                    )
                took_seconds = asyncio.get_running_loop().time() - began
            await asyncio.sleep(max(DISTANCE_SECONDS, took_seconds * DISTANCE_FACTOR))
        del self._changed[path]
