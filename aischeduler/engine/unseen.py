"""The data of `unknown_pools` and `freshness`: pods and nodes that wait for reads of objects that no watch showed."""

from dataclasses import dataclass, field

from aischeduler.model.node import Node
from aischeduler.state.records import PodRecord


@dataclass(slots=True)
class LateNode:
    """A new node that no known Pool selects: it is added after a list of the Pools, or when it is due."""

    node: Node
    due: float
    asked: bool = False
    """Whether the list that is under way was requested after the node came."""


@dataclass(slots=True)
class UnknownPools:
    """Pool name -> pods by uid: of the read that is under way, and of the next one."""

    reading: dict[str, dict[str, PodRecord]] = field(default_factory=dict)
    wanted: dict[str, dict[str, PodRecord]] = field(default_factory=dict)
    missing: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Uid of a pod -> the Pool that it names and that a read did not find, and when it was read."""
    late: dict[str, LateNode] = field(default_factory=dict)
    """New nodes by name."""
    listing: bool = False
    """Whether a list of the Pools is under way."""
    begun: bool = False
    """Whether Pools are read: from the first decision, and while this scheduler leads."""


@dataclass(slots=True)
class Freshness:
    """When each pool was refreshed last, when its refresh was requested, and what waits for it."""

    refreshed_at: dict[str, float] = field(default_factory=dict)
    asked_at: dict[str, float] = field(default_factory=dict)
    waiting: dict[str, dict[str, PodRecord]] = field(default_factory=dict)
    """Pool -> the pods, by uid, that would evict in the pool."""
    loans: set[str] = field(default_factory=set)
    """The pools that would end loans."""
    problems: dict[str, str] = field(default_factory=dict)
    """Pool -> why its last refresh failed."""

    def forget(self, pool: str) -> None:
        """Drop a pool that is gone."""
        for known in (self.refreshed_at, self.asked_at, self.waiting, self.problems):
            known.pop(pool, None)
        self.loans.discard(pool)
