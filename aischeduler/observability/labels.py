"""Which pools have series of their own.

Laws:
- At most `limit` pools have one; the others share the label `other`.
- A pool keeps its label as long as it exists; a deleted pool has none from the next scrape on.
- Names come from the engine, which knows only pools that exist; what pods merely name never gets here.
"""

from collections.abc import Iterable
from typing import Final

POOLS_MAX: Final = 1000
"""Pools with series of their own."""
OTHER: Final = "other"


class PoolLabels:
    """Gives each pool its label, first come first served."""

    def __init__(self, limit: int = POOLS_MAX) -> None:
        self._limit = limit
        self._own: set[str] = set()

    def of(self, pool: str) -> str:
        """Return the label of a pool."""
        if pool in self._own:
            return pool
        if len(self._own) >= self._limit:
            return OTHER
        self._own.add(pool)
        return pool

    def keep(self, pools: Iterable[str]) -> frozenset[str]:
        """Take the labels of all but these pools away; return the labels that are in use."""
        pools = tuple(pools)
        self._own.intersection_update(pools)
        return frozenset(self.of(pool) for pool in pools)
