"""CPU of sending Bindings, against a server that costs nothing of ours."""

import asyncio
import ssl
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from aischeduler.kube.auth import Server, Tls
from aischeduler.kube.client import Client
from aischeduler.kube.requests import binding, read_bind_answer
from aischeduler.kube.wire import Wire
from aischeduler.model.actions import Bind
from aischeduler.model.events import BindAccepted
from tests.bench.board import cpu_seconds, micros, show, times
from tests.build import a_pod
from tests.controlplane.certificates import Authority

pytestmark = pytest.mark.bench

ROOT = Path(__file__).resolve().parents[2]
BINDINGS = 4_000
IN_FLIGHT = 32
BINDS = [
    Bind(a_pod(f"train-{number:05d}"), f"gpu-{number:05d}", "gpu-pool", "gpu-pool", f"run-{number}", 1000)
    for number in range(BINDINGS)
]
Send = Callable[[Bind], Awaitable[None]]


@dataclass(frozen=True)
class Token:
    async def header(self) -> bytes | None:
        return b"Bearer " + b"t" * 900


@contextmanager
def bind_server(directory: Path, secure: bool) -> Iterator[Callable[[], Server]]:
    """Run the server in a process of its own; yield what makes a fresh client's view of it."""
    authority = Authority(directory)
    serving = authority.server("serving")
    files = [str(serving.certificate), str(serving.key)] if secure else []
    command = [sys.executable, "-m", "tests.bench.bind_server", *files]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())

        def server() -> Server:
            context = ssl.create_default_context(cafile=str(authority.certificate))
            return Server("127.0.0.1", port, time.monotonic, Tls(context) if secure else None, source=Token())

        try:
            yield server
        finally:
            process.terminate()


async def by_wire(server: Server) -> None:
    wire = Wire(server, IN_FLIGHT)

    async def send(action: Bind) -> None:
        path, body = binding(action)
        answer = await wire.send(b"POST", path, body, b"application/json")
        assert isinstance(read_bind_answer(action, answer.status, answer.retry_after, answer.body), BindAccepted)

    await send_all(send)
    await wire.close()


async def by_aiohttp(server: Server) -> None:
    async with Client(server) as client:

        async def send(action: Bind) -> None:
            path, body = binding(action)
            await client.post(path.decode(), body)

        await send_all(send)


async def only_bytes(server: Server) -> None:
    """Make the bytes and send nothing: what any way of sending has to add to."""

    async def send(action: Bind) -> None:
        binding(action)

    await send_all(send)


async def send_all(send: Send) -> None:
    """Send all Bindings by long-lived tasks, as many at a time as the daemon does."""
    waiting = iter(BINDS)

    async def some() -> None:
        for action in waiting:
            await send(action)

    await asyncio.gather(*(some() for _ in range(IN_FLIGHT)))


def run(way: Callable[[Server], Coroutine[None, None, None]], server: Server) -> None:
    asyncio.run(way(server))


def test_cpu_of_a_binding_by_the_way_it_is_sent(tmp_path: Path) -> None:
    rows = []
    for secure in (False, True):
        with bind_server(tmp_path, secure) as server:
            costs = {
                name: cpu_seconds(server, partial(run, way))
                for name, way in (("bytes", only_bytes), ("ours", by_wire), ("aiohttp", by_aiohttp))
            }
        figures = [micros(costs[name], BINDINGS) for name in ("bytes", "ours", "aiohttp")]
        rows.append(["TLS" if secure else "TCP", *figures, times(costs["ours"], costs["aiohttp"])])
    show(
        f"A Binding sent, CPU microseconds each, {IN_FLIGHT} in flight",
        ["", "bytes made, not sent", "our pool of connections", "aiohttp", "ours / aiohttp"],
        rows,
    )
