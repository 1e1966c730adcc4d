"""A sandbox over HTTP with a client and the daemon, and short methods for what a user does there."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from aischeduler.config.schema import NO_ELECTION, Config
from aischeduler.daemon.process import Daemon
from aischeduler.kube.access.credentials import CredentialSource
from aischeduler.kube.access.server import Server
from aischeduler.kube.crds import pool_crd
from aischeduler.kube.http.backoff import Timing, unix_clock
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.connection_pool import ConnectionPool
from aischeduler.kube.write.pod_writes import STRATEGIC_PATCH
from aischeduler.sandbox.http_server import HttpSandbox
from tests.daemon.between import Between, between
from tests.kube.scripted_server import Half

ALONE = Config(leader_election=NO_ELECTION)

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POOLS = "/apis/resource.aibee.cn/v1alpha1/pools"
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
NAMESPACES = "/api/v1/namespaces"
CLAIMS = "/api/v1/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
HANGS_SECONDS = 60
"""A condition that is not met after this long has failed; a slow machine is no fault."""
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


async def brief(seconds: float) -> None:
    """Sleep for a hundredth of these seconds."""
    await asyncio.sleep(seconds / 100)


@dataclass
class Cluster:
    """A sandbox with a client and a daemon, which `stop` ends; `between` is the proxy between them."""

    sandbox: HttpSandbox
    client: Client
    connections: ConnectionPool
    daemon: Daemon
    between: Between
    stop: asyncio.Event

    async def create(self, path: str, document: dict[str, Any]) -> None:
        await self.client.post(path, json.dumps(document).encode())

    async def delete(self, path: str, **options: Any) -> None:
        body = json.dumps(options).encode()
        answer = await self.connections.send(b"DELETE", path.encode(), body, b"application/json")
        assert answer.status == 200, answer.body

    async def listed(self, path: str) -> list[Any]:
        items: list[Any] = json.loads(await self.client.get(path))["items"]
        return items

    async def node(self, name: str, *, cpu: str = "8", labels: dict[str, str] | None = None) -> None:
        amounts = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
        metadata = {"name": name, "labels": labels or {}}
        await self.create(NODES, {"metadata": metadata, "status": {"capacity": amounts, "allocatable": amounts}})

    async def pool(self, name: str, **spec: Any) -> None:
        await self.create(
            POOLS,
            {"apiVersion": "resource.aibee.cn/v1alpha1", "kind": "Pool", "metadata": {"name": name}, "spec": spec},
        )

    async def pod(self, name: str, *, pool: str = "", cpu: str = "1", **labels: str) -> None:
        annotations = {"resource.aibee.cn/pool": pool} if pool else {}
        container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
        spec = {"schedulerName": "ai-scheduler", "containers": [container]}
        metadata = {"name": name, "annotations": annotations, "labels": labels}
        await self.create(PODS, {"metadata": metadata, "spec": spec})

    async def runs(self, name: str) -> None:
        """Report a pod as running and ready, as a kubelet does."""
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await self.client.patch(f"{PODS}/{name}/status", json.dumps({"status": status}).encode(), STRATEGIC_PATCH)

    async def placed(self) -> dict[str, str]:
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in await self.listed(PODS)}

    async def notes(self, reason: str) -> dict[str, str]:
        found = [event for event in await self.listed(EVENTS) if event["reason"] == reason]
        return {event["regarding"]["name"]: event["note"] for event in found}

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(HANGS_SECONDS):
            while not await condition():
                await asyncio.sleep(0.01)

    async def all_placed(self) -> bool:
        return all((await self.placed()).values())


def schemaless_crd() -> dict[str, Any]:
    """Return a definition of Pools without a schema, under which any object can be stored."""
    definition = pool_crd()
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    for version in definition["spec"]["versions"]:
        version["schema"]["openAPIV3Schema"] = {"type": "object", "properties": {"spec": anything, "status": anything}}
    return definition


@asynccontextmanager
async def cluster(
    *,
    pools: dict[str, Any] | None = None,
    config: Config | None = None,
    installed: bool = True,
    source: CredentialSource | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[Cluster]:
    """Yield a sandbox with a daemon that decides. The Pool resource is `installed` there as `pools` defines it.

    `source` has the daemon's credentials; `clock` says when the daemon reads them again.
    """
    async with HttpSandbox() as sandbox:
        address = urlsplit(sandbox.url)
        assert address.hostname
        assert address.port
        server = Server(address.hostname, address.port, clock)
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(Client(server))
            obstacle, seen = await stack.enter_async_context(between(server))
            seen.credential_source = source
            if installed:
                await client.post(CRDS, json.dumps(pools or pool_crd()).encode())
            stop, connections = asyncio.Event(), ConnectionPool(server, 1)
            daemon = Daemon(seen, config or ALONE, stop, Timing(unix_clock(), brief, Half()))
            task = asyncio.create_task(daemon.run())
            try:
                await asyncio.wait([task, asyncio.create_task(daemon.deciding.wait())], return_when="FIRST_COMPLETED")
                yield Cluster(sandbox, client, connections, daemon, obstacle, stop)
            finally:
                stop.set()
                await connections.close()
                async with asyncio.timeout(HANGS_SECONDS):
                    await task
