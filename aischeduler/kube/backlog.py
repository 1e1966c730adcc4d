"""Work for several tasks: what waits for one, and what has been taken and has no outcome yet."""

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Backlog(Generic[T]):
    """A queue in order of arrival; there is room in it while at most `ahead` wait."""

    def __init__(self, ahead: int) -> None:
        self._ahead = ahead
        self._queue: deque[T] = deque()
        self._unfinished = 0
        self._work = asyncio.Semaphore(0)
        self._idle = _set_event()
        self._room = _set_event()
        self._drained = _set_event()

    @property
    def waiting(self) -> int:
        """What no task has taken yet."""
        return len(self._queue)

    @property
    def unfinished(self) -> int:
        """What has no outcome yet."""
        return self._unfinished

    def put(self, item: T) -> None:
        """Put work at the end; never refuses any."""
        self._queue.append(item)
        self._unfinished += 1
        self._idle.clear()
        self._drained.clear()
        if len(self._queue) > self._ahead:
            self._room.clear()
        self._work.release()

    async def take(self) -> T:
        """Return the oldest that waits, once there is one."""
        await self._work.acquire()
        item = self._queue.popleft()
        if not self._queue:
            self._idle.set()
        if len(self._queue) <= self._ahead:
            self._room.set()
        return item

    def finish(self) -> None:
        """Count one that was taken as finished."""
        self._unfinished -= 1
        if not self._unfinished:
            self._drained.set()

    async def room(self) -> None:
        """Return once there is room."""
        await self._room.wait()

    async def none_waiting(self) -> None:
        """Return once nothing waits for a task."""
        await self._idle.wait()

    async def none_unfinished(self) -> None:
        """Return once everything has its outcome."""
        await self._drained.wait()


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event
