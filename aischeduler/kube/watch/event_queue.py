"""The queue of model events between the watches and the engine."""

import asyncio
from collections import deque
from typing import Final

from aischeduler.model.events import Event

EVENTS_MAX: Final = 50_000
"""How many events may be queued. Beyond that the watches stop reading, and the server's buffers fill instead."""


class EventQueue:
    """Model events in the order of arrival."""

    def __init__(self, limit: int = EVENTS_MAX) -> None:
        self._events: deque[Event] = deque()
        self._limit = limit
        self._not_empty = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._room = asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: Event) -> None:
        """Add an event, whatever the length of the queue."""
        if not self._events:
            self._not_empty.set()
            self._empty.clear()
        self._events.append(event)
        if len(self._events) >= self._limit:
            self._room.clear()

    def take(self) -> Event | None:
        """Return the oldest event; None if the queue is empty."""
        if not self._events:
            return None
        event = self._events.popleft()
        if not self._events:
            self._not_empty.clear()
            self._empty.set()
        if len(self._events) == self._limit - 1:
            self._room.set()
        return event

    async def wait_not_empty(self) -> None:
        """Return once the queue has an event."""
        await self._not_empty.wait()

    async def wait_empty(self) -> None:
        """Return once the queue is empty."""
        await self._empty.wait()

    async def wait_for_room(self) -> None:
        """Return once the queue is shorter than the limit."""
        await self._room.wait()
