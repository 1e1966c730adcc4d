"""Leadership: whether this process may write. With leader election it may write only while it leads, without it always.

Invariants:
- A write that is due too long after the last renewal of the Lease waits for the next renewal. Once another scheduler
  may have taken the Lease, such a write ends the process, at once and without another write.
- A new leader begins to decide once it has seen every Binding that the last leader may have sent. For that its watch
  reaches the resource version that the last leader wrote into the Lease, or the version that the pods had when the new
  leader took the Lease; if the watch does not reach it in time, the new leader lists all pods again.
- The Lease is released only when no request that was sent may still take effect; else it expires.
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
from aischeduler.kube.access.server import Server
from aischeduler.kube.election import LeaderElectionConfig, LeaderElector, LostLeaseError
from aischeduler.kube.http.backoff import Timing
from aischeduler.kube.http.connection_pool import ConnectionPool
from aischeduler.kube.http.errors import ApiError
from aischeduler.kube.watch.known_objects import version_number

LOST_LEASE: Final = 3
"""Exit status of a scheduler that led and lost its Lease."""
CATCH_UP_SECONDS_MAX: Final = 1.0
"""Longest that a new leader waits for its watch to show the last leader's Bindings before it lists all pods again."""
REOPEN_SECONDS_MAX: Final = 1.0
"""Longest that a new leader waits until all its watches are open again."""
POLL_SECONDS: Final = 0.02
HELD_SECONDS: Final = 0.1
"""How long a write waits before the next try while it may not be sent."""
CONNECTIONS_MAX: Final = 2
"""Connections of the election: one is enough, the second serves while the first hangs."""
HOME_NAMESPACE: Final = "kube-system"
NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

End = Callable[[], NoReturn]


class Pods(Protocol):
    """The resource versions of pods; see `kube.watch.pod_reader.PodReader`."""

    @property
    def watch_version(self) -> str:
        """The version up to which the watch has shown all pods; empty while a list is under way."""

    async def version(self) -> str:
        """Return the version of the pods as they are now; raises ApiError."""

    async def relist(self) -> None:
        """Return once all pods were listed by a list that began after the call."""


class LeadershipWatch(Protocol):
    """A watch that can be opened again; see `kube.watch.reflector.Reflector`."""

    watching: asyncio.Event
    not_served: bool

    def reopen_watch(self) -> None:
        """Close the open stream and open another one from the same version on."""


def leave() -> NoReturn:
    """End the process without running any code that might write."""
    sys.stderr.flush()
    os._exit(LOST_LEASE)


def elected(server: Server, config: Config, timing: Timing, log: FilteringBoundLogger) -> "Leadership":
    """Return the leadership that the configuration describes."""
    how = config.leader_election
    if not how.enabled:
        return Leadership(None, timing, log)
    terms = LeaderElectionConfig(
        namespace=how.namespace or own_namespace(),
        name=how.lease_name or config.scheduler_name,
        identity=f"{socket.gethostname()}_{uuid4()}",
        lease_duration_seconds=how.lease_duration_seconds,
        renew_deadline_seconds=how.renew_deadline_seconds,
        retry_period_seconds=how.retry_period_seconds,
    )
    elector = LeaderElector(
        ConnectionPool(server, CONNECTIONS_MAX), terms, replace(timing, clock=_clock), time.time, log
    )
    return Leadership(elector, timing, log)


def own_namespace() -> str:
    """Return the namespace of this pod; kube-system outside a cluster."""
    try:
        return NAMESPACE_FILE.read_text(encoding="ascii").strip() or HOME_NAMESPACE
    except (OSError, ValueError):
        return HOME_NAMESPACE


def _clock() -> float:
    """Return seconds that also pass while the machine sleeps: the Lease expires meanwhile."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Leadership:
    """The leadership of this process; without an `elector` it always leads."""

    def __init__(
        self, elector: LeaderElector | None, timing: Timing, log: FilteringBoundLogger, end: End = leave
    ) -> None:
        self._elector = elector
        self._timing = timing
        self._log = log
        self._end = end

    def epoch(self) -> int | None:
        """Return the number of this term; None without an election."""
        return self._elector.epoch if self._elector is not None else None

    @property
    def elects(self) -> bool:
        """Return whether this process leads by an election, so that another leader may follow."""
        return self._elector is not None and self.leads

    @property
    def leads(self) -> bool:
        """Return whether this process may write now."""
        return self._elector is None or self._elector.may_write

    def fence(self) -> Awaitable[None] | None:
        """Return None if a write may be sent now; else an awaitable to await before the next call."""
        elector = self._elector
        if elector is None or elector.may_write:
            return None
        if not elector.leading.is_set():
            raise RuntimeError("a scheduler that does not lead tries to write")
        if not elector.holds_lease:
            self._lost(f"a write was due {elector.config.lease_duration_seconds} s after the last renewal, or later")
        return self._timing.sleep(HELD_SECONDS)

    async def begin(self, pods: Pods, watches: Collection[LeadershipWatch]) -> None:
        """Return once this process leads and has seen all pods that the last leader may have bound."""
        if self._elector is not None:
            await self._elector.acquire()
            await self._reopen(watches)
            if self._elector.has_predecessor:
                await self._catch_up(pods, self._elector.pods_seen or await self._version_of(pods))

    async def _reopen(self, watches: Collection[LeadershipWatch]) -> None:
        """Open all watches again: the fault that ended the last leader may have ended the API server of a watch too."""
        for watch in watches:
            watch.reopen_watch()
        with suppress(TimeoutError):
            async with asyncio.timeout(REOPEN_SECONDS_MAX):
                for watch in watches:
                    if not watch.not_served:
                        await watch.watching.wait()

    async def _version_of(self, pods: Pods) -> str:
        """Return the current version of the pods; empty where it cannot be read."""
        try:
            return await pods.version()
        except ApiError as error:
            self._log.warning("version of the pods unknown", reason=str(error))
            return ""

    async def _catch_up(self, pods: Pods, version: str) -> None:
        """Wait until the watch has shown this version; list all pods again if that takes too long or it is empty."""
        due, end = version_number(version), self._timing.clock() + CATCH_UP_SECONDS_MAX
        while due is not None:
            if (version_number(pods.watch_version) or 0) >= due:
                return
            if self._timing.clock() >= end:
                break
            await self._timing.sleep(POLL_SECONDS)
        self._log.info(
            "listing pods again", shown=pods.watch_version, due=version, reason="the last leader may have bound more"
        )
        await pods.relist()

    async def renew(self) -> None:
        """Renew the Lease until cancelled."""
        if self._elector is None:
            return
        await self._elector.leading.wait()
        try:
            await self._elector.renew()
        except LostLeaseError as error:
            self._lost(str(error))

    async def release(self, in_flight: Mapping[str, int], pods_seen: str) -> None:
        """Release the Lease, so that another scheduler leads at once; let it expire if requests are `in_flight`.

        `pods_seen` is a version of pods that includes all Bindings of this process; empty where none is known.
        """
        elector = self._elector
        if elector is None:
            return
        if not any(in_flight.values()):
            await elector.release(pods_seen)
        elif elector.holds_lease:
            seconds, reason = elector.config.lease_duration_seconds, "requests in flight may still take effect"
            self._log.warning("lease not released", **in_flight, another_leads_after_seconds=seconds, reason=reason)
            elector.leading.clear()

    async def close(self) -> None:
        """Close the connections of the election."""
        if self._elector is not None:
            await self._elector.close()

    def _lost(self, reason: str) -> NoReturn:
        self._log.error("lost the lease", reason=reason, exit_status=LOST_LEASE)
        self._end()
