"""A limit on the connections to the HTTP port, so that neither many clients nor slow clients cost the daemon much.

Invariants:
- Connections are accepted one by one with a pause after each; the others wait in the listener's backlog.
- At most `OPEN_MAX` connections are open: a new one replaces the one that has been open longest.
- Each connection is closed after one answer (`close_after_answer`).
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

from aiohttp import web
from aiohttp.typedefs import Handler

OPEN_MAX: Final = 64
"""Connections that are open at once: the kubelet, Prometheus and people need only a few."""
PAUSE_SECONDS: Final = 0.02
"""The pause after each connection: fifty are accepted in a second, at some 0.3 ms each."""


async def accept_connections(
    listener: socket.socket, server: web.Server, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> NoReturn:
    """Accept connections for this server until cancelled; `sleep` waits for some seconds."""
    loop = asyncio.get_running_loop()
    listener.setblocking(False)
    while True:
        try:
            connection, _ = await loop.sock_accept(listener)
            await loop.connect_accepted_socket(server, connection)
        except OSError:
            pass  # the client has closed already, or no file descriptor is left; the next try follows the pause
        _close_longest_open(server)
        await sleep(PAUSE_SECONDS)


@web.middleware
async def close_after_answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Close the connection after its answer, so that each request of a client passes the limit."""
    try:
        answer = await handler(request)
    except web.HTTPException as error:
        error.force_close()
        raise
    answer.force_close()
    return answer


def _close_longest_open(server: web.Server) -> None:
    """Close the connections beyond the limit, the longest open first."""
    transports = [connection.transport for connection in server.connections if connection.transport is not None]
    for transport in transports[:-OPEN_MAX]:
        transport.abort()
