"""What all queues share: which of them changed, and the pods that wait in the queues of other pools."""

from collections import Counter
from dataclasses import dataclass, field

from aischeduler.state.groups import Groups
from aischeduler.state.records import PodRecord


@dataclass(slots=True)
class Stir:
    """The state that all queues share: the `pools` whose queue changed since the last read, and borrowers by home.

    `version` grows with every change of a queue, `versions` with those of one queue.
    """

    pools: set[str] = field(default_factory=set)
    version: int = 0
    versions: Counter[str] = field(default_factory=Counter)
    abroad: Groups[str, str, PodRecord] = field(default_factory=Groups)
    """Home pool -> its pods, by uid, that wait in the queues of other pools."""
