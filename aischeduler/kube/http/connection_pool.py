"""The pool of HTTP connections to the API server, with deadlines, a retry after 401, and the fence before writes.

Invariants:
- Every request has a deadline. One timer checks all of them; a request has no timer of its own.
- A connection is reused if the server allows it and its client certificate is still current.
- A refusal without a Status, or an HTML page, does not come from an API server. It raises InterceptedError, and the
  outcome of the request is unknown.
- A request that is answered with 401 is sent once more if other credentials are available.
- A request line has no byte that could end it or begin another one, whatever the path is.
- `stalled_seconds` counts, to half a second, the time in which the server answered no request in flight.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from aischeduler import __version__
from aischeduler.kube.access.dialer import dial
from aischeduler.kube.access.server import Server
from aischeduler.kube.decode.meta_types import read_status
from aischeduler.kube.http.connection import READ_BYTES, Answer, Connection, Stream, describe_error
from aischeduler.kube.http.errors import InterceptedError, UnreachableError

REQUEST_SECONDS: Final = 30.0
"""The default timeout of a request other than a list or a watch."""
CONNECT_SECONDS: Final = 10.0
USER_AGENT: Final = f"ai-scheduler/{__version__}"

SWEEP_SECONDS: Final = 0.5
"""The precision of the deadlines."""
IDLE_SECONDS: Final = 45.0
"""An idle connection is closed after this long, before the server closes it; it costs memory on both sides."""

RETRYABLE_STATUSES: Final = (401, 408, 429)
"""The caller sends the same request again after these answers; an API server sends some of them as plain text."""
NOT_SERVED_BODY: Final = b"404 page not found"
"""The body of an API server's 404 for a resource that it does not serve."""
_NOT_IN_A_PATH: Final = re.compile(rb"[^\x21-\x7e]").search
HTML_START: Final = b"<"
"""The first byte of an HTML page; an API server never sends one."""
NOT_SENT: Final = Answer(0, None, b"")

Fence = Callable[[], Awaitable[None] | None]
"""Called right before a write is sent, in the same step of the event loop. None lets the write pass; an awaitable is
awaited, then the fence is called again.

An exception keeps the write from being sent.
"""


def no_fence() -> None:
    """Let every write pass."""


class ConnectionPool:
    """The connections to one API server. `fence` is called before every write.

    At most `limit` requests are in flight, each on a connection of its own; streams do not count.

    `answer_seconds` is the default timeout of a request; it may change at any time.
    """

    def __init__(
        self, server: Server, limit: int, answer_seconds: float = REQUEST_SECONDS, fence: Fence = no_fence
    ) -> None:
        self._server = server
        self._fence = fence
        self.answer_seconds = answer_seconds
        self.stalled_seconds = 0.0
        """How long, in total, requests were in flight without any answer of the server; an idle stream counts too."""
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._limit = limit
        self._slots = asyncio.Semaphore(limit)
        self._closer: asyncio.TimerHandle | None = None
        """Closes idle connections; set while any connection is idle."""
        self._sweeper: asyncio.TimerHandle | None = None
        self._swept_at = 0.0
        self._cached_authorization: bytes | None = b""
        self._cached_headers = b""

    async def send(
        self, method: bytes, path: bytes, body: bytes = b"", content_type: bytes = b"", seconds: float | None = None
    ) -> Answer:
        """Send a request and return its answer; raises UnreachableError after `seconds`.

        `path` includes the query.
        """
        retried, answer = False, NOT_SENT
        async with self._slots:
            while True:
                authorization = await self._server.authorization()
                certificate_number = self._server.certificate_number
                request = self._request(authorization, method, path, body, content_type)
                connection = self._take_idle() or await self._connect()
                self._track(connection)
                try:
                    wait = self._fence() if method != b"GET" else None
                    if wait is None:  # nothing is awaited between the fence and the write
                        answer = await connection.send(request, self.answer_seconds if seconds is None else seconds)
                finally:
                    self._release(connection)
                if wait is not None:
                    await wait
                elif answer.status < 300 and answer.body[:1] != HTML_START:
                    return answer
                elif (
                    answer.status != 401
                    or retried
                    or not await self._server.renew_credentials(authorization, certificate_number)
                ):
                    break
                else:
                    retried = True
        return self.checked(answer, method, path)

    @asynccontextmanager
    async def stream(self, path: bytes, seconds: float) -> AsyncIterator[Stream]:
        """Send a GET and yield its answer as a stream; raises UnreachableError after `seconds` without a byte."""
        authorization, certificate_number = await self._server.authorization(), self._server.certificate_number
        async with self._opened(authorization, path, seconds) as stream:
            if stream.status != 401 or not await self._server.renew_credentials(authorization, certificate_number):
                yield stream
                return
        async with self._opened(await self._server.authorization(), path, seconds) as stream:
            yield stream

    @asynccontextmanager
    async def _opened(self, authorization: bytes | None, path: bytes, seconds: float) -> AsyncIterator[Stream]:
        connection = self._take_idle() or await self._connect()
        self._track(connection)
        try:
            yield await connection.open_stream(self._request(authorization, b"GET", path, b"", b""), seconds)
        finally:
            self._release(connection)

    def checked(self, answer: Answer, method: bytes, path: bytes) -> Answer:
        """Return the answer if an API server sent it; raises InterceptedError otherwise.

        An answer that asks to wait or for other credentials is accepted from any sender, because the request is sent
        again.
        """
        unserved = method == b"GET" and answer.status == 404 and answer.body.strip() == NOT_SERVED_BODY
        again = answer.status in RETRYABLE_STATUSES or (answer.status >= 500 and answer.retry_after is not None)
        if unserved or again or read_status(answer.body).kind == "Status":
            return answer
        error = InterceptedError(answer.status, f"{method.decode()} {path.decode()}", answer.body)
        self._server.on_intercepted(error)
        raise error

    @property
    def credential_failure(self) -> str:
        """Why the credentials could not be read the last time; empty if they could."""
        return self._server.credential_failure

    def raise_limit(self, limit: int) -> None:
        """Allow at least this many requests in flight from now on."""
        for _ in range(limit - self._limit):
            self._slots.release()
        self._limit = max(limit, self._limit)

    async def close(self) -> None:
        """Close all connections; requests in flight end with UnreachableError."""
        for timer in (self._sweeper, self._closer):
            if timer is not None:
                timer.cancel()
        for connection in (*self._idle, *self._busy):
            connection.fail(UnreachableError("the connection pool was closed"))
        await asyncio.sleep(0)

    def _request(
        self, authorization: bytes | None, method: bytes, path: bytes, body: bytes, content_type: bytes
    ) -> bytes:
        if authorization != self._cached_authorization or not self._cached_headers:
            self._cached_authorization, self._cached_headers = authorization, self._common_headers(authorization)
        if _NOT_IN_A_PATH(path):
            raise ValueError(f"a request for {path!r} cannot be sent: names in paths are quoted")
        start = b"%b %b%b HTTP/1.1\r\n%b" % (method, self._server.path_prefix.encode(), path, self._cached_headers)
        if not content_type:
            return start + b"\r\n"
        return b"%bContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (start, content_type, len(body), body)

    def _common_headers(self, authorization: bytes | None) -> bytes:
        host = f"[{self._server.host}]" if ":" in self._server.host else self._server.host
        lines = [f"Host: {host}:{self._server.port}", f"User-Agent: {USER_AGENT}", "Accept: application/json"]
        head = "".join(f"{line}\r\n" for line in (*lines, "Accept-Encoding: identity")).encode()
        own = b"Authorization: %b\r\n" % authorization if authorization is not None else b""
        return head + self._server.impersonation + own

    def _take_idle(self) -> Connection | None:
        oldest, current = asyncio.get_running_loop().time() - IDLE_SECONDS, self._server.certificate_number
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and connection.idle_since >= oldest and connection.certificate_number == current:
                return connection
            connection.fail(UnreachableError("the connection was idle for too long, or has an older certificate"))
        return None

    async def _connect(self) -> Connection:
        tls, certificate_number = self._server.tls, self._server.certificate_number
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                sock = await dial(self._server.host, self._server.port, self._server.proxy, self._server.resolver)
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(self._buffer, self._forget),
                    sock=sock,
                    ssl=tls.context if tls is not None else None,
                    server_hostname=(tls.server_name or self._server.host) if tls is not None else None,
                )
        except (OSError, TimeoutError) as error:
            through = f" through the proxy {self._server.proxy}" if self._server.proxy is not None else ""
            raise UnreachableError(f"no connection to {self._server.url}{through}: {describe_error(error)}") from error
        connection.certificate_number = certificate_number
        return connection

    def _track(self, connection: Connection) -> None:
        """Let the sweeper check the deadline of this connection."""
        self._busy.add(connection)
        if self._sweeper is None:
            self._sweep_later(asyncio.get_running_loop().time())

    def _release(self, connection: Connection) -> None:
        """Keep a connection for the next request if its answer is complete and allows it, else close it."""
        self._busy.discard(connection)
        if connection.reusable:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
            if self._closer is None:
                self._close_later(IDLE_SECONDS)
        else:
            connection.fail(UnreachableError("the request was cancelled, or the server closes the connection"))

    def _close_idle(self) -> None:
        """Close connections that were idle for too long; the last of the list was used last and is reused first."""
        oldest = asyncio.get_running_loop().time() - IDLE_SECONDS
        closed = [connection for connection in self._idle if connection.idle_since <= oldest]
        self._idle = self._idle[len(closed) :]
        for connection in closed:
            connection.fail(UnreachableError("the connection was idle for too long"))
        self._closer = None
        if self._idle:
            self._close_later(self._idle[0].idle_since - oldest)

    def _close_later(self, seconds: float) -> None:
        self._closer = asyncio.get_running_loop().call_later(seconds, self._close_idle)

    def _sweep(self) -> None:
        """Fail requests past their deadline; runs only while a request is in flight."""
        now = asyncio.get_running_loop().time()
        if self._busy and all(connection.sent_at < self._swept_at for connection in self._busy):
            self.stalled_seconds += now - self._swept_at
        for connection in [busy for busy in self._busy if busy.deadline <= now]:
            connection.fail(UnreachableError(f"no answer within {connection.timeout_seconds:g} s"))
        self._sweeper = None
        if self._busy:
            self._sweep_later(now)

    def _sweep_later(self, now: float) -> None:
        self._swept_at = now
        self._sweeper = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)

    def _forget(self, connection: Connection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)
