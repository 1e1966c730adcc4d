"""Watches the Pools, and draws their numbers on every change, at most once a second.

Invariants:
- A failure before the first list is an error; a later one is a note beside numbers that may be old.
- Equal snapshots are drawn once.
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from aischeduler.cli.pool_numbers import PoolNumbers, pool_numbers
from aischeduler.kube.decode.api_types import PoolDocument
from aischeduler.kube.http.backoff import Timing
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.errors import ApiError, RefusedError
from aischeduler.kube.watch import watched_resources
from aischeduler.kube.watch.reflector import Handlers, Reflector
from aischeduler.kube.watch.watched_resources import UnreadableObject
from aischeduler.model.events import Event

DRAW_SECONDS: Final = 1.0
POLL_SECONDS: Final = 0.05
"""How often the end of the first list is checked."""
FAILURE_SECONDS: Final = 90.0
"""How long a failure is noted: longer than the longest wait between two tries."""

Draw = Callable[[PoolNumbers], None]


async def watch_pools(client: Client, draw: Draw) -> None:
    """Draw the pools on every change, until cancelled; raises ApiError where they cannot be listed."""
    pools = _WatchedPools()
    timing = Timing(time.monotonic, asyncio.sleep, secrets.SystemRandom())
    handlers = Handlers(pools.event, pools.unreadable, pools.failure)
    reflector = Reflector(client, watched_resources.pools(pools), handlers, timing)
    task = asyncio.create_task(reflector.run())
    try:
        while not reflector.synced.is_set():
            pools.raise_failure()
            await _sleep(task, POLL_SECONDS)
        pools.raise_failure()
        drawn: PoolNumbers | None = None
        while True:
            if (numbers := pools.numbers()) != drawn:
                draw(numbers)
                drawn = numbers
            await _sleep(task, DRAW_SECONDS)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _sleep(task: asyncio.Task[None], seconds: float) -> None:
    """Sleep; a reflector that ends, which only a bug causes, ends the sleep with its error."""
    done, _ = await asyncio.wait([task], timeout=seconds)
    for ended in done:
        ended.result()


class _WatchedPools:
    """The Pools that the reflector saw, and its last failure."""

    def __init__(self) -> None:
        self._pools: dict[str, PoolDocument] = {}
        self._unreadable: dict[str, str] = {}
        self._failure: tuple[ApiError, str, float] | None = None

    def pool_seen(self, document: PoolDocument) -> None:
        """Store a Pool that is new or changed."""
        name = document.metadata.name
        self._pools[name] = document
        self._unreadable.pop(name, None)

    def pool_gone(self, name: str) -> None:
        """Remove a deleted Pool."""
        self._pools.pop(name, None)
        self._unreadable.pop(name, None)

    def event(self, _event: Event) -> None:
        """Ignore the event: `pool_seen` stores the document."""

    def unreadable(self, found: UnreadableObject) -> None:
        """Store the name of a Pool that cannot be read."""
        self._unreadable[found.name] = f"the pool {found.name} is not shown, because it cannot be read: {found.message}"

    def failure(self, kind: str, error: ApiError) -> None:
        """Store a failure of a list or a watch; an expired resource version (410) is no failure."""
        if not (isinstance(error, RefusedError) and error.status == 410):
            self._failure = (error, kind, time.monotonic())

    def raise_failure(self) -> None:
        """Raise the stored failure."""
        if self._failure is not None:
            raise self._failure[0]

    def numbers(self) -> PoolNumbers:
        """Return the pools and the notes."""
        numbers = pool_numbers(self._pools.values(), time.time())
        unreadable = (*(text for _, text in sorted(self._unreadable.items())), *numbers.unreadable)
        return replace(numbers, unreadable=unreadable, watch_failure=self._recent_failure())

    def _recent_failure(self) -> str:
        if self._failure is None or time.monotonic() - self._failure[2] > FAILURE_SECONDS:
            return ""
        error, kind, _ = self._failure
        return f"the watch of {kind}s fails: {error}"
