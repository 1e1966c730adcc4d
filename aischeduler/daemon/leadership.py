"""Whether this process may write: always without an election, else only while it leads.

Laws:
- A write that is due too long after the last renewal waits for the next one. Once others may have taken the Lease it
  ends the process, at once and without another write.
- A new leader begins once it has seen all pods that the last one saw, where that one said so.
"""

import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn
from uuid import uuid4

from structlog.typing import FilteringBoundLogger

from aischeduler.config.schema import Config
from aischeduler.kube.auth import Server
from aischeduler.kube.elector import Elector, LostLeaseError, Terms
from aischeduler.kube.pace import Pace
from aischeduler.kube.store import version_number
from aischeduler.kube.wire import Wire

LOST_LEASE: Final = 3
"""Exit status of a scheduler that led and lost its Lease."""
CATCH_UP_SECONDS_MAX: Final = 1.0
"""Longest that a new leader waits for its watch to show what the last one had seen."""
LOOK_SECONDS: Final = 0.02
HELD_SECONDS: Final = 0.1
"""How long a write that may not be sent waits until it asks again."""
CONNECTIONS_MAX: Final = 2
"""Of the election; one is enough, and another while that one hangs."""
HOME_NAMESPACE: Final = "kube-system"
NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

End = Callable[[], NoReturn]


def leave() -> NoReturn:
    """End the process without running anything else that might write."""
    sys.stderr.flush()
    os._exit(LOST_LEASE)


def elected(server: Server, config: Config, pace: Pace, log: FilteringBoundLogger) -> "Leadership":
    """Return what the configuration says of the election."""
    how = config.leader_election
    if not how.enabled:
        return Leadership(None, pace, log)
    terms = Terms(
        how.namespace or own_namespace(),
        how.lease_name or config.scheduler_name,
        f"{socket.gethostname()}_{uuid4()}",
        how.lease_duration_seconds,
        how.renew_deadline_seconds,
        how.retry_period_seconds,
    )
    elector = Elector(Wire(server, CONNECTIONS_MAX), terms, replace(pace, clock=_clock), time.time, log)
    return Leadership(elector, pace, log)


def own_namespace() -> str:
    """Return the namespace of our pod; outside a cluster kube-system, where the scheduler is at home."""
    try:
        return NAMESPACE_FILE.read_text(encoding="ascii").strip() or HOME_NAMESPACE
    except (OSError, ValueError):
        return HOME_NAMESPACE


def _clock() -> float:
    """Return seconds that go on while the machine sleeps, too: others have waited our lease out meanwhile."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Leadership:
    """What the parts of a daemon need to know of the election; without an `elector` it always leads."""

    def __init__(self, elector: Elector | None, pace: Pace, log: FilteringBoundLogger, end: End = leave) -> None:
        self._elector = elector
        self._pace = pace
        self._log = log
        self._end = end

    def epoch(self) -> int | None:
        """Return the number of our term; None without an election."""
        return self._elector.epoch if self._elector is not None else None

    @property
    def leads(self) -> bool:
        """Say whether we may write now."""
        return self._elector is None or self._elector.may_write

    def fence(self) -> Awaitable[None] | None:
        """Let a write pass if we may write now; else return what it has to wait for before it asks again."""
        elector = self._elector
        if elector is None or elector.may_write:
            return None
        if not elector.leading.is_set():
            raise RuntimeError("a scheduler that does not lead is about to write")
        if not elector.holds:
            self._lost(f"a write was due {elector.terms.lease_seconds} s after the last renewal, or later")
        return self._pace.sleep(HELD_SECONDS)

    async def begin(self, pods_version: Callable[[], str]) -> None:
        """Return once we lead and have seen the pods up to where the last leader saw them."""
        elector = self._elector
        if elector is None:
            return
        await elector.lead()
        due = version_number(elector.pods_seen)
        end = self._pace.clock() + CATCH_UP_SECONDS_MAX
        while due is not None and (version_number(pods_version()) or 0) < due:
            if self._pace.clock() >= end:
                self._log.warning("not all seen that the last leader saw", seen=pods_version(), due=elector.pods_seen)
                return
            await self._pace.sleep(LOOK_SECONDS)

    async def keep(self) -> None:
        """Renew the Lease until cancelled."""
        if self._elector is None:
            return
        await self._elector.leading.wait()
        try:
            await self._elector.keep()
        except LostLeaseError as error:
            self._lost(str(error))

    async def give_back(self, pods_version: str) -> None:
        """Let another lead: nothing of ours is under way any more."""
        if self._elector is not None:
            await self._elector.release(pods_version)

    async def close(self) -> None:
        """Close the connections of the election."""
        if self._elector is not None:
            await self._elector.close()

    def _lost(self, reason: str) -> NoReturn:
        self._log.error("lost the lease", reason=reason, exit_status=LOST_LEASE)
        self._end()
