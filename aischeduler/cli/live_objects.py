"""Watches objects of a few kinds, and draws what they say on every change, at most once a second.

Invariants:
- A failure before the first list is an error; a later one is a note beside numbers that may be old.
- Equal snapshots are drawn once.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from msgspec.structs import replace

from aischeduler.kube.http.backoff import Timing
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.errors import ApiError, RefusedError
from aischeduler.kube.watch.reflector import Handlers, Reflector
from aischeduler.kube.watch.watched_resources import ApiObject, UnreadableObject, WatchedResource
from aischeduler.model.events import Event

DRAW_SECONDS: Final = 1.0
POLL_SECONDS: Final = 0.05
"""How often the end of the first list is checked."""
FAILURE_SECONDS: Final = 90.0
"""How long a failure is noted: longer than the longest wait between two tries."""

D = TypeVar("D", bound=ApiObject)
S = TypeVar("S")


class LiveObjects(Generic[D]):
    """The objects of a resource of no namespace that its reflector saw, and its last failure.

    `noun` is what messages call an object. That an object kind which `may_miss` is not served, or may not be listed,
    is no failure.
    """

    def __init__(self, resource: WatchedResource[D], noun: str, *, may_miss: bool = False) -> None:
        self.resource = replace(resource, on_seen=self._seen, on_gone=self._gone, on_served=None)
        self._noun, self._may_miss = noun, may_miss
        self._objects: dict[str, D] = {}
        self._unreadable: dict[str, str] = {}
        self._failure: tuple[ApiError, str, float] | None = None
        self.missing: RefusedError | None = None
        """Why there are no objects of a kind that may miss."""

    def reflector(self, client: Client, timing: Timing) -> Reflector[D]:
        """Return what keeps the objects up to date."""
        return Reflector(client, self.resource, Handlers(_ignore, self._unreadable_seen, self._failed), timing)

    def objects(self) -> Sequence[D]:
        """Return the objects that can be read."""
        return tuple(self._objects.values())

    def unreadable(self) -> tuple[str, ...]:
        """Return a sentence for each object that cannot be read."""
        return tuple(text for _, text in sorted(self._unreadable.items()))

    def raise_failure(self) -> None:
        """Raise the stored failure."""
        if self._failure is not None:
            raise self._failure[0]

    def recent_failure(self) -> str:
        """Return why changes are not seen; nothing where they are."""
        if self._failure is None or time.monotonic() - self._failure[2] > FAILURE_SECONDS:
            return ""
        error, kind, _ = self._failure
        return f"the watch of {kind}s fails: {error}"

    def _seen(self, document: D) -> None:
        name = document.metadata.name
        self._objects[name] = document
        self._unreadable.pop(name, None)
        self.missing = None

    def _gone(self, _namespace: str, name: str) -> None:
        self._objects.pop(name, None)
        self._unreadable.pop(name, None)

    def _unreadable_seen(self, found: UnreadableObject) -> None:
        text = f"the {self._noun} {found.name} is not shown, because it cannot be read: {found.message}"
        self._unreadable[found.name] = text

    def _failed(self, kind: str, error: ApiError) -> None:
        """Store a failure of a list or a watch; an expired resource version (410) is no failure."""
        status = error.status if isinstance(error, RefusedError) else 0
        if self._may_miss and isinstance(error, RefusedError) and status in (403, 404):
            self.missing = error
        elif status != 410:
            self._failure = (error, kind, time.monotonic())


async def watch_objects(
    client: Client, live: Sequence[LiveObjects[Any]], snapshot: Callable[[], S], draw: Callable[[S], None]
) -> None:
    """Draw the snapshot on every change, until cancelled; raises ApiError where objects cannot be listed."""
    timing = Timing(time.monotonic, asyncio.sleep, secrets.SystemRandom())
    reflectors = [objects.reflector(client, timing) for objects in live]
    tasks = [asyncio.create_task(reflector.run()) for reflector in reflectors]
    try:
        while not all(reflector.synced.is_set() for reflector in reflectors):
            _raise_failure(live)
            await _sleep(tasks, POLL_SECONDS)
        _raise_failure(live)
        drawn: S | None = None
        while True:
            if (found := snapshot()) != drawn:
                draw(found)
                drawn = found
            await _sleep(tasks, DRAW_SECONDS)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _raise_failure(live: Sequence[LiveObjects[Any]]) -> None:
    for objects in live:
        objects.raise_failure()


async def _sleep(tasks: Sequence[asyncio.Task[None]], seconds: float) -> None:
    """Sleep; a reflector that ends, which only a bug causes, ends the sleep with its error."""
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for ended in done:
        ended.result()


def _ignore(_event: Event) -> None:
    """Ignore the event: the document is stored."""
