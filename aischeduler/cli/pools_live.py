"""The pools as they change: watches the Pools alone, and draws at most once a second.

Laws:
- The numbers are those of the statuses, as in `snapshot`.
- What cannot be listed at first is an error; what fails later is told beside numbers that may be old.
- What did not change is not drawn again.
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from aischeduler.cli.snapshot import Snapshot, snapshot_of
from aischeduler.kube import watched_resources
from aischeduler.kube.api_types import PoolDocument
from aischeduler.kube.backoff import Timing
from aischeduler.kube.client import Client
from aischeduler.kube.errors import ApiError, RefusedError
from aischeduler.kube.reflector import Handlers, Reflector
from aischeduler.kube.watched_resources import UnreadableObject
from aischeduler.model.events import Event

DRAW_SECONDS: Final = 1.0
LOOK_SECONDS: Final = 0.05
"""How often we look whether everything was listed."""
TROUBLE_SECONDS: Final = 90.0
"""A failure is told for so long: longer than the longest wait between two tries."""

Draw = Callable[[Snapshot], None]


async def follow(client: Client, draw: Draw) -> None:
    """Draw the pools whenever they changed, until cancelled; raises ApiError when they cannot be listed."""
    heard = _Heard()
    timing = Timing(time.monotonic, asyncio.sleep, secrets.SystemRandom())
    handlers = Handlers(heard.event, heard.unreadable, heard.failure)
    reflector = Reflector(client, watched_resources.pools(heard), handlers, timing)
    task = asyncio.create_task(reflector.run())
    try:
        while not reflector.synced.is_set():
            heard.raise_failure()
            await _pass(task, LOOK_SECONDS)
        heard.raise_failure()
        drawn: Snapshot | None = None
        while True:
            if (snapshot := heard.snapshot()) != drawn:
                draw(snapshot)
                drawn = snapshot
            await _pass(task, DRAW_SECONDS)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _pass(task: asyncio.Task[None], seconds: float) -> None:
    """Wait so long; a reflector that ends, which only a bug of ours makes it do, ends the wait with its error."""
    done, _ = await asyncio.wait([task], timeout=seconds)
    for ended in done:
        ended.result()


class _Heard:
    """The Pools as the reflector said, and what it could not say."""

    def __init__(self) -> None:
        self._pools: dict[str, PoolDocument] = {}
        self._unreadable: dict[str, str] = {}
        self._failure: tuple[ApiError, str, float] | None = None

    def pool_seen(self, document: PoolDocument) -> None:
        """Take in a Pool as it now is."""
        name = document.metadata.name
        self._pools[name] = document
        self._unreadable.pop(name, None)

    def pool_gone(self, name: str) -> None:
        """Take in that there is no Pool of this name."""
        self._pools.pop(name, None)
        self._unreadable.pop(name, None)

    def event(self, _event: Event) -> None:
        """Take in nothing: the documents were."""

    def unreadable(self, found: UnreadableObject) -> None:
        """Take in that a Pool is there and cannot be read."""
        self._unreadable[found.name] = f"pool {found.name}: {found.message}"

    def failure(self, kind: str, error: ApiError) -> None:
        """Take in that a list or a watch failed; that history is gone is nothing unusual."""
        if not (isinstance(error, RefusedError) and error.status == 410):
            self._failure = (error, kind, time.monotonic())

    def raise_failure(self) -> None:
        """Raise the failure that kept the Pools from being listed."""
        if self._failure is not None:
            raise self._failure[0]

    def snapshot(self) -> Snapshot:
        """Return the pools as they are now, and what is not in them."""
        snapshot = snapshot_of(self._pools.values(), time.time())
        unreadable = (*(text for _, text in sorted(self._unreadable.items())), *snapshot.unreadable)
        return replace(snapshot, unreadable=unreadable, trouble=self._trouble())

    def _trouble(self) -> str:
        if self._failure is None or time.monotonic() - self._failure[2] > TROUBLE_SECONDS:
            return ""
        error, kind, _ = self._failure
        return f"changes of {kind}s cannot be followed at present: {error}"
