"""The API client for lists, watches and single requests; it turns error answers into exceptions.

Invariants:
- Every request has a timeout, and every answer a size limit.
- Every failure is one of the exceptions in `errors`.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, Self
from urllib.parse import urlencode

from msgspec import Struct

from aischeduler.kube.access.server import Server
from aischeduler.kube.decode.meta_types import read_status, retry_after_seconds
from aischeduler.kube.http.connection import Answer, Stream
from aischeduler.kube.http.connection_pool import ConnectionPool, Fence, no_fence
from aischeduler.kube.http.errors import AnswerTooLargeError, MalformedAnswerError, RefusedError, UnreachableError

LIST_SECONDS: Final = 120.0
REQUESTS_IN_FLIGHT_MAX: Final = 64
"""How many requests may be in flight. Watches do not count: no watch waits behind reads that hang."""
REFUSAL_BYTES_MAX: Final = 1024 * 1024
"""The largest answer that refuses a watch; a Status is much smaller."""
JSON: Final = "application/json"
LINE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Ten times the largest object that an API server stores."""

Query = Mapping[str, str]
_NO_QUERY: Final[Query] = {}


class Watch(Struct, frozen=True):
    """An open watch."""

    _stream: Stream

    async def read(self) -> bytes:
        """Return the next chunk; empty at the clean end. Raises UnreachableError."""
        return await _read_chunk(self._stream)


class LineSplitter:
    """Splits chunks into lines; an unfinished line waits for the next chunk."""

    def __init__(self, limit_bytes: int = LINE_BYTES_MAX) -> None:
        self._limit = limit_bytes
        self._partial: list[bytes] = []
        self._partial_bytes = 0

    @property
    def unfinished(self) -> bool:
        """Whether a line is unfinished."""
        return bool(self._partial)

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that end in this chunk, without line ends and empty lines."""
        lines = chunk.split(b"\n")
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
    """A client of one API server; use it as an async context manager.

    `connections` holds the connections and the default timeout of a request.
    """

    def __init__(self, server: Server, fence: Fence = no_fence) -> None:
        self.connections = ConnectionPool(server, REQUESTS_IN_FLIGHT_MAX, fence=fence)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.connections.close()

    async def get(self, path: str, query: Query = _NO_QUERY, seconds: float | None = None) -> bytes:
        """Return the body of the answer to a GET; raises ApiError."""
        return await self._ask("GET", path, query, seconds=seconds)

    async def patch(self, path: str, body: bytes, content_type: str) -> bytes:
        """Return the body of the answer to a PATCH; raises ApiError."""
        return await self._ask("PATCH", path, _NO_QUERY, (body, content_type))

    async def post(self, path: str, body: bytes) -> bytes:
        """Return the body of the answer to a POST; raises ApiError."""
        return await self._ask("POST", path, _NO_QUERY, (body, JSON))

    async def delete(self, path: str, options: bytes) -> bytes:
        """Return the body of the answer to a DELETE with these DeleteOptions; raises ApiError."""
        return await self._ask("DELETE", path, _NO_QUERY, (options, JSON))

    @asynccontextmanager
    async def watch(self, path: str, query: Query, idle_seconds: float) -> AsyncIterator[Watch]:
        """Yield a watch; after `idle_seconds` without a byte it raises UnreachableError, as for a broken connection."""
        async with AsyncExitStack() as stack:
            stream = await self._open(stack, path, query, idle_seconds)
            if stream.status >= 300:
                body = await self._read_refusal(stream, path)
                answer = Answer(stream.status, stream.retry_after, body)
                raise self._refusal(self._checked(answer, path), f"GET {path}")
            yield Watch(stream)

    async def _open(self, stack: AsyncExitStack, path: str, query: Query, idle_seconds: float) -> Stream:
        try:
            return await stack.enter_async_context(self.connections.stream(_target(path, query), idle_seconds))
        except UnreachableError as error:
            raise UnreachableError(f"GET {path}: {error}") from error

    async def _read_refusal(self, stream: Stream, path: str) -> bytes:
        """Return the whole body of a stream; raises UnreachableError where it is too long or takes too long."""
        chunks, size, seconds = list[bytes](), 0, self.connections.answer_seconds
        try:
            async with asyncio.timeout(seconds):
                while chunk := await _read_chunk(stream):
                    chunks.append(chunk)
                    size += len(chunk)
                    if size > REFUSAL_BYTES_MAX:
                        raise UnreachableError(f"GET {path}: the refusal is larger than {REFUSAL_BYTES_MAX} bytes")
        except TimeoutError as error:
            raise UnreachableError(f"GET {path}: the refusal did not end within {seconds:g} s") from error
        return b"".join(chunks)

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
        """Return the body of an answer with a status below 300; raises ApiError."""
        body, content_type = content
        try:
            answer = await self.connections.send(
                method.encode(), _target(path, query), body, content_type.encode(), seconds=seconds
            )
        except AnswerTooLargeError as error:
            raise AnswerTooLargeError(f"{method} {path}: {error}") from error
        except UnreachableError as error:
            raise UnreachableError(f"{method} {path}: {error}") from error
        if answer.status >= 300:
            raise self._refusal(answer, f"{method} {path}")
        return answer.body

    def _refusal(self, answer: Answer, request: str) -> RefusedError:
        """Return the error of an answer; a 401 also names why the credentials could not be read."""
        error = refusal(answer.status, answer.body, answer.retry_after, request)
        if error.status == 401 and self.connections.credential_failure:
            message = f"{error.message}; {self.connections.credential_failure}"
            return RefusedError(error.status, error.reason, message, error.retry_after_seconds, request)
        return error


def refusal(status: int, body: bytes, retry_after: str | None, request: str) -> RefusedError:
    """Return the error of an answer with a status of 300 and above; redirects are not followed."""
    document = read_status(body)
    message = document.message or body[:200].decode(errors="replace")
    error = RefusedError(status, document.reason or "Unknown", message, retry_after_seconds(retry_after), request)
    error.has_status = document.kind == "Status"
    return error


async def _read_chunk(stream: Stream) -> bytes:
    try:
        return await stream.read()
    except UnreachableError as error:
        raise UnreachableError(f"the stream broke: {error}") from error


def _target(path: str, query: Query) -> bytes:
    return (f"{path}?{urlencode(query)}" if query else path).encode()
