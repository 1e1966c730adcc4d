"""Ports of the loopback for the programs of a test session.

Law: a port is given once, so that nobody else gets that of a program which is down.
"""

import os
import socket
from itertools import count, islice

FIRST_PORT, LAST_PORT = 20_000, 29_999
"""Below the range from which Linux takes the ports of outgoing connections, so that the port of a part that is down is
not taken by a client that tries to reach it."""

_SPAN = LAST_PORT - FIRST_PORT + 1
_steps = count(os.getpid() * 17)


class PortsError(Exception):
    """Too few ports are free."""


def free_ports(number: int) -> list[int]:
    """Answer ports that nobody has bound now, from a place in the range that differs from process to process."""
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
