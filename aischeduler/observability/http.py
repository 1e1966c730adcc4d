"""Serves `/metrics`, `/livez`, `/readyz` and `/healthz` on a port of its own.

Invariants:
- Everything is read-only, and health answers name no object of the cluster.
- Pages cost a bounded share of the daemon's time and memory, however many clients there are and however slow they are.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import hdrs, web

from aischeduler.observability.connection_limit import accept_connections, close_after_answer
from aischeduler.observability.health import Problem
from aischeduler.observability.scrape_cache import Form, ScrapeCache

SHUTDOWN_SECONDS: Final = 1.0
"""How long an answer that is being written may take when the daemon ends."""


@asynccontextmanager
async def serving(listener: socket.socket, cache: ScrapeCache, live: Problem, ready: Problem) -> AsyncIterator[None]:
    """Serve on this socket while the context is open; the socket is closed at the end."""
    pages = _application(cache, live, ready)
    runner = web.AppRunner(pages, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS, lingering_time=0.0)
    await runner.setup()
    assert runner.server is not None
    accepting = asyncio.create_task(accept_connections(listener, runner.server), name="connection limit")
    try:
        yield
    finally:
        accepting.cancel()
        await asyncio.wait([accepting])
        await runner.cleanup()
        listener.close()


def _application(cache: ScrapeCache, live: Problem, ready: Problem) -> web.Application:
    """Return the four pages."""

    async def metrics(request: web.Request) -> web.Response:
        form = Form.accepted(request.headers.get(hdrs.ACCEPT, ""))
        return web.Response(body=await cache.page(form), headers={hdrs.CONTENT_TYPE: form.value})

    async def livez(_request: web.Request) -> web.Response:
        return _health(live(), 500)

    async def readyz(_request: web.Request) -> web.Response:
        return _health(live() or ready(), 503)

    pages = web.Application(middlewares=[close_after_answer])
    pages.add_routes(
        [
            web.get("/metrics", metrics),
            web.get("/livez", livez),
            web.get("/healthz", livez),
            web.get("/readyz", readyz),
        ]
    )
    return pages


def _health(problem: str, status: int) -> web.Response:
    return web.Response(text=f"{problem or 'ok'}\n", status=status if problem else 200)
