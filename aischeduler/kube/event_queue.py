"""What was heard and not yet taken in."""

import asyncio
from collections import deque
from typing import Final

from aischeduler.model.events import Event

INBOX_MAX: Final = 50_000
"""Events that may wait; above that the readers of streams wait too, and the server's buffers fill instead."""


class EventQueue:
    """Events in the order in which they were heard."""

    def __init__(self, limit: int = INBOX_MAX) -> None:
        self._events: deque[Event] = deque()
        self._limit = limit
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._room = asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: Event) -> None:
        """Add an event; never refuses one."""
        self._events.append(event)
        self._filled.set()
        self._emptied.clear()
        if len(self._events) >= self._limit:
            self._room.clear()

    def take(self) -> Event | None:
        """Return the oldest event, or None."""
        if not self._events:
            return None
        event = self._events.popleft()
        if not self._events:
            self._filled.clear()
            self._emptied.set()
        if len(self._events) < self._limit:
            self._room.set()
        return event

    async def filled(self) -> None:
        """Return once there is an event."""
        await self._filled.wait()

    async def emptied(self) -> None:
        """Return once there is no event."""
        await self._emptied.wait()

    async def room(self) -> None:
        """Return once there are fewer events than the limit."""
        await self._room.wait()
