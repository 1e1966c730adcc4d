"""Events: everything that a shell tells the engine, as a closed union.

Invariants:
- `…Seen` carries an object as it is now, new or changed; the same object twice changes nothing.
- `…Gone` ends the object of this name or uid; for an unknown object it changes nothing.
- A bind has one outcome, and a definite one: the shell keeps an unclear outcome until a read decides it. An accepted
  bind is no event: the pod is assumed, and `PodSeen` shows it on its node.
"""

from enum import StrEnum

from msgspec import Struct

from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.gang import Gang, GangKey
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pod_set import PodSet
from aischeduler.model.pool import Pool
from aischeduler.model.selectors import Labels
from aischeduler.model.storage_objects import StorageObject
from aischeduler.model.volumes import Volume, VolumeClaim


class PodSeen(Struct, frozen=True):
    """A pod as it is now."""

    pod: Pod


class PodGone(Struct, frozen=True):
    """The pod of this uid no longer exists."""

    uid: str


class NodeSeen(Struct, frozen=True):
    """A node as it is now."""

    node: Node


class NodeGone(Struct, frozen=True):
    """No node of this name exists any more."""

    name: str


class PoolSeen(Struct, frozen=True):
    """A Pool as it is now."""

    pool: Pool


class PoolGone(Struct, frozen=True):
    """No Pool of this name exists any more."""

    name: str


class BindRefusal(StrEnum):
    """Why a Binding failed, by what follows."""

    GONE = "Gone"
    """A read shows that the pod of this uid does not exist, or has finished: free the room, never retry."""
    TAKEN = "Taken"
    """A read shows the pod on another node: free the room; the watch shows the node."""
    HELD = "Held"
    """A read shows the pod terminating or gated: free the room, wait for a change of the pod."""
    INVALID = "Invalid"
    """The API server, a policy or a webhook rejects this Binding (400, 422): free the room, retry with backoff."""
    FORBIDDEN = "Forbidden"
    """The scheduler may not bind this pod (403): free the room, retry with backoff."""
    UNAVAILABLE = "Unavailable"
    """It was asked to wait (429), or any other answer or none came and a read shows the pod unbound: as `INVALID`."""
    STALE = "Stale"
    """It was not sent, because its node is gone or it waited too long: free the room, decide again at once."""


class BindRefused(Struct, frozen=True):
    """This Binding of the pod to this node failed; `message` is the server's.

    The pod is not tried again before `retry_after_seconds`.
    """

    uid: str
    node: str
    refusal: BindRefusal
    message: str
    retry_after_seconds: float = 0.0


class VolumesWritten(Struct, frozen=True):
    """What a `BindVolumes` of this decision asked for is written; `versions` are the new resource versions."""

    uid: str
    decision: str
    versions: tuple[str, ...]


class VolumesRefused(Struct, frozen=True):
    """What a `BindVolumes` of this decision asked for could not be written, or only a part; `message` says why."""

    uid: str
    decision: str
    message: str


class BudgetSeen(Struct, frozen=True):
    """A PodDisruptionBudget as it is now."""

    budget: DisruptionBudget


class BudgetGone(Struct, frozen=True):
    """No PodDisruptionBudget of this name exists any more."""

    namespace: str
    name: str


class NamespaceSeen(Struct, frozen=True):
    """A namespace as it is now: a Pool may allow pods from some namespaces only, by their labels."""

    name: str
    labels: Labels


class NamespaceGone(Struct, frozen=True):
    """No namespace of this name exists any more."""

    name: str


class VolumeClaimSeen(Struct, frozen=True):
    """A PersistentVolumeClaim as it is now."""

    claim: VolumeClaim


class VolumeClaimGone(Struct, frozen=True):
    """No PersistentVolumeClaim of this name exists any more."""

    namespace: str
    name: str


class VolumeSeen(Struct, frozen=True):
    """A PersistentVolume as it is now."""

    volume: Volume


class VolumeGone(Struct, frozen=True):
    """No PersistentVolume of this name exists any more."""

    name: str


class StorageSeen(Struct, frozen=True):
    """An object of storage.k8s.io as it is now."""

    object: StorageObject


class StorageGone(Struct, frozen=True):
    """No object of this kind and name exists any more; `kind` is the name of the type in `storage_objects`."""

    kind: str
    name: str
    namespace: str = ""


class GangSeen(Struct, frozen=True):
    """The object of a gang as it is now; a Job or a JobSet that asks for no gang has the minimum 1."""

    gang: Gang


class GangGone(Struct, frozen=True):
    """The object of a gang no longer exists."""

    key: GangKey


class PodSetSeen(Struct, frozen=True):
    """A Service, or a controller that makes pods, as it is now, with the pods that it selects."""

    pod_set: PodSet


class PodSetGone(Struct, frozen=True):
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
    CALLED_OFF = "CalledOff"
    """It was not sent: a dry run shows that something would refuse another eviction of the decision."""


class EvictRefused(Struct, frozen=True):
    """The pod of this uid was not evicted. A pod that is already gone is no refusal: the watch shows that."""

    uid: str
    why: EvictRefusal
    message: str


class PoolRead(Struct, frozen=True):
    """The Pool of this name was read. Where it was `found`, a `PoolSeen` came before."""

    name: str
    found: bool


class PoolUnread(Struct, frozen=True):
    """The Pool of this name could not be read yet; the read is retried. `message` says why it failed."""

    name: str
    message: str


class PoolsListed(Struct, frozen=True):
    """A `PoolSeen` came for every Pool, no older than the request for the list."""


class Refreshed(Struct, frozen=True):
    """Events came for everything that an eviction in this pool depends on, as it was a moment ago."""

    pool: str


class RefreshFailed(Struct, frozen=True):
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
