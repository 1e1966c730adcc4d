"""Our place in the election: follow, take the Lease when it is free, renew it, and never write without it.

Laws:
- We lead from the moment before the request that last took or renewed the Lease was sent, for `renew_seconds`, on a
  clock that never goes back. After that nothing is written until it is renewed.
- Renewing writes over the version that we know: it succeeds only if nobody has led in between. It is tried until
  `lease_seconds` are over, when others may take the Lease.
- A write and the look at that clock are one step of the event loop: nothing runs between them.
- Who has lost the Lease ends: what it still has in hand may be another's by now.
- The Lease has connections of its own: Bindings that queue must not delay it.

Source: client-go's leader election; "a paused process wakes after its lease has expired" (kubernetes#65257, #125761).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from structlog.typing import FilteringBoundLogger

from aischeduler.kube.backoff import Timing
from aischeduler.kube.client import refusal
from aischeduler.kube.connection_pool import ConnectionPool
from aischeduler.kube.errors import ApiError, MalformedAnswerError, RefusedError
from aischeduler.kube.http_connection import Answer
from aischeduler.kube.lease_lock import (
    Lease,
    ObservedLease,
    acquire_patch,
    new_lease,
    read_lease,
    release_patch,
    renew_patch,
)
from aischeduler.kube.meta_types import UNREADABLE
from aischeduler.kube.pod_writes import MERGE_PATCH, path_segment

JITTER: Final = 0.2
"""Of the time between two tries, so much is left out by chance: two that follow do not try at one moment for ever."""
RELEASE_TRIES_MAX: Final = 2
"""Tries to give the Lease back: a renewal that was under way may come between."""
CONFLICT: Final = 409
NOT_FOUND: Final = 404


@dataclass(frozen=True, slots=True)
class LeaderElectionConfig:
    """The rules of the election: the Lease's name, who we are, and seconds as client-go names them.

    `lease_seconds` is what others wait after our last renewal, and how long we try to renew; `renew_seconds` is how
    long we may write after it, and `retry_seconds` the time between two tries; each is larger than the next.
    """

    namespace: str
    name: str
    identity: str
    lease_duration_seconds: int = 15
    renew_deadline_seconds: float = 10.0
    retry_period_seconds: float = 2.0


class LostLeaseError(Exception):
    """We led and do not lead any more."""


class LeaderElector:
    """One candidate.

    `follows`: whether somebody led before us; `pods_seen`: which version of pods has all that it did, where it said so.
    """

    def __init__(
        self,
        connections: ConnectionPool,
        terms: LeaderElectionConfig,
        timing: Timing,
        wall: Callable[[], float],
        log: FilteringBoundLogger,
    ) -> None:
        self.leading = asyncio.Event()
        self.config = terms
        self._connections = connections
        self._timing = timing
        self._wall = wall
        self._log = log
        self._observed = ObservedLease()
        self._renewed_at = float("-inf")
        self._acquiring = False
        """A request that takes the Lease was sent and its answer not heard."""
        self._last_logged = ""
        """What was told last while we follow: a holder, or what went wrong."""
        self.has_predecessor = True
        self.pods_seen = ""

    @property
    def epoch(self) -> int:
        """The number of our term; of the last one seen while we follow."""
        return self._observed.lease.transitions if self._observed.lease is not None else 0

    @property
    def may_write(self) -> bool:
        """Say whether we lead at this very moment."""
        return self.leading.is_set() and self._unrenewed_seconds < self.config.renew_deadline_seconds

    @property
    def holds_lease(self) -> bool:
        """Say whether we led last and the Lease is not over: nobody else may have taken it."""
        return self.leading.is_set() and self._unrenewed_seconds < self.config.lease_duration_seconds

    @property
    def _unrenewed_seconds(self) -> float:
        return self._timing.clock() - self._renewed_at

    async def acquire(self) -> None:
        """Return once we lead."""
        while not await self._try_acquire():
            left = self._observed.expires_at(self.config.lease_duration_seconds) - self._timing.clock()
            soon = self._retry_seconds()
            await self._timing.sleep(left if 0 < left < soon else soon)
        self.leading.set()
        self._log.info("leading", lease=self._lease_name, identity=self.config.identity, epoch=self.epoch)

    async def renew(self) -> None:
        """Renew until cancelled; raises LostLeaseError."""
        while True:
            left = self.config.lease_duration_seconds - self._unrenewed_seconds
            if left <= 0:
                raise LostLeaseError(
                    f"{self._lease_name} could not be renewed for {self.config.lease_duration_seconds} s"
                )
            await self._timing.sleep(min(self._retry_seconds(), left))
            if not self.holds_lease:
                continue
            try:
                await self._try_renew()
            except ApiError as error:
                if self._is_new(str(error)):
                    self._log.warning("the lease could not be renewed", lease=self._lease_name, reason=str(error))

    async def release(self, pods_seen: str) -> None:
        """Give the Lease back, where it is ours, so that another may lead at once; nothing may be under way any more.

        To be called when `lead` and `keep` have ended. What they had begun may have made the Lease ours unheard.
        """
        if not self.holds_lease and not self._acquiring:
            return
        self.leading.clear()
        for _ in range(RELEASE_TRIES_MAX):
            try:
                lease = await self._read()
                if lease is None or lease.holder != self.config.identity:
                    return
                await self._patch(release_patch(lease, pods_seen, self._wall()))
            except ApiError as error:
                self._log.warning("the lease could not be given back", lease=self._lease_name, reason=str(error))
            else:
                self._log.info("lease given back", lease=self._lease_name, epoch=lease.transitions)
                return

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()

    async def _try_acquire(self) -> bool:
        """Look at the Lease and take it if it is free; say whether it is ours now."""
        try:
            lease = await self._read()
            if lease is not None:
                self._observed.observe(lease, self._timing.clock())
                ours = lease.holder == self.config.identity  # the answer to an earlier try was lost
                if not ours and self._timing.clock() < self._observed.expires_at(self.config.lease_duration_seconds):
                    if self._is_new(lease.holder):
                        self._log.info("standing by", lease=self._lease_name, leader=lease.holder)
                    return False
            await self._acquire(lease)
        except ApiError as error:
            quicker = isinstance(error, RefusedError) and error.status == CONFLICT  # somebody else was
            if not quicker and self._is_new(str(error)):
                self._log.warning("the lease could not be taken", lease=self._lease_name, reason=str(error))
            return False
        return True

    async def _acquire(self, lease: Lease | None) -> None:
        terms, began = self.config, self._timing.clock()
        self._acquiring = True
        if lease is None:
            self.has_predecessor = False
            body = new_lease(terms.name, terms.namespace, terms.identity, terms.lease_duration_seconds, self._wall())
            answer = await self._send(b"POST", self._path(), body, "application/json")
        elif lease.holder == terms.identity:
            answer = await self._patch(renew_patch(lease, terms.identity, terms.lease_duration_seconds, self._wall()))
        else:
            self.has_predecessor, self.pods_seen = True, "" if lease.holder else lease.pods_seen
            answer = await self._patch(acquire_patch(lease, terms.identity, terms.lease_duration_seconds, self._wall()))
        self._record_renewal(answer, began)

    async def _try_renew(self) -> None:
        lease, terms, began = self._observed.lease, self.config, self._timing.clock()
        assert lease is not None, "renews what was never taken"
        try:
            answer = await self._patch(renew_patch(lease, terms.identity, terms.lease_duration_seconds, self._wall()))
        except RefusedError as error:
            if error.status not in (CONFLICT, NOT_FOUND):
                raise
            await self._reread_after_conflict()
        else:
            after = began - self._renewed_at
            self._record_renewal(answer, began)
            if after >= terms.renew_deadline_seconds:
                self._log.warning("the lease was renewed late", lease=self._lease_name, after_seconds=round(after, 1))

    async def _reread_after_conflict(self) -> None:
        """Read the Lease after a conflict: another may lead, or something else of it was changed."""
        lease = await self._read()
        if lease is None or lease.holder != self.config.identity:
            holder = lease.holder if lease is not None else ""
            raise LostLeaseError(f"{self._lease_name} is held by {holder}" if holder else f"{self._lease_name} is gone")
        self._observed.observe(lease, self._timing.clock())

    def _record_renewal(self, answer: Answer, began: float) -> None:
        self._observed.observe(_decoded(answer.body), self._timing.clock())
        self._renewed_at, self._last_logged, self._acquiring = began, "", False

    async def _read(self) -> Lease | None:
        """Return the Lease as it is now, or None where there is none."""
        try:
            answer = await self._send(b"GET", self._path(self.config.name))
        except RefusedError as error:
            if error.status == NOT_FOUND:
                return None
            raise
        return _decoded(answer.body)

    async def _patch(self, body: bytes) -> Answer:
        return await self._send(b"PATCH", self._path(self.config.name), body, MERGE_PATCH)

    async def _send(self, method: bytes, path: str, body: bytes = b"", content_type: str = "") -> Answer:
        seconds = self.config.renew_deadline_seconds / 2
        answer = await self._connections.send(method, path.encode(), body, content_type.encode(), seconds)
        if answer.status >= 300:
            raise refusal(answer.status, answer.body, answer.retry_after, f"{method.decode()} {path}")
        return answer

    def _path(self, name: str = "") -> str:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{path_segment(self.config.namespace)}/leases"
        return f"{path}/{path_segment(name)}" if name else path

    @property
    def _lease_name(self) -> str:
        return f"{self.config.namespace}/{self.config.name}"

    def _retry_seconds(self) -> float:
        return self.config.retry_period_seconds * (1.0 - JITTER * self._timing.jitter.random())

    def _is_new(self, what: str) -> bool:
        """Say whether this was not what was told last: what keeps us from leading is told once in a row."""
        news = self._last_logged != what
        self._last_logged = what
        return news


def _decoded(body: bytes) -> Lease:
    try:
        return read_lease(body)
    except UNREADABLE as error:
        raise MalformedAnswerError(f"the lease cannot be read: {error}") from error
