"""Whether this process may write: always without an election, else only while it leads.

Laws:
- A write that is due too long after the last renewal waits for the next one. Once others may have taken the Lease it
  ends the process, at once and without another write.
- A new leader begins once it has seen every Binding that the last one may have had accepted: its watch has come as far
  as the version that this one left, or as the pods are when it takes the Lease; else all pods were listed anew.
- The Lease is given back only when nothing that was sent may still take effect; else it runs out.
"""

import asyncio
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn, Protocol
from uuid import uuid4

from structlog.typing import FilteringBoundLogger

from aischeduler.config.schema import Config
from aischeduler.kube.backoff import Timing
from aischeduler.kube.connection_pool import ConnectionPool
from aischeduler.kube.errors import ApiError
from aischeduler.kube.known_objects import version_number
from aischeduler.kube.leader_elector import LeaderElectionConfig, LeaderElector, LostLeaseError
from aischeduler.kube.server_access import Server

LOST_LEASE: Final = 3
"""Exit status of a scheduler that led and lost its Lease."""
CATCH_UP_SECONDS_MAX: Final = 1.0
"""Longest that a new leader waits for its watch to show what the last one did, before it lists all pods anew."""
WATCH_ANEW_SECONDS_MAX: Final = 1.0
"""Longest that a new leader waits until all its watches are open anew."""
LOOK_SECONDS: Final = 0.02
HELD_SECONDS: Final = 0.1
"""How long a write that may not be sent waits until it asks again."""
CONNECTIONS_MAX: Final = 2
"""Of the election; one is enough, and another while that one hangs."""
HOME_NAMESPACE: Final = "kube-system"
NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

End = Callable[[], NoReturn]


class Pods(Protocol):
    """How far the pods are, and how far they are shown; see `kube.pod_reader.PodReader`."""

    @property
    def watch_version(self) -> str:
        """Up to which version the watch has shown all pods; empty while they are listed."""

    async def version(self) -> str:
        """Return the version of the pods as they are now; raises ApiError."""

    async def relist(self) -> None:
        """Return once all pods were listed by a list that begins after this."""


class Watch(Protocol):
    """A watch that can be opened anew; see `kube.reflector.Reflector`."""

    watching: asyncio.Event
    not_served: bool

    def reopen_watch(self) -> None:
        """Leave the stream that is open, for another one from the same version on."""


def leave() -> NoReturn:
    """End the process without running anything else that might write."""
    sys.stderr.flush()
    os._exit(LOST_LEASE)


def elected(server: Server, config: Config, timing: Timing, log: FilteringBoundLogger) -> "Leadership":
    """Return what the configuration says of the election."""
    how = config.leader_election
    if not how.enabled:
        return Leadership(None, timing, log)
    terms = LeaderElectionConfig(
        how.namespace or own_namespace(),
        how.lease_name or config.scheduler_name,
        f"{socket.gethostname()}_{uuid4()}",
        how.lease_duration_seconds,
        how.renew_deadline_seconds,
        how.retry_period_seconds,
    )
    elector = LeaderElector(
        ConnectionPool(server, CONNECTIONS_MAX), terms, replace(timing, clock=_clock), time.time, log
    )
    return Leadership(elector, timing, log)


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

    def __init__(
        self, elector: LeaderElector | None, timing: Timing, log: FilteringBoundLogger, end: End = leave
    ) -> None:
        self._elector = elector
        self._timing = timing
        self._log = log
        self._end = end

    def epoch(self) -> int | None:
        """Return the number of our term; None without an election."""
        return self._elector.epoch if self._elector is not None else None

    @property
    def elects(self) -> bool:
        """Say whether we lead by an election: then somebody may follow us."""
        return self._elector is not None and self.leads

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
        if not elector.holds_lease:
            self._lost(f"a write was due {elector.config.lease_duration_seconds} s after the last renewal, or later")
        return self._timing.sleep(HELD_SECONDS)

    async def begin(self, pods: Pods, watches: Collection[Watch]) -> None:
        """Return once we lead and have seen all pods that the last leader may have bound."""
        if self._elector is not None:
            await self._elector.acquire()
            await self._watch_anew(watches)
            if self._elector.has_predecessor:
                await self._catch_up(pods, self._elector.pods_seen or await self._version_of(pods))

    async def _watch_anew(self, watches: Collection[Watch]) -> None:
        """Open all watches anew: what ended the last leader may have taken the API server behind them with it."""
        for watch in watches:
            watch.reopen_watch()
        with suppress(TimeoutError):
            async with asyncio.timeout(WATCH_ANEW_SECONDS_MAX):
                for watch in watches:
                    if not watch.not_served:
                        await watch.watching.wait()

    async def _version_of(self, pods: Pods) -> str:
        """Return the version of the pods as they are now; nothing where that cannot be read."""
        try:
            return await pods.version()
        except ApiError as error:
            self._log.warning("the version of the pods is unknown", reason=str(error))
            return ""

    async def _catch_up(self, pods: Pods, told: str) -> None:
        """Wait until the watch has shown this version; where it does not soon, or none is told, list all pods anew."""
        due, end = version_number(told), self._timing.clock() + CATCH_UP_SECONDS_MAX
        while due is not None:
            if (version_number(pods.watch_version) or 0) >= due:
                return
            if self._timing.clock() >= end:
                break
            await self._timing.sleep(LOOK_SECONDS)
        self._log.info(
            "listing pods again", shown=pods.watch_version, due=told, reason="the last leader may have bound more"
        )
        await pods.relist()

    async def keep(self) -> None:
        """Renew the Lease until cancelled."""
        if self._elector is None:
            return
        await self._elector.leading.wait()
        try:
            await self._elector.renew()
        except LostLeaseError as error:
            self._lost(str(error))

    async def give_back(self, left: Mapping[str, int], pods_seen: str) -> None:
        """Let another lead at once, unless something of ours is `left` under way: then when the Lease is over.

        `pods_seen` is a version of pods that has all that we did; empty where none is known.
        """
        elector = self._elector
        if elector is None:
            return
        if not any(left.values()):
            await elector.release(pods_seen)
        elif elector.holds_lease:
            seconds, reason = elector.config.lease_duration_seconds, "what is in flight may still take effect"
            self._log.warning("lease not given back", **left, another_leads_after_seconds=seconds, reason=reason)
            elector.leading.clear()

    async def close(self) -> None:
        """Close the connections of the election."""
        if self._elector is not None:
            await self._elector.close()

    def _lost(self, reason: str) -> NoReturn:
        self._log.error("lost the lease", reason=reason, exit_status=LOST_LEASE)
        self._end()
