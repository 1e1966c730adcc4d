"""Open a socket to an API server: to the address that answers first, through a proxy where there is one.

Laws:
- An address that does not answer delays the next one by ANOTHER_SECONDS, not by the time limit of all.
- A peer that is gone is noticed within about DEAD_SECONDS on every connection, whether we wait for bytes or send them.

Source: RFC 8305, RFC 9110 (CONNECT), Linux tcp(7).
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import Final

from aiohappyeyeballs import AddrInfoType, start_connection

from aischeduler.kube.errors import one_line
from aischeduler.kube.proxy import Proxy

ANOTHER_SECONDS: Final = 0.25
"""After so long without an answer of one address the next one is tried beside it."""
DEAD_SECONDS: Final = 15
IDLE_SECONDS: Final = 5
"""After so long without a byte the peer is asked for a sign of life."""
PROBES: Final = 5
HEAD_BYTES_MAX: Final = 16 * 1024

Resolve = Callable[[str, int], Awaitable[Sequence[AddrInfoType]]]
"""Return the addresses of a host, as getaddrinfo does; raises OSError."""

SOCKET_OPTIONS: Final[tuple[tuple[int, int, int], ...]] = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (
            ("TCP_KEEPIDLE", IDLE_SECONDS),
            ("TCP_KEEPALIVE", IDLE_SECONDS),  # as macOS calls it
            ("TCP_KEEPINTVL", (DEAD_SECONDS - IDLE_SECONDS) // PROBES),
            ("TCP_KEEPCNT", PROBES),
            ("TCP_USER_TIMEOUT", DEAD_SECONDS * 1000),  # for what was sent and nobody has confirmed
        )
        if hasattr(socket, name)
    ),
)
"""What every connection is opened with, as far as the platform has it."""


async def resolve(host: str, port: int) -> Sequence[AddrInfoType]:
    """Ask the machine's resolver; an address needs none."""
    with suppress(ValueError):
        version = ip_address(host).version
        family = socket.AF_INET if version == 4 else socket.AF_INET6
        return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]
    return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


async def dial(host: str, port: int, proxy: Proxy | None = None, lookup: Resolve = resolve) -> socket.socket:
    """Return a socket that leads to the host; raises OSError."""
    near = (host, port) if proxy is None else (proxy.host, proxy.port)
    opened = await start_connection(await lookup(*near), happy_eyeballs_delay=ANOTHER_SECONDS)
    try:
        for level, option, value in SOCKET_OPTIONS:
            opened.setsockopt(level, option, value)
        if proxy is not None:
            await _tunnel(opened, proxy, host, port)
    except BaseException:
        opened.close()
        raise
    return opened


async def _tunnel(opened: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """Ask the proxy to pass on everything that follows."""
    loop, target = asyncio.get_running_loop(), f"{f'[{host}]' if ':' in host else host}:{port}"
    await loop.sock_sendall(opened, proxy.request(target))
    head = b""
    while b"\r\n\r\n" not in head:  # nothing of the server follows before we have spoken to it
        piece = await loop.sock_recv(opened, HEAD_BYTES_MAX)
        head += piece
        if not piece or len(head) > HEAD_BYTES_MAX:
            raise OSError(f"the proxy {proxy} ended its answer to CONNECT {target}")
    version, _, status = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    if not version.startswith("HTTP/1.") or not status.startswith("2"):
        raise OSError(f"the proxy {proxy} answers CONNECT {target} with {one_line(status) or 'no HTTP'}")
