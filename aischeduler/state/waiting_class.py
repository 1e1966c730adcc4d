"""The pods of one class in one queue."""

from dataclasses import dataclass, field

from sortedcontainers import SortedKeyList

from aischeduler.model.pod import Pod, PodSpec
from aischeduler.state.records import OrderKey, PodRecord


@dataclass(slots=True, eq=False)
class WaitingClass:
    """The pods of one class in one queue.

    `pending` is the number of pods without gated ones, `usable` that of the home pods among them that can take room.
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

    @property
    def moves(self) -> bool:
        """Whether a home pod of the class is active or in backoff."""
        return self.usable > len(self.parked) + len(self.nominated)

    @property
    def head(self) -> PodRecord:
        """The first parked pod; there must be one."""
        return self.parked[0]


def class_key(pod: Pod) -> bytes:
    """Return the key of a pod's class in a queue: pods that may not preempt form a class of their own."""
    return pod.spec.key if pod.preempts else without_preemption(pod.spec.key)


def without_preemption(key: bytes) -> bytes:
    """Return the key of the class of pods with this spec that may not preempt."""
    return key + b"-"
