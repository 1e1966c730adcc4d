"""A Lease as a lock: its fields, the patches of a holder, and when another holder's Lease expires.

Invariants:
- No clock of another machine counts: a Lease expires its duration after this candidate last saw it change.
- A patch names the resource version that was read; of two candidates the API server refuses one.
- `transitions` increases whenever the holder changes, and never decreases: it numbers the terms.

Source: client-go's leader election over coordination.k8s.io/v1.
"""

from typing import Final

import msgspec
from msgspec import Struct, field

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
