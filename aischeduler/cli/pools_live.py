"""The pools as they change: lists and watches what the numbers are made of, and draws at most once a second.

Laws:
- There is no second accounting: what is heard goes through `Scheduler.observe`, as in the daemon; nothing is decided.
- What cannot be listed at first is an error; what fails later is told beside numbers that may be old.
- What did not change is not drawn again.
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Final

from aischeduler.cli.snapshot import Snapshot, counted
from aischeduler.engine.profile import Profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.kube.client import Client
from aischeduler.kube.errors import ApiError, RefusedError
from aischeduler.kube.pace import Pace
from aischeduler.kube.reflector import Ears, Reflector
from aischeduler.kube.resources import Unreadable
from aischeduler.model.events import Event, NodeSeen, PodSeen, PoolSeen

DRAW_SECONDS: Final = 1.0
LOOK_SECONDS: Final = 0.05
"""How often we look whether everything was listed."""
TROUBLE_SECONDS: Final = 90.0
"""A failure is told for so long: longer than the longest wait between two tries."""
NOTES_MAX: Final = 5
"""Objects that cannot be read and are named; the others are left out as they are from the numbers."""

Draw = Callable[[Snapshot], None]


async def follow(client: Client, profile: Profile, draw: Draw) -> None:
    """Draw the pools whenever they changed, until cancelled; raises ApiError when they cannot be listed."""
    heard = _Heard(profile)
    pace = Pace(time.monotonic, asyncio.sleep, secrets.SystemRandom())
    ears = Ears(heard.event, heard.unreadable, heard.failure)
    reflectors = [Reflector(client, resource, ears, pace) for resource in counted()]
    tasks = [asyncio.create_task(reflector.run()) for reflector in reflectors]
    try:
        while not all(reflector.synced.is_set() for reflector in reflectors):
            heard.raise_failure()
            await _pass(tasks, LOOK_SECONDS)
        heard.raise_failure()
        drawn: Snapshot | None = None
        while True:
            if (snapshot := heard.snapshot()) != drawn:
                draw(snapshot)
                drawn = snapshot
            await _pass(tasks, DRAW_SECONDS)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pass(tasks: list[asyncio.Task[None]], seconds: float) -> None:
    """Wait so long; a reflector that ends, which only a bug of ours makes it do, ends the wait with its error."""
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


class _Heard:
    """What the reflectors said, summed up by an engine that decides nothing."""

    def __init__(self, profile: Profile) -> None:
        self._scheduler = Scheduler(profile, run="watch")
        self._unreadable: dict[str, str] = {}
        self._failure: tuple[ApiError, str, float] | None = None

    def event(self, event: Event) -> None:
        """Take in what happened."""
        self._scheduler.observe(event, time.monotonic())
        match event:
            case PodSeen(pod):
                self._unreadable.pop(f"Pod {pod.namespace}/{pod.name}", None)
            case NodeSeen(node):
                self._unreadable.pop(f"Node {node.name}", None)
            case PoolSeen(pool):
                self._unreadable.pop(f"Pool {pool.name}", None)
            case _:
                pass

    def unreadable(self, found: Unreadable) -> None:
        """Take in that an object is there and cannot be read."""
        name = f"{found.namespace}/{found.name}".removeprefix("/") or "without a name"
        self._unreadable[f"{found.kind} {name}"] = found.message
        if len(self._unreadable) > NOTES_MAX:
            self._unreadable.pop(next(iter(self._unreadable)))

    def failure(self, kind: str, error: ApiError) -> None:
        """Take in that a list or a watch failed; that history is gone is nothing unusual."""
        if not (isinstance(error, RefusedError) and error.status == 410):
            self._failure = (error, kind, time.monotonic())

    def raise_failure(self) -> None:
        """Raise the failure that kept something from being listed."""
        if self._failure is not None:
            raise self._failure[0]

    def snapshot(self) -> Snapshot:
        """Return the pools as they are now, and what is not in them."""
        for pool in self._scheduler.pools():
            self._scheduler.decide(pool, time.monotonic(), limit=0)  # tries no pod; what time brings about happens
        return Snapshot(
            self._scheduler.summary(),
            tuple(f"{name}: {message}" for name, message in sorted(self._unreadable.items())),
            self._trouble(),
        )

    def _trouble(self) -> str:
        if self._failure is None or time.monotonic() - self._failure[2] > TROUBLE_SECONDS:
            return ""
        error, kind, _ = self._failure
        return f"changes of {kind}s cannot be followed at present: {error}"
