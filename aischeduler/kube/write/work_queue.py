"""A work queue with lanes for several tasks, and tasks that take from one.

The queue counts waiting and unfinished items, and limits those that tasks hold.

Invariants:
- Each lane is in order of arrival; lanes take turns, so a long lane delays every other lane by one item.
- A lane has room while at most `lane_limit` items wait in it, whatever waits in the others.
- A task holds a slot from the item that it takes until it takes the next one. A lane leaves as many slots free as it
  holds, up to `reserve`: however many items of some lanes are stuck, a lane that holds few gets a slot at once.
- Of `Workers`, an internal error costs one item: it is reported, and the item gets the outcome of an error.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from itertools import chain
from typing import Final, Generic, TypeVar

from aischeduler.kube.http.errors import OnInternalError

T = TypeVar("T")
R = TypeVar("R")
UNLIMITED: Final = 1 << 30
"""Slots of a queue that limits nothing."""


class WorkQueue(Generic[T]):
    """Queues of items by lane; with a single lane it needs no name.

    Of `slots` + `reserve` slots, one lane gets `slots` at most.
    """

    def __init__(self, ahead: int, slots: int = UNLIMITED, reserve: int = 0) -> None:
        self._lane_limit = ahead
        self._slots, self._reserve = slots + reserve, reserve
        self._held: dict[str, int] = {}
        """How many slots each lane holds; none without."""
        self._in_slots = 0
        self._lanes: dict[str, deque[T]] = {}
        """The lanes with items, in the order of their turns."""
        self._waiting = 0
        self._unfinished = 0
        self._takers: list[asyncio.Future[None]] = []
        """Tasks that wait for an item; the last one goes first, so that few tasks do the work of a few items."""
        self._woken = 0
        """How many of these were woken and have not continued yet."""
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
        self._unfinished += 1
        self._finished.clear()
        self.put_back(item, lane)

    def put_back(self, item: T, lane: str = "") -> None:
        """Put an item that was taken, and is not finished, at the end of its lane."""
        queue = self._lanes.get(lane)
        if queue is None:
            queue = self._lanes[lane] = deque()
        queue.append(item)
        self._waiting += 1
        self._empty.clear()
        self._not_empty.set()
        if len(queue) == self._lane_limit + 1:
            self._rooms[lane] = asyncio.Event()
        if self._takers:
            self._wake_taker()

    async def take(self, left: str | None = None) -> T:
        """Return the oldest item of the next lane that may have a slot, once there is one.

        `left` is the lane of the item that the task took before: its slot is free now.
        """
        if left is not None:
            self._leave(left)
        while (lane := self._next_lane()) is None:
            await self._wait_for_turn()
        queue = self._lanes[lane]
        item = queue.popleft()
        if not queue or len(self._lanes) > 1:
            del self._lanes[lane]
            if queue:
                self._lanes[lane] = queue  # behind all others
        self._held[lane] = self._held.get(lane, 0) + 1
        self._in_slots += 1
        self._waiting -= 1
        if not self._waiting:
            self._empty.set()
            self._not_empty.clear()
        elif self._takers:
            self._wake_taker()
        if len(queue) == self._lane_limit:
            self._rooms.pop(lane).set()
        return item

    def leave_all(self) -> None:
        """Free all slots: their tasks are gone."""
        self._held.clear()
        self._in_slots = 0

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

    def set_slots(self, slots: int, reserve: int) -> None:
        """Set how many slots there are; tasks that hold more keep them until they take the next item."""
        self._slots, self._reserve = slots + reserve, reserve
        if self._takers:
            self._wake_taker()

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

    def _next_lane(self) -> str | None:
        """Return the next lane that may have a slot now; None where none may."""
        free = self._slots - self._in_slots
        if free <= 0 or not self._waiting:
            return None
        if free > self._reserve:
            return next(iter(self._lanes))
        return next((lane for lane in self._lanes if self._held.get(lane, 0) < free), None)

    def _leave(self, lane: str) -> None:
        left = self._held[lane] - 1
        if left:
            self._held[lane] = left
        else:
            del self._held[lane]
        self._in_slots -= 1

    def _wake_taker(self) -> None:
        """Wake one more waiting task if it can take an item; it wakes the next one."""
        if self._woken >= self._waiting or self._woken >= self._slots - self._in_slots or self._next_lane() is None:
            return
        while self._takers:
            turn = self._takers.pop()
            if not turn.done():
                turn.set_result(None)
                self._woken += 1
                return

    async def _wait_for_turn(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._takers.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was woken: its turn is that of another one
                self._woken -= 1
                self._wake_taker()
            raise
        self._woken -= 1


class Workers(Generic[T, R]):
    """Tasks that take items from a queue and do the work of one at a time, with one outcome each.

    `lane` is the lane of an item. `work` returns its outcome, and `failed` that of one whose work raised, or whose task
    was cancelled. Logs call the tasks `name`, and say "outcome of `of`".
    """

    def __init__(
        self,
        name: str,
        queue: WorkQueue[T],
        *,
        of: str,
        lane: Callable[[T], str],
        work: Callable[[T], Awaitable[R]],
        failed: Callable[[T], R],
        on_internal_error: OnInternalError,
    ) -> None:
        self._name, self._of, self._queue = name, of, queue
        self._lane, self._work, self._failed = lane, work, failed
        self._on_internal_error = on_internal_error
        self._in_progress: dict[int, T] = {}

    async def run(self, tasks: int, on_outcome: Callable[[T, R], None]) -> None:
        """Work with so many tasks until cancelled; what an earlier run left unfinished has failed."""
        for item in tuple(self._in_progress.values()):
            self._conclude(item, self._failed(item), on_outcome)
        self._queue.leave_all()
        async with asyncio.TaskGroup() as group:
            for number in range(tasks):
                group.create_task(self._work_on_all(on_outcome), name=f"{self._name} {number}")

    async def _work_on_all(self, on_outcome: Callable[[T, R], None]) -> None:
        lane: str | None = None
        while True:
            item = await self._queue.take(lane)
            lane = self._lane(item)
            self._in_progress[id(item)] = item
            try:
                outcome = await self._work(item)
            except Exception as error:  # noqa: BLE001 - an error costs one item, not the others
                self._on_internal_error(self._name, error)
                outcome = self._failed(item)
            self._conclude(item, outcome, on_outcome)

    def _conclude(self, item: T, outcome: R, on_outcome: Callable[[T, R], None]) -> None:
        self._in_progress.pop(id(item), None)
        self._queue.finish()
        try:
            on_outcome(item, outcome)
        except Exception as error:  # noqa: BLE001 - an error costs one outcome, not the others
            self._on_internal_error(f"outcome of {self._of}", error)


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event
