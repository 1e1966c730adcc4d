"""The pods of one class that wait in one queue."""

from dataclasses import dataclass, field

from sortedcontainers import SortedKeyList

from aischeduler.model.pod import Pod, PodSpec
from aischeduler.state.records import OrderKey, PodRecord


@dataclass(slots=True, eq=False)
class WaitingClass:
    """The waiting pods of one class.

    `pending` counts all that are not gated, `usable` the home pods among them that could take room.
    """

    spec: PodSpec
    slot: int
    parked: "SortedKeyList[PodRecord, OrderKey]"
    nominated: dict[str, PodRecord] = field(default_factory=dict)
    """Those that wait for claimed room, by uid."""
    pending: int = 0
    usable: int = 0
    turn: OrderKey = (False, 0, 0, 0, "")
    """The order of the head, while pods are parked."""

    @property
    def moves(self) -> bool:
        """Say whether a home pod of it is about to be tried here, now or after its backoff."""
        return self.usable > len(self.parked) + len(self.nominated)

    @property
    def head(self) -> PodRecord:
        """The parked pod whose turn it is; there must be one."""
        return self.parked[0]


def class_key(pod: Pod) -> bytes:
    """Return what tells the classes of one queue apart: a pod that may not preempt cannot speak for one that may."""
    return pod.spec.key if pod.preempts else pod.spec.key + b"-"
