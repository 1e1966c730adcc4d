"""The operator as a program: kopf watches, and every event of an object causes a pass over its BatchProcess.

Invariants:
- An event is a hint. What is true is read anew by the pass, and every BatchProcess gets a pass now and then without
  any event, so that a lost event delays and loses nothing.
- The operator adds no finalizer, as kopf's daemons and timers would, and no annotation, as kopf's handlers of changes
  would: a BatchProcess can be deleted while no operator runs.
- Only the operator's own pods are watched, not all of the cluster.
- kopf asks the API server as the client of the passes does: the same address, proxy, TLS and credentials.
"""

import asyncio
import time
from pathlib import Path
from typing import Any, Final

import kopf
import structlog

from aischeduler.kube.access.server import Server, connect
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.errors import ApiError
from aischeduler.kube.http.paths import collection_path
from aischeduler.operator.batch_process import BATCH_VERSION, GROUPS, KIND, PLURAL, Settings
from aischeduler.operator.cluster import Cluster, batch_path
from aischeduler.operator.objects import MADE_BY, MADE_BY_KEY
from aischeduler.operator.passes import Passes
from aischeduler.operator.reconcile import Reconciler
from aischeduler.operator.session import session_of

RESYNC_SECONDS: Final = 300.0
IDLE_SECONDS: Final = 90.0
"""After this time without a byte kopf opens a watch anew; bookmarks come about every minute."""


class Operator:
    """The handlers of kopf, and what they start."""

    def __init__(self, server: Server, client: Client, settings: Settings) -> None:
        self._server = server
        self._cluster = Cluster(client)
        self._passes = Passes(Reconciler(self._cluster, settings).look)

    async def run(self, health: str | None) -> None:
        """Run until a signal; whatever ends by an error ends the whole."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._passes.run()), group.create_task(self._resync())]
            await kopf.operator(
                registry=self._registry(),
                settings=_settings_of_kopf(),
                standalone=True,
                clusterwide=True,
                liveness_endpoint=f"http://{health}/healthz" if health else None,
            )
            for task in tasks:
                task.cancel()

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(self._login)
        for group in GROUPS:
            kopf.on.event(group, BATCH_VERSION, PLURAL, registry=registry)(self._process_changed)
        kopf.on.event("", "v1", "pods", labels={MADE_BY_KEY: MADE_BY}, registry=registry)(self._pod_changed)
        return registry

    async def _login(self, **_: Any) -> kopf.AiohttpSession:
        return kopf.AiohttpSession(server=self._server.url, aiohttp_session=session_of(self._server))

    async def _process_changed(self, body: kopf.Body, **_: Any) -> None:
        metadata = body["metadata"]
        self._passes.mark(batch_path(body["apiVersion"], metadata["namespace"], metadata["name"]))

    async def _pod_changed(self, body: kopf.Body, **_: Any) -> None:
        metadata = body["metadata"]
        for owner in metadata.get("ownerReferences") or ():
            if owner.get("kind") == KIND and owner.get("controller"):
                self._passes.mark(batch_path(owner["apiVersion"], metadata["namespace"], owner["name"]))

    async def _resync(self) -> None:
        """Look at every BatchProcess now and then, whatever the watches say."""
        while True:
            for api_version in (f"{group}/{BATCH_VERSION}" for group in GROUPS):
                try:
                    for document in await self._cluster.items(collection_path(api_version, PLURAL), {}):
                        metadata = document["metadata"]
                        self._passes.mark(batch_path(api_version, metadata["namespace"], metadata["name"]))
                except ApiError as error:
                    structlog.get_logger().warning("list failed", api_version=api_version, reason=str(error))
            await asyncio.sleep(RESYNC_SECONDS)


def _settings_of_kopf() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.networking.request_timeout = None  # the session has one for each try
    settings.watching.label_selectors["pods"] = f"{MADE_BY_KEY}={MADE_BY}"
    settings.watching.inactivity_timeout = IDLE_SECONDS
    return settings


async def serve(kubeconfig: Path | None, context: str | None, settings: Settings, health: str | None = None) -> None:
    """Run the operator until SIGTERM or SIGINT; `health` is a host and port for /healthz. Raises AccessError."""
    server = await connect(str(kubeconfig) if kubeconfig else None, context, time.monotonic, account_first=True)
    server.on_credential_failure = lambda reason: structlog.get_logger().warning(
        "credentials do not work", reason=reason
    )
    structlog.get_logger().info("operator started", scheduler_name=settings.scheduler_name)
    try:
        async with Client(server) as client:
            await Operator(server, client, settings).run(health)
    finally:
        await server.close()
    structlog.get_logger().info("operator stopped")
