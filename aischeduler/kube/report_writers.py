"""The writers of one report queue, with its rate limit and a limit on late reports.

Invariants:
- The queues are independent: a limit on one does not delay another.
- Nothing is written while a Binding or an eviction is queued, unless a report is late.
- Late reports are written in parallel within the rate limit, while that raises the throughput; after an overload or a
  failure only a few for a while.
- A writer whose report is not written soon is stuck, and another one takes its place. A namespace has few stuck writers
  at a time; its further reports are put aside meanwhile. So a namespace that gets no answers delays no other.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from aischeduler.kube.backoff import RateLimiter, Throttle, Timing
from aischeduler.kube.concurrency_limit import ConcurrencyLimit
from aischeduler.kube.errors import OnInternalError
from aischeduler.kube.report_queue import LATE_INITIAL, LATE_MAX, Report, ReportQueue, report_lane

WRITERS: Final = 16
STUCK_SECONDS: Final = 1.0
"""After this long, a writer is stuck."""
STUCK_PER_LANE_MAX: Final = 8
"""How many writers of a namespace may be stuck before its further reports are put aside."""
STUCK_MAX: Final = 64
"""How many writers may be stuck in all; no others take the place of any more."""
WRITES_IN_FLIGHT_MAX: Final = WRITERS + LATE_MAX + STUCK_MAX


class ReportWriters:
    """Writes the reports of `queue` with `write`, which never raises, within `rate`.

    While `overload` is active, late reports are not written in parallel. `put_aside` gets the reports of a crowded
    namespace.
    """

    def __init__(
        self,
        queue: ReportQueue,
        timing: Timing,
        rate: RateLimiter,
        overload: Throttle,
        performed: tuple[Callable[[Report], Awaitable[None]], Callable[[Report], None]],
    ) -> None:
        self.queue = queue
        self.rate = rate
        self._clock = timing.clock
        self._overload = overload
        self._perform, self._put_aside = performed
        self._under_way: dict[asyncio.Task[None], tuple[str, float]] = {}
        """The namespace of the report that a writer writes, and since when, by the writer's task."""
        self._stuck: dict[asyncio.Task[None], str] = {}
        """The stuck writers, and their namespaces."""
        self._crowds: Counter[str] = Counter()
        """How many of them each namespace has."""
        self._late_in_flight = 0
        """Late reports in flight beside those of the writers."""
        self._late_limit = ConcurrencyLimit(LATE_MAX, timing.clock, LATE_INITIAL)

    async def run(self, wait_for_binds: Callable[[], Awaitable[None]], on_internal_error: OnInternalError) -> None:
        """Write until cancelled; `wait_for_binds` returns once neither a Binding nor an eviction is queued."""
        self._late_in_flight = 0
        self._stuck.clear()
        self._crowds.clear()
        async with asyncio.TaskGroup() as group:

            def begin() -> None:
                group.create_task(self._write_all(wait_for_binds, on_internal_error, group), name="reports")

            for _ in range(WRITERS):
                begin()
            group.create_task(self._replace_stuck(begin), name="stuck reports")

    async def _write_all(
        self,
        wait_for_binds: Callable[[], Awaitable[None]],
        on_internal_error: OnInternalError,
        group: asyncio.TaskGroup,
    ) -> None:
        task = asyncio.current_task()
        while task not in self._stuck:
            await self.queue.wait_for_report()
            try:
                await self._write_next(wait_for_binds, group)
            except Exception as error:  # noqa: BLE001 - an error costs one report, not those that follow
                on_internal_error("reporter", error)
        self._crowds[self._stuck.pop(task)] -= 1  # another one has its place

    async def _replace_stuck(self, begin: Callable[[], None]) -> None:
        """Begin another writer for each that is stuck."""
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(STUCK_SECONDS)
            for task, (lane, since) in tuple(self._under_way.items()):
                if clock() - since >= STUCK_SECONDS and task not in self._stuck and len(self._stuck) < STUCK_MAX:
                    self._stuck[task] = lane
                    self._crowds[lane] += 1
                    begin()

    async def _write(self, report: Report) -> None:
        """Write a report, or put it aside if its namespace is crowded."""
        lane, task = report_lane(report), asyncio.current_task()
        assert task is not None, "it runs in a task"
        if self._crowds[lane] >= STUCK_PER_LANE_MAX:
            self._put_aside(report)
            return
        self._under_way[task] = lane, asyncio.get_running_loop().time()
        try:
            await self._perform(report)
        finally:
            del self._under_way[task]

    async def _write_next(self, wait_for_binds: Callable[[], Awaitable[None]], group: asyncio.TaskGroup) -> None:
        await self.rate.wait()
        binds_wait = True
        while binds_wait and (seconds := self.queue.yield_seconds()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await wait_for_binds()
                binds_wait = False
        report = self.queue.take(binds_wait=binds_wait)
        if binds_wait:
            await self._begin_late(group)
        if report is not None:
            await self._write(report)

    async def _begin_late(self, group: asyncio.TaskGroup) -> None:
        """Start to write late reports, as many as are due, within the rate and the adaptive limit."""
        while not self._overload.active and not self.rate.exhausted and self._late_in_flight < self._late_limit.size:
            report = await self.queue.take_late(self._late_in_flight)
            if report is None:
                return
            await self.rate.wait()
            self._late_in_flight += 1
            group.create_task(self._write_late(report), name="late report")

    async def _write_late(self, report: Report) -> None:
        began = self._clock()
        try:
            await self._perform(report)
        finally:
            self._late_in_flight -= 1
        more_waits = self.queue.late_due(self._late_in_flight) > 0 and not self.rate.exhausted
        self._late_limit.record_answer(self._clock() - began, more_waits=more_waits)
