"""The results of searches for victims and lenders, kept until what they read changes."""

from typing import Final

from cachetools import LRUCache
from msgspec import Struct

from aischeduler.model.proposal import NoLender
from aischeduler.policies.eviction_order import Loss, Preemptor, TenantPreemptor
from aischeduler.policies.preemption import EvictionCosts, NoCandidate
from aischeduler.policies.preemption_bounds import EvictionCostBounds
from aischeduler.policies.unit_preemption import UnitCandidate
from aischeduler.state.kept import Kept
from aischeduler.state.label_index import Rows

COSTS_MAX: Final = 64
"""The most searches with victims that are kept; each takes some numbers per node of its pool."""
SEARCHES_MAX: Final = 1024
"""The most searches without a result that are kept, of victims and of lenders each."""


ClassOfTenant = tuple[str, bytes, TenantPreemptor | None, bool]
"""Pool, class of pods, their place among the tenant queues, and whether they are of an elastic job."""


class KnownCosts(Struct, frozen=True):
    """The costs of a search, and the versions of what the search read; on `tentative` rows it read what a trial had."""

    costs: EvictionCosts
    rules: tuple[int, int]
    nodes: int
    running: int
    tentative: tuple[int, ...]


class Searches:
    """The number of full searches `made`, and kept results.

    Dropping a result costs one more search and changes no decision.
    """

    def __init__(self) -> None:
        self.made = 0
        self.bounds = EvictionCostBounds()
        """The lower bounds of eviction costs by row."""
        self.victims: LRUCache[ClassOfTenant, tuple[int, Kept[NoCandidate]]] = LRUCache(SEARCHES_MAX)
        """The highest priority without a candidate, and why there is none."""
        self.costs: LRUCache[tuple[str, bytes, Preemptor], KnownCosts] = LRUCache(COSTS_MAX)
        """Pool, class and preemptor -> the cost of eviction on each row of the pool for such a pod."""
        self.units: LRUCache[str, tuple[Rows, Loss | None, Kept[UnitCandidate | NoCandidate]]] = LRUCache(COSTS_MAX)
        """Unit of several pods -> the rows that were searched, when, and what was found.

        Victims are those of a time, because pods lose more work the longer they run; none are found at any time.
        """
        self.lenders: LRUCache[tuple[bytes, tuple[str, ...]], Kept[NoLender]] = LRUCache(SEARCHES_MAX)
        """Class and visited pools, the home first -> why no pool lends."""
