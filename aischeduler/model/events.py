"""Events: everything that a shell tells the engine, as a closed union.

Invariants:
- `Seen` carries an object as it is now, new or changed; the same object twice changes nothing.
- `Gone` ends the object of this kind and key; for an unknown object it changes nothing.
- A bind has one outcome, and a definite one: the shell keeps an unclear outcome until a read decides it. An accepted
  bind is no event: the pod is assumed, and `Seen` shows it on its node.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import TypeVar

from msgspec import Struct

from aischeduler.model.device import NodeDevices
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.gang import Gang
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pod_set import PodSet
from aischeduler.model.pool import Namespace, Pool
from aischeduler.model.storage_objects import StorageObject
from aischeduler.model.tenant_queue import TenantQueue, TenantSettings
from aischeduler.model.volumes import Volume, VolumeClaim
from aischeduler.model.workload import Workload

Object = (
    Pod
    | Node
    | Pool
    | DisruptionBudget
    | Namespace
    | VolumeClaim
    | Volume
    | StorageObject
    | Gang
    | PodSet
    | TenantQueue
    | Workload
    | NodeDevices
)
"""An object of the API server as the engine knows it. A Job or a JobSet that asks for no gang is a gang of one."""


ObjectT = TypeVar("ObjectT", bound=Object)


class Seen(Struct, frozen=True):
    """An object as it is now."""

    object: Object


class Gone(Struct, frozen=True):
    """No object of this kind and key exists any more.

    `kind` is the name of its type here. The key is the uid of a pod; the name of a node, for its devices too, of a
    Pool, a namespace or a volume; of a tenant queue its source and name; for other kinds namespace and name, of a gang
    with its source before them, of a pod set and a workload with its own kind.
    """

    kind: str
    key: tuple[str, ...]


def gone(kind: type[Object], *key: str) -> Gone:
    """Return the event of an object of this type that is gone."""
    return Gone(kind.__name__, key)


def objects_of(events: Iterable["Event"], kind: type[ObjectT]) -> list[ObjectT]:
    """Return the objects of this type that were seen by these events, in their order."""
    return [event.object for event in events if isinstance(event, Seen) and isinstance(event.object, kind)]


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


class ResizeRefused(Struct, frozen=True):
    """The size of this elastic job was not written; `message` is the server's.

    With `changed` the object is not what it was; the watch shows what it is now. Otherwise the scheduler may not write
    it, or no answer came: it is not tried again before `retry_after_seconds`.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    message: str
    changed: bool = False
    retry_after_seconds: float = 0.0


class Refreshed(Struct, frozen=True):
    """Events came for everything that a `Refresh` of this pool asked for, as it was a moment ago.

    Without a pool they came for every Pool, no older than the request.
    """

    pool: str


class RefreshFailed(Struct, frozen=True):
    """The refresh of this pool failed, without a pool that of the Pools alone, which is tried again by itself."""

    pool: str
    message: str


class QueuesServed(Struct, frozen=True):
    """Whether the API server serves a kind of tenant queues: where it serves none, names of queues mean nothing."""

    served: bool


class DevicesListed(Struct, frozen=True):
    """Whether all Device objects are known, or that there are none: until then nobody gets a device."""

    listed: bool


class TenantsConfigured(Struct, frozen=True):
    """What the configuration says of all tenants has changed."""

    settings: TenantSettings


ReadAnswer = Refreshed | RefreshFailed
Outcome = BindRefused | VolumesWritten | VolumesRefused | EvictRefused | ResizeRefused
Event = QueuesServed | DevicesListed | TenantsConfigured | Seen | Gone | Outcome | ReadAnswer
