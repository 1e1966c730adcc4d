"""Everything that looks on while a daemon runs, in one place: what the daemon tells, and where it is shown.

Laws:
- The daemon runs the same with and without it.
- What serves pages is imported when the first requests to the API server are on their way.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from importlib import import_module
from typing import Protocol

from aischeduler.observability.health import Complaint, Vitals
from aischeduler.observability.labels import PoolLabels
from aischeduler.observability.meter import Meter
from aischeduler.observability.onlooker import Deciding, Onlooker
from aischeduler.observability.sources import Engine, Reflecting, Sources, Waiting, Written


class Watched(Engine, Deciding, Protocol):
    """The engine as far as it is looked at; see `engine.scheduler.Scheduler`."""


class Observatory:
    """Meter, vitals and the watched engine.

    `unready` says what is missing before decisions could be taken, `leads` whether this scheduler takes them.
    """

    def __init__(
        self, scheduler: Watched, clock: Callable[[], float], unready: Complaint, leads: Callable[[], bool]
    ) -> None:
        self.meter = Meter(PoolLabels())
        self.vitals = Vitals(clock)
        self.engine = Onlooker(scheduler, clock, self.meter, self.vitals)
        self._scheduler = scheduler
        self._clock = clock
        self._unready = unready
        self._leads = leads

    def pages(
        self,
        listener: socket.socket | None,
        reports: Written,
        reflectors: Mapping[str, Reflecting],
        waiting: Waiting,
    ) -> AbstractAsyncContextManager[None]:
        """Return a context in which the pages are served; without a listener nothing is."""
        if listener is None:
            return nullcontext()
        sources = Sources(self._scheduler, self.meter, reports, reflectors, self._leads, waiting)
        return self._pages(listener, sources)

    @asynccontextmanager
    async def _pages(self, listener: socket.socket, sources: Sources) -> AsyncIterator[None]:
        with listener:
            http = await asyncio.to_thread(import_module, f"{__package__}.http")  # its libraries take 0.2 s
            metrics = import_module(f"{__package__}.metrics")
            async with http.serving(listener, metrics.Metrics(sources), self.complaint, self._unready):
                yield

    def complaint(self) -> str:
        """Return what is wrong in one plain line, or nothing."""
        if self._leads() and not self._unready():
            self.engine.ready(self._clock())  # what is due is looked up anew: a lost wake-up must show too
        return self.vitals.complaint()
