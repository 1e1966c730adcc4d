"""Takes the port of metrics and health at the start, before the HTTP server is imported."""

import errno
import socket
from typing import Final

from aischeduler.config.load import ConfigError
from aischeduler.config.schema import HTTP_OFF

_NO_IPV6: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


def listen(address: str) -> socket.socket | None:
    """Take the port of `host:port`; none where the address is `none`. Raises ConfigError where it cannot be taken."""
    if address == HTTP_OFF:
        return None
    host, _, port = address.rpartition(":")
    try:
        return _take(host.strip("[]"), int(port))
    except OSError as error:
        why = (error.strerror or str(error)).partition(" (while")[0]
        raise ConfigError(f"http.address: cannot listen on {address}: {why}") from error


def _take(host: str, port: int) -> socket.socket:
    if not host and socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:
            if error.errno not in _NO_IPV6:
                raise
    family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
    return socket.create_server((host, port), family=family)
