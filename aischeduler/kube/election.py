"""Leader election with a Lease: acquire it when it is free, renew it, release it, and never write without it.

Invariants:
- A term is valid for `renew_deadline_seconds` from before the last successful acquire or renew request was sent, on a
  monotonic clock. After that no write is sent until the Lease is renewed.
- A renewal patches the known version of the Lease, so it succeeds only if no other candidate led in between. It is
  retried until `lease_duration_seconds` are over, when others may take the Lease.
- A write and the check of that clock are one step of the event loop: nothing runs between them.
- A leader that lost the Lease ends: its requests in flight may conflict with the next leader's.
- The Lease has its own connections: queued Bindings must not delay it.
- No clock of another machine counts: a Lease expires its duration after this candidate last saw it change.
- A patch names the resource version that was read; of two candidates the API server refuses one.
- `transitions` increases whenever the holder changes, and never decreases: it numbers the terms.

Source: client-go's leader election over coordination.k8s.io/v1; "a paused process wakes after its lease has expired"
(kubernetes#65257, #125761).
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Struct, field
from structlog.typing import FilteringBoundLogger

from aischeduler.kube.decode.meta_types import UNREADABLE
from aischeduler.kube.http.backoff import Timing
from aischeduler.kube.http.client import refusal
from aischeduler.kube.http.connection import Answer
from aischeduler.kube.http.connection_pool import ConnectionPool
from aischeduler.kube.http.errors import ApiError, MalformedAnswerError, RefusedError
from aischeduler.kube.http.paths import collection_path, object_path
from aischeduler.kube.write.pod_writes import MERGE_PATCH
from aischeduler.model.decode_errors import decode_problem
from aischeduler.model.names import MARK_PREFIX
from aischeduler.model.times import time_text

PODS_SEEN_KEY: Final = MARK_PREFIX + "pods-seen"
"""The annotation of a released Lease: the resource version of pods that contains every Binding of its holder."""
RELEASED_SECONDS: Final = 1
"""The duration in a released Lease; the API does not allow zero."""
LEASE_SECONDS_MAX: Final = 3600
"""The longest duration of a Lease; a longer one counts as this."""

Json = dict[str, object]


class LeaseMetadata(Struct, rename="camel"):
    """Name, version and annotations of a Lease."""

    name: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class LeaseSpec(Struct, rename="camel"):
    """The holder, its time of renewal, and the number of transitions."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Struct):
    """A Lease."""

    metadata: LeaseMetadata = field(default_factory=LeaseMetadata)
    spec: LeaseSpec = field(default_factory=LeaseSpec)

    @property
    def holder(self) -> str:
        """The holder; empty if there is none."""
        return self.spec.holder_identity or ""

    @property
    def transitions(self) -> int:
        """The number of the term."""
        return self.spec.lease_transitions or 0

    @property
    def pods_seen(self) -> str:
        """The resource version of pods that contains every Binding of the last holder, if it released the Lease."""
        return (self.metadata.annotations or {}).get(PODS_SEEN_KEY, "")


class ObservedLease(Struct):
    """The Lease as last seen, and since when it is unchanged on the candidate's clock."""

    lease: Lease | None = None
    since: float = 0.0

    def observe(self, lease: Lease, now: float) -> None:
        """Record the Lease as it is now."""
        if self.lease is None or self.lease.spec != lease.spec:
            self.since = now
        self.lease = lease

    def expires_at(self, lease_seconds: float) -> float:
        """Return when the Lease expires if it does not change; `lease_seconds` is used if it names no duration."""
        if self.lease is None or not self.lease.holder:
            return float("-inf")
        duration = self.lease.spec.lease_duration_seconds or 0
        return self.since + (min(duration, LEASE_SECONDS_MAX) if duration > 0 else lease_seconds)


def read_lease(body: bytes) -> Lease:
    """Decode a Lease; raises the errors of UNREADABLE."""
    return msgspec.json.decode(body, type=Lease)


def new_lease(name: str, namespace: str, holder: str, seconds: int, wall: float) -> bytes:
    """Return a new Lease that `holder` holds; `wall` is unix time, for people only."""
    spec = {
        **_holder_fields(holder, seconds, wall),
        "acquireTime": time_text(wall, "microseconds"),
        "leaseTransitions": 0,
    }
    metadata = {"name": name, "namespace": namespace}
    document = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
    return msgspec.json.encode(document)


def acquire_patch(lease: Lease, holder: str, seconds: int, wall: float) -> bytes:
    """Return the patch that acquires a Lease, whether or not it has another holder, and begins a term."""
    term = {"acquireTime": time_text(wall, "microseconds"), "leaseTransitions": lease.transitions + 1}
    return _patch(lease, {**_holder_fields(holder, seconds, wall), **term}, {PODS_SEEN_KEY: None})


def renew_patch(lease: Lease, holder: str, seconds: int, wall: float) -> bytes:
    """Return the patch that renews the Lease of its holder."""
    return _patch(lease, _holder_fields(holder, seconds, wall))


def release_patch(lease: Lease, pods_seen: str, wall: float) -> bytes:
    """Return the patch that releases the Lease; `pods_seen` is the version of pods with all Bindings of its holder."""
    return _patch(lease, _holder_fields("", RELEASED_SECONDS, wall), {PODS_SEEN_KEY: pods_seen or None})


def _holder_fields(holder: str, seconds: int, wall: float) -> Json:
    return {"holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": time_text(wall, "microseconds")}


def _patch(lease: Lease, spec: Json, annotations: Json | None = None) -> bytes:
    metadata: Json = {"resourceVersion": lease.metadata.resource_version}
    if annotations:
        metadata["annotations"] = annotations
    return msgspec.json.encode({"metadata": metadata, "spec": spec})


JITTER: Final = 0.2
"""The random part of the time between two tries, so that two candidates do not retry in step."""
RELEASE_TRIES_MAX: Final = 2
"""How often a release is tried: a renewal in flight may conflict with the first one."""
CONFLICT: Final = 409
NOT_FOUND: Final = 404


class LeaderElectionConfig(Struct, frozen=True):
    """The Lease, the identity of the candidate, and the times as client-go names them.

    Other candidates may take the Lease `lease_duration_seconds` after the leader's last renewal; until then the leader
    tries to renew it. The leader writes for `renew_deadline_seconds` after the last renewal. `retry_period_seconds` is
    the time between two tries. Each of these times is longer than the next one.
    """

    namespace: str
    name: str
    identity: str
    lease_duration_seconds: int = 15
    renew_deadline_seconds: float = 10.0
    retry_period_seconds: float = 2.0


class LostLeaseError(Exception):
    """The leader lost the Lease."""


class LeaderElector:
    """A candidate.

    `has_predecessor`: whether another candidate led before; `pods_seen`: the resource version of pods that contains all
    its Bindings, if it released the Lease.
    """

    def __init__(
        self,
        connections: ConnectionPool,
        config: LeaderElectionConfig,
        timing: Timing,
        wall: Callable[[], float],
        log: FilteringBoundLogger,
    ) -> None:
        self.leading = asyncio.Event()
        self.config = config
        self._connections = connections
        self._timing = timing
        self._wall = wall
        self._log = log
        self._observed = ObservedLease()
        self._renewed_at = float("-inf")
        self._acquiring = False
        """A request to acquire the Lease was sent, and its answer did not arrive."""
        self._last_logged = ""
        """The last logged holder or error; equal ones in a row are logged once."""
        self.has_predecessor = True
        self.pods_seen = ""

    @property
    def epoch(self) -> int:
        """The number of the leader's own term; for a standby, the number of the last term that it saw."""
        return self._observed.lease.transitions if self._observed.lease is not None else 0

    @property
    def may_write(self) -> bool:
        """Say whether this candidate may send a write now."""
        return self.leading.is_set() and self._unrenewed_seconds < self.config.renew_deadline_seconds

    @property
    def holds_lease(self) -> bool:
        """Say whether this candidate led last and no other candidate may have taken the Lease yet."""
        return self.leading.is_set() and self._unrenewed_seconds < self.config.lease_duration_seconds

    @property
    def _unrenewed_seconds(self) -> float:
        return self._timing.clock() - self._renewed_at

    async def acquire(self) -> None:
        """Return once this candidate leads."""
        while not await self._try_acquire():
            remaining = self._observed.expires_at(self.config.lease_duration_seconds) - self._timing.clock()
            soon = self._retry_seconds()
            await self._timing.sleep(remaining if 0 < remaining < soon else soon)
        self.leading.set()
        self._log.info("leading", lease=self._lease_name, identity=self.config.identity, epoch=self.epoch)

    async def renew(self) -> None:
        """Renew until cancelled; raises LostLeaseError."""
        while True:
            remaining = self.config.lease_duration_seconds - self._unrenewed_seconds
            if remaining <= 0:
                raise LostLeaseError(
                    f"{self._lease_name} could not be renewed for {self.config.lease_duration_seconds} s"
                )
            await self._timing.sleep(min(self._retry_seconds(), remaining))
            if not self.holds_lease:
                continue
            try:
                await self._try_renew()
            except ApiError as error:
                if self._is_new(str(error)):
                    self._log.warning("the lease could not be renewed", lease=self._lease_name, reason=str(error))

    async def release(self, pods_seen: str) -> None:
        """Release the Lease if this candidate holds it: another one can lead at once, and no write may be in flight.

        Called after `acquire` and `renew` have ended: one of their requests may have acquired the Lease without an
        answer.
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
                self._log.warning("the lease could not be released", lease=self._lease_name, reason=str(error))
            else:
                self._log.info("lease released", lease=self._lease_name, epoch=lease.transitions)
                return

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()

    async def _try_acquire(self) -> bool:
        """Read the Lease and acquire it if it is free; return whether this candidate holds it now."""
        try:
            lease = await self._read()
            if lease is not None:
                self._observed.observe(lease, self._timing.clock())
                own = lease.holder == self.config.identity  # the answer to an earlier try was lost
                if not own and self._timing.clock() < self._observed.expires_at(self.config.lease_duration_seconds):
                    if self._is_new(lease.holder):
                        self._log.info("standing by", lease=self._lease_name, leader=lease.holder)
                    return False
            await self._acquire(lease)
        except ApiError as error:
            conflict = isinstance(error, RefusedError) and error.status == CONFLICT  # another candidate was faster
            if not conflict and self._is_new(str(error)):
                self._log.warning("the lease could not be acquired", lease=self._lease_name, reason=str(error))
            return False
        return True

    async def _acquire(self, lease: Lease | None) -> None:
        config, sent_at = self.config, self._timing.clock()
        self._acquiring = True
        if lease is None:
            self.has_predecessor = False
            body = new_lease(
                config.name, config.namespace, config.identity, config.lease_duration_seconds, self._wall()
            )
            answer = await self._send(b"POST", self._path(), body, "application/json")
        elif lease.holder == config.identity:
            answer = await self._patch(renew_patch(lease, config.identity, config.lease_duration_seconds, self._wall()))
        else:
            self.has_predecessor, self.pods_seen = True, "" if lease.holder else lease.pods_seen
            answer = await self._patch(
                acquire_patch(lease, config.identity, config.lease_duration_seconds, self._wall())
            )
        self._record_renewal(answer, sent_at)

    async def _try_renew(self) -> None:
        lease, config, sent_at = self._observed.lease, self.config, self._timing.clock()
        assert lease is not None, "only a candidate that acquired the Lease renews it"
        try:
            answer = await self._patch(renew_patch(lease, config.identity, config.lease_duration_seconds, self._wall()))
        except RefusedError as error:
            if error.status not in (CONFLICT, NOT_FOUND):
                raise
            await self._reread_after_conflict()
        else:
            after = sent_at - self._renewed_at
            self._record_renewal(answer, sent_at)
            if after >= config.renew_deadline_seconds:
                self._log.warning("the lease was renewed late", lease=self._lease_name, after_seconds=round(after, 1))

    async def _reread_after_conflict(self) -> None:
        """Read the Lease after a conflict: another candidate may lead, or another field of the Lease changed."""
        lease = await self._read()
        if lease is None or lease.holder != self.config.identity:
            holder = lease.holder if lease is not None else ""
            raise LostLeaseError(f"{self._lease_name} is held by {holder}" if holder else f"{self._lease_name} is gone")
        self._observed.observe(lease, self._timing.clock())

    def _record_renewal(self, answer: Answer, sent_at: float) -> None:
        self._observed.observe(_decoded(answer.body), self._timing.clock())
        self._renewed_at, self._last_logged, self._acquiring = sent_at, "", False

    async def _read(self) -> Lease | None:
        """Return the Lease; None if it does not exist."""
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
        kind = "coordination.k8s.io/v1", "leases"
        namespace = self.config.namespace
        return object_path(*kind, name, namespace) if name else collection_path(*kind, namespace)

    @property
    def _lease_name(self) -> str:
        return f"{self.config.namespace}/{self.config.name}"

    def _retry_seconds(self) -> float:
        return self.config.retry_period_seconds * (1.0 - JITTER * self._timing.jitter.random())

    def _is_new(self, what: str) -> bool:
        """Say whether this differs from the last logged reason."""
        news = self._last_logged != what
        self._last_logged = what
        return news


def _decoded(body: bytes) -> Lease:
    try:
        return read_lease(body)
    except UNREADABLE as error:
        raise MalformedAnswerError(f"the lease cannot be read: {decode_problem(error)}") from error
