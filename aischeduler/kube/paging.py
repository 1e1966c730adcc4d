"""Read a whole list in pages, so that neither side has to hold it at once."""

from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from aischeduler.kube.client import LIST_SECONDS, Client
from aischeduler.kube.documents import UNREADABLE, Page
from aischeduler.kube.errors import GarbledError
from aischeduler.kube.resources import Resource

PAGE_OBJECTS: Final = 500

_PAGE: Final = msgspec.json.Decoder(Page)


async def pages(client: Client, resource: Resource[Any]) -> AsyncIterator[Page]:
    """Yield the pages of a list as the server holds it now; raises ApiError, with status 410 when it took too long."""
    query = {"limit": str(PAGE_OBJECTS)}
    if resource.selector:
        query["fieldSelector"] = resource.selector
    while True:
        body = await client.get(resource.path, query, LIST_SECONDS)
        try:
            page = _PAGE.decode(body)
        except UNREADABLE as error:
            raise GarbledError(f"GET {resource.path}: the list cannot be read: {error}") from error
        yield page
        if not page.metadata.continue_:
            return
        query["continue"] = page.metadata.continue_
