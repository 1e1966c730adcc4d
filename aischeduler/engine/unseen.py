"""What may exist without our having seen it, and what waits to know: see `unknown_pools` and `freshness`."""

from dataclasses import dataclass, field

from aischeduler.model.node import Node
from aischeduler.state.records import PodRecord


@dataclass(slots=True)
class LateNode:
    """A new node that no known Pool selects: it is taken in after a list of the Pools, or when it is due."""

    node: Node
    due: float
    asked: bool = False
    """Whether the list that is under way was asked for after the node was seen."""


@dataclass(slots=True)
class UnknownPools:
    """Pods by uid, by the Pool that they name: those of a read that is under way, and those of the next one."""

    reading: dict[str, dict[str, PodRecord]] = field(default_factory=dict)
    wanted: dict[str, dict[str, PodRecord]] = field(default_factory=dict)
    late: dict[str, LateNode] = field(default_factory=dict)
    """New nodes by name."""
    listing: bool = False
    """Whether a list of the Pools is under way."""
    begun: bool = False
    """Whether Pools are read: not before the first decision, nor while another scheduler leads."""


@dataclass(slots=True)
class Freshness:
    """When each pool's view was refreshed last and asked to be, and what waits for that."""

    refreshed_at: dict[str, float] = field(default_factory=dict)
    asked_at: dict[str, float] = field(default_factory=dict)
    waiting: dict[str, dict[str, PodRecord]] = field(default_factory=dict)
    """Pods by uid that would evict in the pool."""
    loans: set[str] = field(default_factory=set)
    """Pools that would end loans."""
    problems: dict[str, str] = field(default_factory=dict)
    """Why the pool could not be refreshed the last time."""

    def forget(self, pool: str) -> None:
        """Keep nothing of a pool that is gone."""
        for known in (self.refreshed_at, self.asked_at, self.waiting, self.problems):
            known.pop(pool, None)
        self.loans.discard(pool)
