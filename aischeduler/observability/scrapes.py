"""Decides when metrics are written down, so that no flood of scrapes takes the program's time.

Laws:
- Numbers that are told were taken after they were asked for.
- Whoever asks while a page waits to be written shares that page; one page is written at a time.
- At most a tenth of the time a page is written, however many ask.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from aischeduler.observability.exposition import Family, Form, render

SHARE: Final = 10
"""A page that took a millisecond is followed by the next one ten milliseconds after it was begun, at the earliest."""


class Scrapes:
    """The pages of metrics; `clock` gives seconds, `sleep` waits for some."""

    def __init__(
        self,
        collect: Callable[[], Iterable[Family]],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._collect = collect
        self._clock = clock
        self._sleep = sleep
        self._turn = asyncio.Lock()
        self._next_at = clock()
        self._pages: dict[Form, tuple[float, bytes]] = {}

    async def page(self, form: Form) -> bytes:
        """Return all metrics as they are now, or a little later where the last page was written just before."""
        asked_at = self._clock()
        async with self._turn:
            taken_at, text = self._pages.get(form, (-1.0, b""))
            if taken_at > asked_at:
                return text
            await self._sleep(max(0.0, self._next_at - self._clock()))
            taken_at = self._clock()
            try:
                text = await render(self._collect(), form)
            finally:
                self._next_at = taken_at + SHARE * (self._clock() - taken_at)
            self._pages[form] = taken_at, text
            return text
