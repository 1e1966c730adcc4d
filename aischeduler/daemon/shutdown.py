"""The end of a daemon: what it finishes, what it leaves, and the version of pods that the next leader must have seen.

Invariants:
- A request that a task had in hand when the executor ended may take effect at any time later; one that still waited for
  a task never does.
- The version for the next leader includes every Binding and every eviction of this process that was accepted.
"""

import asyncio
from contextlib import suppress
from typing import Final, Protocol

from structlog.typing import FilteringBoundLogger

from aischeduler.kube.backoff import Timing
from aischeduler.kube.errors import ApiError
from aischeduler.kube.executor import Workers

GRACE_SECONDS: Final = 25.0
"""How long requests in flight may take to finish; the kubelet kills after 30 seconds."""
REPORTS_GRACE_SECONDS: Final = 5.0
"""How long reports may take to be written, within the grace."""
SHOWN_SECONDS_MAX: Final = 1.0
"""Longest that a leader at its end waits for its own watch to show its last Bindings."""
LOOK_SECONDS: Final = 0.01


class Assuming(Protocol):
    """The number of assumed pods; see `engine.scheduler.Scheduler`."""

    def assumed(self) -> int:
        """Return how many pods count on nodes where no watch has shown them yet."""


async def finish(workers: Workers, log: FilteringBoundLogger) -> None:
    """Wait for the outcomes of all Bindings and evictions, then a little for the reports."""
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE_SECONDS):
            await workers.binder.work_queue.wait_finished()
            await workers.evictor.work_queue.wait_finished()
            if left := workers.reporter.drop_excess_events():  # after many pods their rate would need minutes
                log.info("events left unwritten", count=left)
            with suppress(TimeoutError):
                async with asyncio.timeout(REPORTS_GRACE_SECONDS):
                    await workers.reporter.wait_written()
    for event, work_queue in (
        ("binds left in flight", workers.binder.work_queue),
        ("evictions left in flight", workers.evictor.work_queue),
    ):
        if work_queue.unfinished:
            log.warning(event, count=work_queue.unfinished)


def in_hand(workers: Workers) -> dict[str, int]:
    """Return how many requests of the executor, which has ended, may still take effect."""
    return {"binds": workers.binder.work_queue.in_progress, "evictions": workers.evictor.work_queue.in_progress}


async def newest_of_ours(workers: Workers, engine: Assuming, timing: Timing) -> str:
    """Return a version of pods that includes all accepted requests of this process; empty where none is known."""
    end = timing.clock() + SHOWN_SECONDS_MAX
    while engine.assumed() and timing.clock() < end:
        await timing.sleep(LOOK_SECONDS)
    if engine.assumed():  # the watch lags behind
        try:
            return await workers.reader.version()
        except ApiError:
            return ""
    newest = max(workers.reader.newest_version, workers.evictor.newest_version)
    return str(newest) if newest else ""
