"""A pool of connections to the API server: one system call a request, no objects in between.

Laws:
- Everything has a time limit. One timer sweeps all deadlines; a request has none of its own.
- A connection that was used is used again where it can be, and where its certificate is still ours.
- A refusal without a Status, or a page of HTML, is not an API server's: it is an InterceptedError and says nothing
  about the request.
- A request that is refused with 401 is sent once more where there are other credentials than those it was sent with.
- Time in which nothing that is under way is answered is counted, to the half second: others may leave it out.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from aischeduler import __version__
from aischeduler.kube.dialer import dial
from aischeduler.kube.errors import InterceptedError, UnreachableError
from aischeduler.kube.http_connection import READ_BYTES, Answer, Connection, Stream, describe_error
from aischeduler.kube.meta_types import read_status
from aischeduler.kube.server_access import Server

REQUEST_SECONDS: Final = 30.0
"""Longest that a request may take that is no list and no watch."""
CONNECT_SECONDS: Final = 10.0
USER_AGENT: Final = f"ai-scheduler/{__version__}"

SWEEP_SECONDS: Final = 0.5
"""How exactly deadlines are kept."""
IDLE_SECONDS: Final = 45.0
"""A connection that was not used for so long is closed: the server may be about to, and it costs both sides memory."""

RETRYABLE_STATUSES: Final = (401, 408, 429)
"""Answers after which the same request goes out again; an API server gives some of them as plain text."""
NOT_SERVED_BODY: Final = b"404 page not found"
"""What an API server answers, as plain text, where it serves no resource of that kind."""
HTML_START: Final = b"<"
"""What an answer in HTML begins with; an API server's never does."""
NOT_SENT: Final = Answer(0, None, b"")

Fence = Callable[[], Awaitable[None] | None]
"""Asked right before a write is sent, in the same step: nothing lets it pass, else it is asked again after that wait.

What it raises keeps the write from being sent.
"""


def no_fence() -> None:
    """Let every write pass."""


class ConnectionPool:
    """A pool of connections to one API server. `fence` is asked before every write.

    At most `limit` requests are under way, each on a connection of its own; streams count apart from them.

    `answer_seconds` is how long an answer may take where the request does not say; it may be changed at any time.
    """

    def __init__(
        self, server: Server, limit: int, answer_seconds: float = REQUEST_SECONDS, fence: Fence = no_fence
    ) -> None:
        self._server = server
        self._fence = fence
        self.answer_seconds = answer_seconds
        self.stalled_seconds = 0.0
        """How long, all in all, requests were under way and the server answered none; a stream without news is one."""
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._limit = limit
        self._slots = asyncio.Semaphore(limit)
        self._closer: asyncio.TimerHandle | None = None
        """Closes what is idle for too long; there while something is idle."""
        self._sweeper: asyncio.TimerHandle | None = None
        self._swept_at = 0.0
        self._cached_authorization: bytes | None = b""
        self._cached_headers = b""

    async def send(
        self, method: bytes, path: bytes, body: bytes = b"", content_type: bytes = b"", seconds: float | None = None
    ) -> Answer:
        """Send a request and return its answer, within so long; raises UnreachableError.

        `path` is everything from `/api` on, the query included.
        """
        renewed, answer = False, NOT_SENT
        async with self._slots:
            while True:
                header = await self._server.authorization()
                identity_number = self._server.certificate_number
                request = self._request(header, method, path, body, content_type)
                connection = self._take_idle() or await self._connect()
                self._track(connection)
                try:
                    wait = self._fence() if method != b"GET" else None
                    if wait is None:  # from here to the sending nothing is awaited
                        answer = await connection.send(request, self.answer_seconds if seconds is None else seconds)
                finally:
                    self._release(connection)
                if wait is not None:
                    await wait
                elif answer.status < 300 and answer.body[:1] != HTML_START:
                    return answer
                elif (
                    answer.status != 401 or renewed or not await self._server.renew_credentials(header, identity_number)
                ):
                    break
                else:
                    renewed = True
        return self.checked(answer, method, path)

    @asynccontextmanager
    async def stream(self, path: bytes, seconds: float) -> AsyncIterator[Stream]:
        """Send a GET and yield its answer as it comes; silence for so long is an UnreachableError."""
        header, identity_number = await self._server.authorization(), self._server.certificate_number
        async with self._opened(header, path, seconds) as stream:
            if stream.status != 401 or not await self._server.renew_credentials(header, identity_number):
                yield stream
                return
        async with self._opened(await self._server.authorization(), path, seconds) as stream:
            yield stream

    @asynccontextmanager
    async def _opened(self, header: bytes | None, path: bytes, seconds: float) -> AsyncIterator[Stream]:
        connection = self._take_idle() or await self._connect()
        self._track(connection)
        try:
            yield await connection.open_stream(self._request(header, b"GET", path, b"", b""), seconds)
        finally:
            self._release(connection)

    def checked(self, answer: Answer, method: bytes, path: bytes) -> Answer:
        """Return a refusal that an API server gave; raises InterceptedError for any other answer.

        What asks to wait, or for other credentials, is believed whoever says it: the request is sent again anyway.
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
        """What kept the credentials from being read the last time; empty where nothing did."""
        return self._server.credential_failure

    def raise_limit(self, limit: int) -> None:
        """Let at least so many requests be under way from now on."""
        for _ in range(limit - self._limit):
            self._slots.release()
        self._limit = max(limit, self._limit)

    async def close(self) -> None:
        """Close all connections; what still waits ends with UnreachableError."""
        for timer in (self._sweeper, self._closer):
            if timer is not None:
                timer.cancel()
        for connection in (*self._idle, *self._busy):
            connection.fail(UnreachableError("the pool of connections was closed"))
        await asyncio.sleep(0)

    def _request(self, header: bytes | None, method: bytes, path: bytes, body: bytes, content_type: bytes) -> bytes:
        if header != self._cached_authorization or not self._cached_headers:
            self._cached_authorization, self._cached_headers = header, self._common_headers(header)
        start = b"%b %b%b HTTP/1.1\r\n%b" % (method, self._server.path_prefix.encode(), path, self._cached_headers)
        if not content_type:
            return start + b"\r\n"
        return b"%bContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (start, content_type, len(body), body)

    def _common_headers(self, header: bytes | None) -> bytes:
        host = f"[{self._server.host}]" if ":" in self._server.host else self._server.host
        lines = [f"Host: {host}:{self._server.port}", f"User-Agent: {USER_AGENT}", "Accept: application/json"]
        head = "".join(f"{line}\r\n" for line in (*lines, "Accept-Encoding: identity")).encode()
        authorization = b"Authorization: %b\r\n" % header if header is not None else b""
        return head + self._server.impersonation + authorization

    def _take_idle(self) -> Connection | None:
        oldest, ours = asyncio.get_running_loop().time() - IDLE_SECONDS, self._server.certificate_number
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and connection.idle_since >= oldest and connection.certificate_number == ours:
                return connection
            connection.fail(UnreachableError("the connection was idle for too long, or is of an older certificate"))
        return None

    async def _connect(self) -> Connection:
        tls, identity_number = self._server.tls, self._server.certificate_number
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                opened = await dial(self._server.host, self._server.port, self._server.proxy, self._server.resolver)
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(self._buffer, self._forget),
                    sock=opened,
                    ssl=tls.context if tls is not None else None,
                    server_hostname=(tls.server_name or self._server.host) if tls is not None else None,
                )
        except (OSError, TimeoutError) as error:
            through = f" through the proxy {self._server.proxy}" if self._server.proxy is not None else ""
            raise UnreachableError(f"no connection to {self._server.url}{through}: {describe_error(error)}") from error
        connection.certificate_number = identity_number
        return connection

    def _track(self, connection: Connection) -> None:
        """Let the deadlines of a connection be kept."""
        self._busy.add(connection)
        if self._sweeper is None:
            self._sweep_later(asyncio.get_running_loop().time())

    def _release(self, connection: Connection) -> None:
        """Keep a connection for the next request where its answer has ended and allows that, else close it."""
        self._busy.discard(connection)
        if connection.reusable:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
            if self._closer is None:
                self._close_later(IDLE_SECONDS)
        else:
            connection.fail(UnreachableError("the request was given up, or the server closes the connection"))

    def _close_idle(self) -> None:
        """Close what is idle for too long; the one that was used last is the last of them, and is used first."""
        oldest = asyncio.get_running_loop().time() - IDLE_SECONDS
        closed = [one for one in self._idle if one.idle_since <= oldest]
        self._idle = self._idle[len(closed) :]
        for connection in closed:
            connection.fail(UnreachableError("the connection was idle for too long"))
        self._closer = None
        if self._idle:
            self._close_later(self._idle[0].idle_since - oldest)

    def _close_later(self, seconds: float) -> None:
        self._closer = asyncio.get_running_loop().call_later(seconds, self._close_idle)

    def _sweep(self) -> None:
        """End what has waited too long; runs only while something waits."""
        now = asyncio.get_running_loop().time()
        if self._busy and all(one.sent_at < self._swept_at for one in self._busy):
            self.stalled_seconds += now - self._swept_at
        for connection in [one for one in self._busy if one.deadline <= now]:
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
