"""Loopback ports for the programs of a test session.

Invariant: a port is returned only once, so that no other program gets the port of a stopped program.
"""

import os
import socket
from itertools import count, islice

FIRST_PORT, LAST_PORT = 20_000, 29_999
"""Below the ephemeral port range of Linux, so that no outgoing connection takes the port of a stopped part."""

_SPAN = LAST_PORT - FIRST_PORT + 1
_steps = count(os.getpid() * 17)


class PortsError(Exception):
    """Too few ports are free."""


def free_ports(number: int) -> list[int]:
    """Return unbound ports; the search starts at a different port in each process."""
    found: list[int] = []
    for step in islice(_steps, _SPAN):
        port = FIRST_PORT + step % _SPAN
        if _is_free(port):
            found.append(port)
        if len(found) == number:
            return found
    raise PortsError(f"no {number} free ports between {FIRST_PORT} and {LAST_PORT}")


def _is_free(port: int) -> bool:
    with socket.socket() as trial:
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
