"""What all queues share: which of them changed, and the pods that wait in the queues of other pools."""

from collections import Counter
from dataclasses import dataclass, field

from aischeduler.state.records import PodRecord


@dataclass(slots=True)
class Stir:
    """The state that all queues share: the `pools` whose queue changed since the last read, and borrowers by home.

    `version` grows with every change of a queue, `versions` with those of one queue.
    """

    pools: set[str] = field(default_factory=set)
    version: int = 0
    versions: Counter[str] = field(default_factory=Counter)
    abroad: dict[str, dict[str, PodRecord]] = field(default_factory=dict)
    """Home pool -> its pods, by uid, that wait in the queues of other pools."""

    def forget_abroad(self, home: str, uid: str) -> None:
        """Remove a pod from the borrowers of its home pool, if it is one."""
        away = self.abroad.get(home, {})
        if away.pop(uid, None) is not None and not away:
            del self.abroad[home]
