"""Requests to the API server, and what their answers mean: lists, watches and rare calls.

Laws:
- Everything has a time limit and every answer a size limit.
- Every failure is one of `errors`.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import urlencode

from aischeduler.kube.connection_pool import ConnectionPool, Fence, no_fence
from aischeduler.kube.errors import MalformedAnswerError, RefusedError, UnreachableError
from aischeduler.kube.http_connection import Answer, Stream
from aischeduler.kube.meta_types import read_status, retry_after_seconds
from aischeduler.kube.server_access import Server

LIST_SECONDS: Final = 120.0
"""Longest that a page of a list may take."""
REQUESTS_IN_FLIGHT_MAX: Final = 64
"""Requests under way at once. Watches count apart from them: none waits behind reads that hang."""
JSON: Final = "application/json"
LINE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Ten times the largest object that an API server stores."""

Query = Mapping[str, str]
_NO_QUERY: Final[Query] = {}


@dataclass(frozen=True, slots=True)
class Watch:
    """A watch that is open."""

    _stream: Stream

    async def read(self) -> bytes:
        """Return the next piece, or nothing at the clean end; raises UnreachableError."""
        return await _read_chunk(self._stream)


class LineSplitter:
    """Cuts pieces into lines; what follows the last line end is kept for the next piece."""

    def __init__(self, limit_bytes: int = LINE_BYTES_MAX) -> None:
        self._limit = limit_bytes
        self._partial: list[bytes] = []
        self._partial_bytes = 0

    @property
    def unfinished(self) -> bool:
        """Whether a line has begun and not ended."""
        return bool(self._partial)

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the lines that end in this piece, without their ends and without empty ones."""
        lines = piece.split(b"\n")
        rest = lines.pop()
        if lines and self._partial:
            self._partial.append(lines[0])
            lines[0] = b"".join(self._partial)
            self._partial, self._partial_bytes = [], 0
        if rest:
            self._partial.append(rest)
            self._partial_bytes += len(rest)
            if self._partial_bytes > self._limit:
                raise MalformedAnswerError(f"a line is longer than {self._limit} bytes")
        return [line for line in lines if line]


class Client:
    """One session with an API server; use it as an async context manager.

    `connections` has the connections, and says how long an answer may take where the request does not.
    """

    def __init__(self, server: Server, fence: Fence = no_fence) -> None:
        self.connections = ConnectionPool(server, REQUESTS_IN_FLIGHT_MAX, fence=fence)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.connections.close()

    async def get(self, path: str, query: Query = _NO_QUERY, seconds: float | None = None) -> bytes:
        """Return the body of the answer to a GET that comes within so long; raises ApiError."""
        return await self._ask("GET", path, query, seconds=seconds)

    async def patch(self, path: str, body: bytes, content_type: str) -> bytes:
        """Return the body of the answer to a PATCH; raises ApiError."""
        return await self._ask("PATCH", path, _NO_QUERY, (body, content_type))

    async def post(self, path: str, body: bytes) -> bytes:
        """Return the body of the answer to a POST; raises ApiError."""
        return await self._ask("POST", path, _NO_QUERY, (body, JSON))

    @asynccontextmanager
    async def watch(self, path: str, query: Query, silence_seconds: float) -> AsyncIterator[Watch]:
        """Yield a watch; `silence_seconds` without a byte raises UnreachableError, as any other break does."""
        async with AsyncExitStack() as stack:
            stream = await self._open(stack, path, query, silence_seconds)
            if stream.status >= 300:
                answer = Answer(stream.status, stream.retry_after, await _read_all(stream))
                raise self._refusal(self._checked(answer, path), f"GET {path}")
            yield Watch(stream)

    async def _open(self, stack: AsyncExitStack, path: str, query: Query, silence_seconds: float) -> Stream:
        try:
            return await stack.enter_async_context(self.connections.stream(_target(path, query), silence_seconds))
        except UnreachableError as error:
            raise UnreachableError(f"GET {path}: {error}") from error

    def _checked(self, answer: Answer, path: str) -> Answer:
        try:
            return self.connections.checked(answer, b"GET", path.encode())
        except UnreachableError as error:
            raise UnreachableError(f"GET {path}: {error}") from error

    async def _ask(
        self,
        method: str,
        path: str,
        query: Query,
        content: tuple[bytes, str] = (b"", ""),
        seconds: float | None = None,
    ) -> bytes:
        """Return the body of an answer below 300."""
        body, content_type = content
        try:
            answer = await self.connections.send(
                method.encode(), _target(path, query), body, content_type.encode(), seconds=seconds
            )
        except UnreachableError as error:
            raise UnreachableError(f"{method} {path}: {error}") from error
        if answer.status >= 300:
            raise self._refusal(answer, f"{method} {path}")
        return answer.body

    def _refusal(self, answer: Answer, request: str) -> RefusedError:
        """Return the error that an answer means; a 401 with what kept the credentials from being read."""
        error = refusal(answer.status, answer.body, answer.retry_after, request)
        if error.status == 401 and self.connections.credential_failure:
            message = f"{error.message}; {self.connections.credential_failure}"
            return RefusedError(error.status, error.reason, message, error.retry_after_seconds, request)
        return error


def refusal(status: int, body: bytes, retry_after: str | None, request: str) -> RefusedError:
    """Return the error that an HTTP answer of 300 and above to a request means: there is nowhere else to go."""
    said = read_status(body)
    message = said.message or body[:200].decode(errors="replace")
    return RefusedError(status, said.reason or "Unknown", message, retry_after_seconds(retry_after), request)


async def _read_chunk(stream: Stream) -> bytes:
    try:
        return await stream.read()
    except UnreachableError as error:
        raise UnreachableError(f"the stream broke: {error}") from error


async def _read_all(stream: Stream) -> bytes:
    pieces: list[bytes] = []
    while piece := await _read_chunk(stream):
        pieces.append(piece)
    return b"".join(pieces)


def _target(path: str, query: Query) -> bytes:
    return (f"{path}?{urlencode(query)}" if query else path).encode()
