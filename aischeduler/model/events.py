"""Events: everything that a shell tells the engine, as a closed union.

Invariants:
- `…Seen` carries an object as it is now, new or changed; the same object twice changes nothing.
- `…Gone` ends the object of this name or uid; for an unknown object it changes nothing.
- A bind has one outcome, and a definite one: the shell keeps an unclear outcome until a read decides it. An accepted
  bind is no event: the pod is assumed, and `PodSeen` shows it on its node.
"""

from dataclasses import dataclass
from enum import StrEnum

from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.gang import Gang, GangKey
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pod_set import PodSet
from aischeduler.model.pool import Pool
from aischeduler.model.selectors import Labels
from aischeduler.model.storage_objects import StorageObject
from aischeduler.model.volumes import Volume, VolumeClaim


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A pod as it is now."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class PodGone:
    """The pod of this uid no longer exists."""

    uid: str


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node as it is now."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeGone:
    """No node of this name exists any more."""

    name: str


@dataclass(frozen=True, slots=True)
class PoolSeen:
    """A Pool as it is now."""

    pool: Pool


@dataclass(frozen=True, slots=True)
class PoolGone:
    """No Pool of this name exists any more."""

    name: str


class BindRefusal(StrEnum):
    """Why a Binding failed, by what follows."""

    GONE = "Gone"
    """The pod of this uid no longer exists (404, or 409 for another uid): free the room, never retry."""
    TAKEN = "Taken"
    """The pod is bound to another node (409): free the room; the watch shows the node."""
    HELD = "Held"
    """The pod is terminating or gated (409): free the room, wait for a change of the pod."""
    INVALID = "Invalid"
    """The API server rejects this Binding for good (400, 422): free the room, wait for a change of the pod."""
    FORBIDDEN = "Forbidden"
    """The scheduler may not bind (403): free the room, retry with backoff."""
    UNAVAILABLE = "Unavailable"
    """The request failed (429, 5xx, timeout), and a read shows the pod unbound: free the room, retry with backoff."""
    STALE = "Stale"
    """It was not sent, because its node is gone or it waited too long: free the room, decide again at once."""


@dataclass(frozen=True, slots=True)
class BindRefused:
    """The Binding of this pod to this node failed for good; `message` is the server's."""

    uid: str
    node: str
    refusal: BindRefusal
    message: str


@dataclass(frozen=True, slots=True)
class VolumesWritten:
    """What a `BindVolumes` of this decision asked for is written; `versions` are the new resource versions."""

    uid: str
    decision: str
    versions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VolumesRefused:
    """What a `BindVolumes` of this decision asked for could not be written, or only a part; `message` says why."""

    uid: str
    decision: str
    message: str


@dataclass(frozen=True, slots=True)
class BudgetSeen:
    """A PodDisruptionBudget as it is now."""

    budget: DisruptionBudget


@dataclass(frozen=True, slots=True)
class BudgetGone:
    """No PodDisruptionBudget of this name exists any more."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class NamespaceSeen:
    """A namespace as it is now: a Pool may allow pods from some namespaces only, by their labels."""

    name: str
    labels: Labels


@dataclass(frozen=True, slots=True)
class NamespaceGone:
    """No namespace of this name exists any more."""

    name: str


@dataclass(frozen=True, slots=True)
class VolumeClaimSeen:
    """A PersistentVolumeClaim as it is now."""

    claim: VolumeClaim


@dataclass(frozen=True, slots=True)
class VolumeClaimGone:
    """No PersistentVolumeClaim of this name exists any more."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class VolumeSeen:
    """A PersistentVolume as it is now."""

    volume: Volume


@dataclass(frozen=True, slots=True)
class VolumeGone:
    """No PersistentVolume of this name exists any more."""

    name: str


@dataclass(frozen=True, slots=True)
class StorageSeen:
    """An object of storage.k8s.io as it is now."""

    object: StorageObject


@dataclass(frozen=True, slots=True)
class StorageGone:
    """No object of this kind and name exists any more; `kind` is the name of the type in `storage_objects`."""

    kind: str
    name: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class GangSeen:
    """The object of a gang as it is now; a Job or a JobSet that asks for no gang has the minimum 1."""

    gang: Gang


@dataclass(frozen=True, slots=True)
class GangGone:
    """The object of a gang no longer exists."""

    key: GangKey


@dataclass(frozen=True, slots=True)
class PodSetSeen:
    """A Service, or a controller that makes pods, as it is now, with the pods that it selects."""

    pod_set: PodSet


@dataclass(frozen=True, slots=True)
class PodSetGone:
    """No Service, or controller of this kind, of this name exists any more."""

    kind: str
    namespace: str
    name: str


class EvictRefusal(StrEnum):
    """Why a victim was not evicted."""

    BUDGET = "Budget"
    """A disruption budget forbids the eviction now (429 of the Eviction API)."""
    FORBIDDEN = "Forbidden"
    """The scheduler may not evict (403)."""
    UNAVAILABLE = "Unavailable"
    """Every try of the request failed."""
    LOST = "Lost"
    """The eviction had no outcome, and a later read shows that the pod is not terminating."""


@dataclass(frozen=True, slots=True)
class EvictRefused:
    """The pod of this uid was not evicted. A pod that is already gone is no refusal: the watch shows that."""

    uid: str
    why: EvictRefusal
    message: str


@dataclass(frozen=True, slots=True)
class PoolRead:
    """The Pool of this name was read. Where it was `found`, a `PoolSeen` came before."""

    name: str
    found: bool


@dataclass(frozen=True, slots=True)
class PoolUnread:
    """The Pool of this name could not be read yet; the read is retried. `message` says why it failed."""

    name: str
    message: str


@dataclass(frozen=True, slots=True)
class PoolsListed:
    """A `PoolSeen` came for every Pool, no older than the request for the list."""


@dataclass(frozen=True, slots=True)
class Refreshed:
    """Events came for everything that an eviction in this pool depends on, as it was a moment ago."""

    pool: str


@dataclass(frozen=True, slots=True)
class RefreshFailed:
    """The refresh of this pool failed; `message` says why."""

    pool: str
    message: str


StorageEvent = VolumeClaimSeen | VolumeClaimGone | VolumeSeen | VolumeGone | StorageSeen | StorageGone
RuleEvent = BudgetSeen | BudgetGone | NamespaceSeen | NamespaceGone | GangSeen | GangGone | PodSetSeen | PodSetGone
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
    | StorageSeen
    | StorageGone
    | GangSeen
    | GangGone
    | PodSetSeen
    | PodSetGone
    | BindRefused
    | VolumesWritten
    | VolumesRefused
    | EvictRefused
    | PoolRead
    | PoolUnread
    | PoolsListed
    | Refreshed
    | RefreshFailed
)
