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

from aischeduler.kube.errors import ApiError
from aischeduler.kube.executor import Crew
from aischeduler.kube.pace import Pace

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


async def finish(crew: Crew, log: FilteringBoundLogger) -> None:
    """Wait for the outcomes of what is in flight, then a little for the reports."""
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE_SECONDS):
            await crew.binder.backlog.none_unfinished()
            await crew.evictor.backlog.none_unfinished()
            if left := crew.reports.hasten():  # after a crowd their rate would need minutes
                log.info("events left unwritten", count=left)
            with suppress(TimeoutError):
                async with asyncio.timeout(REPORTS_GRACE_SECONDS):
                    await crew.reports.none_unwritten()
    for event, backlog in (
        ("binds left in flight", crew.binder.backlog),
        ("evictions left in flight", crew.evictor.backlog),
    ):
        if backlog.unfinished:
            log.warning(event, count=backlog.unfinished)


def in_hand(crew: Crew) -> dict[str, int]:
    """Return, once the executor has ended, of how much nobody knows what becomes of it."""
    return {"binds": crew.binder.backlog.in_hand, "evictions": crew.evictor.backlog.in_hand}


async def newest_of_ours(crew: Crew, engine: Assuming, pace: Pace) -> str:
    """Return a version of pods that has all that was accepted of us; empty where none can be told."""
    end = pace.clock() + SHOWN_SECONDS_MAX
    while engine.assumed() and pace.clock() < end:
        await pace.sleep(LOOK_SECONDS)
    if engine.assumed():  # the watch lags behind
        try:
            return await crew.reader.version()
        except ApiError:
            return ""
    newest = max(crew.reader.newest, crew.evictor.newest)
    return str(newest) if newest else ""
