"""Serves `/metrics`, `/livez`, `/readyz` and `/healthz` on a port of its own.

Laws:
- Everything is read-only, and health answers name no object of the cluster.
- One scrape is written at a time; the others wait for their turn.
"""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import hdrs, web

from aischeduler.config.load import ConfigError
from aischeduler.config.schema import HTTP_OFF
from aischeduler.observability.exposition import render
from aischeduler.observability.metrics import Metrics

SHUTDOWN_SECONDS: Final = 1.0
"""How long an answer that is being written may take when the daemon ends."""
_NO_IPV6: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)

Complaint = Callable[[], str]
"""Returns what is wrong in one plain line, or nothing."""


def listen(address: str) -> socket.socket | None:
    """Take the port of `host:port`, or nothing where that is `none`; raises ConfigError when it cannot be had."""
    if address == HTTP_OFF:
        return None
    host, _, port = address.rpartition(":")
    try:
        return _take(host.strip("[]"), int(port))
    except OSError as error:
        why = (error.strerror or str(error)).partition(" (while")[0]
        raise ConfigError(f"http.address: cannot listen on {address}: {why}") from error


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


def _take(host: str, port: int) -> socket.socket:
    if not host and socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:
            if error.errno not in _NO_IPV6:
                raise
    family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
    return socket.create_server((host, port), family=family)
