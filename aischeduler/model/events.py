"""Everything that can happen: the closed union that shells hand to the core.

Laws:
- `…Seen` carries an object as it now is, new or changed; seeing the same twice changes nothing.
- `…Gone` ends what its name or uid stood for; for something unknown it changes nothing.
- A bind has exactly one outcome, and only a definite one: what is unknown stays with the shell until it is settled.
  That it was accepted is no event of its own: the pod is assumed, and `PodSeen` shows it on its node.
"""

from dataclasses import dataclass
from enum import StrEnum

from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Pool
from aischeduler.model.selectors import Labels
from aischeduler.model.volumes import Volume, VolumeClaim


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A pod as it now is."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class PodGone:
    """The pod of this uid no longer exists."""

    uid: str


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node as it now is."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeGone:
    """No node of this name exists any more."""

    name: str


@dataclass(frozen=True, slots=True)
class PoolSeen:
    """A Pool object as it now is."""

    pool: Pool


@dataclass(frozen=True, slots=True)
class PoolGone:
    """No Pool object of this name exists any more."""

    name: str


class BindRefusal(StrEnum):
    """Why a Binding came to nothing, by what has to follow."""

    GONE = "Gone"
    """The pod of this uid no longer exists (404, or a 409 about the uid): free the room, never retry."""
    TAKEN = "Taken"
    """The pod is bound to another node (409): free the room, the watch tells where it is."""
    HELD = "Held"
    """The pod is terminating or gated (409): free the room, wait for its next change."""
    INVALID = "Invalid"
    """The API server will never take this (400, 422): free the room, wait for the pod to change."""
    FORBIDDEN = "Forbidden"
    """We may not bind (403): free the room, try again after a backoff."""
    UNAVAILABLE = "Unavailable"
    """The request failed and the pod was read to be unbound (429, 5xx, timeouts): free the room, retry with backoff."""
    STALE = "Stale"
    """It was not sent: its node is gone, or it had waited too long: free the room, decide anew at once."""


@dataclass(frozen=True, slots=True)
class BindRefused:
    """Our Binding of this pod to this node failed for good; `message` is the server's."""

    uid: str
    node: str
    refusal: BindRefusal
    message: str


@dataclass(frozen=True, slots=True)
class BudgetSeen:
    """A PodDisruptionBudget as it now is."""

    budget: DisruptionBudget


@dataclass(frozen=True, slots=True)
class BudgetGone:
    """No PodDisruptionBudget of this name exists any more."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class NamespaceSeen:
    """A namespace as it now is: pools may allow only pods from some, by their labels."""

    name: str
    labels: Labels


@dataclass(frozen=True, slots=True)
class NamespaceGone:
    """No namespace of this name exists any more."""

    name: str


@dataclass(frozen=True, slots=True)
class VolumeClaimSeen:
    """A PersistentVolumeClaim as it now is."""

    claim: VolumeClaim


@dataclass(frozen=True, slots=True)
class VolumeClaimGone:
    """No PersistentVolumeClaim of this name exists any more."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class VolumeSeen:
    """A PersistentVolume as it now is."""

    volume: Volume


@dataclass(frozen=True, slots=True)
class VolumeGone:
    """No PersistentVolume of this name exists any more."""

    name: str


class EvictRefusal(StrEnum):
    """Why a victim was not evicted."""

    BUDGET = "Budget"
    """A disruption budget forbids it now (429 of the Eviction API)."""
    FORBIDDEN = "Forbidden"
    """We may not (403)."""
    UNAVAILABLE = "Unavailable"
    """The requests failed, for as often as they are tried."""
    LOST = "Lost"
    """Nothing was heard of the eviction, and the pod was read long after: nobody has asked it to go."""


@dataclass(frozen=True, slots=True)
class EvictRefused:
    """The pod of this uid was not evicted. That it is already gone is no refusal: the watch says so."""

    uid: str
    why: EvictRefusal
    message: str


@dataclass(frozen=True, slots=True)
class PoolRead:
    """The Pool of this name was read, and was `found` or not; the one that was found has been told before."""

    name: str
    found: bool


@dataclass(frozen=True, slots=True)
class PoolUnread:
    """The Pool of this name could not be read yet; it is tried again. `message` says why."""

    name: str
    message: str


@dataclass(frozen=True, slots=True)
class PoolsListed:
    """Every Pool has been told as it was when the list was asked for, or later."""


@dataclass(frozen=True, slots=True)
class Refreshed:
    """All that an eviction in this pool depends on has been told as it was a moment ago."""

    pool: str


@dataclass(frozen=True, slots=True)
class RefreshFailed:
    """It is not known whether all that an eviction in this pool depends on has been told. `message` says why."""

    pool: str
    message: str


ReadAnswer = PoolRead | PoolUnread | PoolsListed | Refreshed | RefreshFailed
Event = (
    PodSeen
    | PodGone
    | NodeSeen
    | NodeGone
    | PoolSeen
    | PoolGone
    | BudgetSeen
    | BudgetGone
    | NamespaceSeen
    | NamespaceGone
    | VolumeClaimSeen
    | VolumeClaimGone
    | VolumeSeen
    | VolumeGone
    | BindRefused
    | EvictRefused
    | PoolRead
    | PoolUnread
    | PoolsListed
    | Refreshed
    | RefreshFailed
)
