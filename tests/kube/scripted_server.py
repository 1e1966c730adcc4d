"""A server that answers with exactly the bytes that a test wrote, and breaks connections where the test says so."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from aischeduler.kube.access.server import Server
from aischeduler.kube.http.backoff import Timing

PATIENCE_SECONDS = 60.0
HANG_SECONDS = 0.25
CLOSE_SECONDS = 1.0
"""How long a client waits for an answer where the script has one that never comes."""
"""How long an expected event may take on a busy machine; no test asserts it."""
WAIT_SECONDS = 0.001
"""How long a sleep of `Waits` takes."""
SETTLING_WAITS, SETTLING_TURNS = 8, 25
"""How many sleeps of `Waits` in a row, and turns of the event loop after each, `settled` gives to what is under way."""


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    target: str = ""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]
Rule = Callable[[Request], Answer]


def reply(status: int, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
    """Answer completely; a body other than bytes is sent as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
    lines = [f"HTTP/1.1 {status} Because", f"Content-Length: {len(content)}", "Content-Type: application/json"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write("\r\n".join([*lines, "", ""]).encode() + content)
        await writer.drain()

    return answer


def status(code: int, reason: str = "", message: str = "", headers: dict[str, str] | None = None) -> Answer:
    """Answer with a Status, as an API server refuses a request."""
    document = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason}
    return reply(code, document | {"code": code}, headers)


def stream(*pieces: bytes, end: str = "hang") -> Answer:
    """Answer in chunks and end with `clean`, `cut` (without the last chunk), `reset`, or `hang`."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in pieces:
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
        if end == "clean":
            writer.write(b"0\r\n\r\n")
        elif end == "cut":
            writer.close()
        elif end == "reset":
            await asyncio.sleep(0.01)
            writer.transport.abort()
        else:
            await asyncio.Event().wait()

    return answer


async def hang(_: asyncio.StreamWriter) -> None:
    """Never answer."""
    await asyncio.Event().wait()


async def slam(writer: asyncio.StreamWriter) -> None:
    """Accept the request and reset the connection."""
    writer.transport.abort()


@dataclass
class Script:
    """The answers of a server: the first rule that matches the request, else 404."""

    requests: list[Request] = field(default_factory=list)
    waiting: dict[tuple[str, str], deque[Answer]] = field(default_factory=dict)
    always: dict[tuple[str, str], Rule] = field(default_factory=dict)
    connections: int = 0
    open: int = 0

    def on(self, method: str, path: str, *answers: Answer) -> None:
        """Answer these in order; `watch` is the method of a GET that watches."""
        self.waiting.setdefault((method, path), deque()).extend(answers)

    @property
    def answer_seconds(self) -> float:
        """How long a client is to wait for an answer: longer than a busy machine needs, where every answer comes."""
        return HANG_SECONDS if any(hang in answers for answers in self.waiting.values()) else PATIENCE_SECONDS

    def asked(self, method: str, path: str = "") -> list[Request]:
        return [r for r in self.requests if verb(r) == method and r.path.startswith(path)]

    def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        place = (verb(request), request.path)
        queue = self.waiting.get(place)
        if queue:
            return queue.popleft()
        if place in self.always:
            return self.always[place](request)
        return hang if place[0] == "watch" else status(404, "NotFound", "not scripted")


def verb(request: Request) -> str:
    return "watch" if request.query.get("watch") == "true" else request.method.lower()


@asynccontextmanager
async def serving(script: Script, ssl: Any = None) -> AsyncIterator[Server]:
    """Serve the script on loopback; open requests are cancelled at the end."""
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        script.connections += 1
        script.open += 1
        tasks.add(task)
        try:
            while (request := await read_request(reader)) is not None:
                await script.answer(request)(writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            script.open -= 1
            tasks.discard(task)
            await closed(writer)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=ssl)
    port = server.sockets[0].getsockname()[1]
    try:
        yield Server("127.0.0.1", port, asyncio.get_running_loop().time)
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def closed(writer: asyncio.StreamWriter) -> None:
    """Close a stream, and take how its connection was lost: asyncio logs an exception that nobody takes."""
    writer.close()
    with suppress(OSError, TimeoutError, asyncio.CancelledError):
        async with asyncio.timeout(CLOSE_SECONDS):
            await writer.wait_closed()


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError:
        return None
    first, *rest = head.split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    address = urlsplit(target)
    return Request(method, address.path, dict(parse_qsl(address.query)), headers, body, target)


@dataclass
class Half:
    """A random source that always returns one half."""

    def random(self) -> float:
        return 0.5


class Waits:
    """A timing that records its sleeps and hardly sleeps; while it is held, sleeps do not end."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.now = 1000.0
        self.held = 0
        self._open = asyncio.Event()
        self._open.set()

    async def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)
        self.held += 1
        await self._open.wait()
        self.held -= 1
        self.now += seconds
        await asyncio.sleep(WAIT_SECONDS)

    def hold(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def timing(self) -> Timing:
        return Timing(lambda: self.now, self.sleep, Half())


async def until(condition: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until the condition holds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)


async def settled() -> None:
    """Return once all that is under way in this event loop has happened, so that a test can say what has not.

    It counts turns of the loop, so a slow machine gives each step its turn as well: a request to a server of this
    process is written, read and answered in about ten turns, and of two sleeps of one length the earlier ends first.
    What a thread, another process, or a real sleep that is longer than those of `Waits` brings about may come later.
    """
    for _ in range(SETTLING_WAITS):
        await asyncio.sleep(WAIT_SECONDS)
        for _ in range(SETTLING_TURNS):
            await asyncio.sleep(0)


def broken(job: str, error: Exception) -> None:
    """Fail the test on an internal error."""
    raise AssertionError(f"{job} failed") from error


@dataclass
class Counted:
    """An engine that assumes every pod except `settled` ones, and knows every node except `gone` ones.

    It asks for every eviction but those of `spared` pods, and every victim was shown but those that are `unshown`.
    """

    settled: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    spared: set[str] = field(default_factory=set)
    unshown: set[str] = field(default_factory=set)

    def still_evicts(self, uid: str, _decision: str) -> bool:
        return uid not in self.spared

    def is_assumed(self, uid: str) -> bool:
        return uid in self.unshown

    def still_assumed(self, uid: str, _decision: str) -> bool:
        return uid not in self.settled

    def has_node(self, name: str) -> bool:
        return name not in self.gone
