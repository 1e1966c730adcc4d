"""The operator as a program: kopf watches, and every event of an object causes a pass over its BatchProcess.

Invariants:
- An event is a hint. What is true is read anew by the pass, and every BatchProcess gets a pass now and then without
  any event, so that a lost event delays and loses nothing.
- The operator adds no finalizer: a BatchProcess can be deleted while no operator runs.
- Only the operator's own pods are watched, not all of the cluster.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Final

import kopf
import structlog
from kubernetes import config as kubernetes_config
from kubernetes.client import ApiClient, Configuration
from msgspec import Struct
from msgspec.structs import replace

from aischeduler.kube.http.paths import collection_path
from aischeduler.operator.batch_process import Settings
from aischeduler.operator.cluster import ClusterError, Key, KubernetesCluster
from aischeduler.operator.naming import BATCH_VERSION, GROUPS, KIND, MADE_BY, MADE_BY_KEY, PLURAL
from aischeduler.operator.reconcile import CONFLICT, Tools, reconcile
from aischeduler.operator.work import DISTANCE_SECONDS, TASKS, Passes

REQUESTS_AT_ONCE: Final = 8
"""How many pods of one pass are made or deleted at once."""
RESYNC_SECONDS: Final = 300.0
IDLE_SECONDS: Final = 90.0
"""After this time without a byte kopf opens a watch anew; bookmarks come about every minute."""


class AccessError(Exception):
    """There are no credentials for an API server."""


class Access(Struct, frozen=True):
    """Where the credentials are; empty for the usual places."""

    kubeconfig: Path | None = None
    context: str | None = None

    def load(self) -> Configuration:
        """Return the configuration of a client; raises AccessError."""
        found = Configuration()
        if self.kubeconfig is not None and not self.kubeconfig.is_file():
            raise AccessError(f"{self.kubeconfig}: there is no such kubeconfig file")
        try:
            if self.kubeconfig is None and self.context is None and not os.environ.get("KUBECONFIG"):
                with contextlib.suppress(kubernetes_config.ConfigException):
                    kubernetes_config.load_incluster_config(client_configuration=found)  # type: ignore[no-untyped-call]
                    return found
            kubernetes_config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=str(self.kubeconfig) if self.kubeconfig else None,
                context=self.context,
                client_configuration=found,
            )
        except Exception as error:
            raise AccessError(f"{self.kubeconfig or 'no credentials'}: {' '.join(str(error).split())}") from error
        return found


class _Backoffs(Iterable[float]):
    """The delays between the tries of one request of kopf: without an end, since an outage has none that is known."""

    def __iter__(self) -> Iterator[float]:
        return chain((1, 1, 2, 3, 5, 8), repeat(10))


class Operator:
    """The handlers of kopf, and what they start."""

    def __init__(self, access: Access, settings: Settings) -> None:
        self._access = access
        configuration = access.load()
        configuration.connection_pool_maxsize = TASKS * REQUESTS_AT_ONCE
        self._cluster = KubernetesCluster(ApiClient(configuration))
        self._tools = Tools(self._cluster, settings)
        self._passes = Passes(self._one)
        self.registry = kopf.OperatorRegistry()
        self._register()

    def _register(self) -> None:
        registry = self.registry
        kopf.on.login(registry=registry)(self._login)
        kopf.on.startup(registry=registry)(self._set_up)
        for group in GROUPS:
            kopf.on.event(group, BATCH_VERSION, PLURAL, registry=registry)(self._process_changed)
        kopf.on.event("", "v1", "pods", labels={MADE_BY_KEY: MADE_BY}, registry=registry)(self._pod_changed)

    async def _login(self, **_: Any) -> kopf.ConnectionInfo:
        """Hand the credentials of the client to kopf."""
        found = await asyncio.to_thread(self._access.load)
        header = found.get_api_key_with_prefix("BearerToken") or found.get_api_key_with_prefix("authorization")
        scheme, _space, token = (header or "").partition(" ")
        return kopf.ConnectionInfo(
            server=found.host,
            ca_path=found.ssl_ca_cert,
            insecure=not found.verify_ssl,
            username=found.username or None,
            password=found.password or None,
            scheme=scheme or None,
            token=token or None,
            certificate_path=found.cert_file,
            private_key_path=found.key_file,
            trust_env=bool(found.proxy),  # the proxy that the client uses comes from the environment
        )

    async def _set_up(self, settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.watching.label_selectors["pods"] = f"{MADE_BY_KEY}={MADE_BY}"
        settings.watching.inactivity_timeout = IDLE_SECONDS
        settings.networking.error_backoffs = _Backoffs()

    async def run(self, health: str | None) -> None:
        """Run until a signal; whatever ends by an error ends the whole."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._passes.run()), group.create_task(self._resync())]
            await kopf.operator(
                registry=self.registry,
                standalone=True,
                clusterwide=True,
                liveness_endpoint=f"http://{health}/healthz" if health else None,
            )
            for task in tasks:
                task.cancel()

    async def _process_changed(self, body: kopf.Body, **_: Any) -> None:
        metadata = body["metadata"]
        self._passes.mark(Key(body["apiVersion"], metadata["namespace"], metadata["name"]))

    async def _pod_changed(self, body: kopf.Body, **_: Any) -> None:
        metadata = body["metadata"]
        for owner in metadata.get("ownerReferences") or ():
            if owner.get("kind") == KIND and owner.get("controller"):
                self._passes.mark(Key(owner["apiVersion"], metadata["namespace"], owner["name"]))

    async def _one(self, key: Key) -> float | None:
        try:
            return await asyncio.to_thread(self._pass, key)
        except ClusterError as error:
            if error.status == CONFLICT:  # somebody wrote it between our read and our write
                return DISTANCE_SECONDS
            raise

    def _pass(self, key: Key) -> float | None:
        with ThreadPoolExecutor(REQUESTS_AT_ONCE) as threads:
            return reconcile(key, replace(self._tools, each=threads.map))

    async def _resync(self) -> None:
        """Look at every BatchProcess now and then, whatever the watches say."""
        while True:
            for group in GROUPS:
                try:
                    await self._mark_all(f"{group}/{BATCH_VERSION}")
                except ClusterError as error:
                    structlog.get_logger().warning("list failed", group=group, reason=str(error))
            await asyncio.sleep(RESYNC_SECONDS)

    async def _mark_all(self, api_version: str) -> None:
        found = await asyncio.to_thread(self._cluster.items, collection_path(api_version, PLURAL), {})
        for document in found:
            self._passes.mark(Key(api_version, document["metadata"]["namespace"], document["metadata"]["name"]))


def _milder(record: logging.LogRecord) -> bool:
    """Make a warning of what kopf calls an error although it tries again: an outage is no fault of the operator."""
    if record.levelno == logging.ERROR and record.name.startswith("kopf.") and "will retry" in record.getMessage():
        record.levelno, record.levelname = logging.WARNING, "WARNING"
    return True


async def serve(access: Access, settings: Settings, health: str | None = None) -> None:
    """Run the operator until SIGTERM or SIGINT; `health` is a host and port for /healthz. Raises AccessError."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(_milder)
    operator = Operator(access, settings)
    structlog.get_logger().info("operator started", scheduler_name=settings.scheduler_name)
    await operator.run(health)
    structlog.get_logger().info("operator stopped")
