"""A program that decides nothing: it posts a Binding for every pod of a namespace and reads only the status codes.

Run as `python -m tests.bench.flood KUBECONFIG NAMESPACE NODES wire|aiohttp`. The pods go to the nodes `node-00000` and
so on in turn. The flood writes one line to its log once it has listed the pods, in the form of the scheduler's log.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import aiohttp

from aischeduler.daemon.service import loop_factory
from aischeduler.kube.access.server import Server, connect
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.connection_pool import ConnectionPool
from aischeduler.kube.write.pod_writes import JSON, binding
from aischeduler.model.actions import Bind
from tests.build import a_pod

IN_FLIGHT = 64
LISTED = "synced"
"""The event of the line that says that everything is listed."""

Send = Callable[[bytes, bytes], Awaitable[int]]
"""Posts a body to a path and returns the status code."""


async def flood(kubeconfig: str, namespace: str, nodes: int, way: str) -> None:
    """Bind every pod of the namespace, then wait to be stopped."""
    server = await connect(kubeconfig, None, time.monotonic)
    async with Client(server) as client:
        listed = json.loads(await client.get(f"/api/v1/namespaces/{namespace}/pods"))
    waiting = iter([_binding(item["metadata"], number % nodes) for number, item in enumerate(listed["items"])])
    print(json.dumps({"event": LISTED, "timestamp": datetime.fromtimestamp(time.time(), UTC).isoformat()}), flush=True)
    async with WAYS[way](server) as send:

        async def some() -> None:
            for path, body in waiting:
                status = await send(path, body)
                if status != 201:
                    raise RuntimeError(f"{path!r}: {status}")

        await asyncio.gather(*(some() for _ in range(IN_FLIGHT)))
        await asyncio.Event().wait()


@asynccontextmanager
async def by_wire(server: Server) -> AsyncIterator[Send]:
    """Send by the connection pool of the scheduler."""
    connections = ConnectionPool(server, IN_FLIGHT)

    async def send(path: bytes, body: bytes) -> int:
        return (await connections.send(b"POST", path, body, JSON.encode())).status

    yield send
    await connections.close()


@asynccontextmanager
async def by_aiohttp(server: Server) -> AsyncIterator[Send]:
    """Send by aiohttp."""
    context = server.tls.context if server.tls is not None else False
    connector = aiohttp.TCPConnector(limit=IN_FLIGHT, ssl=context)
    async with aiohttp.ClientSession(server.url, connector=connector, headers={"Content-Type": JSON}) as session:

        async def send(path: bytes, body: bytes) -> int:
            async with session.post(path.decode(), data=body) as answer:
                await answer.read()
                return answer.status

        yield send


WAYS = {"wire": by_wire, "aiohttp": by_aiohttp}


def _binding(metadata: dict[str, str], node: int) -> tuple[bytes, bytes]:
    pod = a_pod(metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"])
    return binding(Bind(pod, f"node-{node:05d}", "pool", "pool", "flood", 1))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(flood(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))
