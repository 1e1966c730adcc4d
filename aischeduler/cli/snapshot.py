"""The cluster as it is now: lists pods, nodes and Pools once and lets the engine sum them up.

Laws:
- There is no second accounting: what is listed goes through `Scheduler.observe`, as in the daemon.
- An object that cannot be read is named and left out; it does not hide the others.
- A cluster that does not know Pools is no cluster without pools: that is an error.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from aischeduler.engine.profile import Profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.kube import resources
from aischeduler.kube.client import Client
from aischeduler.kube.documents import UNREADABLE, Named
from aischeduler.kube.paging import pages, read_raw
from aischeduler.kube.podspec import SpecCache
from aischeduler.model.events import Event
from aischeduler.model.summary import PoolSummary

_NAMED: Final = msgspec.json.Decoder(Named)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All pools in numbers, sorted by name, and the objects that could not be read.

    `trouble` says why the numbers may be old; it is empty where they are not.
    """

    pools: tuple[PoolSummary, ...]
    unreadable: tuple[str, ...]
    trouble: str = ""

    def notes(self) -> list[str]:
        """Return a sentence for everything that the numbers do not tell."""
        notes = [f"not counted, because it cannot be read: {text}" for text in self.unreadable]
        return [*notes, f"the numbers may be old: {self.trouble}"] if self.trouble else notes


async def take_snapshot(client: Client, profile: Profile) -> Snapshot:
    """List everything and sum it up; raises ApiError."""
    scheduler = Scheduler(profile, run="snapshot")
    unreadable: list[str] = []
    for resource in counted():
        async for event in listed(client, resource):
            if isinstance(event, str):
                unreadable.append(event)
            else:
                scheduler.observe(event, now=0.0)
    return Snapshot(scheduler.summary(), tuple(unreadable))


def counted() -> tuple[resources.Resource[Any], ...]:
    """Return the resources whose objects make the numbers of pools."""
    return resources.pools(), resources.nodes(), resources.pods(SpecCache())


async def listed(client: Client, resource: resources.Resource[Any]) -> AsyncIterator[Event | str]:
    """Yield an event for each object, or the kind and name of one that cannot be read."""
    async with aclosing(pages(client, resource, read_raw)) as found:
        async for page in found:
            for item in page.items or ():
                try:
                    document = resource.document.decode(item)
                except UNREADABLE as error:
                    yield f"{resource.kind} {_name(item)}: {error}"
                else:
                    yield resource.seen(document)


def _name(item: msgspec.Raw) -> str:
    try:
        metadata = _NAMED.decode(item).metadata
    except UNREADABLE:
        return "without a name"
    return f"{metadata.namespace}/{metadata.name}".removeprefix("/")
