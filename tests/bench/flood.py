"""A program that decides nothing: it posts a Binding for every pod of a namespace and reads only the status codes.

Run as `python -m tests.bench.flood KUBECONFIG NAMESPACE NODES`. The pods go to the nodes `node-00000` and so on in
turn.
"""

import asyncio
import json
import sys
import time

from aischeduler.daemon.service import loop_factory
from aischeduler.kube.access.server import connect
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.connection_pool import ConnectionPool
from aischeduler.kube.write.pod_writes import JSON, binding
from aischeduler.model.actions import Bind
from tests.build import a_pod

IN_FLIGHT = 64


async def flood(kubeconfig: str, namespace: str, nodes: int) -> None:
    """Bind every pod of the namespace, then wait to be stopped."""
    server = await connect(kubeconfig, None, time.monotonic)
    async with Client(server) as client:
        listed = json.loads(await client.get(f"/api/v1/namespaces/{namespace}/pods"))
    waiting = iter([_binding(item["metadata"], number % nodes) for number, item in enumerate(listed["items"])])
    connections = ConnectionPool(server, IN_FLIGHT)

    async def some() -> None:
        for path, body in waiting:
            answer = await connections.send(b"POST", path, body, JSON.encode())
            if answer.status != 201:
                raise RuntimeError(f"{path!r}: {answer.status}")

    await asyncio.gather(*(some() for _ in range(IN_FLIGHT)))
    await asyncio.Event().wait()


def _binding(metadata: dict[str, str], node: int) -> tuple[bytes, bytes]:
    pod = a_pod(metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"])
    return binding(Bind(pod, f"node-{node:05d}", "pool", "pool", "flood", 1))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(flood(sys.argv[1], sys.argv[2], int(sys.argv[3])))
