"""Ways of sending Bindings to a server that costs nothing of ours."""

import asyncio
import ssl
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aischeduler.daemon.service import loop_factory
from aischeduler.kube.client import Client
from aischeduler.kube.connection_pool import ConnectionPool
from aischeduler.kube.credentials import Credential
from aischeduler.kube.pod_writes import BindAccepted, binding, read_bind_answer
from aischeduler.kube.server_access import Server, Tls
from aischeduler.model.actions import Bind
from tests.controlplane.certificates import Authority

ROOT = Path(__file__).resolve().parents[2]
IN_FLIGHT = 32
Send = Callable[[Bind], Awaitable[None]]
Way = Callable[[Sequence[Bind], Server], Coroutine[None, None, None]]


@dataclass(frozen=True)
class Token:
    async def read(self, *, refused: bool) -> Credential:
        return Credential(b"Bearer " + b"t" * 900)


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
            return Server(
                "127.0.0.1", port, time.monotonic, Tls(context) if secure else None, credential_source=Token()
            )

        try:
            yield server
        finally:
            process.terminate()


async def by_wire(binds: Sequence[Bind], server: Server) -> None:
    connections = ConnectionPool(server, IN_FLIGHT)

    async def send(action: Bind) -> None:
        path, body = binding(action)
        answer = await connections.send(b"POST", path, body, b"application/json")
        assert isinstance(read_bind_answer(action, answer.status, answer.retry_after, answer.body), BindAccepted)

    await send_all(binds, send)
    await connections.close()


async def by_aiohttp(binds: Sequence[Bind], server: Server) -> None:
    async with Client(server) as client:

        async def send(action: Bind) -> None:
            path, body = binding(action)
            await client.post(path.decode(), body)

        await send_all(binds, send)


async def only_bytes(binds: Sequence[Bind], server: Server) -> None:
    """Make the bytes and send nothing: what any way of sending has to add to."""

    async def send(action: Bind) -> None:
        binding(action)

    await send_all(binds, send)


async def send_all(binds: Sequence[Bind], send: Send) -> None:
    """Send all Bindings by long-lived tasks, as many at a time as the daemon does."""
    waiting = iter(binds)

    async def some() -> None:
        for action in waiting:
            await send(action)

    await asyncio.gather(*(some() for _ in range(IN_FLIGHT)))


def run(way: Way, binds: Sequence[Bind], server: Server) -> None:
    """Send all in an event loop as the daemon's."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(way(binds, server))
