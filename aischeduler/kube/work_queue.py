"""A work queue with lanes for several tasks; it counts waiting and unfinished items.

Invariants:
- Each lane is in order of arrival; lanes take turns, so a long lane delays every other lane by one item.
- A lane has room while at most `lane_limit` items wait in it, whatever waits in the others.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import Generic, TypeVar

T = TypeVar("T")


class WorkQueue(Generic[T]):
    """Queues of items by lane; with a single lane it needs no name."""

    def __init__(self, ahead: int) -> None:
        self._lane_limit = ahead
        self._lanes: dict[str, deque[T]] = {}
        """The lanes with items, in the order of their turns."""
        self._waiting = 0
        self._unfinished = 0
        self._work = asyncio.Semaphore(0)
        self._empty = _set_event()
        self._not_empty = asyncio.Event()
        self._finished = _set_event()
        self._rooms: dict[str, asyncio.Event] = {}
        """Set when a full lane has room again."""

    @property
    def waiting(self) -> int:
        """The items that no task has taken yet."""
        return self._waiting

    @property
    def unfinished(self) -> int:
        """The items without an outcome."""
        return self._unfinished

    @property
    def in_progress(self) -> int:
        """The items that a task has taken and not finished."""
        return self._unfinished - self._waiting

    def items(self) -> Iterator[T]:
        """Yield the items that no task has taken yet."""
        return chain.from_iterable(self._lanes.values())

    def put(self, item: T, lane: str = "") -> None:
        """Put an item at the end of its lane, however long it is."""
        queue = self._lanes.setdefault(lane, deque())
        queue.append(item)
        self._waiting += 1
        self._unfinished += 1
        self._empty.clear()
        self._not_empty.set()
        self._finished.clear()
        if len(queue) == self._lane_limit + 1:
            self._rooms[lane] = asyncio.Event()
        self._work.release()

    async def take(self) -> T:
        """Return the oldest item of the next lane, once there is one."""
        await self._work.acquire()
        lane, queue = next(iter(self._lanes.items()))
        item = queue.popleft()
        del self._lanes[lane]
        if queue:
            self._lanes[lane] = queue  # behind all others
        self._waiting -= 1
        if not self._waiting:
            self._empty.set()
            self._not_empty.clear()
        if len(queue) == self._lane_limit:
            self._rooms.pop(lane).set()
        return item

    def finish(self) -> None:
        """Count a taken item as finished."""
        self._unfinished -= 1
        if not self._unfinished:
            self._finished.set()

    def set_lane_limit(self, ahead: int) -> None:
        """Set how many items may wait in a lane before it is full."""
        self._lane_limit = ahead
        for lane, queue in self._lanes.items():
            if len(queue) > ahead:
                self._rooms.setdefault(lane, asyncio.Event())
            elif lane in self._rooms:
                self._rooms.pop(lane).set()

    async def wait_for_room(self, lane: str = "") -> None:
        """Return once the lane has room."""
        while lane in self._rooms:
            await self._rooms[lane].wait()

    async def wait_not_empty(self) -> None:
        """Return once an item waits."""
        await self._not_empty.wait()

    async def wait_empty(self) -> None:
        """Return once no item waits."""
        await self._empty.wait()

    async def wait_finished(self) -> None:
        """Return once every item is finished."""
        await self._finished.wait()


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event
