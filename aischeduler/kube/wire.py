"""Connections for the many small writes: one system call a request, no objects in between.

Laws:
- A connection carries one request at a time and is used again when its answer allows it.
- An end without an answer is an UnreachableError and leaves open what became of the request.
- One timer sweeps all deadlines; a request has none of its own.

Source: HTTP/1.1, parsed by httptools.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

import httptools

from aischeduler.kube.auth import Server
from aischeduler.kube.client import CONNECT_SECONDS, REQUEST_SECONDS, USER_AGENT, describe
from aischeduler.kube.errors import UnreachableError

SWEEP_SECONDS: Final = 0.5
"""How exactly deadlines are kept."""
IDLE_SECONDS: Final = 45.0
"""A connection that was not used for so long is not used again: the server may be about to close it."""
READ_BYTES: Final = 64 * 1024
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server answered; of the headers only Retry-After."""

    status: int
    retry_after: str | None
    body: bytes


class _Connection(asyncio.BufferedProtocol):
    """One connection; it reads into its own buffer and wakes the one who waits when an answer is complete."""

    def __init__(self, closed: Callable[["_Connection"], None]) -> None:
        self.deadline = float("inf")
        self.idle_since = 0.0
        self.reusable = False
        self._closed = closed
        self._buffer = bytearray(READ_BYTES)
        self._view = memoryview(self._buffer)
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Answer] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._retry_after: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the protocol's signature
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        try:
            self._parser.feed_data(self._view[:nbytes])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.fail(UnreachableError(f"the answer is not HTTP: {describe(error)}"))

    def eof_received(self) -> None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail(UnreachableError(f"the connection broke before the answer: {exc or 'closed by the server'}"))
        self._closed(self)

    def on_message_begin(self) -> None:
        self._body = []
        self._body_bytes = 0
        self._retry_after = None

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(name) == 11 and name.lower() == b"retry-after":
            self._retry_after = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > ANSWER_BYTES_MAX:
            self.fail(UnreachableError(f"the answer is larger than {ANSWER_BYTES_MAX} bytes"))
            return
        self._body.append(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            return
        self.reusable = self._parser.should_keep_alive()
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(Answer(status, self._retry_after, b"".join(self._body)))

    def ask(self, request: bytes, deadline: float) -> asyncio.Future[Answer]:
        """Send a request; the future ends with its answer or with UnreachableError."""
        if self._transport is None or self._waiter is not None:
            raise RuntimeError("the connection is not ready")
        self._waiter = asyncio.get_running_loop().create_future()
        self.deadline = deadline
        self.reusable = False
        self._transport.write(request)
        return self._waiter

    @property
    def open(self) -> bool:
        """Whether it can carry another request."""
        return self._transport is not None and not self._transport.is_closing()

    def fail(self, error: UnreachableError) -> None:
        """End what waits with this error and close."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)
        if self._transport is not None:
            self._transport.abort()


class Wire:
    """A pool of connections to one API server; at most `limit` are open."""

    def __init__(self, server: Server, limit: int, answer_seconds: float = REQUEST_SECONDS) -> None:
        self._server = server
        self._answer_seconds = answer_seconds
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._places = asyncio.Semaphore(limit)
        self._sweeper: asyncio.TimerHandle | None = None
        self._head_of: bytes | None = b""
        self._head = b""

    async def send(self, method: bytes, path: bytes, body: bytes, content_type: bytes) -> Answer:
        """Send a request and return its answer; raises UnreachableError."""
        async with self._places:
            header = await self._server.authorization()
            if header != self._head_of or not self._head:
                self._head_of, self._head = header, self._common_head(header)
            request = b"%b %b%b HTTP/1.1\r\n%bContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (
                method,
                self._server.prefix.encode(),
                path,
                self._head,
                content_type,
                len(body),
                body,
            )
            connection = self._take() or await self._connect()
            return await self._exchange(connection, request)

    async def renew(self) -> bool:
        """Read the credentials again after a 401; say whether there is something new to try."""
        return await self._server.renew(self._head_of)

    async def close(self) -> None:
        """Close all connections; what still waits ends with UnreachableError."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in (*self._idle, *self._busy):
            connection.fail(UnreachableError("the pool of connections was closed"))
        await asyncio.sleep(0)

    def _common_head(self, header: bytes | None) -> bytes:
        host = f"[{self._server.host}]" if ":" in self._server.host else self._server.host
        lines = [f"Host: {host}:{self._server.port}", f"User-Agent: {USER_AGENT}", "Accept: application/json"]
        head = "".join(f"{line}\r\n" for line in (*lines, "Accept-Encoding: identity")).encode()
        return head + (b"Authorization: %b\r\n" % header if header is not None else b"")

    def _take(self) -> _Connection | None:
        oldest = asyncio.get_running_loop().time() - IDLE_SECONDS
        while self._idle:
            connection = self._idle.pop()
            if connection.open and connection.idle_since >= oldest:
                return connection
            connection.fail(UnreachableError("the connection was idle for too long"))
        return None

    async def _connect(self) -> _Connection:
        tls = self._server.tls
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: _Connection(self._forget),
                    self._server.host,
                    self._server.port,
                    ssl=tls.context if tls is not None else None,
                    server_hostname=(tls.server_name or self._server.host) if tls is not None else None,
                )
        except (OSError, TimeoutError) as error:
            raise UnreachableError(f"no connection to {self._server.url}: {describe(error)}") from error
        return connection

    async def _exchange(self, connection: _Connection, request: bytes) -> Answer:
        loop = asyncio.get_running_loop()
        self._busy.add(connection)
        if self._sweeper is None:
            self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep)
        try:
            answer = await connection.ask(request, loop.time() + self._answer_seconds)
        except BaseException:
            connection.fail(UnreachableError("the request was given up"))
            raise
        finally:
            self._busy.discard(connection)
        if connection.reusable:
            connection.idle_since = loop.time()
            self._idle.append(connection)
        else:
            connection.fail(UnreachableError("the server closes the connection"))
        return answer

    def _sweep(self) -> None:
        """End what has waited too long; runs only while something waits."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in [one for one in self._busy if one.deadline <= now]:
            connection.fail(UnreachableError(f"no answer within {self._answer_seconds:g} s"))
        self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep) if self._busy else None

    def _forget(self, connection: _Connection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)
