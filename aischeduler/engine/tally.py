"""What the engine has done so far, as counters for metrics: they only grow, and name existing pools only."""

from collections import Counter
from enum import StrEnum

from aischeduler.model.actions import EvictionCause, Step
from aischeduler.policies.borrowing import LenderRefusal


class Result(StrEnum):
    """How an attempt ended."""

    BOUND = "bound"
    NOMINATED = "nominated"
    BORROWING = "borrowing"
    UNSCHEDULABLE = "unschedulable"
    HELD = "held"
    REFRESHING = "refreshing"
    ERROR = "error"
    """An exception of the scheduler ended it."""


class Tally:
    """Counters by pool; `forget` drops those of a pool that is gone."""

    def __init__(self) -> None:
        self.attempts: Counter[tuple[str, Result]] = Counter()
        """By the pool in which the pod was tried, and result."""
        self.borrow_attempts: Counter[str] = Counter()
        """Searches for a lender, by home."""
        self.borrow_refusals: Counter[tuple[str, LenderRefusal]] = Counter()
        """Lenders that refused, by home and reason; a home that does not borrow refuses itself."""
        self.evictions: Counter[tuple[str, EvictionCause]] = Counter()
        """Evictions asked for, by the pool of the node."""
        self.net_saves: Counter[str] = Counter()
        """Pods that were placed only because the five-minute net brought them back, by existing pool of its queue."""
        self.net_saves_forgotten = 0
        """Of them, those in pools that are gone."""
        self.violations: Counter[str] = Counter()
        """Invariants found broken, by name."""
        self.internal_errors: Counter[Step] = Counter()
        """Exceptions of the scheduler itself, by the step that they ended."""

    def forget(self, pool: str) -> None:
        """Drop the counters of a pool."""
        for pairs in (self.attempts, self.borrow_refusals, self.evictions):
            for key in [key for key in pairs if key[0] == pool]:
                del pairs[key]
        self.borrow_attempts.pop(pool, None)
        self.net_saves_forgotten += self.net_saves.pop(pool, 0)

    def net_saves_ever(self) -> int:
        """Return how many pods the net has saved, in pools that are gone as well."""
        return self.net_saves.total() + self.net_saves_forgotten
