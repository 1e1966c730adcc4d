"""One HTTP/1.1 connection: answers as a whole, or as they come.

Laws:
- It carries one request at a time and is used again when its answer allows it.
- An end without an answer is an UnreachableError and leaves open what became of the request.
- It keeps deadlines and no timers: its pool sweeps them. An answer that comes in pieces has one only while its reader
  waits.

Source: HTTP/1.1, parsed by httptools.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

import httptools

from aischeduler.kube.errors import ApiError, UnreachableError, one_line

READ_BYTES: Final = 64 * 1024
BUFFERED_BYTES_MAX: Final = 256 * 1024
"""So much of a stream may wait for its reader; above that the server waits."""
BODY_BYTES_MAX: Final = 256 * 1024 * 1024
"""Largest answer: a page of 500 objects of 1.5 MB is far above what exists, this is far above what fits."""
_NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server answered; of the headers only Retry-After."""

    status: int
    retry_after: str | None
    body: bytes


def describe_error(error: BaseException) -> str:
    """Return one line for an error that may have no text."""
    return one_line(f"{type(error).__name__} {error}")


class Connection(asyncio.BufferedProtocol):
    """One connection; it wakes the one who waits when there is an answer.

    It reads into `buffer`, which connections of one event loop may share: what came is parsed, and copied where it has
    to last, before anything else is read.
    """

    def __init__(self, buffer: memoryview, closed: Callable[["Connection"], None]) -> None:
        self.deadline = _NEVER
        self.timeout_seconds = _NEVER
        self.idle_since = 0.0
        self.certificate_number = 0
        self.reusable = True
        """Whether nothing is under way and nothing speaks against another request."""
        self._buffer = buffer
        self._closed = closed
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Answer] | None = None
        self._opener: asyncio.Future[Stream] | None = None
        self._stream: Stream | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._retry_after: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the protocol's signature
        """Return where the next bytes go."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take in bytes."""
        try:
            self._parser.feed_data(self._buffer[:nbytes])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.fail(UnreachableError(f"the answer is not HTTP: {describe_error(error)}"))

    def eof_received(self) -> None:
        """Close when the server does."""

    def connection_lost(self, exc: Exception | None) -> None:
        """End what still waits."""
        begun = self._stream is not None or bool(self._body)
        where = "within the answer" if begun else "before the answer"
        self.fail(UnreachableError(f"the connection broke {where}: {exc or 'closed by the server'}"))
        self._closed(self)

    def on_message_begin(self) -> None:
        """Begin an answer."""
        self._body = []
        self._body_bytes = 0
        self._retry_after = None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take in a header."""
        if len(name) == 11 and name.lower() == b"retry-after":
            self._retry_after = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Let a stream begin."""
        status = self._parser.get_status_code()
        opener = self._opener
        if opener is None or status < 200:
            return
        self._opener = None
        if not opener.done():
            self.deadline = _NEVER
            self._stream = Stream(self, status, self._retry_after)
            opener.set_result(self._stream)

    def on_body(self, body: bytes) -> None:
        """Take in a part of the body."""
        if self._stream is not None:
            self._stream.feed(body)
            return
        self._body_bytes += len(body)
        if self._body_bytes > BODY_BYTES_MAX:
            self.fail(UnreachableError(f"the answer is larger than {BODY_BYTES_MAX} bytes"))
            return
        self._body.append(body)

    def on_message_complete(self) -> None:
        """Hand over the answer, or end its stream."""
        status = self._parser.get_status_code()
        if status < 200:
            return
        self.reusable = self._parser.should_keep_alive()
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(Answer(status, self._retry_after, b"".join(self._body)))
        self._body = []
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.end(None)

    def send(self, request: bytes, seconds: float) -> "asyncio.Future[Answer]":
        """Send a request; the future ends with its answer, within so long, or with an ApiError."""
        self._waiter = asyncio.get_running_loop().create_future()
        self._write_request(request, seconds)
        return self._waiter

    def open_stream(self, request: bytes, seconds: float) -> "asyncio.Future[Stream]":
        """Send a request; the future ends when its answer begins. No byte for so long is an UnreachableError."""
        self._opener = asyncio.get_running_loop().create_future()
        self._write_request(request, seconds)
        return self._opener

    def _write_request(self, request: bytes, seconds: float) -> None:
        if self._transport is None or self._stream is not None:
            raise RuntimeError("the connection is not ready")
        self.timeout_seconds = seconds
        self.start_deadline()
        self.reusable = False
        self._transport.write(request)

    def start_deadline(self) -> None:
        """Let the deadline of what is awaited now begin."""
        self.deadline = asyncio.get_running_loop().time() + self.timeout_seconds

    @property
    def sent_at(self) -> float:
        """When what is awaited now was asked for, in seconds of the event loop."""
        return self.deadline - self.timeout_seconds

    def set_paused(self, *, back: bool) -> None:
        """Let the server wait, or go on."""
        if self._transport is not None and not self._transport.is_closing():
            if back:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    @property
    def usable(self) -> bool:
        """Whether it can carry another request."""
        return self._transport is not None and not self._transport.is_closing()

    def fail(self, error: ApiError) -> None:
        """End what waits with this error and close."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)
        opener, self._opener = self._opener, None
        if opener is not None and not opener.done():
            opener.set_exception(error)
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.end(error)
        if self._transport is not None:
            self._transport.abort()


class Stream:
    """An answer as it comes, for one reader."""

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
        """Return what has come, as soon as something has; nothing at the clean end. Raises ApiError."""
        if not self._readable.is_set():
            self._connection.start_deadline()
            await self._readable.wait()
            self._connection.deadline = _NEVER
        piece = b"".join(self._chunks)
        self._chunks.clear()
        self._bytes = 0
        if self._paused:
            self._paused = False
            self._connection.set_paused(back=False)
        if self._ended:
            if self._error is not None and not piece:
                raise self._error
        else:
            self._readable.clear()
        return piece

    def feed(self, piece: bytes) -> None:
        """Take a piece from the connection."""
        self._chunks.append(piece)
        self._bytes += len(piece)
        self._readable.set()
        if self._bytes > BUFFERED_BYTES_MAX and not self._paused:
            self._paused = True
            self._connection.set_paused(back=True)

    def end(self, error: ApiError | None) -> None:
        """Take from the connection that nothing more comes."""
        self._ended = True
        self._error = error
        self._readable.set()
