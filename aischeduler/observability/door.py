"""Lets those who ask for pages in, so that their number and their patience cost the program little.

Laws:
- Connections are taken one by one with a pause in between; the others wait in the listener's backlog.
- At most `OPEN_MAX` are open: a further one takes the place of the one that was open longest.
- Every connection is asked one thing: it is closed after its answer (`one_answer`).
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

from aiohttp import web
from aiohttp.typedefs import Handler

OPEN_MAX: Final = 64
"""Connections that are open at once: kubelet, Prometheus and people need a handful."""
PAUSE_SECONDS: Final = 0.02
"""Between two connections: fifty a second, of some 0.3 ms each."""


async def admit(
    listener: socket.socket, server: web.Server, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> NoReturn:
    """Take connections for this server as long as this runs; `sleep` waits for some seconds."""
    loop = asyncio.get_running_loop()
    listener.setblocking(False)
    while True:
        try:
            connection, _ = await loop.sock_accept(listener)
            await loop.connect_accepted_socket(server, connection)
        except OSError:
            pass  # whoever asked is gone already, or there are no descriptors left: the next try is a pause away
        _close_longest_open(server)
        await sleep(PAUSE_SECONDS)


@web.middleware
async def one_answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Close the connection after its answer: who asks in a loop comes through the door each time."""
    try:
        answer = await handler(request)
    except web.HTTPException as error:
        error.force_close()
        raise
    answer.force_close()
    return answer


def _close_longest_open(server: web.Server) -> None:
    """Close what is more than may be open; those come first who did not read their answer for longest."""
    open_ones = [one.transport for one in server.connections if one.transport is not None]
    for transport in open_ones[:-OPEN_MAX]:
        transport.abort()
