"""Serves `/metrics`, `/livez`, `/readyz` and `/healthz` on a port of its own.

Laws:
- Everything is read-only, and health answers name no object of the cluster.
- One scrape is written at a time; the others wait for their turn.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import hdrs, web

from aischeduler.observability.exposition import render
from aischeduler.observability.health import Complaint
from aischeduler.observability.metrics import Metrics

SHUTDOWN_SECONDS: Final = 1.0
"""How long an answer that is being written may take when the daemon ends."""


@asynccontextmanager
async def serving(listener: socket.socket, metrics: Metrics, live: Complaint, ready: Complaint) -> AsyncIterator[None]:
    """Serve on this socket as long as what is inside runs; the socket is closed at the end."""
    runner = web.AppRunner(application(metrics, live, ready), access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        yield
    finally:
        await runner.cleanup()
        listener.close()


def application(metrics: Metrics, live: Complaint, ready: Complaint) -> web.Application:
    """Return the four pages."""
    turn = asyncio.Lock()

    async def tell_metrics(request: web.Request) -> web.Response:
        async with turn:
            text, content_type = await render(metrics.collect(), request.headers.get(hdrs.ACCEPT, ""))
        return web.Response(body=text, headers={hdrs.CONTENT_TYPE: content_type})

    async def tell_life(_request: web.Request) -> web.Response:
        return _verdict(live(), 500)

    async def tell_readiness(_request: web.Request) -> web.Response:
        return _verdict(live() or ready(), 503)

    pages = web.Application()
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
