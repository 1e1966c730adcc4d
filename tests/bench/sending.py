"""Sends Bindings to a minimal server in another process."""

import asyncio
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aischeduler.daemon.service import loop_factory
from aischeduler.kube.access.credentials import Credential
from aischeduler.kube.access.server import Server, Tls
from aischeduler.kube.http.connection_pool import ConnectionPool
from aischeduler.kube.write.pod_writes import BindAccepted, binding, read_bind_answer
from aischeduler.model.actions import Bind
from tests.controlplane.certificates import Authority

ROOT = Path(__file__).resolve().parents[2]
IN_FLIGHT = 32


@dataclass(frozen=True)
class Token:
    async def read(self, *, refused: bool) -> Credential:
        return Credential(b"Bearer " + b"t" * 900)


@contextmanager
def bind_server(directory: Path) -> Iterator[Server]:
    """Run the server in a process of its own; yield how to reach it."""
    authority = Authority(directory)
    serving = authority.server("serving")
    command = [sys.executable, "-m", "tests.bench.bind_server", str(serving.certificate), str(serving.key)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        context = ssl.create_default_context(cafile=str(authority.certificate))
        try:
            yield Server("127.0.0.1", port, time.monotonic, Tls(context), credential_source=Token())
        finally:
            process.terminate()


async def send_all(binds: Sequence[Bind], server: Server) -> None:
    """Send all Bindings, as many at a time as the daemon does."""
    connections = ConnectionPool(server, IN_FLIGHT)
    waiting = iter(binds)

    async def some() -> None:
        for action in waiting:
            path, body = binding(action)
            answer = await connections.send(b"POST", path, body, b"application/json")
            assert isinstance(read_bind_answer(action, answer.status, answer.retry_after, answer.body), BindAccepted)

    await asyncio.gather(*(some() for _ in range(IN_FLIGHT)))
    await connections.close()


def run(binds: Sequence[Bind], server: Server) -> None:
    """Send all Bindings on an event loop like the daemon's."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(send_all(binds, server))
