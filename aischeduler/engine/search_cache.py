"""The results of searches for victims and lenders, kept until what they read changes."""

from typing import Final

from cachetools import LRUCache
from msgspec import Struct

from aischeduler.model.proposal import NoLender
from aischeduler.policies.preemption import EvictionCosts, Loss, NoCandidate
from aischeduler.policies.preemption_bounds import EvictionCostBounds
from aischeduler.policies.unit_preemption import UnitCandidate
from aischeduler.state.label_index import Rows

COSTS_MAX: Final = 64
"""The most searches with victims that are kept; each takes some numbers per node of its pool."""
SEARCHES_MAX: Final = 1024
"""The most searches without a result that are kept, of victims and of lenders each."""


class KnownCosts(Struct, frozen=True):
    """The costs of a search, and the versions of what the search read; on `tentative` rows it read what a trial had."""

    costs: EvictionCosts
    rules: tuple[int, int]
    nodes: int
    running: int
    tentative: tuple[int, ...]


class KnownUnitSearch(Struct, frozen=True):
    """What a search for a unit found on `rows`, and what it `read` of the unit and of the cluster.

    The victims are those of a time, because pods lose more work the longer they run; no victims were found at any time.
    """

    read: tuple[object, ...]
    rows: Rows
    at: Loss | None
    found: UnitCandidate | NoCandidate


class Searches:
    """The number of full searches `made`, and kept results with the versions of what they read.

    Dropping a result costs one more search and changes no decision.
    """

    def __init__(self) -> None:
        self.made = 0
        self.bounds = EvictionCostBounds()
        """The lower bounds of eviction costs by row."""
        self.victims: LRUCache[tuple[str, bytes], tuple[tuple[int, ...], int, NoCandidate]] = LRUCache(SEARCHES_MAX)
        """Pool and class -> versions, the highest priority without a candidate, and why there is none."""
        self.costs: LRUCache[tuple[str, bytes, int], KnownCosts] = LRUCache(COSTS_MAX)
        """Pool, class and priority -> the cost of eviction on each row of the pool for such a pod."""
        self.units: LRUCache[str, KnownUnitSearch] = LRUCache(COSTS_MAX)
        """Unit of several pods -> its last search."""
        self.lenders: LRUCache[tuple[bytes, tuple[str, ...]], tuple[tuple[int, ...], NoLender]] = LRUCache(SEARCHES_MAX)
        """Class and visited pools, the home first -> versions, and why no pool lends."""
