"""The operator as a program: kopf watches, and every event of an object causes a pass over its owner.

Invariants:
- An event is a hint. What is true is read anew by the pass, and every owner gets a pass now and then without any event,
  so that a lost event delays and loses nothing.
- The operator adds no finalizer, as kopf's daemons and timers would, and no annotation, as kopf's handlers of changes
  would: an owner can be deleted while no operator runs.
- Only the pods and the Jobs that the operator makes are watched, and the pods of these Jobs.
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
from aischeduler.model.names import GROUP, VERSION
from aischeduler.operator.batch_process import BATCH_VERSION, GROUPS
from aischeduler.operator.batch_process import KIND as BATCH_PROCESS
from aischeduler.operator.cluster import Cluster, owner_path, path_of
from aischeduler.operator.objects import MADE_BY, MADE_BY_KEY
from aischeduler.operator.owner import PLURALS, Settings
from aischeduler.operator.paddle_spec import PADDLE_GROUP, PADDLE_VERSION
from aischeduler.operator.passes import Passes
from aischeduler.operator.reconcile import Reconciler
from aischeduler.operator.session import session_of
from aischeduler.operator.training_job import KIND as TRAINING_JOB
from aischeduler.operator.training_objects import MADE_FOR_KEY
from aischeduler.operator.training_reconcile import TrainingReconciler

OWNERS: Final = (
    *((f"{group}/{BATCH_VERSION}", BATCH_PROCESS) for group in GROUPS),
    (f"{GROUP}/{VERSION}", TRAINING_JOB),
    (f"{PADDLE_GROUP}/{PADDLE_VERSION}", TRAINING_JOB),
)
"""The versions and kinds of the owners of pods."""
RESYNC_SECONDS: Final = 300.0
IDLE_SECONDS: Final = 90.0
"""After this time without a byte kopf opens a watch anew; bookmarks come about every minute."""


class Operator:
    """The handlers of kopf, and what they start."""

    def __init__(self, server: Server, client: Client, settings: Settings) -> None:
        self._server = server
        self._cluster = Cluster(client)
        self._looks = {
            PLURALS[BATCH_PROCESS]: Reconciler(self._cluster, settings).look,
            PLURALS[TRAINING_JOB]: TrainingReconciler(self._cluster, settings).look,
        }
        self._passes = Passes(self._look)

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
        for api_version, kind in OWNERS:
            group, _, version = api_version.partition("/")
            kopf.on.event(group, version, PLURALS[kind], registry=registry)(self._owner_changed)
        ours = {MADE_BY_KEY: MADE_BY}
        kopf.on.event("", "v1", "pods", labels=ours, registry=registry)(self._part_changed)
        kopf.on.event("batch", "v1", "jobs", labels=ours, registry=registry)(self._part_changed)
        return registry

    async def _login(self, **_: Any) -> kopf.AiohttpSession:
        return kopf.AiohttpSession(server=self._server.url, aiohttp_session=session_of(self._server))

    async def _look(self, path: str) -> float | None:
        _, plural, _ = path.rsplit("/", 2)
        return await self._looks[plural](path)

    async def _owner_changed(self, body: kopf.Body, **_: Any) -> None:
        self._passes.mark(path_of({**body}))

    async def _part_changed(self, body: kopf.Body, **_: Any) -> None:
        """Mark the owner of a pod or a Job, or of the Job of a pod."""
        metadata = body["metadata"]
        for owner in metadata.get("ownerReferences") or ():
            if owner.get("controller") and owner.get("kind") in PLURALS:
                self._mark(owner["apiVersion"], owner["kind"], metadata["namespace"], owner["name"])
        api_version, _, name = (metadata.get("annotations") or {}).get(MADE_FOR_KEY, "").rpartition("/")
        if name:
            self._mark(api_version, TRAINING_JOB, metadata["namespace"], name)

    def _mark(self, api_version: str, kind: str, namespace: str, name: str) -> None:
        if (api_version, kind) in OWNERS:  # users can write these texts
            self._passes.mark(owner_path(api_version, kind, namespace, name))

    async def _resync(self) -> None:
        """Look at every owner now and then, whatever the watches say."""
        while True:
            for api_version, kind in OWNERS:
                try:
                    for document in await self._cluster.items(collection_path(api_version, PLURALS[kind]), {}):
                        metadata = document["metadata"]
                        self._mark(api_version, kind, metadata["namespace"], metadata["name"])
                except ApiError as error:
                    structlog.get_logger().warning("list failed", api_version=api_version, kind=kind, reason=str(error))
            await asyncio.sleep(RESYNC_SECONDS)


def _settings_of_kopf() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.networking.request_timeout = None  # the session has one for each try
    for plural in ("pods", "jobs"):
        settings.watching.label_selectors[plural] = f"{MADE_BY_KEY}={MADE_BY}"
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
