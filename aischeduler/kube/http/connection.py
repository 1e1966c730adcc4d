"""One HTTP/1.1 connection: it returns answers as a whole or as a stream.

Invariants:
- It carries one request at a time and is reused if the answer allows it.
- A missing or truncated answer is an UnreachableError; the outcome of the request is unknown.
- It has deadlines but no timers: the connection pool checks them. A stream has a deadline only while its reader waits.

Source: HTTP/1.1, parsed by httptools.
"""

import asyncio
from collections.abc import Callable
from typing import Final, cast

import httptools
from msgspec import Struct

from aischeduler.kube.http.errors import AnswerTooLargeError, ApiError, UnreachableError
from aischeduler.model.user_text import one_line

READ_BYTES: Final = 64 * 1024
BUFFERED_BYTES_MAX: Final = 256 * 1024
"""How many bytes of a stream are buffered for its reader; beyond that the socket is not read."""
BODY_BYTES_MAX: Final = 256 * 1024 * 1024
"""The largest answer: far above any real page (500 objects of 1.5 MB do not occur), and it still fits in memory."""
_NEVER: Final = float("inf")


class Answer(Struct, frozen=True):
    """An HTTP answer; Retry-After is the only header."""

    status: int
    retry_after: str | None
    body: bytes


def describe_error(error: BaseException) -> str:
    """Return an error as one line, with its type."""
    return one_line(f"{type(error).__name__} {error}")


class Connection(asyncio.BufferedProtocol):
    """One connection; it resolves the future of the request when the answer is complete.

    It reads into `buffer`, which the connections of one event loop share: received bytes are parsed, and copied if they
    must last, before the next read.
    """

    def __init__(self, buffer: memoryview, closed: Callable[["Connection"], None]) -> None:
        self.deadline = _NEVER
        self.timeout_seconds = _NEVER
        self.idle_since = 0.0
        self.certificate_number = 0
        self.reusable = True
        """Whether the connection can take another request: none is in flight, and the last answer allows it."""
        self._buffer = buffer
        self._closed = closed
        self._transport: asyncio.Transport | None = None
        self._answer_waiter: asyncio.Future[Answer] | None = None
        self._stream_waiter: asyncio.Future[Stream] | None = None
        self._stream: Stream | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._retry_after: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport does not inherit from it

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the protocol's signature
        """Return the buffer of the next read."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Parse received bytes."""
        try:
            self._parser.feed_data(self._buffer[:nbytes])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.fail(UnreachableError(f"the answer is not HTTP: {describe_error(error)}"))

    def eof_received(self) -> None:
        """Close when the server closes."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request in flight."""
        begun = self._stream is not None or bool(self._body)
        where = "during the answer" if begun else "before the answer"
        self.fail(UnreachableError(f"the connection broke {where}: {exc or 'closed by the server'}"))
        self._closed(self)

    def on_message_begin(self) -> None:
        """Begin an answer."""
        self._body = []
        self._body_bytes = 0
        self._retry_after = None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store Retry-After."""
        if len(name) == 11 and name.lower() == b"retry-after":
            self._retry_after = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Begin a stream."""
        status = self._parser.get_status_code()
        stream_waiter = self._stream_waiter
        if stream_waiter is None or status < 200:
            return
        self._stream_waiter = None
        if not stream_waiter.done():
            self.deadline = _NEVER
            self._stream = Stream(self, status, self._retry_after)
            stream_waiter.set_result(self._stream)

    def on_body(self, body: bytes) -> None:
        """Collect a part of the body, or pass it to the stream."""
        if self._stream is not None:
            self._stream.feed(body)
            return
        self._body_bytes += len(body)
        if self._body_bytes > BODY_BYTES_MAX:
            self.fail(AnswerTooLargeError(f"the answer is larger than {BODY_BYTES_MAX} bytes"))
            return
        self._body.append(body)

    def on_message_complete(self) -> None:
        """Return the answer, or end the stream."""
        status = self._parser.get_status_code()
        if status < 200:
            return
        self.reusable = self._parser.should_keep_alive()
        answer_waiter, self._answer_waiter = self._answer_waiter, None
        if answer_waiter is not None and not answer_waiter.done():
            answer_waiter.set_result(Answer(status, self._retry_after, b"".join(self._body)))
        self._body = []
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.end(None)

    def send(self, request: bytes, seconds: float) -> "asyncio.Future[Answer]":
        """Send a request; the future returns the answer or raises an ApiError after `seconds`."""
        self._answer_waiter = asyncio.get_running_loop().create_future()
        self._write_request(request, seconds)
        return self._answer_waiter

    def open_stream(self, request: bytes, seconds: float) -> "asyncio.Future[Stream]":
        """Send a request; the future returns the stream when the headers arrive. Raises UnreachableError on silence."""
        self._stream_waiter = asyncio.get_running_loop().create_future()
        self._write_request(request, seconds)
        return self._stream_waiter

    def _write_request(self, request: bytes, seconds: float) -> None:
        if self._transport is None or self._stream is not None:
            raise RuntimeError("the connection is not ready")
        self.timeout_seconds = seconds
        self.start_deadline()
        self.reusable = False
        self._transport.write(request)

    def start_deadline(self) -> None:
        """Set the deadline of the awaited answer or chunk."""
        self.deadline = asyncio.get_running_loop().time() + self.timeout_seconds

    @property
    def sent_at(self) -> float:
        """When the awaited answer or chunk was requested, in event loop time."""
        return self.deadline - self.timeout_seconds

    def set_paused(self, *, paused: bool) -> None:
        """Stop or resume reading from the socket."""
        if self._transport is not None and not self._transport.is_closing():
            if paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    @property
    def usable(self) -> bool:
        """Whether the connection is open."""
        return self._transport is not None and not self._transport.is_closing()

    def fail(self, error: ApiError) -> None:
        """Fail the request in flight with this error and close."""
        answer_waiter, self._answer_waiter = self._answer_waiter, None
        if answer_waiter is not None and not answer_waiter.done():
            answer_waiter.set_exception(error)
        stream_waiter, self._stream_waiter = self._stream_waiter, None
        if stream_waiter is not None and not stream_waiter.done():
            stream_waiter.set_exception(error)
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.end(error)
        if self._transport is not None:
            self._transport.abort()


class Stream:
    """An answer that arrives in chunks, for one reader."""

    def __init__(self, connection: Connection, status: int, retry_after: str | None) -> None:
        self.status = status
        self.retry_after = retry_after
        self._connection = connection
        self._chunks: list[bytes] = []
        self._bytes = 0
        self._paused = False
        self._ended = False
        self._error: ApiError | None = None
        self._readable = asyncio.Event()

    async def read(self) -> bytes:
        """Return the bytes that arrived, waiting for the first; empty at the clean end. Raises ApiError."""
        if not self._readable.is_set():
            self._connection.start_deadline()
            await self._readable.wait()
            self._connection.deadline = _NEVER
        chunk = b"".join(self._chunks)
        self._chunks.clear()
        self._bytes = 0
        if self._paused:
            self._paused = False
            self._connection.set_paused(paused=False)
        if self._ended:
            if self._error is not None and not chunk:
                raise self._error
        else:
            self._readable.clear()
        return chunk

    def feed(self, chunk: bytes) -> None:
        """Add a chunk from the connection."""
        self._chunks.append(chunk)
        self._bytes += len(chunk)
        self._readable.set()
        if self._bytes > BUFFERED_BYTES_MAX and not self._paused:
            self._paused = True
            self._connection.set_paused(paused=True)

    def end(self, error: ApiError | None) -> None:
        """End the stream, with an error if it is truncated."""
        self._ended = True
        self._error = error
        self._readable.set()
