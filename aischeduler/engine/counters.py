"""The counters of the engine for metrics: they only grow, and have existing pools only."""

from collections import Counter
from enum import StrEnum

from aischeduler.model.actions import EvictionCause, Step
from aischeduler.model.proposal import LenderRefusal


class Result(StrEnum):
    """How an attempt ended."""

    BOUND = "bound"
    NOMINATED = "nominated"
    BORROWING = "borrowing"
    UNSCHEDULABLE = "unschedulable"
    HELD = "held"
    REFRESHING = "refreshing"
    ERROR = "error"
    """An exception of the scheduler ended the attempt."""


class Counters:
    """The counters; `forget` drops those of a pool that is gone."""

    def __init__(self) -> None:
        self.attempts: Counter[tuple[str, Result]] = Counter()
        """Attempts by pool and result."""
        self.borrow_attempts: Counter[str] = Counter()
        """Searches for a lender, by home pool."""
        self.borrow_refusals: Counter[tuple[str, LenderRefusal]] = Counter()
        """Refusals of lenders, by home pool and reason; a home pool that may not borrow counts as one."""
        self.evictions: Counter[tuple[str, EvictionCause]] = Counter()
        """Requested evictions, by the pool of the node and cause."""
        self.net_saves: Counter[str] = Counter()
        """Pods that were placed only because the five-minute flush brought them back, by pool of the queue."""
        self.net_saves_forgotten = 0
        """The number of such pods in pools that are gone."""
        self.violations: Counter[str] = Counter()
        """Violations by the name of the invariant."""
        self.internal_errors: Counter[Step] = Counter()
        """Exceptions of the scheduler, by step."""
        self.plugin_errors: Counter[str] = Counter()
        """Exceptions of plugins, by name of the plugin."""

    def forget(self, pool: str) -> None:
        """Drop the counters of a pool."""
        for pairs in (self.attempts, self.borrow_refusals, self.evictions):
            for key in [key for key in pairs if key[0] == pool]:
                del pairs[key]
        self.borrow_attempts.pop(pool, None)
        self.net_saves_forgotten += self.net_saves.pop(pool, 0)

    def net_saves_ever(self) -> int:
        """Return the sum of `net_saves` of all pools, with pools that are gone."""
        return self.net_saves.total() + self.net_saves_forgotten
