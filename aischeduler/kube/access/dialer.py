"""Open TCP connections to an API server: Happy Eyeballs, keepalive, and HTTP CONNECT proxies.

Invariants:
- An address that does not answer delays the next one by HAPPY_EYEBALLS_DELAY_SECONDS, not by the whole timeout.
- A dead peer is detected within about PEER_TIMEOUT_SECONDS, while the client waits for data and while it sends data.
- `proxy-url` of a kubeconfig wins and has no exceptions; NO_PROXY applies to proxies of the environment.
- Only http:// proxies are supported, by CONNECT. Any other proxy is rejected with a sentence that names the field, but
  neither user nor password.

Source: RFC 8305, RFC 9110 (CONNECT), Linux tcp(7), golang.org/x/net/http/httpproxy, which client-go uses.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final
from urllib.parse import unquote, urlsplit

from aiohappyeyeballs import AddrInfoType, start_connection

from aischeduler.kube.access.credentials import basic
from aischeduler.kube.http.errors import AccessError
from aischeduler.model.user_text import one_line

HAPPY_EYEBALLS_DELAY_SECONDS: Final = 0.25
"""After this long without an answer, the next address is tried in parallel."""
PEER_TIMEOUT_SECONDS: Final = 15
KEEPALIVE_IDLE_SECONDS: Final = 5
"""After this long without data, the kernel sends keepalive probes."""
KEEPALIVE_PROBES: Final = 5
PROXY_ANSWER_BYTES_MAX: Final = 16 * 1024
PROXY_PORT: Final = 80

Resolve = Callable[[str, int], Awaitable[Sequence[AddrInfoType]]]
"""Return the addresses of a host, as getaddrinfo does; raises OSError."""

SOCKET_OPTIONS: Final[tuple[tuple[int, int, int], ...]] = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (
            ("TCP_KEEPIDLE", KEEPALIVE_IDLE_SECONDS),
            ("TCP_KEEPALIVE", KEEPALIVE_IDLE_SECONDS),  # the name on macOS
            ("TCP_KEEPINTVL", (PEER_TIMEOUT_SECONDS - KEEPALIVE_IDLE_SECONDS) // KEEPALIVE_PROBES),
            ("TCP_KEEPCNT", KEEPALIVE_PROBES),
            ("TCP_USER_TIMEOUT", PEER_TIMEOUT_SECONDS * 1000),  # for sent data without an acknowledgement
        )
        if hasattr(socket, name)
    ),
)
"""The socket options of every connection, as far as the platform supports them."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy with the value of Proxy-Authorization; `where` names the setting that selects it."""

    host: str
    port: int
    authorization: bytes | None = field(default=None, repr=False)
    where: str = field(default="", compare=False)

    @property
    def url(self) -> str:
        """The URL, without authorization."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def __str__(self) -> str:
        """Return the address, and the setting that names it."""
        return f"{self.url} ({self.where})"

    def request(self, target: str) -> bytes:
        """Return the CONNECT request for `host:port`."""
        head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n".encode()
        known = b"Proxy-Authorization: %b\r\n" % self.authorization if self.authorization is not None else b""
        return head + known + b"\r\n"


async def resolve(host: str, port: int) -> Sequence[AddrInfoType]:
    """Resolve a host name with the system resolver; an IP address needs none."""
    with suppress(ValueError):
        version = ip_address(host).version
        family = socket.AF_INET if version == 4 else socket.AF_INET6
        return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]
    return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


async def dial(host: str, port: int, proxy: Proxy | None = None, lookup: Resolve = resolve) -> socket.socket:
    """Return a connected socket; raises OSError."""
    first_hop = (host, port) if proxy is None else (proxy.host, proxy.port)
    sock = await start_connection(await lookup(*first_hop), happy_eyeballs_delay=HAPPY_EYEBALLS_DELAY_SECONDS)
    try:
        for level, option, value in SOCKET_OPTIONS:
            sock.setsockopt(level, option, value)
        if proxy is not None:
            await _tunnel(sock, proxy, host, port)
    except BaseException:
        sock.close()
        raise
    return sock


async def _tunnel(sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """Open a tunnel through the proxy."""
    loop, target = asyncio.get_running_loop(), f"{f'[{host}]' if ':' in host else host}:{port}"
    await loop.sock_sendall(sock, proxy.request(target))
    head = b""
    while b"\r\n\r\n" not in head:  # the server sends nothing before the client's first bytes
        piece = await loop.sock_recv(sock, PROXY_ANSWER_BYTES_MAX)
        head += piece
        if not piece or len(head) > PROXY_ANSWER_BYTES_MAX:
            raise OSError(f"the proxy {proxy} closed the connection during CONNECT {target}")
    version, _, status = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    if not version.startswith("HTTP/1.") or not status.startswith("2"):
        raise OSError(f"the proxy {proxy} answers CONNECT {target} with {one_line(status) or 'no HTTP'}")


def parse_proxy(text: str, where: str) -> Proxy:
    """Parse the address of a proxy; raises AccessError."""
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname, parts.port or PROXY_PORT
    except ValueError as error:
        raise AccessError(f"{where} is not a valid proxy address") from error
    if parts.scheme != "http":
        raise AccessError(f"{where} names a {parts.scheme}:// proxy; only http:// is supported")
    if not host:
        raise AccessError(f"{where} is not a valid proxy address")
    known = basic(unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    return Proxy(host, port, known, where)


def proxy_from_environment(secure: bool, host: str, port: int, environment: Mapping[str, str]) -> Proxy | None:
    """Return the proxy of HTTPS_PROXY or HTTP_PROXY, unless NO_PROXY excludes the server; raises AccessError."""
    names = ("HTTPS_PROXY", "https_proxy") if secure else ("HTTP_PROXY", "http_proxy")
    name, text = _first(environment, *names)
    if not text or _bypasses_proxy(host.lower(), port, _first(environment, "NO_PROXY", "no_proxy")[1]):
        return None
    return parse_proxy(text, f"the variable {name} of the environment")


def _first(environment: Mapping[str, str], *names: str) -> tuple[str, str]:
    """Return the first variable that is set, and its value."""
    return next(((name, environment[name]) for name in names if environment.get(name)), ("", ""))


def _bypasses_proxy(host: str, port: int, no_proxy: str) -> bool:
    """Say whether a host needs no proxy: loopback, or a match in NO_PROXY."""
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_matches(entry, host, port) for part in no_proxy.split(",") if (entry := part.strip().lower()))


def _matches(entry: str, host: str, port: int) -> bool:
    """Say whether a NO_PROXY entry matches: `*`, a CIDR, an address, a domain with subdomains; maybe with a port."""
    if entry == "*":
        return True
    address = _address(host)
    if "/" in entry:
        try:
            return address is not None and address in ip_network(entry, strict=False)
        except ValueError:
            return False
    name, _, number = entry.rpartition(":") if entry.count(":") == 1 or "]:" in entry else (entry, "", "")
    if number and number != str(port):
        return False
    name = name.removeprefix("[").removesuffix("]").removeprefix("*")
    if not name or (excluded := _address(name)) is not None:
        return bool(name) and excluded == address
    return host.endswith(name if name.startswith(".") else f".{name}") or host == name


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None
