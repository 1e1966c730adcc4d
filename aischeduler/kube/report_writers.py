"""The writers of one report queue, with its rate limit and a limit on late reports.

Invariants:
- The queues are independent: a limit on one does not delay another.
- Nothing is written while a Binding or an eviction is queued, unless a report is late.
- Late reports are written in parallel within the rate limit, while that raises the throughput; after an overload or a
  failure only a few for a while.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from aischeduler.kube.backoff import RateLimiter, Throttle, Timing
from aischeduler.kube.concurrency_limit import ConcurrencyLimit
from aischeduler.kube.errors import OnInternalError
from aischeduler.kube.report_queue import LATE_INITIAL, LATE_MAX, Report, ReportQueue

WRITERS: Final = 16
WRITES_IN_FLIGHT_MAX: Final = WRITERS + LATE_MAX


class ReportWriters:
    """Writes the reports of `queue` with `write`, which never raises, within `rate`.

    While `overload` is active, late reports are not written in parallel.
    """

    def __init__(
        self,
        queue: ReportQueue,
        timing: Timing,
        rate: RateLimiter,
        overload: Throttle,
        write: Callable[[Report], Awaitable[None]],
    ) -> None:
        self.queue = queue
        self.rate = rate
        self._clock = timing.clock
        self._overload = overload
        self._write = write
        self._late_in_flight = 0
        """Late reports in flight beside those of the writers."""
        self._late_limit = ConcurrencyLimit(LATE_MAX, timing.clock, LATE_INITIAL)

    async def run(self, wait_for_binds: Callable[[], Awaitable[None]], on_internal_error: OnInternalError) -> None:
        """Write until cancelled; `wait_for_binds` returns once neither a Binding nor an eviction is queued."""
        self._late_in_flight = 0
        async with asyncio.TaskGroup() as group:
            for number in range(WRITERS):
                group.create_task(self._write_all(wait_for_binds, on_internal_error, group), name=f"reports {number}")

    async def _write_all(
        self,
        wait_for_binds: Callable[[], Awaitable[None]],
        on_internal_error: OnInternalError,
        group: asyncio.TaskGroup,
    ) -> None:
        while True:
            await self.queue.wait_for_report()
            try:
                await self._write_next(wait_for_binds, group)
            except Exception as error:  # noqa: BLE001 - an error costs one report, not those that follow
                on_internal_error("reporter", error)

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
            await self._write(report)
        finally:
            self._late_in_flight -= 1
        more_waits = self.queue.late_due(self._late_in_flight) > 0 and not self.rate.exhausted
        self._late_limit.record_answer(self._clock() - began, more_waits=more_waits)
