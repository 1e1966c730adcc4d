"""One lane of reports: what waits to be written, how fast it may be, and those who write it.

Laws:
- Lanes do not wait for each other: what one may not write yet holds back nothing of another.
- Nothing is written while a Binding or an eviction waits, unless it has waited long itself.
- Late reports are written many at once, never more than the rate allows, more only as long as that brings more answers,
  and few for a while after the server had enough of something or failed.
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
    """Writes what is put into its queue with `write`, which never fails, at its own rate.

    It is `tired` while late reports are not to be written many at once.
    """

    def __init__(
        self,
        queue: ReportQueue,
        timing: Timing,
        rate: RateLimiter,
        tired: Throttle,
        write: Callable[[Report], Awaitable[None]],
    ) -> None:
        self.queue = queue
        self.rate = rate
        self._clock = timing.clock
        self._overload = tired
        self._write = write
        self._late_in_flight = 0
        """Late reports under way that no writer waits for."""
        self._late_limit = ConcurrencyLimit(LATE_MAX, timing.clock, LATE_INITIAL)

    async def run(self, binds_first: Callable[[], Awaitable[None]], failed: OnInternalError) -> None:
        """Write until cancelled; `binds_first` returns once neither Binding nor eviction waits."""
        self._late_in_flight = 0
        async with asyncio.TaskGroup() as group:
            for number in range(WRITERS):
                group.create_task(self._write_all(binds_first, failed, group), name=f"reports {number}")

    async def _write_all(
        self, binds_first: Callable[[], Awaitable[None]], failed: OnInternalError, group: asyncio.TaskGroup
    ) -> None:
        while True:
            await self.queue.wait_for_report()
            try:
                await self._write_next(binds_first, group)
            except Exception as error:  # noqa: BLE001 - a bug costs one report, not all that follow
                failed("reports", error)

    async def _write_next(self, binds_first: Callable[[], Awaitable[None]], group: asyncio.TaskGroup) -> None:
        await self.rate.wait()
        others_wait = True
        while others_wait and (seconds := self.queue.yield_seconds()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await binds_first()
                others_wait = False
        report = self.queue.take(others_wait=others_wait)
        if others_wait:
            await self._begin_late(group)
        if report is not None:
            await self._write(report)

    async def _begin_late(self, group: asyncio.TaskGroup) -> None:
        """Begin to write so many late reports as are due at once, allowed now, and worth it by their answers."""
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
