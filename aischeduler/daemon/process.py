"""The scheduler as a process: wires the engine to an API server and runs until it is told to stop.

Laws:
- Nothing is decided before everything was listed once, and, where schedulers are elected, before this one leads.
- Engine calls follow each other in one thread, in slices of about 5 ms; between a decision and its assumption there
  is no await.
- Whatever fails by a bug starts again after a while; the others go on.
- An API server that is too old is refused: the process exits with 1.
- On SIGTERM no new decision is taken, what is in flight is finished, and the process exits with 0.
- However it ends, the Lease is given back if nothing that was sent may still take effect.
"""

import asyncio
import gc
import os
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import structlog
from structlog.typing import FilteringBoundLogger

from aischeduler import __version__
from aischeduler.config.schema import Config, ConstraintRule, EvictionWay
from aischeduler.daemon.answer_batching import batch_answers
from aischeduler.daemon.leadership import elected
from aischeduler.daemon.pool_loops import SLICE_SECONDS, Job, Perform, PoolLoops, Spawn
from aischeduler.daemon.profile import profile_of
from aischeduler.daemon.server_check import check_server
from aischeduler.daemon.shutdown import finish, in_hand, newest_of_ours
from aischeduler.engine.scheduler import Scheduler
from aischeduler.kube import watched_resources
from aischeduler.kube.api_types import PodDocument
from aischeduler.kube.backoff import ExponentialBackoff, Timing
from aischeduler.kube.binder import Binder, BinderOptions
from aischeduler.kube.client import Client
from aischeduler.kube.connection_pool import ConnectionPool
from aischeduler.kube.decode_pod_spec import SpecCache
from aischeduler.kube.errors import AccessError, ApiError, RefusedError, ResourceNotServedError
from aischeduler.kube.event_messages import ReportingController
from aischeduler.kube.event_queue import EventQueue
from aischeduler.kube.evictor import EVICTIONS_IN_FLIGHT, EvictionOptions, Evictor
from aischeduler.kube.executor import Executor, Instruments, Workers
from aischeduler.kube.log_sampler import LogSampler, RefusalLog
from aischeduler.kube.pod_reader import PodReader
from aischeduler.kube.pool_crd import NOT_INSTALLED
from aischeduler.kube.pool_writes import RENEW_SECONDS
from aischeduler.kube.reflector import Handlers, Reflector
from aischeduler.kube.refresher import Reflectors, Refresher, Times
from aischeduler.kube.reporter import REPORTS_IN_FLIGHT_MAX, EventSource, Reporter
from aischeduler.kube.server_access import Server
from aischeduler.kube.watched_resources import UnreadableObject
from aischeduler.model.actions import ObjectRef, Warn
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.events import Event
from aischeduler.observability.health import pool_loop
from aischeduler.observability.observatory import Observatory
from aischeduler.observability.sources import Waiting

CHECK_SECONDS: Final = 2.0
"""How often the engine is asked to judge itself; while it decides it does so less often."""
NO_OUTCOME_SECONDS: Final = 120.0
"""A Binding that has had no outcome for so long says that Bindings make no progress."""
POOL_LOOP: Final = pool_loop("").strip()
RESTART_FIRST_SECONDS: Final = 0.5
RESTART_LONGEST_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Components:
    """What a running daemon is made of, for those who look on."""

    reflectors: tuple[Reflector[Any], ...]
    pods: Reflector[PodDocument]
    """The one of them that follows pods."""
    workers: Workers
    connection_pools: tuple[ConnectionPool, ...]


def _writes_max(config: Config) -> int:
    """Return how many Bindings, evictions and reports may be under way at once."""
    return config.bind_in_flight + EVICTIONS_IN_FLIGHT + REPORTS_IN_FLIGHT_MAX


class Daemon:
    """One scheduler for one cluster, until `stop` is set; `deciding` is set once decisions are taken.

    `components` is there from the start of `run` on. Metrics and health are served on `listener`, where there is one.
    """

    def __init__(
        self,
        server: Server,
        config: Config,
        stop: asyncio.Event,
        timing: Timing | None = None,
        listener: socket.socket | None = None,
    ) -> None:
        self.standing_by = asyncio.Event()
        self.deciding = asyncio.Event()
        self.components: Components | None = None
        self.scheduler = Scheduler(profile_of(config), run=secrets.token_hex(3))
        self._refused = ""
        """Why the API server cannot be used."""
        self._server = server
        self._config = config
        self._stop = stop
        self._log: FilteringBoundLogger = structlog.get_logger().bind()
        self._event_queue = EventQueue()
        self._timing = timing or Timing(time.monotonic, asyncio.sleep, secrets.SystemRandom())
        self._listener = listener
        refusals = RefusalLog(self._log, self._timing.clock)
        server.on_intercepted, server.on_credential_failure = refusals.intercepted, refusals.credential_failure
        self._seldom = LogSampler(self._timing.clock)
        self._executor: Executor | None = None
        self._leadership = elected(server, config, self._timing, self._log)
        self._observatory = Observatory(self.scheduler, self._timing.clock, self._unready, self._leads)

    async def run(self) -> None:
        """Schedule until told to stop; raises only what a new process has to mend."""
        self._log.info(
            "started",
            version=__version__,
            server=self._server.url,
            scheduler=self._config.scheduler_name,
            leader_election=self._config.leader_election.enabled,
        )
        fence = self._leadership.fence
        connections = ConnectionPool(self._server, _writes_max(self._config), fence=fence)
        try:
            async with Client(self._server, fence) as client:
                try:
                    async with asyncio.TaskGroup() as tasks:
                        await self._run(client, connections, tasks)
                finally:
                    await self._let_another_lead("")
        finally:
            await connections.close()
            await self._leadership.close()
            await self._server.close()
            gc.unfreeze()
        if self._refused:
            raise AccessError(self._refused)
        self._log.info("stopped")

    def apply(self, config: Config) -> None:
        """Take over what of a configuration a running scheduler can; see `config.schema.RELOADED`."""
        self._config = config
        components = self.components
        if components is None:
            return
        for connections in components.connection_pools:
            connections.answer_seconds = config.request_timeout_seconds
        components.connection_pools[0].raise_limit(_writes_max(config))
        components.workers.binder.set_in_flight_max(config.bind_in_flight)
        components.workers.reporter.set_event_rate(config.events.per_second, config.events.burst)

    async def _run(self, client: Client, connections: ConnectionPool, tasks: asyncio.TaskGroup) -> None:
        components = self.components = self._build(client, connections)
        self.apply(self._config)
        instruments = Instruments(self._bug, self._observatory.meter.ended, self._timing.clock)
        executor = self._executor = Executor(components.workers, self._event_queue.put, self._log, instruments)
        room = partial(self._room, components.workers.binder)
        loops = PoolLoops(self._observatory.engine, executor.perform, room, self._timing.clock, self._loops_failed)

        def begin(name: str, job: Job) -> asyncio.Task[None]:
            return tasks.create_task(self._restarting(name, job), name=name)

        executing = begin("executor", executor.run)
        following = [begin(f"reflector of {one.resource.kind}", one.run) for one in components.reflectors]
        jobs: dict[str, Job] = {
            "refresher": partial(
                components.workers.refresher.run, Times(time.time, components.workers.reporter.waiting_since), self._bug
            ),
            "intake": partial(self._take_in, loops, executor.perform),
            "answer batching": partial(batch_answers, components.workers.binder, partial(self._busy, loops)),
            "self-check": self._check,
            "renewals": partial(self._renew_statuses, components.workers.reporter),
        }
        following += [begin(name, job) for name, job in jobs.items()]
        renewing = begin("lease", self._leadership.keep)
        starting = begin("start", partial(self._start, client, components, loops, begin))
        async with self._pages(components):
            await self._stop.wait()
            binder, evictor = components.workers.binder.work_queue, components.workers.evictor.work_queue
            self._log.info("stopping", in_flight=binder.unfinished, evictions=evictor.unfinished)
            starting.cancel()
            loops.end()
            await finish(components.workers, self._log)
            executing.cancel()
            await asyncio.wait([starting, executing])
            elects = self._leadership.elects
            pods_seen = await newest_of_ours(components.workers, self.scheduler, self._timing) if elects else ""
            for task in (*following, renewing):
                task.cancel()
            await asyncio.wait([renewing])
            # Before the pages end: whoever still reads one delays no standby.
            await self._let_another_lead(pods_seen)

    def _busy(self, loops: PoolLoops) -> bool:
        """Say whether there is something to take in or to decide."""
        return loops.busy or bool(len(self._event_queue))

    async def _room(self, binder: Binder, pool: str) -> None:
        """Wait until the pool may decide more."""
        await self._observatory.vitals.hold(partial(binder.work_queue.wait_for_room, pool))

    def _build(self, client: Client, connections: ConnectionPool) -> Components:
        """Put together what talks to the API server."""
        specs, timing, config = SpecCache(), self._timing, self._config
        reports = Reporter(connections, client, timing, self._event_source(), self._log)
        handlers = Handlers(
            self._event_queue.put, partial(self._unreadable, reports), self._failed, self._event_queue.wait_for_room
        )
        pods = Reflector(client, watched_resources.pods(specs), handlers, timing)
        reader = PodReader(client, pods, specs)
        mandate = EvictionOptions(config.scheduler_name, config.eviction is EvictionWay.EVICT, time.time)
        namespaces = Reflector(client, watched_resources.namespaces(), handlers, timing)
        pools = Reflector(client, watched_resources.pools(reports), handlers, timing)
        nodes = Reflector(client, watched_resources.nodes(), handlers, timing)
        budgets = Reflector(client, watched_resources.budgets(), handlers, timing)
        watches = Reflectors(pods, nodes, pools, budgets, namespaces)
        terms = BinderOptions(config.bind_in_flight, self.scheduler, self._leadership.epoch)
        workers = Workers(
            Binder(connections, reader.read, timing, terms, self._bug),
            Evictor(connections, timing, mandate, self._bug),
            reports,
            reader,
            Refresher(client, watches, timing, self._event_queue.put, self._log),
        )
        holds = config.unsupported_constraints is ConstraintRule.HOLD
        kinds = (watched_resources.claims(), watched_resources.volumes()) if holds else ()
        storage: tuple[Reflector[Any], ...] = tuple(Reflector(client, one, handlers, timing) for one in kinds)
        reflectors: tuple[Reflector[Any], ...] = (namespaces, pools, nodes, budgets, *storage, pods)
        return Components(reflectors, pods, workers, (connections, client.connections))

    async def _start(self, client: Client, components: Components, loops: PoolLoops, begin: Spawn) -> None:
        """Let decisions begin once everything was listed and taken in, and we lead; or end with one that is too old."""
        self._refused = await check_server(client, self._server.url, self._timing, self._log)
        if self._refused:
            self._stop.set()
            return
        reflectors = components.reflectors
        for reflector in reflectors:
            await reflector.synced.wait()
        await self._event_queue.wait_empty()
        gc.freeze()  # what was listed stays; collections need not walk over it
        gc.enable()
        self._log.info("synced", **{reflector.resource.kind.lower() + "s": len(reflector) for reflector in reflectors})
        self.standing_by.set()
        await self._leadership.begin(components.workers.reader, components.reflectors)
        await self._event_queue.wait_empty()
        loops.begin(begin)
        self.deciding.set()

    async def _take_in(self, loops: PoolLoops, perform: Perform) -> None:
        """Let the engine observe what was heard, a slice at a time."""
        clock = self._timing.clock
        while True:
            await self._event_queue.wait_not_empty()
            end = clock() + SLICE_SECONDS
            while (event := self._event_queue.take()) is not None:
                self._observe(event)
                if clock() >= end:
                    break
            if self.standing_by.is_set() and not self.deciding.is_set():
                self._stand_by(perform)
            loops.wake_soon()
            await asyncio.sleep(0)

    def _observe(self, event: Event) -> None:
        try:
            self.scheduler.observe(event, self._timing.clock())
        except Exception as error:  # noqa: BLE001 - an event that the engine cannot take must not stop the others
            kind = type(event).__name__  # the engine has counted it
            left_out = self._seldom.sample((kind, type(error)))
            if left_out is not None:
                self._log.error("event not taken in", kind=kind, left_out=left_out, exc_info=error)

    def _stand_by(self, perform: Perform) -> None:
        """Let time act on the engine of a scheduler that does not lead."""
        try:
            perform(self.scheduler.stand_by(self._timing.clock()))
        except Exception as error:  # noqa: BLE001 - a bug must not stop what is heard
            self._bug("standby", error)

    async def _check(self) -> None:
        """Let the engine judge itself from time to time; what is broken is a bug of ours."""
        while True:
            await self._timing.sleep(CHECK_SECONDS)
            violations = self.scheduler.self_check(self._timing.clock())
            told = self.scheduler.digest() if violations else {}
            for violation in violations:
                self._log.error("invariant violated", invariant=violation.name, reason=violation.message, **told)

    async def _renew_statuses(self, reports: Reporter) -> None:
        """Say from time to time that the statuses of Pools hold."""
        while True:
            await self._timing.sleep(RENEW_SECONDS)
            reports.renew_statuses()

    async def _let_another_lead(self, pods_seen: str) -> None:
        """Give the Lease back, unless something of ours is under way; the second time changes nothing."""
        if self.components is not None:
            await self._leadership.give_back(in_hand(self.components.workers), pods_seen)

    async def _restarting(self, name: str, job: Job) -> None:
        """Run a job to its end: what fails starts again after a while."""
        backoff = ExponentialBackoff(self._timing, RESTART_FIRST_SECONDS, RESTART_LONGEST_SECONDS)
        while True:
            try:
                return await job()
            except Exception as error:  # noqa: BLE001 - a bug in one loop must not stop the others
                seconds = backoff.next_seconds()
                self._observatory.vitals.failed(name)
                self._bug(name, error, again_in_seconds=round(seconds, 1))
                await self._timing.sleep(seconds)

    def _event_source(self) -> EventSource:
        instance = f"{self._config.scheduler_name}-{socket.gethostname()}-{os.getpid()}"
        return EventSource(ReportingController(self._config.scheduler_name, instance), time.time)

    def _unreadable(self, reports: Reporter, found: UnreadableObject) -> None:
        self._log.warning(
            "object not readable",
            kind=found.kind,
            name=found.name,
            namespace=found.namespace,
            uid=found.uid,
            reason=found.message,
        )
        if found.name and found.uid and self._leadership.leads:
            about = ObjectRef(found.kind, found.name, found.uid, found.namespace)
            text = f"The scheduler cannot read this object: {found.message}"
            reports.report_warning(Warn(about, EventReason.UNREADABLE, text))

    def _pages(self, components: Components) -> AbstractAsyncContextManager[None]:
        """Return a context in which metrics and health are served."""
        workers = components.workers
        reflectors = {reflector.resource.kind: reflector for reflector in components.reflectors}
        backlogs: dict[str, Callable[[], int]] = {
            "events": lambda: len(self._event_queue),
            "binds": lambda: workers.binder.work_queue.unfinished,
            "evictions": lambda: workers.evictor.work_queue.unfinished,
        }
        waiting = Waiting(backlogs, workers.binder.oldest_seconds)
        return self._observatory.pages(self._listener, workers.reporter.counts, reflectors, waiting)

    def _leads(self) -> bool:
        return self._leadership.leads

    def _unready(self) -> str:
        """Return why no decisions are taken, or why they are not those that were meant, or nothing."""
        if self._stop.is_set():
            return "stopping"
        reflectors = self.components.reflectors if self.components is not None else ()
        if self.standing_by.is_set():
            return NOT_INSTALLED if any(reflector.not_served for reflector in reflectors) else self._no_progress()
        missing = [reflector.resource.kind for reflector in reflectors if not reflector.synced.is_set()]
        return f"not listed yet: {', '.join(missing)}" if missing else "what was listed is not taken in yet"

    def _loops_failed(self, job: str, error: Exception) -> None:
        self._observatory.vitals.failed(job)
        self._bug(job, error)

    def _no_progress(self) -> str:
        """Return that Bindings have had no outcome for long and what is known of why, or nothing."""
        components = self.components
        seconds = components.workers.binder.oldest_seconds() if components is not None else 0.0
        if components is None or self._executor is None or seconds <= NO_OUTCOME_SECONDS:
            return ""
        unreadable = self._executor.pod_read_failure
        why = f"; pods cannot be read: {unreadable}" if unreadable else ""
        return f"Bindings make no progress: the oldest has had no outcome for {seconds:.0f} seconds{why}"

    def _bug(self, job: str, error: Exception, **more: Any) -> None:
        """Count a bug of ours, and log it with its traceback: one a minute of each kind at each place."""
        self._observatory.meter.internal_errors[POOL_LOOP if job.startswith(f"{POOL_LOOP} ") else job] += 1
        left_out = self._seldom.sample((job, type(error)))
        if left_out is not None:
            self._log.error("failed", job=job, left_out=left_out, **more, exc_info=error)

    def _failed(self, kind: str, error: ApiError) -> None:
        if isinstance(error, RefusedError) and error.status == HTTPStatus.GONE:
            self._log.info("listing again", kind=kind, reason=str(error))
        elif isinstance(error, ResourceNotServedError):
            what_follows = "until then all nodes and pods are in the default pool"
            self._log.warning("no definition", kind=kind, reason=f"{NOT_INSTALLED}; {what_follows}")
        elif isinstance(error, RefusedError) and error.status == HTTPStatus.FORBIDDEN:
            self._log.warning("permission missing", kind=kind, reason=str(error))
        else:
            self._log.warning("list or watch failed", kind=kind, reason=str(error))
