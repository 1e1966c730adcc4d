"""The components of a running daemon, put together as the configuration says, and what is logged of failed watches."""

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final

from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from aischeduler.config.schema import Config, EvictionWay
from aischeduler.config.tenants import tenants_of
from aischeduler.daemon.leadership import Leadership
from aischeduler.engine.scheduler import Scheduler
from aischeduler.kube.access.server_version import Discovery
from aischeduler.kube.crds import NOT_INSTALLED
from aischeduler.kube.decode.api_types import PodDocument
from aischeduler.kube.decode.gang_owners import GangOwners
from aischeduler.kube.decode.pod_spec import SpecCache
from aischeduler.kube.decode.workloads import DAEMON_SET
from aischeduler.kube.elastic_kinds import collections_with
from aischeduler.kube.executor import Workers
from aischeduler.kube.http.backoff import Timing
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.connection_pool import ConnectionPool
from aischeduler.kube.http.errors import ApiError, OnInternalError, RefusedError, ResourceNotServedError
from aischeduler.kube.report.event_messages import ReportingController
from aischeduler.kube.report.log_fields import object_fields
from aischeduler.kube.report.report_queue import REPORTS_IN_FLIGHT_MAX
from aischeduler.kube.report.reporter import Reporter
from aischeduler.kube.report.volcano_jobs import VolcanoJobs
from aischeduler.kube.watch import watched_resources
from aischeduler.kube.watch.device_resources import devices
from aischeduler.kube.watch.event_queue import EventQueue
from aischeduler.kube.watch.gang_resources import gang_resources
from aischeduler.kube.watch.pod_reader import PodReader
from aischeduler.kube.watch.pod_set_resources import pod_set_resources
from aischeduler.kube.watch.pre_eviction_reads import Reflectors, Refresher
from aischeduler.kube.watch.queue_resources import queue_resources
from aischeduler.kube.watch.reflector import Handlers, Reflector
from aischeduler.kube.watch.storage_resources import storage_resources
from aischeduler.kube.watch.watched_resources import D, UnreadableObject, WatchedResource
from aischeduler.kube.write.binder import Binder, BindHooks, bindings_in_flight_max
from aischeduler.kube.write.evictor import EVICTIONS_IN_FLIGHT_MAX, Evictor
from aischeduler.kube.write.hami_binds import HamiBinds
from aischeduler.kube.write.resizer import RESIZES_IN_FLIGHT_MAX, Resizer
from aischeduler.kube.write.volume_binder import VOLUMES_IN_FLIGHT_MAX, VolumeBinder
from aischeduler.model.actions import ObjectRef, Warn
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.events import DevicesListed
from aischeduler.model.gang import GangSource


class WatchErrors:
    """Handles the errors of all reflectors; `reporter` writes the events, only while this scheduler leads."""

    def __init__(self, log: FilteringBoundLogger, reporter: Reporter, leadership: Leadership) -> None:
        self._log = log
        self._reporter = reporter
        self._leadership = leadership

    def list_or_watch_failed(self, kind: str, error: ApiError) -> None:
        """Log that a list or a watch of this kind failed."""
        refused = error.status if isinstance(error, RefusedError) else 0
        if refused == HTTPStatus.FORBIDDEN:
            self._log.warning("permission missing", kind=kind, reason=str(error))
        elif isinstance(error, ResourceNotServedError) and kind != "Pool":
            self._log.info("kind not served", kind=kind, reason="no object of this kind exists; it is looked for again")
        elif isinstance(error, ResourceNotServedError):
            until_then = "until it is, all nodes and pods are in the default pool"
            self._log.warning("Pool definition missing", kind=kind, reason=f"{NOT_INSTALLED}; {until_then}")
        elif refused == HTTPStatus.GONE:
            self._log.info("listing again", kind=kind, reason=str(error))
        else:
            self._log.warning("list or watch failed", kind=kind, reason=str(error))

    def object_unreadable(self, found: UnreadableObject) -> None:
        """Log that an object cannot be read, and write the event."""
        about = ObjectRef(found.kind, found.name, found.uid, found.namespace)
        self._log.warning("object not readable", **object_fields(about), reason=found.message)
        if found.name and found.uid and self._leadership.leads:
            message = f"The scheduler cannot read this object: {found.message}"
            self._reporter.report_warning(Warn(about, EventReason.UNREADABLE, message))


NOT_NEEDED_SECONDS_MAX: Final = 30.0
"""How long the first list of pods waits for the lists of resources that are not needed."""


class Components(Struct, frozen=True):
    """The components; `pods` is the reflector of pods, which is also in `reflectors`."""

    reflectors: tuple[Reflector[Any], ...]
    pods: Reflector[PodDocument]
    workers: Workers
    connection_pools: tuple[ConnectionPool, ...]
    gang_owners: GangOwners
    volcano_jobs: VolcanoJobs
    scheduler: Scheduler

    def reflector_jobs(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """Return what runs each reflector, by name. Pods come after the objects of gangs: their owners say more."""
        jobs: dict[str, Callable[[], Awaitable[None]]] = {
            f"reflector of {reflector.resource.kind}": reflector.run for reflector in self.reflectors
        }
        return jobs | {f"reflector of {self.pods.resource.kind}": self._run_pods}

    async def _run_pods(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(NOT_NEEDED_SECONDS_MAX):
                for reflector in self.reflectors:
                    if not reflector.resource.needed:
                        await reflector.synced.wait()
        await self.pods.run()

    def apply(self, config: Config) -> None:
        """Apply the fields of a configuration that a running scheduler reloads; see `config.schema.RELOADED`."""
        for connections in self.connection_pools:
            connections.answer_seconds = config.request_timeout_seconds
        self.connection_pools[0].raise_limit(writes_max(config))
        self.workers.binder.set_in_flight_max(config.bind_in_flight)
        self.workers.reporter.set_event_rate(config.events.per_second, config.events.burst)
        self.scheduler.set_tenants(tenants_of(config))


def build(
    client: Client,
    connections: ConnectionPool,
    *,
    config: Config,
    timing: Timing,
    log: FilteringBoundLogger,
    event_queue: EventQueue,
    scheduler: Scheduler,
    leadership: Leadership,
    on_internal_error: OnInternalError,
    hooks: BindHooks | None = None,
) -> Components:
    """Build the components: reads go through `client`, Bindings, evictions and reports through `connections`.

    `on_internal_error` is called with each exception of the scheduler; `hooks` are what plugins do around Bindings, if
    any does something.
    """
    specs, kinds = SpecCache(), config.elastic.kinds
    reports = Reporter(connections, client, timing, log, controller=_reporting_controller(config), wall=time.time)
    errors = WatchErrors(log, reports, leadership)
    handlers = _handlers(event_queue, errors, Discovery(client, timing))
    event_queue.put(DevicesListed(listed=False))

    def reflector(resource: WatchedResource[D]) -> Reflector[D]:
        return Reflector(client, resource, handlers, timing)

    pods = reflector(watched_resources.pods(specs))
    namespaces, pools = reflector(watched_resources.namespaces()), reflector(watched_resources.pools(reports))
    nodes, budgets = reflector(watched_resources.nodes()), reflector(watched_resources.budgets())
    volcano = VolcanoJobs(client, config.scheduler_names, timing, log)
    gangs = tuple(map(reflector, gang_resources(specs.owners, volcano.pod_group_seen)))
    specs.owners.listed = _listed(gangs)
    queues, pod_sets = tuple(map(reflector, queue_resources(reports))), tuple(map(reflector, pod_set_resources(kinds)))
    read = Reflectors(pods, nodes, pools, budgets, namespaces, queues=queues, workloads=_workloads(*gangs, *pod_sets))
    reader = PodReader(client, pods, specs)
    workers = Workers(
        binder=Binder(
            connections,
            reader.read,
            timing,
            on_internal_error,
            in_flight=config.bind_in_flight,
            engine=scheduler,
            epoch=leadership.epoch,
            hooks=hooks,
            hami=HamiBinds(client, time.time) if config.hami else None,
        ),
        volumes=VolumeBinder(connections, timing, scheduler, on_internal_error),
        evictor=_evictor(config, connections, timing, scheduler, on_internal_error),
        resizer=Resizer(connections, timing, on_internal_error, collections_with(kinds)),
        reporter=reports,
        reader=reader,
        refresher=Refresher(client, read, timing, event_queue.put, log),
    )
    others = (reflector(devices()), *queues, *map(reflector, storage_resources()), *gangs, *pod_sets)
    return Components(
        reflectors=(namespaces, pools, nodes, budgets, *others, pods),
        pods=pods,
        workers=workers,
        connection_pools=(connections, client.connections),
        gang_owners=specs.owners,
        volcano_jobs=volcano,
        scheduler=scheduler,
    )


def _handlers(event_queue: EventQueue, errors: WatchErrors, discovery: Discovery) -> Handlers:
    return Handlers(
        event_queue.put,
        errors.object_unreadable,
        errors.list_or_watch_failed,
        event_queue.wait_for_room,
        discovery=discovery,
    )


def _evictor(
    config: Config,
    connections: ConnectionPool,
    timing: Timing,
    scheduler: Scheduler,
    on_internal_error: OnInternalError,
) -> Evictor:
    return Evictor(
        connections,
        timing,
        on_internal_error,
        controller=config.scheduler_name,
        honour_budgets=config.eviction is EvictionWay.EVICT,
        wall=time.time,
        engine=scheduler,
        collections=collections_with(config.elastic.kinds),
    )


def _workloads(*reflectors: Reflector[Any]) -> tuple[Reflector[Any], ...]:
    """Return those of these reflectors whose objects say what their pods do not say of their tenant."""
    return tuple(one for one in reflectors if one.resource.workload is not None or one.resource.kind == DAEMON_SET)


def _listed(gangs: tuple[Reflector[Any], ...]) -> dict[GangSource, Callable[[], bool]]:
    """Return how to know whether all Jobs and all JobSets are known."""
    owners = (GangSource.JOB, GangSource.JOB_SET)
    return {
        GangSource(reflector.resource.kind): reflector.current
        for reflector in gangs
        if reflector.resource.kind in owners
    }


def writes_max(config: Config) -> int:
    """Return how many Bindings, writes of volumes, evictions, sizes and reports may be in flight at once."""
    bindings = bindings_in_flight_max(config.bind_in_flight)
    others = VOLUMES_IN_FLIGHT_MAX + RESIZES_IN_FLIGHT_MAX
    return bindings + others + EVICTIONS_IN_FLIGHT_MAX + REPORTS_IN_FLIGHT_MAX


def _reporting_controller(config: Config) -> ReportingController:
    instance = f"{config.scheduler_name}-{socket.gethostname()}-{os.getpid()}"
    return ReportingController(config.scheduler_name, instance, collections_with(config.elastic.kinds))
