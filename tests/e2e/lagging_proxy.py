"""A proxy between scheduler and API server that delays the watches of chosen kinds.

Invariants:
- Lists, reads and writes pass at once. Each piece of a delayed watch is delivered after the delay, in order, on every
  stream of the kind, new streams included.
- The delay may change at any time; pieces that wait then have the new delay.
- To the API server the proxy is the scheduler. When the server breaks a connection, the proxy breaks the scheduler's.
"""

import asyncio
import base64
import json
import math
import re
import ssl
import time
from collections import deque
from collections.abc import AsyncIterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Final, Self

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, TCPConnector, hdrs, web
from yarl import URL

from tests.controlplane.plane import ControlPlane

BODY_BYTES_MAX: Final = 2**24
CLOSE_SECONDS: Final = 0.25
"""How long a TLS connection takes to leave the event loop."""
HELD_WITHIN_SECONDS: Final = 30.0
FOR_EVER: Final = math.inf
KINDS: Final = ("pods", "nodes", "pools", "poddisruptionbudgets", "namespaces")
"""The kinds that the audit of decisions knows."""
TENANT_KINDS: Final = ("queues", "jobs")
OWN_HEADERS: Final = (hdrs.HOST, hdrs.CONNECTION, hdrs.TRANSFER_ENCODING, hdrs.CONTENT_LENGTH, hdrs.DATE, hdrs.SERVER)
"""Headers of one connection, which are not passed on."""
UNASKED_HEADERS: Final = (hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.USER_AGENT, hdrs.CONTENT_TYPE)
_COLLECTION: Final = re.compile(r"^/(?:api|apis/[^/]+)/[^/]+/(?:namespaces/[^/]+/)?(?P<plural>[a-z]+)$")


@dataclass(frozen=True, slots=True)
class Piece:
    """A line of a watch and the monotonic time at which it was complete; no bytes are the end, `broken` or clean."""

    at: float
    content: bytes
    broken: bool = False


class LaggingProxy:
    """Serves plain HTTP while its context is open; `kubeconfig` is for a scheduler."""

    def __init__(self, plane: ControlPlane) -> None:
        self.url = ""
        self.kubeconfig = plane.directory / "lagging-proxy.kubeconfig"
        self._plane = plane
        self._tls = _credentials(plane.scheduler_kubeconfig, plane.directory)
        self._hold_seconds: dict[str, float] = {}
        self._let_through: dict[str, float] = {}
        self._late: dict[str, dict[int, deque[Piece]]] = {}
        """Kind -> the pieces that wait on each of its streams."""
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Event()
        self._stop = asyncio.Event()
        self._serving = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._serving.wait(10), "the proxy does not serve"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    def hold(self, plural: str, seconds: float) -> None:
        """Delay the watches of a kind by this many seconds from now on; `FOR_EVER` lasts until the next call."""
        assert plural in (*KINDS, *TENANT_KINDS), plural
        self._hold_seconds[plural] = seconds
        self._loop.call_soon_threadsafe(self._announce)

    def release(self) -> None:
        """Delay no watch any longer."""
        self._hold_seconds.clear()
        self._loop.call_soon_threadsafe(self._announce)

    def let_through(self, plural: str, until: float) -> None:
        """Deliver the pieces up to this moment of the monotonic clock now; later pieces keep waiting."""
        self._let_through[plural] = until
        self._loop.call_soon_threadsafe(self._announce)

    def held(self, plural: str) -> list[Piece]:
        """Return the pieces that wait now, oldest first."""
        streams = list(self._late.get(plural, {}).values())
        return sorted((piece for late in streams for piece in list(late)), key=lambda piece: piece.at)

    def wait_for(self, plural: str, content: bytes) -> float:
        """Wait until a piece with these bytes waits; return when it came."""
        deadline = time.monotonic() + HELD_WITHIN_SECONDS
        while True:
            for piece in self.held(plural):
                if content in piece.content:
                    return piece.at
            assert time.monotonic() < deadline, f"{content!r} of {plural} is not held"
            time.sleep(0.01)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.run_until_complete(asyncio.sleep(CLOSE_SECONDS))

    async def _serve(self) -> None:
        connector = TCPConnector(ssl=self._tls, limit=0)
        timeout = ClientTimeout(total=None, sock_connect=5)
        async with ClientSession(
            connector=connector, timeout=timeout, read_bufsize=BODY_BYTES_MAX, auto_decompress=False
        ) as session:
            application = web.Application(client_max_size=BODY_BYTES_MAX)
            application.router.add_route("*", "/{path:.*}", partial(self._answer, session))
            runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            self._write_kubeconfig()
            self._serving.set()
            await self._stop.wait()
            await runner.cleanup()

    def _announce(self) -> None:
        """Wake every stream that waits."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _answer(self, session: ClientSession, request: web.Request) -> web.StreamResponse:
        headers = [(name, value) for name, value in request.headers.items() if name.title() not in OWN_HEADERS]
        url = URL(self._plane.url + request.raw_path, encoded=True)
        body = await request.read() or None
        try:
            async with session.request(
                request.method, url, data=body, headers=headers, skip_auto_headers=UNASKED_HEADERS
            ) as given:
                return await self._pass_on(request, given)
        except (ClientError, OSError):
            _break(request)
            return web.Response(status=502)  # the connection is closed before the client reads it

    async def _pass_on(self, request: web.Request, given: ClientResponse) -> web.StreamResponse:
        answer = web.StreamResponse(status=given.status, reason=given.reason)
        answer.headers.extend([(k, v) for k, v in given.headers.items() if k.title() not in OWN_HEADERS])
        if given.content_length is not None:
            answer.content_length = given.content_length
        await answer.prepare(request)
        plural = _watched(request)
        if plural:
            await self._pass_late(plural, request, given, answer)
        else:
            async for content in given.content.iter_any():
                await answer.write(content)
        return answer

    async def _pass_late(
        self, plural: str, request: web.Request, given: ClientResponse, answer: web.StreamResponse
    ) -> None:
        """Deliver each piece of a watch when it is due."""
        late: deque[Piece] = deque()
        came = asyncio.Event()
        streams = self._late.setdefault(plural, {})
        streams[id(late)] = late
        reader = asyncio.create_task(read_lines(given.content.iter_any(), late, came))
        try:
            while True:
                while not late:
                    came.clear()
                    await came.wait()
                await self._due(plural, late[0].at)
                piece = late.popleft()
                if piece.broken:
                    _break(request)
                if not piece.content:
                    return
                await answer.write(piece.content)
        finally:
            del streams[id(late)]
            reader.cancel()
            if given.connection is not None and given.connection.transport is not None:
                given.connection.transport.abort()  # closing TLS takes longer than the event loop exists

    async def _due(self, plural: str, at: float) -> None:
        """Wait until a piece that came at this time is due."""
        while at > self._let_through.get(plural, -FOR_EVER):
            seconds = at + self._hold_seconds.get(plural, 0.0) - time.monotonic()
            if seconds <= 0:
                return
            changed = self._changed.wait()
            if seconds == FOR_EVER:
                await changed
                continue
            try:
                await asyncio.wait_for(changed, seconds)
            except TimeoutError:
                return

    def _write_kubeconfig(self) -> None:
        context = {"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "proxy", "cluster": {"server": self.url}}],
            "users": [{"name": "proxy", "user": {}}],
            "contexts": [context],
            "current-context": "proxy",
        }
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(json.dumps(document))


async def read_lines(stream: AsyncIterable[bytes], late: deque[Piece], came: asyncio.Event) -> None:
    """Read a watch to its end; a piece is a whole line, so that a delivered piece can be decoded."""
    broken, begun = False, b""
    try:
        async for content in stream:
            *lines, begun = (begun + content).split(b"\n")
            late.extend(Piece(time.monotonic(), line + b"\n") for line in lines)
            came.set()
    except (ClientError, OSError):
        broken = True
    if begun:
        late.append(Piece(time.monotonic(), begun))
    late.append(Piece(time.monotonic(), b"", broken))
    came.set()


def _watched(request: web.Request) -> str:
    """Return the kind that a request watches; empty if it is not a watch."""
    found = _COLLECTION.match(request.path)
    if found is None or request.query.get("watch") not in ("true", "1"):
        return ""
    return found["plural"]


def _credentials(kubeconfig: Path, directory: Path) -> ssl.SSLContext:
    """Return the TLS context of the user of a kubeconfig with embedded credentials."""
    document = json.loads(kubeconfig.read_text())
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    fields = {"certificate": user["client-certificate-data"], "key": user["client-key-data"]}
    paths = {name: directory / f"lagging-proxy.{name}" for name in fields}
    for name, data in fields.items():
        paths[name].touch(mode=0o600)
        paths[name].write_bytes(base64.b64decode(data))
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    tls = ssl.create_default_context(cadata=authority)
    tls.load_cert_chain(paths["certificate"], paths["key"])
    return tls


def _break(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
