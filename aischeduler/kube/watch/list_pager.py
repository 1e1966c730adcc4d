"""List a resource in pages, so that neither side holds the whole list.

Invariants:
- Up to `PREFETCHED_PAGES_MAX` pages are requested ahead of the reader.
- A list from the cache costs etcd nothing and may be a moment old; older servers send it as one page, and where that is
  too large it is listed from etcd in pages.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from aischeduler.kube.decode.meta_types import UNREADABLE, ListMetadata, Page
from aischeduler.kube.http.client import LIST_SECONDS, Client
from aischeduler.kube.http.errors import AnswerTooLargeError, MalformedAnswerError
from aischeduler.kube.watch.watched_resources import WatchedResource
from aischeduler.model.decode_errors import decode_problem

PAGE_OBJECTS: Final = 500
PREFETCHED_PAGES_MAX: Final = 3
"""How many pages are in flight or wait for the reader."""
SEARCHED_BYTES: Final = 4096
"""How much of a page is searched for the continue token."""

FROM_CACHE: Final = {"resourceVersion": "0"}

D = TypeVar("D")
Decode = Callable[[bytes], Page[D]]

read_raw: Final = msgspec.json.Decoder(Page[Raw]).decode
"""Decodes a page without decoding its objects."""


class _Head(Struct, gc=False):
    metadata: ListMetadata


_HEAD: Final = msgspec.json.Decoder(_Head)
_ITEMS: Final = b',"items":['


async def pages(
    client: Client,
    resource: WatchedResource[Any],
    decode: Decode[D],
    label_selector: str = "",
    *,
    cached: bool = False,
) -> AsyncGenerator[Page[D]]:
    """Yield the pages of a list; raises ApiError, with status 410 if the list took too long.

    `cached` asks for the list that the API server has in its watch cache, for readers whom an older one does not harm.
    Close the iterator when you leave it early.
    """
    fetcher = _PageFetcher(client, resource, label_selector, cached)
    fetch: asyncio.Task[_FetchedPage] | None = fetcher.fetch("")
    try:
        while fetch is not None:
            answer = await fetch
            fetch = answer.next
            fetcher.slots.release()
            try:
                page = decode(answer.body)
            except UNREADABLE as error:
                raise MalformedAnswerError(
                    f"GET {resource.path}: the list cannot be read: {decode_problem(error)}"
                ) from error
            yield page
    finally:
        while fetch is not None:
            fetch.cancel()
            (result,) = await asyncio.gather(fetch, return_exceptions=True)
            fetch = result.next if isinstance(result, _FetchedPage) else None


class _FetchedPage(Struct, frozen=True):
    """A page, and the task that fetches the next one."""

    body: bytes
    next: "asyncio.Task[_FetchedPage] | None"


class _PageFetcher(Struct, frozen=True):
    """Fetches pages one after another, while not too many wait for the reader."""

    client: Client
    resource: WatchedResource[Any]
    label_selector: str
    cached: bool
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PREFETCHED_PAGES_MAX))

    def fetch(self, continue_: str) -> asyncio.Task[_FetchedPage]:
        """Start to fetch the page of this continue token."""
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
        body = await self._page(query)
        token = _continue_token(body)
        return _FetchedPage(body, self.fetch(token) if token else None)

    async def _page(self, query: dict[str, str]) -> bytes:
        path = self.resource.path
        if self.cached and "continue" not in query:
            try:
                return await self.client.get(path, query | FROM_CACHE, LIST_SECONDS)
            except AnswerTooLargeError:
                pass
        return await self.client.get(path, query, LIST_SECONDS)


def _continue_token(body: bytes) -> str:
    """Return the continue token of a page; empty for the last page, or if the page cannot be decoded."""
    head, items, _ = body[:SEARCHED_BYTES].partition(_ITEMS)  # API servers write the items last
    for text in (head + b"}" if items else body, body):
        try:
            return _HEAD.decode(text).metadata.continue_ or ""
        except UNREADABLE:
            continue
    return ""
