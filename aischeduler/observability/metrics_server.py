"""Serves `/metrics`, `/livez`, `/readyz` and `/healthz` on a port of its own.

Invariants:
- Everything is read-only, and health answers name no object of the cluster.
- The numbers of a page of metrics are taken in the event loop, at one moment; a thread makes the text.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import Enum
from typing import Final

from aiohttp import hdrs, web
from msgspec import Struct
from prometheus_client import CollectorRegistry, exposition
from prometheus_client.openmetrics import exposition as openmetrics

from aischeduler.observability.health import Problem

IDLE_SECONDS: Final = 15.0
"""A connection that sends no request for so long is closed."""
SHUTDOWN_SECONDS: Final = 1.0
"""How long an answer that is being written may take when the daemon ends."""
_OPENMETRICS: Final = "application/openmetrics-text"


class Form(Enum):
    """The format of the metrics; the value is its content type."""

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


class Pages(Struct, frozen=True):
    """What is served: the metrics of the registry, whose numbers `take` copies, and what is wrong with the daemon."""

    registry: CollectorRegistry
    take: Callable[[], None]
    live: Problem
    ready: Problem


@asynccontextmanager
async def serving(listener: socket.socket, pages: Pages) -> AsyncIterator[None]:
    """Serve on this socket while the context is open; the socket is closed at the end."""
    runner = web.AppRunner(
        _application(pages),
        access_log=None,
        keepalive_timeout=IDLE_SECONDS,
        shutdown_timeout=SHUTDOWN_SECONDS,
        lingering_time=0.0,
    )
    await runner.setup()
    await web.SockSite(runner, listener).start()
    try:
        yield
    finally:
        await runner.cleanup()
        listener.close()


def _application(pages: Pages) -> web.Application:
    """Return the four pages."""
    live, ready = pages.live, pages.ready
    one_at_a_time = asyncio.Lock()  # the registry has the numbers of one page

    async def metrics(request: web.Request) -> web.Response:
        form = Form.accepted(request.headers.get(hdrs.ACCEPT, ""))
        async with one_at_a_time:
            pages.take()
            text = await asyncio.to_thread(encode, pages.registry, form)
        return web.Response(body=text, headers={hdrs.CONTENT_TYPE: form.value})

    async def livez(_request: web.Request) -> web.Response:
        return _health(live(), 500)

    async def readyz(_request: web.Request) -> web.Response:
        return _health(live() or ready(), 503)

    application = web.Application()
    application.add_routes(
        [
            web.get("/metrics", metrics),
            web.get("/livez", livez),
            web.get("/healthz", livez),
            web.get("/readyz", readyz),
        ]
    )
    return application


def _health(problem: str, status: int) -> web.Response:
    return web.Response(text=f"{problem or 'ok'}\n", status=status if problem else 200)
