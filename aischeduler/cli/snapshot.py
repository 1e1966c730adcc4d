"""The cluster as it is now: lists pods, nodes and Pools once and lets the engine sum them up.

Laws:
- There is no second accounting: what is listed goes through `Scheduler.observe`, as in the daemon.
- An object that cannot be read is named and left out; it does not hide the others.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import msgspec

from aischeduler.engine.profile import Profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.engine.summary import PoolSummary
from aischeduler.kube import resources
from aischeduler.kube.client import Client
from aischeduler.kube.documents import Named
from aischeduler.kube.errors import RefusedError
from aischeduler.kube.paging import pages
from aischeduler.kube.podspec import SpecCache
from aischeduler.model.events import Event

_NAMED: Final = msgspec.json.Decoder(Named)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All pools in numbers, sorted by name, and the objects that could not be read."""

    pools: tuple[PoolSummary, ...]
    unreadable: tuple[str, ...]


async def take_snapshot(client: Client, profile: Profile) -> Snapshot:
    """List everything and sum it up; raises ApiError."""
    scheduler = Scheduler(profile, run="snapshot")
    unreadable: list[str] = []
    listed: tuple[resources.Resource[Any], ...] = (resources.pools(), resources.nodes(), resources.pods(SpecCache()))
    for resource in listed:
        async for event in _listed(client, resource):
            if isinstance(event, str):
                unreadable.append(event)
            else:
                scheduler.observe(event, now=0.0)
    return Snapshot(scheduler.summary(), tuple(unreadable))


async def _listed(client: Client, resource: resources.Resource[Any]) -> AsyncIterator[Event | str]:
    """Yield an event for each object, or the kind and name of one that cannot be read."""
    try:
        async for page in pages(client, resource):
            for item in page.items or ():
                try:
                    document = resource.document.decode(item)
                except msgspec.MsgspecError as error:
                    yield f"{resource.kind} {_name(item)}: {error}"
                else:
                    yield resource.seen(document)
    except RefusedError as error:
        if not (resource.optional and error.status == HTTPStatus.NOT_FOUND):
            raise


def _name(item: msgspec.Raw) -> str:
    try:
        metadata = _NAMED.decode(item).metadata
    except msgspec.MsgspecError:
        return "without a name"
    return f"{metadata.namespace}/{metadata.name}".removeprefix("/")
