"""A reflector, a scripted server, and the emitted events, one word each."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from aischeduler.kube.decode.pod_spec import SpecCache
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.errors import ApiError
from aischeduler.kube.watch import watched_resources
from aischeduler.kube.watch.reflector import Handlers, Reflector
from aischeduler.kube.watch.watched_resources import UnreadableObject
from aischeduler.model.events import Event, Gone, Seen
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Pool
from tests.kube.scripted_server import Script, Waits, serving, until


@dataclass
class World:
    script: Script = field(default_factory=Script)
    waits: Waits = field(default_factory=Waits)
    events: list[Event] = field(default_factory=list)
    unreadable: list[UnreadableObject] = field(default_factory=list)
    failures: list[ApiError] = field(default_factory=list)

    @property
    def told(self) -> list[str]:
        """The emitted events, one word each."""
        return [word(event) for event in self.events]

    @asynccontextmanager
    async def running(self, resource: Any = None) -> AsyncIterator[Reflector[Any]]:
        handlers = Handlers(self.events.append, self.unreadable.append, lambda _, error: self.failures.append(error))
        async with serving(self.script) as server, Client(server) as client:
            reflector = Reflector(
                client, resource or watched_resources.pods(SpecCache()), handlers, self.waits.timing()
            )
            task = asyncio.create_task(reflector.run())
            try:
                yield reflector
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


def word(event: Event) -> str:
    match event:
        case Seen(Pod() as seen):
            return f"+{seen.name}:{seen.uid}" + (f"@{seen.node_name}" if seen.node_name else "")
        case Gone("Pod", (uid,)):
            return f"-{uid}"
        case Seen(Node() as seen):
            return f"+{seen.name}"
        case Gone("Node", (name,)):
            return f"-{name}"
        case Seen(Pool() as seen):
            return f"+{seen.name}"
        case Gone("Pool", (name,)):
            return f"-{name}"
        case _:
            return repr(event)


async def told(world: World, *words: str) -> None:
    with suppress(TimeoutError):
        await until(lambda: len(world.told) >= len(words))
    assert world.told == list(words)
