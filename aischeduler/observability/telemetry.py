"""Telemetry: the instrumented scheduler, the metrics recorder, health, the log of pool statuses, and their pages.

Invariants:
- The daemon runs the same with and without it.
- The HTTP server is imported while the first requests to the API server are under way.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module

from structlog.typing import FilteringBoundLogger

from aischeduler.engine.scheduler import Scheduler
from aischeduler.observability.health import LoopHealth, Problem
from aischeduler.observability.instrumented_scheduler import InstrumentedScheduler, Recorders
from aischeduler.observability.metrics import DaemonCollector, Sources
from aischeduler.observability.metrics_recorder import MetricsRecorder, PoolLabels
from aischeduler.observability.pool_status_log import PoolStatusLog
from aischeduler.observability.scrape_cache import ScrapeCache


class Telemetry:
    """The telemetry of one daemon. `unready` returns why the daemon is not ready, or nothing."""

    def __init__(
        self, engine: Scheduler, clock: Callable[[], float], log: FilteringBoundLogger, unready: Problem
    ) -> None:
        self.recorder = MetricsRecorder(PoolLabels())
        self.health = LoopHealth(clock)
        self.pool_status_log = PoolStatusLog(log, engine.pools, clock)
        recorders = Recorders(self.recorder, self.health, self.pool_status_log)
        self.scheduler = InstrumentedScheduler(engine, clock, recorders)
        self._clock = clock
        self._unready = unready

    @asynccontextmanager
    async def serving(self, listener: socket.socket | None, sources: Sources) -> AsyncIterator[None]:
        """Serve the pages on this socket while the context is open; without a socket nothing is served."""
        if listener is None:
            yield
            return
        with listener:
            http = await asyncio.to_thread(import_module, f"{__package__}.http")  # its libraries take 0.1 s
            collector = DaemonCollector(sources, self.recorder)
            cache = ScrapeCache(self.recorder.registry, collector.take)
            live = partial(self.problem, sources.leads)
            async with http.serving(listener, cache, live, self._unready):
                yield

    def problem(self, leads: Callable[[], bool]) -> str:
        """Return what is wrong as one plain line, or nothing."""
        if leads() and not self._unready():
            self.scheduler.ready(self._clock())  # reads the engine again, so that a lost wake-up is reported
        return self.health.problem()
