"""Which proxy stands between us and an API server, if any: a kubeconfig's, else the environment's.

Laws:
- `proxy-url` of a kubeconfig wins and knows no exceptions; NO_PROXY is for what the environment says.
- Only http:// proxies are spoken to, by CONNECT. Any other is refused in a sentence that names the field, and shows
  neither name nor password.

Source: golang.org/x/net/http/httpproxy, which client-go uses.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final
from urllib.parse import unquote, urlsplit

from aischeduler.kube.credential import basic
from aischeduler.kube.errors import AccessError

PORT: Final = 80


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy; `authorization` is what it knows us by. `where` names what made us use it."""

    host: str
    port: int
    authorization: bytes | None = field(default=None, repr=False)
    where: str = field(default="", compare=False)

    def __str__(self) -> str:
        """Return its address, and where it stands."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port} ({self.where})"

    def request(self, target: str) -> bytes:
        """Return the head that asks for a tunnel to `host:port`."""
        head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n".encode()
        known = b"Proxy-Authorization: %b\r\n" % self.authorization if self.authorization is not None else b""
        return head + known + b"\r\n"


def proxy_of(text: str, where: str) -> Proxy:
    """Read the address of a proxy; raises AccessError."""
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname, parts.port or PORT
    except ValueError as error:
        raise AccessError(f"{where} is not the address of a proxy") from error
    if parts.scheme != "http":
        raise AccessError(f"{where} names a proxy of the kind {parts.scheme}://, and only http:// is supported")
    if not host:
        raise AccessError(f"{where} is not the address of a proxy")
    known = basic(unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    return Proxy(host, port, known, where)


def proxy_of_environment(secure: bool, host: str, port: int, environment: Mapping[str, str]) -> Proxy | None:
    """Return the proxy that HTTPS_PROXY, or HTTP_PROXY, and NO_PROXY name for this server; raises AccessError."""
    names = ("HTTPS_PROXY", "https_proxy") if secure else ("HTTP_PROXY", "http_proxy")
    name, text = _first(environment, *names)
    if not text or _direct(host.lower(), port, _first(environment, "NO_PROXY", "no_proxy")[1]):
        return None
    return proxy_of(text, f"the variable {name} of the environment")


def _first(environment: Mapping[str, str], *names: str) -> tuple[str, str]:
    """Return the first of the variables that is set, with its value."""
    return next(((name, environment[name]) for name in names if environment.get(name)), ("", ""))


def _direct(host: str, port: int, no_proxy: str) -> bool:
    """Say whether a host is reached without a proxy: one of this machine, and what NO_PROXY names."""
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_matches(entry, host, port) for one in no_proxy.split(",") if (entry := one.strip().lower()))


def _matches(entry: str, host: str, port: int) -> bool:
    """Say whether an entry means the host: `*`, a range, an address, a domain with what is below it; `:port` or not."""
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
    if not name or (meant := _address(name)) is not None:
        return bool(name) and meant == address
    return host.endswith(name if name.startswith(".") else f".{name}") or host == name


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None
