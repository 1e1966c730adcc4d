"""Read a whole list in pages, so that neither side has to hold it at once."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw

from aischeduler.kube.client import LIST_SECONDS, Client
from aischeduler.kube.documents import UNREADABLE, Page
from aischeduler.kube.errors import GarbledError
from aischeduler.kube.resources import Resource

PAGE_OBJECTS: Final = 500

D = TypeVar("D")
Decode = Callable[[bytes], Page[D]]

read_raw: Final = msgspec.json.Decoder(Page[Raw]).decode
"""Reads a page and leaves its objects unread."""


async def pages(client: Client, resource: Resource[Any], decode: Decode[D]) -> AsyncGenerator[Page[D]]:
    """Yield the pages of a list as the server holds it now; raises ApiError, with status 410 when it took too long.

    The server makes the next page while the reader reads this one. Close the iterator when you leave it early.
    """
    asked: asyncio.Task[bytes] | None = _ask(client, resource, "")
    try:
        while asked is not None:
            body = await asked
            try:
                page = decode(body)
            except UNREADABLE as error:
                raise GarbledError(f"GET {resource.path}: the list cannot be read: {error}") from error
            more = page.metadata.continue_
            asked = _ask(client, resource, more) if more else None
            yield page
    finally:
        if asked is not None:
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)


def _ask(client: Client, resource: Resource[Any], continue_: str) -> asyncio.Task[bytes]:
    query = {"limit": str(PAGE_OBJECTS)}
    if resource.selector:
        query["fieldSelector"] = resource.selector
    if continue_:
        query["continue"] = continue_
    return asyncio.create_task(client.get(resource.path, query, LIST_SECONDS), name=f"list {resource.path}")
