"""A Lease as a lock: what it says, what we write, and when somebody else's may be taken.

Laws:
- Nobody's clock is compared with ours: a holder's time runs from when we saw its Lease change last.
- A Lease is written only over the version that was read; of two that try, the API server refuses one.
- `transitions` grows whenever the holder changes: it numbers the terms of leaders, and never goes back.

Source: client-go's leader election over coordination.k8s.io/v1.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import Struct, field

from aischeduler.model.names import MARK_PREFIX

PODS_SEEN_KEY: Final = MARK_PREFIX + "pods-seen"
"""Annotation of a Lease that was given back: the resource version of pods that has every Binding of its holder."""
RELEASED_SECONDS: Final = 1
"""What a Lease that was given back says of its length: a lease of no length is not allowed."""
LEASE_SECONDS_MAX: Final = 3600
"""A Lease that says it is longer is believed only so far."""

Json = dict[str, object]


class LeaseMetadata(Struct, rename="camel"):
    """Name and version of a Lease."""

    name: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class LeaseSpec(Struct, rename="camel"):
    """Who holds it, for how long from its last renewal, and how often it changed hands."""

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
        """Who holds it; empty where nobody does."""
        return self.spec.holder_identity or ""

    @property
    def transitions(self) -> int:
        """The number of its term."""
        return self.spec.lease_transitions or 0

    @property
    def pods_seen(self) -> str:
        """The resource version of pods that has every Binding of the last holder, where it gave the Lease back."""
        return (self.metadata.annotations or {}).get(PODS_SEEN_KEY, "")


@dataclass(slots=True)
class ObservedLease:
    """The Lease as it was seen last, and since when it has been so, on our clock."""

    lease: Lease | None = None
    since: float = 0.0

    def observe(self, lease: Lease, now: float) -> None:
        """Note how the Lease stands now."""
        if self.lease is None or self.lease.spec != lease.spec:
            self.since = now
        self.lease = lease

    def expires_at(self, lease_seconds: float) -> float:
        """Return when the Lease may be taken if nothing changes; `lease_seconds` where it does not say its length."""
        if self.lease is None or not self.lease.holder:
            return float("-inf")
        said = self.lease.spec.lease_duration_seconds or 0
        return self.since + (min(said, LEASE_SECONDS_MAX) if said > 0 else lease_seconds)


def read_lease(body: bytes) -> Lease:
    """Read a Lease; raises what UNREADABLE names."""
    return msgspec.json.decode(body, type=Lease)


def new_lease(name: str, namespace: str, holder: str, seconds: int, wall: float) -> bytes:
    """Return a Lease to be created, held from now on; `wall` in unix seconds, which people read and nobody trusts."""
    spec = {**_holder_fields(holder, seconds, wall), "acquireTime": _time(wall), "leaseTransitions": 0}
    metadata = {"name": name, "namespace": namespace}
    document = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
    return msgspec.json.encode(document)


def acquire_patch(lease: Lease, holder: str, seconds: int, wall: float) -> bytes:
    """Return the patch that takes a Lease over from another holder, or from nobody: a new term begins."""
    term = {"acquireTime": _time(wall), "leaseTransitions": lease.transitions + 1}
    return _patch(lease, {**_holder_fields(holder, seconds, wall), **term}, {PODS_SEEN_KEY: None})


def renew_patch(lease: Lease, holder: str, seconds: int, wall: float) -> bytes:
    """Return the patch that renews our Lease."""
    return _patch(lease, _holder_fields(holder, seconds, wall))


def release_patch(lease: Lease, pods_seen: str, wall: float) -> bytes:
    """Return the patch that gives our Lease back, and tells which version of pods has all that we did."""
    return _patch(lease, _holder_fields("", RELEASED_SECONDS, wall), {PODS_SEEN_KEY: pods_seen or None})


def _holder_fields(holder: str, seconds: int, wall: float) -> Json:
    return {"holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": _time(wall)}


def _patch(lease: Lease, spec: Json, annotations: Json | None = None) -> bytes:
    metadata: Json = {"resourceVersion": lease.metadata.resource_version}
    if annotations:
        metadata["annotations"] = annotations
    return msgspec.json.encode({"metadata": metadata, "spec": spec})


def _time(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
