"""How a daemon ends: what it finishes, what it leaves, and what the next leader has to have seen.

Laws:
- What a task had in hand when the executor ended may take effect at any time later; what still waited for a task never
  will.
- The version that is handed on has every Binding and every eviction of ours that was accepted.
"""

import asyncio
from contextlib import suppress
from typing import Final, Protocol

from structlog.typing import FilteringBoundLogger

from aischeduler.kube.backoff import Timing
from aischeduler.kube.errors import ApiError
from aischeduler.kube.executor import Workers

GRACE_SECONDS: Final = 25.0
"""How long we finish what is in flight; the kubelet kills after 30 seconds."""
REPORTS_GRACE_SECONDS: Final = 5.0
"""How long we finish saying what happened, within the grace."""
SHOWN_SECONDS_MAX: Final = 1.0
"""Longest that a leader that ends waits for its own watch to show its last Bindings."""
LOOK_SECONDS: Final = 0.01


class Assuming(Protocol):
    """The engine as far as it counts on what nothing has shown yet; see `engine.scheduler.Scheduler`."""

    def assumed(self) -> int:
        """Return how many pods count on nodes where nothing has shown them yet."""


async def finish(workers: Workers, log: FilteringBoundLogger) -> None:
    """Wait for the outcomes of what is in flight, then a little for the reports."""
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE_SECONDS):
            await workers.binder.work_queue.wait_finished()
            await workers.evictor.work_queue.wait_finished()
            if left := workers.reporter.drop_excess_events():  # after a crowd their rate would need minutes
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
    """Return, once the executor has ended, of how much nobody knows what becomes of it."""
    return {"binds": workers.binder.work_queue.in_progress, "evictions": workers.evictor.work_queue.in_progress}


async def newest_of_ours(workers: Workers, engine: Assuming, timing: Timing) -> str:
    """Return a version of pods that has all that was accepted of us; empty where none can be told."""
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
