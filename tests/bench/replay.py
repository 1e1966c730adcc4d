"""A watch without a server: passes prepared lines through the reflector of the scheduler."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, cast

from aischeduler.kube.http.backoff import Timing
from aischeduler.kube.http.client import Client
from aischeduler.kube.watch.reflector import Handlers, Reflector
from aischeduler.kube.watch.watched_resources import WatchedResource
from aischeduler.model.events import Event
from tests.kube.scripted_server import Half


class Replay:
    """A client whose watch yields these pieces once."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)

    @asynccontextmanager
    async def watch(self, *_: object) -> AsyncIterator["Replay"]:
        yield self

    async def read(self) -> bytes:
        """Return the next piece; empty at the end."""
        return next(self._pieces, b"")


def reflector_of(
    resource: WatchedResource[Any], pieces: Iterable[bytes], hear: Callable[[Event], object]
) -> Reflector[Any]:
    """Return a reflector whose `_watch` reads all pieces; an error raises AssertionError."""

    def fail(*said: object) -> None:
        raise AssertionError(said)

    def told(event: Event) -> None:
        hear(event)

    timing = Timing(time.monotonic, asyncio.sleep, Half())
    return Reflector(cast("Client", Replay(pieces)), resource, Handlers(told, fail, fail), timing)
