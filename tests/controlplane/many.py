"""Sends many requests in parallel, for tests that create many objects."""

import http.client
import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

CONNECTIONS = 16
REQUESTS_EACH = 8
"""The requests for which another connection is opened, which needs the CPU of two of them."""
CONNECTIONS_KEPT = 4
MERGE = "application/merge-patch+json"

Connect = Callable[[], http.client.HTTPConnection]


@dataclass(frozen=True, slots=True)
class Request:
    """One request; PATCH is a merge patch."""

    method: str
    path: str
    document: dict[str, Any]


def create(connect: Connect, path: str, documents: Iterable[dict[str, Any]]) -> None:
    """POST all documents to a collection. Raises AssertionError if a request fails."""
    send(connect, [Request("POST", path, document) for document in documents])


def send(connect: Connect, requests: Sequence[Request]) -> None:
    """Send all requests over at most `CONNECTIONS` connections. Raises AssertionError if a request fails.

    A PATCH or DELETE may get 404.
    """
    count = min(CONNECTIONS, -(-len(requests) // REQUESTS_EACH)) or 1
    shares = [requests[number::count] for number in range(count)]
    with ThreadPoolExecutor(count) as threads:
        list(threads.map(lambda share: _send_share(connect, share), shares))


class Sender:
    """Sends many requests in parallel over connections that stay open until `close`."""

    def __init__(self, connect: Connect) -> None:
        self._servers = [connect() for _ in range(CONNECTIONS_KEPT)]
        self._threads = ThreadPoolExecutor(CONNECTIONS_KEPT)

    def send(self, requests: Sequence[Request]) -> None:
        """Send all requests. Raises AssertionError if one fails; a PATCH or DELETE may get 404."""
        shares = [requests[number::CONNECTIONS_KEPT] for number in range(CONNECTIONS_KEPT)]
        list(self._threads.map(_send_on, self._servers, shares))

    def close(self) -> None:
        """Close the connections."""
        self._threads.shutdown()
        for server in self._servers:
            server.close()


def _send_share(connect: Connect, requests: Sequence[Request]) -> None:
    with closing(connect()) as server:
        _send_on(server, requests)


def _send_on(server: http.client.HTTPConnection, requests: Sequence[Request]) -> None:
    for one in requests:
        content_type = MERGE if one.method == "PATCH" else "application/json"
        server.request(one.method, one.path, json.dumps(one.document), {"Content-Type": content_type})
        answer = server.getresponse()
        said = answer.read()
        gone = answer.status == 404 and one.method != "POST"
        assert answer.status < 300 or gone, f"{one.path}: {said!r}"
