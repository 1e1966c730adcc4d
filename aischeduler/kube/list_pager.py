"""Read a whole list in pages, so that neither side has to hold it at once.

Law: the server makes the next page as soon as it has sent one, up to `AHEAD_MAX` before the reader wants them.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw, Struct

from aischeduler.kube.client import LIST_SECONDS, Client
from aischeduler.kube.errors import GarbledError
from aischeduler.kube.meta_types import UNREADABLE, ListMetadata, Page
from aischeduler.kube.watched_resources import Resource

PAGE_OBJECTS: Final = 500
AHEAD_MAX: Final = 3
"""Pages that are on their way or wait for the reader."""
HEAD_BYTES: Final = 4096
"""So much of a page is searched for where the next one begins."""

D = TypeVar("D")
Decode = Callable[[bytes], Page[D]]

read_raw: Final = msgspec.json.Decoder(Page[Raw]).decode
"""Reads a page and leaves its objects unread."""


class _Head(Struct, gc=False):
    metadata: ListMetadata


_HEAD: Final = msgspec.json.Decoder(_Head)
_ITEMS: Final = b',"items":['


async def pages(
    client: Client, resource: Resource[Any], decode: Decode[D], label_selector: str = ""
) -> AsyncGenerator[Page[D]]:
    """Yield the pages of a list as the server holds it now; raises ApiError, with status 410 when it took too long.

    Close the iterator when you leave it early.
    """
    asking = _Asking(client, resource, label_selector)
    asked: asyncio.Task[_Asked] | None = asking.ask("")
    try:
        while asked is not None:
            answer = await asked
            asked = answer.next
            asking.ahead.release()
            try:
                page = decode(answer.body)
            except UNREADABLE as error:
                raise GarbledError(f"GET {resource.path}: the list cannot be read: {error}") from error
            yield page
    finally:
        while asked is not None:
            asked.cancel()
            (ended,) = await asyncio.gather(asked, return_exceptions=True)
            asked = ended.next if isinstance(ended, _Asked) else None


@dataclass(frozen=True, slots=True)
class _Asked:
    """A page as it came, and the next one, which has been asked for."""

    body: bytes
    next: "asyncio.Task[_Asked] | None"


@dataclass(frozen=True, slots=True)
class _Asking:
    """Asks for one page after the other, as long as not too many wait for the reader."""

    client: Client
    resource: Resource[Any]
    label_selector: str
    ahead: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AHEAD_MAX))

    def ask(self, continue_: str) -> asyncio.Task[_Asked]:
        """Begin to ask for the page that begins here."""
        return asyncio.create_task(self._ask(continue_), name=f"list {self.resource.path}")

    async def _ask(self, continue_: str) -> _Asked:
        await self.ahead.acquire()
        query = {"limit": str(PAGE_OBJECTS)}
        if self.resource.selector:
            query["fieldSelector"] = self.resource.selector
        if self.label_selector:
            query["labelSelector"] = self.label_selector
        if continue_:
            query["continue"] = continue_
        body = await self.client.get(self.resource.path, query, LIST_SECONDS)
        more = _more(body)
        return _Asked(body, self.ask(more) if more else None)


def _more(body: bytes) -> str:
    """Return where the next page begins; empty where there is none, or where the page cannot be read."""
    head, items, _ = body[:HEAD_BYTES].partition(_ITEMS)  # API servers write the items last
    for text in (head + b"}" if items else body, body):
        try:
            return _HEAD.decode(text).metadata.continue_ or ""
        except UNREADABLE:
            continue
    return ""
