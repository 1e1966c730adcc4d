"""The scheduler as a process: connects the engine to an API server and runs until it is told to stop.

Invariants:
- The scheduler decides only after all resources were listed once and, with leader election, only while it leads.
- The engine's `now` is in unix seconds, as the times of objects are, and never goes back.
- Engine calls follow each other in one thread, in slices of about 5 ms; there is no await between a decision and its
  assumption.
- A job that an exception ends is started again after a while; the other jobs continue.
- If the API server is too old, the process exits with status 1.
- On SIGTERM no new decision is made, requests in flight are finished, and the process exits with status 0.
- Whatever ends the process in order, it releases the Lease unless a request that was sent may still take effect.
"""

import asyncio
import gc
import secrets
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final, get_args

import structlog
from msgspec.structs import asdict
from structlog.typing import FilteringBoundLogger

from aischeduler import __version__
from aischeduler.config.schema import Config
from aischeduler.daemon.bind_hooks import hooked_plugins, hooks_of
from aischeduler.daemon.components import Components, build, writes_max
from aischeduler.daemon.configured_profile import profile_of
from aischeduler.daemon.journal_file import JournalFile
from aischeduler.daemon.leadership import elected
from aischeduler.daemon.pool_loops import SLICE_SECONDS, Job, Perform, PoolLoops, Spawn, batch_answers
from aischeduler.daemon.shutdown import finish, newest_own_version, requests_in_flight
from aischeduler.daemon.startup import check_server, wait_for_sync
from aischeduler.engine.event_lines import as_line
from aischeduler.engine.internal_errors import names_of, plugin_of
from aischeduler.engine.journal import JournaledScheduler
from aischeduler.engine.profile import Profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.kube.access.server import Server
from aischeduler.kube.crds import NOT_INSTALLED
from aischeduler.kube.executor import Executor
from aischeduler.kube.http.backoff import ExponentialBackoff, Timing, unix_clock
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.connection_pool import ConnectionPool
from aischeduler.kube.http.errors import AccessError
from aischeduler.kube.report.log_sampler import LogSampler, RefusalLog
from aischeduler.kube.report.reporter import Reporter
from aischeduler.kube.report.status_writes import RENEW_SECONDS
from aischeduler.kube.watch.event_queue import EventQueue
from aischeduler.kube.write.binder import Binder
from aischeduler.model.actions import Action
from aischeduler.model.events import Event
from aischeduler.observability.metrics import MetricsRecorder, PoolLabels, Sources
from aischeduler.observability.plugin_watch import PluginWatch
from aischeduler.observability.telemetry import Telemetry, tenant_queues

CHECK_SECONDS: Final = 2.0
"""How often the engine checks its invariants; while pools have something to decide, it checks them less often."""
NO_OUTCOME_SECONDS: Final = 120.0
"""The scheduler is not ready once the oldest Binding has had no outcome for so long."""
OVERDUE_SECONDS: Final = 1.0
"""How often gangs are looked for whose Job or JobSet was not seen."""
POOL_LOOP: Final = "pool"
PARTS: Final = (
    "binder",
    "cluster",
    "evictor",
    "outcome of a Binding",
    "outcome of a resize",
    "outcome of an eviction",
    "outcome of volumes",
    "pod reader",
    POOL_LOOP,
    "refresher",
    "reporter",
    "resizer",
    "search for work",
    "standby",
    "volume binder",
    *(f"perform {action.__name__}" for action in get_args(Action)),
)
"""The parts of the program beside the jobs that report exceptions."""
RESTART_FIRST_SECONDS: Final = 0.5
RESTART_LONGEST_SECONDS: Final = 30.0


class Daemon:
    """One scheduler for one cluster, until `stop` is set; `deciding` is set once decisions are made.

    Metrics and health are served on the `listener`, if there is one. `components` is set from the start of `run` on.
    `more_jobs` run beside its own, and are started again as they are.
    """

    def __init__(
        self,
        server: Server,
        config: Config,
        stop: asyncio.Event,
        timing: Timing | None = None,
        *,
        listener: socket.socket | None = None,
        journal: JournalFile | None = None,
    ) -> None:
        self.standing_by = asyncio.Event()
        self.deciding = asyncio.Event()
        self.components: Components | None = None
        self.more_jobs: dict[str, Job] = {}
        self._unusable = ""
        """Why the API server cannot be used."""
        self._server = server
        self._config = config
        self._stop = stop
        self._log: FilteringBoundLogger = structlog.get_logger().bind()
        self._event_queue = EventQueue()
        self._timing = timing or Timing(unix_clock(), asyncio.sleep, secrets.SystemRandom())
        self._listener, self._journal = listener, journal
        refusals = RefusalLog(self._log, self._timing.clock)
        server.on_intercepted, server.on_credential_failure = refusals.intercepted, refusals.credential_failure
        self._sampler = LogSampler(self._timing.clock)
        self._executor: Executor | None = None
        self._leadership = elected(server, config, self._timing, self._log)
        recorder = MetricsRecorder(PoolLabels())
        profile = PluginWatch(recorder, self._timing.clock, self._log).measured(profile_of(config))
        hooked = (f"plugin {name}" for name in hooked_plugins(profile))
        recorder.expect((*PARTS, *hooked), names_of(profile))
        self.scheduler = _scheduler(profile, journal)
        self._telemetry = Telemetry(self.scheduler, recorder, self._timing.clock, self._log, self._unready)

    async def run(self) -> None:
        """Schedule until told to stop; raises AccessError where the API server cannot be used."""
        self._log.info(
            "started",
            version=__version__,
            server=self._server.url,
            scheduler=self._config.scheduler_name,
            leader_election=self._config.leader_election.enabled,
        )
        for profile in self._config.profiles:
            if profile.percentage_of_nodes_to_score is not None:
                name = profile.scheduler_name or self._config.scheduler_name
                self._log.info("percentageOfNodesToScore has no effect: all nodes are looked at", profile=name)
        fence = self._leadership.fence
        connections = ConnectionPool(self._server, writes_max(self._config), fence=fence)
        try:
            async with Client(self._server, fence) as client:
                try:
                    async with asyncio.TaskGroup() as tasks:
                        await self._run(client, connections, tasks)
                finally:
                    await self._release_lease("")
        finally:
            await connections.close()
            await self._leadership.close()
            await self._server.close()
            if self._journal is not None:
                self._journal.close()
            gc.unfreeze()
        if self._unusable:
            raise AccessError(self._unusable)
        self._log.info("stopped")

    def apply(self, config: Config) -> None:
        """Apply the fields of a configuration that a running scheduler reloads; see `config.schema.RELOADED`."""
        self._config = config
        if self.components is not None:
            self.components.apply(config)

    async def _run(self, client: Client, connections: ConnectionPool, tasks: asyncio.TaskGroup) -> None:
        """Run all jobs until told to stop; then finish the requests in flight, end the jobs, and release the Lease."""
        on_error, timing = self._on_internal_error, self._timing
        components = self.components = self._build(client, connections)
        components.apply(self._config)
        workers, telemetry = components.workers, self._telemetry
        executor = self._executor = Executor(
            workers,
            self._event_queue.put,
            self._log,
            on_error,
            on_outcome=telemetry.recorder.record_outcome,
            clock=timing.clock,
        )
        wait_for_room = partial(self._wait_for_room, workers.binder)
        loops = PoolLoops(telemetry.scheduler, executor.perform, wait_for_room, timing.clock, self._on_loops_failure)

        def begin(name: str, job: Job) -> asyncio.Task[None]:
            if not name.startswith(f"{POOL_LOOP} "):
                telemetry.recorder.expect((name,), ())
            return tasks.create_task(self._restarting(name, job), name=name)

        executor_task, leadership = begin("executor", executor.run), self._leadership
        jobs: dict[str, Job] = components.reflector_jobs() | {
            "refresher": partial(workers.refresher.run, on_error),
            "watch events": partial(self._observe_events, loops, executor.perform),
            **self._gang_jobs(components),
            "answer batching": partial(batch_answers, workers.binder, partial(self._busy, loops)),
            "self-check": self._check,
            "pool status renewal": partial(self._renew_statuses, workers.reporter),
            "pool status log": partial(telemetry.pool_status_log.run, timing.sleep),
            "queue status log": partial(telemetry.queue_status_log.run, timing.sleep),
            **self.more_jobs,
        }
        if self._journal is not None:
            jobs["journal"] = self._journal.run
        job_tasks = [begin(name, job) for name, job in jobs.items()]
        lease_task = begin("lease renewal", leadership.renew)
        start_task = begin("start", partial(self._start, client, components, loops, begin))
        try:
            async with self._pages(components):
                await self._stop.wait()
                binds, evictions = workers.binder.work_queue.unfinished, workers.evictor.work_queue.unfinished
                self._log.info("stopping", in_flight=binds, evictions=evictions)
                start_task.cancel()
                loops.end()
                await finish(workers, self._log)
                executor_task.cancel()
                await asyncio.wait([start_task, executor_task])
                pods_seen = await newest_own_version(workers, self.scheduler, timing) if leadership.elects else ""
                for task in (*job_tasks, lease_task):
                    task.cancel()
                await asyncio.wait([lease_task])
                # Before the HTTP server ends: a client that still reads a page must not delay a standby.
                await self._release_lease(pods_seen)
        finally:
            loops.end()  # a cancelled daemon leaves no timer that searches for work

    def _build(self, client: Client, connections: ConnectionPool) -> Components:
        on_error, errors = self._on_internal_error, self._telemetry.recorder.plugin_errors
        return build(
            client,
            connections,
            config=self._config,
            timing=self._timing,
            log=self._log,
            event_queue=self._event_queue,
            scheduler=self.scheduler,
            leadership=self._leadership,
            on_internal_error=on_error,
            hooks=hooks_of(self.scheduler.cluster.profile, errors, on_error, self._leadership.fence),
        )

    def _busy(self, loops: PoolLoops) -> bool:
        """Return whether an event waits to be observed, or a pool has something to decide."""
        return loops.busy or bool(len(self._event_queue))

    async def _wait_for_room(self, binder: Binder, pool: str) -> None:
        """Wait until few enough Bindings of the pool are in flight."""
        await self._telemetry.health.wait_for_room(partial(binder.work_queue.wait_for_room, pool))

    async def _start(self, client: Client, components: Components, loops: PoolLoops, begin: Spawn) -> None:
        """Begin to decide once all resources are listed and this scheduler leads; stop if the API server is too old."""
        self._unusable = await check_server(client, self._server.url, self._timing, self._log)
        if self._unusable:
            self._stop.set()
            return
        await wait_for_sync(components.reflectors, self._event_queue, self._log)
        self.standing_by.set()
        await self._leadership.begin(components.workers.reader, components.reflectors)
        await self._event_queue.wait_empty()
        loops.begin(begin)
        self.deciding.set()

    async def _observe_events(self, loops: PoolLoops, perform: Perform) -> None:
        """Let the engine observe the watch events, a slice at a time."""
        clock = self._timing.clock
        while True:
            await self._event_queue.wait_not_empty()
            now = clock()
            while (event := self._event_queue.take()) is not None:
                self._observe(event, now)
                if clock() >= now + SLICE_SECONDS:
                    break
            if self.standing_by.is_set() and not self.deciding.is_set():
                self._stand_by(perform)
            loops.wake_soon()
            await asyncio.sleep(0)

    def _observe(self, event: Event, now: float) -> None:
        try:
            self.scheduler.observe(event, now)
        except Exception as error:  # noqa: BLE001 - an exception about one event must not stop the others
            kind = as_line(event)[0]  # the engine has counted the error
            left_out = self._sampler.sample((kind, type(error)))
            if left_out is not None:
                plugin = plugin_of(self.scheduler.cluster.profile, error)
                named = {"plugin": plugin} if plugin else {}
                self._log.error("event not processed", kind=kind, **named, left_out=left_out, exc_info=error)

    def _stand_by(self, perform: Perform) -> None:
        """Let the engine of a standby do what is due."""
        try:
            perform(self.scheduler.stand_by(self._timing.clock()))
        except Exception as error:  # noqa: BLE001 - a bug must not stop the watch events
            self._on_internal_error("standby", error)

    async def _check(self) -> None:
        """Let the engine check its invariants from time to time; a violation is a bug."""
        while True:
            await self._timing.sleep(CHECK_SECONDS)
            violations = self.scheduler.self_check(self._timing.clock())
            digest = self.scheduler.digest() if violations else {}
            for violation in violations:
                self._log.error("invariant violated", invariant=violation.name, reason=violation.message, **digest)

    def _gang_jobs(self, components: Components) -> dict[str, Job]:
        """Return the jobs that concern gangs alone."""
        return {
            "owners of gangs": partial(self._release_gangs, components),
            "admission of Volcano Jobs": partial(self._admit, components),
        }

    async def _release_gangs(self, components: Components) -> None:
        """Let pods go on whose Job or JobSet was not seen for long."""
        while True:
            await self._timing.sleep(OVERDUE_SECONDS)
            for event in components.gang_owners.overdue(self._timing.clock()):
                self._event_queue.put(event)

    async def _admit(self, components: Components) -> None:
        """Let Volcano's controller create pods, while this scheduler decides."""
        await self.deciding.wait()
        await components.volcano_jobs.run()

    async def _renew_statuses(self, reports: Reporter) -> None:
        """Renew the statuses of Pools and Queues from time to time."""
        while True:
            await self._timing.sleep(RENEW_SECONDS)
            reports.renew_statuses()

    async def _release_lease(self, pods_seen: str) -> None:
        """Release the Lease, unless a request that was sent may still take effect; a second call changes nothing."""
        if self.components is not None:
            await self._leadership.release(requests_in_flight(self.components.workers), pods_seen)

    async def _restarting(self, name: str, job: Job) -> None:
        """Run a job to its end; start it again after a while if an exception ends it."""
        backoff = ExponentialBackoff(self._timing, RESTART_FIRST_SECONDS, RESTART_LONGEST_SECONDS)
        while True:
            try:
                return await job()
            except Exception as error:  # noqa: BLE001 - a bug in one job must not stop the others
                seconds = backoff.next_seconds()
                self._telemetry.health.failed(name)
                self._on_internal_error(name, error, again_in_seconds=round(seconds, 1))
                await self._timing.sleep(seconds)

    def _pages(self, components: Components) -> AbstractAsyncContextManager[None]:
        """Return a context during which metrics and health are served."""
        return self._telemetry.serving(self._listener, self.sources(components))

    def sources(self, components: Components) -> Sources:
        """Return the parts that have numbers for the metrics."""
        workers = components.workers
        backlogs: dict[str, Callable[[], int]] = {
            "events": lambda: len(self._event_queue),
            "binds": lambda: workers.binder.work_queue.unfinished,
            "evictions": lambda: workers.evictor.work_queue.unfinished,
        }
        return Sources(
            engine=self.scheduler,
            reports=lambda: asdict(workers.reporter.counts),
            reflectors={reflector.resource.kind: reflector for reflector in components.reflectors},
            leads=lambda: self._leadership.leads,
            backlogs=backlogs,
            oldest_binding=workers.binder.oldest_seconds,
            queues=partial(tenant_queues, self.scheduler),
        )

    def _unready(self) -> str:
        """Return why the daemon makes no decisions, or why they may be wrong; empty if it is ready."""
        if self._stop.is_set():
            return "stopping"
        reflectors = self.components.reflectors if self.components is not None else ()
        if self.standing_by.is_set():
            no_pools = any(reflector.not_served and reflector.resource.needed for reflector in reflectors)
            return NOT_INSTALLED if no_pools else self._no_progress()
        missing = [reflector.resource.kind for reflector in reflectors if not reflector.synced.is_set()]
        return f"not listed yet: {', '.join(missing)}" if missing else "the listed objects are not processed yet"

    def _on_loops_failure(self, job: str, error: Exception) -> None:
        self._telemetry.health.failed(job)
        self._on_internal_error(job, error)

    def _no_progress(self) -> str:
        """Return that a Binding has had no outcome for long, with the known cause; empty if none has waited long."""
        components = self.components
        seconds = components.workers.binder.oldest_seconds() if components is not None else 0.0
        if components is None or self._executor is None or seconds <= NO_OUTCOME_SECONDS:
            return ""
        unreadable = self._executor.pod_read_failure
        why = f"; pods cannot be read: {unreadable}" if unreadable else ""
        return f"Bindings make no progress: the oldest has had no outcome for {seconds:.0f} seconds{why}"

    def _on_internal_error(self, job: str, error: Exception, **more: Any) -> None:
        """Count an exception, and log its traceback: once a minute for each type of exception in each job."""
        self._telemetry.recorder.internal_errors[POOL_LOOP if job.startswith(f"{POOL_LOOP} ") else job] += 1
        left_out = self._sampler.sample((job, type(error)))
        if left_out is not None:
            self._log.error("job failed", job=job, left_out=left_out, **more, exc_info=error)


def _scheduler(profile: Profile, journal: JournalFile | None) -> Scheduler:
    run = secrets.token_hex(3)
    return Scheduler(profile, run) if journal is None else JournaledScheduler(profile, run, journal.write)
