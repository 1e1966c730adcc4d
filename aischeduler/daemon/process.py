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
from aischeduler.daemon.acquaintance import meet
from aischeduler.daemon.answer_batching import batch_answers
from aischeduler.daemon.ending import finish, in_hand, newest_of_ours
from aischeduler.daemon.leadership import elected
from aischeduler.daemon.pool_loops import SLICE_SECONDS, Job, Perform, PoolLoops, Spawn
from aischeduler.daemon.profile import profile_of
from aischeduler.engine.scheduler import Scheduler
from aischeduler.kube import resources
from aischeduler.kube.auth import Server
from aischeduler.kube.binder import Binder, BindTerms
from aischeduler.kube.client import Client
from aischeduler.kube.crds import NOT_INSTALLED
from aischeduler.kube.documents import PodDocument
from aischeduler.kube.errors import AccessError, ApiError, RefusedError, UndefinedError
from aischeduler.kube.evictor import IN_FLIGHT as EVICTIONS_IN_FLIGHT
from aischeduler.kube.evictor import Evictor, Mandate
from aischeduler.kube.executor import Crew, Executor, Instruments
from aischeduler.kube.inbox import Inbox
from aischeduler.kube.notes import Reporter
from aischeduler.kube.pace import Backoff, Pace
from aischeduler.kube.podreader import PodReader
from aischeduler.kube.podspec import SpecCache
from aischeduler.kube.pool_requests import RENEW_SECONDS
from aischeduler.kube.reflector import Ears, Reflector
from aischeduler.kube.refresher import Refresher, Times, Watches
from aischeduler.kube.refusals import Refusals, Seldom
from aischeduler.kube.reports import IN_FLIGHT_MAX, Reports, Voice
from aischeduler.kube.resources import Unreadable
from aischeduler.kube.wire import Wire
from aischeduler.model.actions import ObjectRef, Warn
from aischeduler.model.events import Event
from aischeduler.model.reasons import EventReason
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
class Works:
    """What a running daemon is made of, for those who look on."""

    reflectors: tuple[Reflector[Any], ...]
    pods: Reflector[PodDocument]
    """The one of them that follows pods."""
    crew: Crew
    wires: tuple[Wire, ...]


def _writes_max(config: Config) -> int:
    """Return how many Bindings, evictions and reports may be under way at once."""
    return config.bind_in_flight + EVICTIONS_IN_FLIGHT + IN_FLIGHT_MAX


class Daemon:
    """One scheduler for one cluster, until `stop` is set; `deciding` is set once decisions are taken.

    `works` is there from the start of `run` on. Metrics and health are served on `listener`, where there is one.
    """

    def __init__(
        self,
        server: Server,
        config: Config,
        stop: asyncio.Event,
        pace: Pace | None = None,
        listener: socket.socket | None = None,
    ) -> None:
        self.standing_by = asyncio.Event()
        self.deciding = asyncio.Event()
        self.works: Works | None = None
        self.scheduler = Scheduler(profile_of(config), run=secrets.token_hex(3))
        self._refused = ""
        """Why the API server cannot be used."""
        self._server = server
        self._config = config
        self._stop = stop
        self._log: FilteringBoundLogger = structlog.get_logger().bind()
        self._inbox = Inbox()
        self._pace = pace or Pace(time.monotonic, asyncio.sleep, secrets.SystemRandom())
        self._listener = listener
        refusals = Refusals(self._log, self._pace.clock)
        server.intercepted, server.troubled = refusals.intercepted, refusals.troubled
        self._seldom = Seldom(self._pace.clock)
        self._executor: Executor | None = None
        self._leadership = elected(server, config, self._pace, self._log)
        self._observatory = Observatory(self.scheduler, self._pace.clock, self._unready, self._leads)

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
        wire = Wire(self._server, _writes_max(self._config), fence=fence)
        try:
            async with Client(self._server, fence) as client:
                try:
                    async with asyncio.TaskGroup() as tasks:
                        await self._run(client, wire, tasks)
                finally:
                    await self._let_another_lead("")
        finally:
            await wire.close()
            await self._leadership.close()
            await self._server.close()
            gc.unfreeze()
        if self._refused:
            raise AccessError(self._refused)
        self._log.info("stopped")

    def apply(self, config: Config) -> None:
        """Take over what of a configuration a running scheduler can; see `config.schema.RELOADED`."""
        self._config = config
        works = self.works
        if works is None:
            return
        for wire in works.wires:
            wire.answer_seconds = config.request_timeout_seconds
        works.wires[0].widen(_writes_max(config))
        works.crew.binder.bound(config.bind_in_flight)
        works.crew.reports.limit(config.events.per_second, config.events.burst)

    async def _run(self, client: Client, wire: Wire, tasks: asyncio.TaskGroup) -> None:
        works = self.works = self._build(client, wire)
        self.apply(self._config)
        instruments = Instruments(self._bug, self._observatory.meter.ended, self._pace.clock)
        executor = self._executor = Executor(works.crew, self._inbox.put, self._log, instruments)
        room = partial(self._room, works.crew.binder)
        loops = PoolLoops(self._observatory.engine, executor.perform, room, self._pace.clock, self._loops_failed)

        def begin(name: str, job: Job) -> asyncio.Task[None]:
            return tasks.create_task(self._restarting(name, job), name=name)

        executing = begin("executor", executor.run)
        following = [begin(f"reflector of {one.resource.kind}", one.run) for one in works.reflectors]
        jobs: dict[str, Job] = {
            "refresher": partial(works.crew.refresher.run, Times(time.time, works.crew.reports.since), self._bug),
            "intake": partial(self._take_in, loops, executor.perform),
            "answer batching": partial(batch_answers, works.crew.binder, partial(self._busy, loops)),
            "self-check": self._check,
            "renewals": partial(self._renew_statuses, works.crew.reports),
        }
        following += [begin(name, job) for name, job in jobs.items()]
        renewing = begin("lease", self._leadership.keep)
        starting = begin("start", partial(self._start, client, works, loops, begin))
        async with self._pages(works):
            await self._stop.wait()
            binder, evictor = works.crew.binder.backlog, works.crew.evictor.backlog
            self._log.info("stopping", in_flight=binder.unfinished, evictions=evictor.unfinished)
            starting.cancel()
            loops.end()
            await finish(works.crew, self._log)
            executing.cancel()
            await asyncio.wait([starting, executing])
            pods_seen = await newest_of_ours(works.crew, self.scheduler, self._pace) if self._leadership.elects else ""
            for task in (*following, renewing):
                task.cancel()
            await asyncio.wait([renewing])
            # Before the pages end: whoever still reads one delays no standby.
            await self._let_another_lead(pods_seen)

    def _busy(self, loops: PoolLoops) -> bool:
        """Say whether there is something to take in or to decide."""
        return loops.busy or bool(len(self._inbox))

    async def _room(self, binder: Binder, pool: str) -> None:
        """Wait until the pool may decide more."""
        await self._observatory.vitals.hold(partial(binder.backlog.room, pool))

    def _build(self, client: Client, wire: Wire) -> Works:
        """Put together what talks to the API server."""
        specs, pace, config = SpecCache(), self._pace, self._config
        reports = Reports(wire, client, pace, self._voice(), self._log)
        ears = Ears(self._inbox.put, partial(self._unreadable, reports), self._failed, self._inbox.room)
        pods = Reflector(client, resources.pods(specs), ears, pace)
        reader = PodReader(client, pods, specs)
        mandate = Mandate(config.scheduler_name, config.eviction is EvictionWay.EVICT, time.time)
        namespaces = Reflector(client, resources.namespaces(), ears, pace)
        pools = Reflector(client, resources.pools(reports), ears, pace)
        nodes = Reflector(client, resources.nodes(), ears, pace)
        budgets = Reflector(client, resources.budgets(), ears, pace)
        watches = Watches(pods, nodes, pools, budgets, namespaces)
        terms = BindTerms(config.bind_in_flight, self.scheduler, self._leadership.epoch)
        crew = Crew(
            Binder(wire, reader.read, pace, terms, self._bug),
            Evictor(wire, pace, mandate, self._bug),
            reports,
            reader,
            Refresher(client, watches, pace, self._inbox.put, self._log),
        )
        holds = config.unsupported_constraints is ConstraintRule.HOLD
        kinds = (resources.claims(), resources.volumes()) if holds else ()
        storage: tuple[Reflector[Any], ...] = tuple(Reflector(client, one, ears, pace) for one in kinds)
        reflectors: tuple[Reflector[Any], ...] = (namespaces, pools, nodes, budgets, *storage, pods)
        return Works(reflectors, pods, crew, (wire, client.wire))

    async def _start(self, client: Client, works: Works, loops: PoolLoops, begin: Spawn) -> None:
        """Let decisions begin once everything was listed and taken in, and we lead; or end with one that is too old."""
        self._refused = await meet(client, self._server.url, self._pace, self._log)
        if self._refused:
            self._stop.set()
            return
        reflectors = works.reflectors
        for reflector in reflectors:
            await reflector.synced.wait()
        await self._inbox.emptied()
        gc.freeze()  # what was listed stays; collections need not walk over it
        gc.enable()
        self._log.info("synced", **{reflector.resource.kind.lower() + "s": len(reflector) for reflector in reflectors})
        self.standing_by.set()
        await self._leadership.begin(works.crew.reader, works.reflectors)
        await self._inbox.emptied()
        loops.begin(begin)
        self.deciding.set()

    async def _take_in(self, loops: PoolLoops, perform: Perform) -> None:
        """Let the engine observe what was heard, a slice at a time."""
        clock = self._pace.clock
        while True:
            await self._inbox.filled()
            end = clock() + SLICE_SECONDS
            while (event := self._inbox.take()) is not None:
                self._observe(event)
                if clock() >= end:
                    break
            if self.standing_by.is_set() and not self.deciding.is_set():
                self._stand_by(perform)
            loops.wake_soon()
            await asyncio.sleep(0)

    def _observe(self, event: Event) -> None:
        try:
            self.scheduler.observe(event, self._pace.clock())
        except Exception as error:  # noqa: BLE001 - an event that the engine cannot take must not stop the others
            kind = type(event).__name__  # the engine has counted it
            left_out = self._seldom.left_out((kind, type(error)))
            if left_out is not None:
                self._log.error("event not taken in", kind=kind, left_out=left_out, exc_info=error)

    def _stand_by(self, perform: Perform) -> None:
        """Let time act on the engine of a scheduler that does not lead."""
        try:
            perform(self.scheduler.stand_by(self._pace.clock()))
        except Exception as error:  # noqa: BLE001 - a bug must not stop what is heard
            self._bug("standby", error)

    async def _check(self) -> None:
        """Let the engine judge itself from time to time; what is broken is a bug of ours."""
        while True:
            await self._pace.sleep(CHECK_SECONDS)
            violations = self.scheduler.self_check(self._pace.clock())
            told = self.scheduler.digest() if violations else {}
            for violation in violations:
                self._log.error("invariant violated", invariant=violation.name, reason=violation.message, **told)

    async def _renew_statuses(self, reports: Reports) -> None:
        """Say from time to time that the statuses of Pools hold."""
        while True:
            await self._pace.sleep(RENEW_SECONDS)
            reports.renew()

    async def _let_another_lead(self, pods_seen: str) -> None:
        """Give the Lease back, unless something of ours is under way; the second time changes nothing."""
        if self.works is not None:
            await self._leadership.give_back(in_hand(self.works.crew), pods_seen)

    async def _restarting(self, name: str, job: Job) -> None:
        """Run a job to its end: what fails starts again after a while."""
        backoff = Backoff(self._pace, RESTART_FIRST_SECONDS, RESTART_LONGEST_SECONDS)
        while True:
            try:
                return await job()
            except Exception as error:  # noqa: BLE001 - a bug in one loop must not stop the others
                seconds = backoff.next_seconds()
                self._observatory.vitals.failed(name)
                self._bug(name, error, again_in_seconds=round(seconds, 1))
                await self._pace.sleep(seconds)

    def _voice(self) -> Voice:
        instance = f"{self._config.scheduler_name}-{socket.gethostname()}-{os.getpid()}"
        return Voice(Reporter(self._config.scheduler_name, instance), time.time)

    def _unreadable(self, reports: Reports, found: Unreadable) -> None:
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
            reports.warn(Warn(about, EventReason.UNREADABLE, f"The scheduler cannot read this object: {found.message}"))

    def _pages(self, works: Works) -> AbstractAsyncContextManager[None]:
        """Return a context in which metrics and health are served."""
        crew = works.crew
        reflectors = {reflector.resource.kind: reflector for reflector in works.reflectors}
        backlogs: dict[str, Callable[[], int]] = {
            "events": lambda: len(self._inbox),
            "binds": lambda: crew.binder.backlog.unfinished,
            "evictions": lambda: crew.evictor.backlog.unfinished,
        }
        waiting = Waiting(backlogs, crew.binder.oldest_seconds)
        return self._observatory.pages(self._listener, crew.reports.counts, reflectors, waiting)

    def _leads(self) -> bool:
        return self._leadership.leads

    def _unready(self) -> str:
        """Return why no decisions are taken, or why they are not those that were meant, or nothing."""
        if self._stop.is_set():
            return "stopping"
        reflectors = self.works.reflectors if self.works is not None else ()
        if self.standing_by.is_set():
            return NOT_INSTALLED if any(reflector.absent for reflector in reflectors) else self._no_progress()
        missing = [reflector.resource.kind for reflector in reflectors if not reflector.synced.is_set()]
        return f"not listed yet: {', '.join(missing)}" if missing else "what was listed is not taken in yet"

    def _loops_failed(self, job: str, error: Exception) -> None:
        self._observatory.vitals.failed(job)
        self._bug(job, error)

    def _no_progress(self) -> str:
        """Return that Bindings have had no outcome for long and what is known of why, or nothing."""
        works = self.works
        seconds = works.crew.binder.oldest_seconds() if works is not None else 0.0
        if works is None or self._executor is None or seconds <= NO_OUTCOME_SECONDS:
            return ""
        unreadable = self._executor.unreadable
        why = f"; pods cannot be read: {unreadable}" if unreadable else ""
        return f"Bindings make no progress: the oldest has had no outcome for {seconds:.0f} seconds{why}"

    def _bug(self, job: str, error: Exception, **more: Any) -> None:
        """Count a bug of ours, and log it with its traceback: one a minute of each kind at each place."""
        self._observatory.meter.internal_errors[POOL_LOOP if job.startswith(f"{POOL_LOOP} ") else job] += 1
        left_out = self._seldom.left_out((job, type(error)))
        if left_out is not None:
            self._log.error("failed", job=job, left_out=left_out, **more, exc_info=error)

    def _failed(self, kind: str, error: ApiError) -> None:
        if isinstance(error, RefusedError) and error.status == HTTPStatus.GONE:
            self._log.info("listing again", kind=kind, reason=str(error))
        elif isinstance(error, UndefinedError):
            what_follows = "until then all nodes and pods are in the default pool"
            self._log.warning("no definition", kind=kind, reason=f"{NOT_INSTALLED}; {what_follows}")
        elif isinstance(error, RefusedError) and error.status == HTTPStatus.FORBIDDEN:
            self._log.warning("permission missing", kind=kind, reason=str(error))
        else:
            self._log.warning("list or watch failed", kind=kind, reason=str(error))
