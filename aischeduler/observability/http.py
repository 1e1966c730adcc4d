"""Serves `/metrics`, `/livez`, `/readyz` and `/healthz` on a port of its own.

Laws:
- Everything is read-only, and health answers name no object of the cluster.
- However many ask, and however slowly they read: pages cost a bounded share of the program's time and memory.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import hdrs, web

from aischeduler.observability.door import admit, one_answer
from aischeduler.observability.exposition import form_of
from aischeduler.observability.health import Complaint
from aischeduler.observability.metrics import Metrics
from aischeduler.observability.scrapes import Scrapes

SHUTDOWN_SECONDS: Final = 1.0
"""How long an answer that is being written may take when the daemon ends."""


@asynccontextmanager
async def serving(listener: socket.socket, metrics: Metrics, live: Complaint, ready: Complaint) -> AsyncIterator[None]:
    """Serve on this socket as long as what is inside runs; the socket is closed at the end."""
    pages = application(Scrapes(metrics.collect), live, ready)
    runner = web.AppRunner(pages, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS, lingering_time=0.0)
    await runner.setup()
    assert runner.server is not None
    admitting = asyncio.create_task(admit(listener, runner.server), name="door of the pages")
    try:
        yield
    finally:
        admitting.cancel()
        await asyncio.wait([admitting])
        await runner.cleanup()
        listener.close()


def application(scrapes: Scrapes, live: Complaint, ready: Complaint) -> web.Application:
    """Return the four pages."""

    async def tell_metrics(request: web.Request) -> web.Response:
        form = form_of(request.headers.get(hdrs.ACCEPT, ""))
        return web.Response(body=await scrapes.page(form), headers={hdrs.CONTENT_TYPE: form.value})

    async def tell_life(_request: web.Request) -> web.Response:
        return _verdict(live(), 500)

    async def tell_readiness(_request: web.Request) -> web.Response:
        return _verdict(live() or ready(), 503)

    pages = web.Application(middlewares=[one_answer])
    pages.add_routes(
        [
            web.get("/metrics", tell_metrics),
            web.get("/livez", tell_life),
            web.get("/healthz", tell_life),
            web.get("/readyz", tell_readiness),
        ]
    )
    return pages


def _verdict(complaint: str, status: int) -> web.Response:
    return web.Response(text=f"{complaint or 'ok'}\n", status=status if complaint else 200)
