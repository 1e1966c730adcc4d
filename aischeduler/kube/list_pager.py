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
from aischeduler.kube.errors import MalformedAnswerError
from aischeduler.kube.meta_types import UNREADABLE, ListMetadata, Page
from aischeduler.kube.watched_resources import WatchedResource

PAGE_OBJECTS: Final = 500
PREFETCHED_PAGES_MAX: Final = 3
"""Pages that are on their way or wait for the reader."""
SEARCHED_BYTES: Final = 4096
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
    client: Client, resource: WatchedResource[Any], decode: Decode[D], label_selector: str = ""
) -> AsyncGenerator[Page[D]]:
    """Yield the pages of a list as the server holds it now; raises ApiError, with status 410 when it took too long.

    Close the iterator when you leave it early.
    """
    asking = _PageFetcher(client, resource, label_selector)
    asked: asyncio.Task[_FetchedPage] | None = asking.fetch("")
    try:
        while asked is not None:
            answer = await asked
            asked = answer.next
            asking.slots.release()
            try:
                page = decode(answer.body)
            except UNREADABLE as error:
                raise MalformedAnswerError(f"GET {resource.path}: the list cannot be read: {error}") from error
            yield page
    finally:
        while asked is not None:
            asked.cancel()
            (ended,) = await asyncio.gather(asked, return_exceptions=True)
            asked = ended.next if isinstance(ended, _FetchedPage) else None


@dataclass(frozen=True, slots=True)
class _FetchedPage:
    """A page as it came, and the next one, which has been asked for."""

    body: bytes
    next: "asyncio.Task[_FetchedPage] | None"


@dataclass(frozen=True, slots=True)
class _PageFetcher:
    """Asks for one page after the other, as long as not too many wait for the reader."""

    client: Client
    resource: WatchedResource[Any]
    label_selector: str
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PREFETCHED_PAGES_MAX))

    def fetch(self, continue_: str) -> asyncio.Task[_FetchedPage]:
        """Begin to ask for the page that begins here."""
        return asyncio.create_task(self._fetch(continue_), name=f"list {self.resource.path}")

    async def _fetch(self, continue_: str) -> _FetchedPage:
        await self.slots.acquire()
        query = {"limit": str(PAGE_OBJECTS)}
        if self.resource.field_selector:
            query["fieldSelector"] = self.resource.field_selector
        if self.label_selector:
            query["labelSelector"] = self.label_selector
        if continue_:
            query["continue"] = continue_
        body = await self.client.get(self.resource.path, query, LIST_SECONDS)
        more = _continue_token(body)
        return _FetchedPage(body, self.fetch(more) if more else None)


def _continue_token(body: bytes) -> str:
    """Return where the next page begins; empty where there is none, or where the page cannot be read."""
    head, items, _ = body[:SEARCHED_BYTES].partition(_ITEMS)  # API servers write the items last
    for text in (head + b"}" if items else body, body):
        try:
            return _HEAD.decode(text).metadata.continue_ or ""
        except UNREADABLE:
            continue
    return ""
