"""The pods of one class in one queue; a unit of several pods is a class of its own, whose only pod is its lead."""

from msgspec import Struct, field
from sortedcontainers import SortedKeyList

from aischeduler.model.pod import PodSpec
from aischeduler.state.pod_records import OrderKey, PodRecord, Unit
from aischeduler.state.unit_shapes import Shape


class QueuedClass(Struct, eq=False):
    """The pods of one class in one queue.

    `pending` is the number of pods without gated ones, `usable` that of the home pods among them that can take room.
    `unit` is the unit of several pods that the class stands for, `spec` that of its lead.
    """

    spec: PodSpec
    slot: int
    parked: "SortedKeyList[PodRecord, OrderKey]"
    nominated: dict[str, PodRecord] = field(default_factory=dict)
    """The nominated pods by uid."""
    pending: int = 0
    usable: int = 0
    turn: OrderKey = (False, 0, 0, 0, "")
    """The queue order of `head`, while pods are parked."""
    unit: Unit | None = None
    shape: Shape | None = None
    """The shape of the unit."""

    @property
    def specs(self) -> tuple[bytes, ...]:
        """The keys of the specs of its pods."""
        return (self.spec.key,) if self.shape is None else self.shape.parts[0].classes

    @property
    def moves(self) -> bool:
        """Whether a home pod of the class is active or in backoff."""
        return self.usable > len(self.parked) + len(self.nominated)

    @property
    def head(self) -> PodRecord:
        """The first parked pod; there must be one."""
        return self.parked[0]


def class_key(record: PodRecord) -> bytes:
    """Return the key of a pod's class in a queue.

    Pods that may not preempt form a class of their own. Where a plugin sorts the queue, so do pods of each priority:
    else the first of a class, which is tried for all, would not be the one that may evict most.
    """
    unit, pod = record.unit, record.pod
    if unit is not None and unit.lead is record:
        return unit_key(unit)
    key = pod.spec.key if pod.preempts else without_preemption(pod.spec.key)
    return key if record.rank is None else key + b" %d" % pod.priority


def unit_key(unit: Unit) -> bytes:
    """Return the key of the class that stands for a unit of several pods."""
    return b"unit " + unit.name.encode()


def without_preemption(key: bytes) -> bytes:
    """Return the key of the class of pods with this spec that may not preempt."""
    return key + b"-"
