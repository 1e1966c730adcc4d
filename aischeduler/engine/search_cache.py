"""What searches for victims and for lenders have found, so that they need not be made again."""

from dataclasses import dataclass
from typing import Final

from cachetools import LRUCache

from aischeduler.policies.borrowing import NoLender
from aischeduler.policies.preemption import Losses, Unhelpful
from aischeduler.policies.preemption_bounds import LossBounds

LOSSES_MAX: Final = 64
"""Searches that found victims and are remembered; each takes some numbers per node of its pool."""
SEARCHES_MAX: Final = 1024
"""Searches without a result that are remembered, of each kind."""


@dataclass(frozen=True, slots=True)
class KnownLosses:
    """Losses as they were found, and the versions of what they were found by."""

    losses: Losses
    rules: tuple[int, int]
    nodes: int
    running: int


class Searches:
    """How many were `made` in full, and those that found nothing, with the versions of all that they looked at.

    What is forgotten costs a search, never truth.
    """

    def __init__(self) -> None:
        self.made = 0
        self.floors = LossBounds()
        """The least that each row could lose."""
        self.victims: LRUCache[tuple[str, bytes], tuple[tuple[int, int], int, Unhelpful]] = LRUCache(SEARCHES_MAX)
        """Pool and class -> versions, priority that was too low, and why nobody can go."""
        self.losses: LRUCache[tuple[str, bytes, int], KnownLosses] = LRUCache(LOSSES_MAX)
        """Pool, class and priority -> what each row of the pool would lose for such a pod."""
        self.lenders: LRUCache[tuple[bytes, tuple[str, ...]], tuple[tuple[int, int, int], NoLender]] = LRUCache(
            SEARCHES_MAX
        )
        """Class and pools visited, the home first -> versions, and why nobody lends."""
