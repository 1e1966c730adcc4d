"""The text of `/metrics`: encoded in a thread, and kept for a while, so that a flood of scrapes costs little.

Invariants:
- One page is encoded at a time; the numbers are taken in the event loop, at one moment.
- A page is kept for a second, or ten times as long as it took to make where that is longer: making pages takes a tenth
  of the time at most. A failure is kept in the same way.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from prometheus_client import CollectorRegistry, exposition
from prometheus_client.openmetrics import exposition as openmetrics

KEPT_SECONDS: Final = 1.0
KEPT_SHARE: Final = 10
"""A page is kept at least so many times as long as it took to make."""
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


@dataclass(frozen=True, slots=True)
class _Kept:
    """A page or the failure to make it, and until when it is kept."""

    until: float
    result: bytes | Exception


class ScrapeCache:
    """The pages of a registry, each kept for a while; `take` copies the numbers before a page is encoded."""

    def __init__(
        self, registry: CollectorRegistry, take: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._registry = registry
        self._take = take
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()
        self._kept: dict[Form, _Kept] = {}

    async def page(self, form: Form) -> bytes:
        """Return all metrics as they are now, or as they were when the page that is still kept was made."""
        async with self._one_at_a_time:
            kept = self._kept.get(form)
            if kept is None or self._clock() >= kept.until:
                kept = self._kept[form] = await self._make(form)
        if isinstance(kept.result, Exception):
            raise kept.result
        return kept.result

    async def _make(self, form: Form) -> _Kept:
        began = self._clock()
        result: bytes | Exception
        try:
            self._take()
            result = await asyncio.to_thread(encode, self._registry, form)
        except Exception as error:  # noqa: BLE001 - it is raised to each client that asks while it is kept
            result = error
        seconds = self._clock() - began
        return _Kept(began + max(KEPT_SECONDS, KEPT_SHARE * seconds), result)
