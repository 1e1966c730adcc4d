"""Telemetry: the instrumented scheduler, the metrics recorder, health, the logs of statuses, and their pages.

Invariants:
- The daemon runs the same with and without it.
- The HTTP server is imported while the first requests to the API server are under way.
- The instrumented scheduler calls the engine exactly as without it, and returns its results unchanged.
"""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import Final

from structlog.typing import FilteringBoundLogger

from aischeduler.config.errors import ConfigError
from aischeduler.config.schema import HTTP_OFF
from aischeduler.engine.counters import Result
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.actions import Action, Evict, ReportPool, ReportQueue
from aischeduler.observability.health import LoopHealth, Problem
from aischeduler.observability.metrics import DaemonCollector, MetricsRecorder, Sources
from aischeduler.observability.status_log import PoolStatusLog, QueueStatusLog


class InstrumentedScheduler:
    """The engine, with records of each call."""

    def __init__(
        self,
        engine: Scheduler,
        clock: Callable[[], float],
        *,
        metrics: MetricsRecorder,
        health: LoopHealth,
        pool_status_log: PoolStatusLog,
        queue_status_log: QueueStatusLog,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._metrics, self._health = metrics, health
        self._pool_status_log, self._queue_status_log = pool_status_log, queue_status_log

    def decide(self, pool: str, now: float, limit: int) -> list[Action]:
        """Try at most `limit` pods of a pool, or do the work of no pool."""
        before, began = self._attempts(pool), self._clock()
        actions = self._engine.decide(pool, now, limit)
        self._metrics.record_attempts(pool, self._attempts(pool) - before, self._clock() - began)
        if evictions := [action for action in actions if isinstance(action, Evict)]:
            self._metrics.record_victims(evictions)
        if reports := [action for action in actions if isinstance(action, ReportPool)]:
            self._pool_status_log.record(reports)
        if queues := [action for action in actions if isinstance(action, ReportQueue)]:
            self._queue_status_log.record(queues)
            self._metrics.record_queues(queues)
        self._health.decided(pool)
        return actions

    def ready(self, now: float) -> tuple[str, ...]:
        """Return the pools with something to decide."""
        pools = self._engine.ready(now)
        self._health.due(pools)
        return pools

    def next_wakeup(self) -> float | None:
        """Return the earliest time at which a pool becomes ready by time alone; None if none does."""
        return self._engine.next_wakeup()

    def loops(self) -> tuple[str, ...]:
        """Return all pools, and the name of the work of no pool."""
        return self._engine.loops()

    def _attempts(self, pool: str) -> int:
        attempts = self._engine.counters.attempts
        return sum(attempts.get((pool, result), 0) for result in Result)


_NO_IPV6: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


class Telemetry:
    """The telemetry of one daemon. `unready` returns why the daemon is not ready, or nothing."""

    def __init__(
        self,
        engine: Scheduler,
        recorder: MetricsRecorder,
        clock: Callable[[], float],
        log: FilteringBoundLogger,
        unready: Problem,
    ) -> None:
        self.recorder = recorder
        self.health = LoopHealth(clock)
        self.pool_status_log = PoolStatusLog(log, engine.pools, clock)
        self.queue_status_log = QueueStatusLog(log, partial(tenant_queues, engine), clock)
        self.scheduler = InstrumentedScheduler(
            engine,
            clock,
            metrics=recorder,
            health=self.health,
            pool_status_log=self.pool_status_log,
            queue_status_log=self.queue_status_log,
        )
        self._clock = clock
        self._unready = unready

    @asynccontextmanager
    async def serving(self, listener: socket.socket | None, sources: Sources) -> AsyncIterator[None]:
        """Serve the pages on this socket while the context is open; without a socket nothing is served."""
        if listener is None:
            yield
            return
        with listener:
            http = await asyncio.to_thread(import_module, f"{__package__}.metrics_server")  # its libraries take 0.1 s
            collector = DaemonCollector(sources, self.recorder)
            live = partial(self.problem, sources.leads)
            pages = http.Pages(self.recorder.registry, collector.take, live, self._unready)
            async with http.serving(listener, pages):
                yield

    def problem(self, leads: Callable[[], bool]) -> str:
        """Return what is wrong as one plain line, or nothing."""
        if leads() and not self._unready():
            self.scheduler.ready(self._clock())  # reads the engine again, so that a lost wake-up is reported
        return self.health.problem()


def tenant_queues(engine: Scheduler) -> tuple[str, ...]:
    """Return the names of the tenant queues; the state may be another one than at the last call."""
    return engine.cluster.tenants.queues.names()


def listen(address: str) -> socket.socket | None:
    """Take the port of `host:port`; None if the address is `none`. Raises ConfigError if it cannot be taken."""
    if address == HTTP_OFF:
        return None
    host, _, port = address.rpartition(":")
    try:
        return _bind(host.strip("[]"), int(port))
    except OSError as error:
        why = (error.strerror or str(error)).partition(" (while")[0]
        raise ConfigError(f"http.address: cannot listen on {address}: {why}") from error


def _bind(host: str, port: int) -> socket.socket:
    if not host and socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:
            if error.errno not in _NO_IPV6:
                raise
    family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
    return socket.create_server((host, port), family=family)
