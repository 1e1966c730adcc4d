"""Requests to the API server by aiohttp: lists, watches and rare calls.

Laws:
- Everything has a time limit and every answer a size limit.
- Every failure is one of `errors`; nothing of aiohttp gets out.
- A 401 is answered once by reading the credentials again.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, Self
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from aischeduler import __version__
from aischeduler.kube.auth import Server
from aischeduler.kube.documents import read_status, retry_after_seconds
from aischeduler.kube.errors import GarbledError, RefusedError, UnreachableError

REQUEST_SECONDS: Final = 30.0
"""Longest that a call other than a list or a watch may take."""
LIST_SECONDS: Final = 120.0
"""Longest that a page of a list may take."""
CONNECT_SECONDS: Final = 10.0
BODY_BYTES_MAX: Final = 256 * 1024 * 1024
"""Largest answer: a page of 500 objects of 1.5 MB is far above what exists, this is far above what fits."""
READ_BUFFER_BYTES: Final = 256 * 1024
CONNECTIONS_MAX: Final = 512
"""More than all our tasks ask for at once: a watch that begins again must not wait behind reads that hang."""
USER_AGENT: Final = f"ai-scheduler/{__version__}"
JSON: Final = "application/json"

Query = Mapping[str, str]
ReadPiece = Callable[[], Awaitable[bytes]]
_NO_QUERY: Final[Query] = {}


class Client:
    """One session with an API server; use it as an async context manager."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        tls = self._server.tls
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls.context if tls else True, limit=CONNECTIONS_MAX),
            headers={"Accept": JSON, "Accept-Encoding": "identity", "User-Agent": USER_AGENT},
            trust_env=False,
            auto_decompress=False,
            read_bufsize=READ_BUFFER_BYTES,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str, query: Query = _NO_QUERY, seconds: float = REQUEST_SECONDS) -> bytes:
        """Return the body of the answer to a GET that comes within so long; raises ApiError."""
        limits = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        async with self._answer("GET", path, query, limits) as answer:
            return await _body(answer)

    async def patch(self, path: str, body: bytes, content_type: str) -> bytes:
        """Return the body of the answer to a PATCH; raises ApiError."""
        limits = aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=CONNECT_SECONDS)
        async with self._answer("PATCH", path, _NO_QUERY, limits, (body, content_type)) as answer:
            return await _body(answer)

    async def post(self, path: str, body: bytes) -> bytes:
        """Return the body of the answer to a POST; raises ApiError."""
        limits = aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=CONNECT_SECONDS)
        async with self._answer("POST", path, _NO_QUERY, limits, (body, JSON)) as answer:
            return await _body(answer)

    @asynccontextmanager
    async def watch(self, path: str, query: Query, silence_seconds: float) -> AsyncIterator[ReadPiece]:
        """Yield a function that returns the next piece of a watch, or nothing at its clean end.

        `silence_seconds` without a byte raises UnreachableError, as any other break does.
        """
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silence_seconds)
        async with self._answer("GET", path, query, limits) as answer:
            yield partial(_piece, answer)

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        query: Query,
        limits: aiohttp.ClientTimeout,
        content: tuple[bytes, str] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield an answer below 400; asks a second time with new credentials after a 401."""
        header = await self._server.authorization()
        answer = await self._send(method, path, query, limits, content)
        if answer.status == 401 and await self._server.renew(header):
            answer.release()
            answer = await self._send(method, path, query, limits, content)
        try:
            if answer.status >= 400:
                after = answer.headers.get("Retry-After")
                raise refusal(answer.status, await _body(answer), after, f"{method} {path}")
            yield answer
        finally:
            answer.close()

    async def _send(
        self,
        method: str,
        path: str,
        query: Query,
        limits: aiohttp.ClientTimeout,
        content: tuple[bytes, str] | None,
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            raise RuntimeError("the client is used outside of its context")
        url = f"{self._server.url}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = {}
        header = await self._server.authorization()
        if header is not None:
            headers["Authorization"] = header.decode("latin-1")
        body = None
        if content is not None:
            body, headers["Content-Type"] = content
        name = self._server.tls.server_name if self._server.tls else None
        try:
            return await self._session.request(
                method, URL(url, encoded=True), data=body, headers=headers, timeout=limits, server_hostname=name
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(f"{method} {path}: {describe(error)}") from error


def refusal(status: int, body: bytes, retry_after: str | None, request: str) -> RefusedError:
    """Return the error that an HTTP answer of 400 and above to a request means."""
    said = read_status(body)
    message = said.message or body[:200].decode(errors="replace")
    return RefusedError(status, said.reason or "Unknown", message, retry_after_seconds(retry_after), request)


def describe(error: BaseException) -> str:
    """Return one line for an error that may have no text."""
    return f"{type(error).__name__} {error}".strip().replace("\n", " ")[:300]


async def _piece(answer: aiohttp.ClientResponse) -> bytes:
    try:
        return await answer.content.readany()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise UnreachableError(f"the stream broke: {describe(error)}") from error


async def _body(answer: aiohttp.ClientResponse) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while piece := await _piece(answer):
        size += len(piece)
        if size > BODY_BYTES_MAX:
            raise GarbledError(f"the answer is larger than {BODY_BYTES_MAX} bytes")
        pieces.append(piece)
    return b"".join(pieces)
