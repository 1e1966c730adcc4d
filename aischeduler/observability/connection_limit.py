"""A limit on the open connections to the HTTP port, so that slow clients cost the daemon little.

Invariants:
- Connections are accepted as fast as they come, one in each turn of the event loop: a rate that many clients can use up
  would keep the kubelet's probes waiting behind them, and the kubelet would end the daemon.
- At most `OPEN_MAX` connections are open: a new one replaces the one that has been open longest.
- Each connection is closed after one answer (`close_after_answer`).
"""

import asyncio
import socket
from typing import Final, NoReturn

from aiohttp import web
from aiohttp.typedefs import Handler

OPEN_MAX: Final = 64
"""Connections that are open at once: the kubelet, Prometheus and people need only a few."""
FAILED_PAUSE_SECONDS: Final = 0.02
"""The pause after a connection that could not be accepted, because no file descriptor is left."""


async def accept_connections(listener: socket.socket, server: web.Server) -> NoReturn:
    """Accept connections for this server until cancelled."""
    loop = asyncio.get_running_loop()
    listener.setblocking(False)
    while True:
        try:
            connection, _ = await loop.sock_accept(listener)
            await loop.connect_accepted_socket(server, connection)
        except OSError:  # the client has closed already, or no file descriptor is left
            await asyncio.sleep(FAILED_PAUSE_SECONDS)
        _close_longest_open(server)
        await asyncio.sleep(0)


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
