"""A transport to an API server over HTTP, real or the sandbox.

Invariants: one connection serves all requests, each watch has a connection and a thread; a restart drops the old ones.
"""

import http.client
import json
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from urllib.parse import urlsplit

from tests.api_contract.world import SETTLE_SECONDS, Answer, Call, Json

ANSWER_WITHIN_SECONDS = 60.0


class HttpTransport:
    """A server at a URL; `restart_server` restarts it."""

    def __init__(self, url: str, restart_server: Callable[[], None], tls: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 0
        self._tls = tls
        self._restart_server = restart_server
        self._connection = self._connect()

    def request(self, call: Call) -> Answer:
        headers = {"Accept": call.accept, "Content-Type": call.content_type}
        self._connection.request(call.method, call.url, call.body or None, headers)
        response = self._connection.getresponse()
        raw = response.read()
        return Answer(response.status, _decode(raw), int(response.headers.get("Retry-After") or 0))

    def watch(self, url: str) -> "HttpStream":
        return HttpStream(self._connect(), url)

    def restart(self) -> None:
        self._connection.close()
        self._restart_server()
        self._connection = self._connect()

    def settle(self) -> None:
        time.sleep(SETTLE_SECONDS)

    def close(self) -> None:
        self._connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=ANSWER_WITHIN_SECONDS)
        return http.client.HTTPSConnection(self._host, self._port, timeout=ANSWER_WITHIN_SECONDS, context=self._tls)


class HttpStream:
    """A watch that a thread reads, so that waiting for an event has a timeout."""

    def __init__(self, connection: http.client.HTTPConnection, url: str) -> None:
        connection.request("GET", url)
        self._socket: socket.socket = connection.sock
        self._response = connection.getresponse()
        if self._response.status != 200:
            raise AssertionError(f"watch {url} answered {self._response.status}: {self._response.read()!r}")
        self._socket.settimeout(None)  # nothing may happen for as long as it likes
        self._events: SimpleQueue[Json | None] = SimpleQueue()
        self._ended = False
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def ended(self) -> bool:
        return self._ended

    def next(self, seconds: float) -> Json | None:
        if self._ended:
            return None
        try:
            event = self._events.get(timeout=seconds)
        except Empty:
            return None
        self._ended = event is None
        return event

    def close(self) -> None:
        with suppress(OSError):  # the other side has closed it already
            self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._response.close()
        self._socket.close()

    def _read(self) -> None:
        with suppress(OSError, http.client.HTTPException, ValueError):  # a killed server breaks its streams at any byte
            for line in self._response:
                self._events.put(json.loads(line))
        self._events.put(None)


def _decode(raw: bytes) -> Json:
    """Return the document; plain text (`ok`, `404 page not found`) becomes its message."""
    try:
        document: Json = json.loads(raw)
    except ValueError:
        return {"message": raw.decode()}
    return document
