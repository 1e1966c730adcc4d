"""The end of a daemon: requests in flight are finished, and the next leader learns which version of pods it must see.

Invariants:
- A request that a task was sending when the executor ended may take effect at any time later. A request that waited for
  a task never takes effect.
- The version for the next leader includes every Binding and every eviction of this process that was accepted.
"""

import asyncio
from contextlib import suppress
from typing import Final, Protocol

from structlog.typing import FilteringBoundLogger

from aischeduler.kube.executor import Workers
from aischeduler.kube.http.backoff import Timing
from aischeduler.kube.http.errors import ApiError

GRACE_SECONDS: Final = 25.0
"""How long requests in flight may take to finish; the kubelet kills the process after 30 seconds."""
REPORTS_GRACE_SECONDS: Final = 5.0
"""How long reports may take to be written, within the time for requests."""
SHOWN_SECONDS_MAX: Final = 1.0
"""Longest that a leader that ends waits for its own watch to show its last Bindings."""
POLL_SECONDS: Final = 0.01


class Assuming(Protocol):
    """The number of assumed pods; see `engine.scheduler.Scheduler`."""

    def assumed(self) -> int:
        """Return how many pods count on a node on which the watch has not shown them yet."""


async def finish(workers: Workers, log: FilteringBoundLogger) -> None:
    """Wait for the outcomes of all Bindings and evictions, then a shorter time for the reports."""
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE_SECONDS):
            await workers.binder.work_queue.wait_finished()
            await workers.evictor.work_queue.wait_finished()
            if left := workers.reporter.drop_excess_events():  # at their rate, the Events of many pods take minutes
                log.info("events not written", count=left)
            with suppress(TimeoutError):
                async with asyncio.timeout(REPORTS_GRACE_SECONDS):
                    await workers.reporter.wait_written()
    for event, work_queue in (
        ("binds left in flight", workers.binder.work_queue),
        ("evictions left in flight", workers.evictor.work_queue),
    ):
        if work_queue.unfinished:
            log.warning(event, count=work_queue.unfinished)


def requests_in_flight(workers: Workers) -> dict[str, int]:
    """Return how many requests of the executor, which has ended, may still take effect."""
    return {"binds": workers.binder.work_queue.in_progress, "evictions": workers.evictor.work_queue.in_progress}


async def newest_own_version(workers: Workers, engine: Assuming, timing: Timing) -> str:
    """Return a version of pods that includes all accepted requests of this process; empty where none is known."""
    end = timing.clock() + SHOWN_SECONDS_MAX
    while engine.assumed() and timing.clock() < end:
        await timing.sleep(POLL_SECONDS)
    if engine.assumed():  # the watch lags behind
        try:
            return await workers.reader.version()
        except ApiError:
            return ""
    newest = max(workers.reader.newest_version, workers.evictor.newest_version)
    return str(newest) if newest else ""
