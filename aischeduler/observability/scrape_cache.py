"""The text of `/metrics`: encoded in a thread, and shared by clients, so that many scrapes cost little.

Invariants:
- The numbers of a page are taken in the event loop, at one moment after the request for the page.
- All clients that wait for a page share it; one page is made at a time.
- Making pages takes a tenth of the time at most, however many clients ask.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Final

from prometheus_client import CollectorRegistry, exposition
from prometheus_client.openmetrics import exposition as openmetrics

SHARE: Final = 10
"""After a page that took a millisecond, the next one begins ten milliseconds after the first began, at the earliest."""
_OPENMETRICS: Final = "application/openmetrics-text"


class Form(Enum):
    """The format of a page; the value is its content type."""

    TEXT = exposition.CONTENT_TYPE_PLAIN_0_0_4
    OPENMETRICS = openmetrics.CONTENT_TYPE_LATEST

    @classmethod
    def accepted(cls, accept: str) -> "Form":
        """Return OpenMetrics where the Accept header names it, else Prometheus' text format."""
        names = (part.partition(";")[0].strip() for part in accept.split(","))
        return cls.OPENMETRICS if _OPENMETRICS in names else cls.TEXT


def encode(registry: CollectorRegistry, form: Form) -> bytes:
    """Return all metrics of the registry as text."""
    if form is Form.TEXT:
        return exposition.generate_latest(registry)
    text: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
    return text


class ScrapeCache:
    """The pages of a registry; `take` copies the numbers of a page, `clock` returns seconds."""

    def __init__(
        self,
        registry: CollectorRegistry,
        take: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._registry = registry
        self._take = take
        self._clock = clock
        self._sleep = sleep
        self._one_at_a_time = asyncio.Lock()
        self._next_at = clock()
        self._pages: dict[Form, tuple[float, bytes]] = {}

    async def page(self, form: Form) -> bytes:
        """Return all metrics as they are now, or a little later where a page was made just before."""
        asked_at = self._clock()
        async with self._one_at_a_time:
            taken_at, text = self._pages.get(form, (-1.0, b""))
            if taken_at > asked_at:
                return text
            await self._sleep(max(0.0, self._next_at - self._clock()))
            taken_at = self._clock()
            try:
                self._take()
                text = await asyncio.to_thread(encode, self._registry, form)
            finally:
                self._next_at = taken_at + SHARE * (self._clock() - taken_at)
            self._pages[form] = taken_at, text
            return text
