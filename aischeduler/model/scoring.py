"""How NodeResourcesFit scores nodes, as a profile says it.

Source: ScoringStrategy of NodeResourcesFitArgs in KubeSchedulerConfiguration.
"""

from enum import StrEnum
from typing import Final

from msgspec import Struct

from aischeduler.model.names import CPU, MEMORY

UTILIZATION_MAX: Final = 100
SHAPE_SCORE_MAX: Final = 10
"""The largest score of a point of a shape; a node is scored up to 100."""


class StrategyType(StrEnum):
    """Which nodes are preferred: those with more free, those with more in use, or those on a curve."""

    LEAST_ALLOCATED = "LeastAllocated"
    MOST_ALLOCATED = "MostAllocated"
    REQUESTED_TO_CAPACITY_RATIO = "RequestedToCapacityRatio"


class ResourceWeight(Struct, frozen=True):
    """A resource that counts in a score, with its weight from 1 to 100."""

    name: str
    weight: int = 1


class ShapePoint(Struct, frozen=True):
    """A point of a curve: a utilization in percent, 0 to 100, and its score, 0 to 10."""

    utilization: int
    score: int


CPU_AND_MEMORY_ALIKE: Final = (ResourceWeight(CPU), ResourceWeight(MEMORY))


class ScoringStrategy(Struct, frozen=True):
    """The strategy of a profile. `shape` has the points of RequestedToCapacityRatio, by growing utilization."""

    type: StrategyType = StrategyType.LEAST_ALLOCATED
    resources: tuple[ResourceWeight, ...] = CPU_AND_MEMORY_ALIKE
    shape: tuple[ShapePoint, ...] = ()


def on_curve(shape: tuple[ShapePoint, ...], utilization: int) -> int:
    """Return the score of a utilization: linear between points, cut towards zero as in Go, flat outside the ends."""
    before = shape[0]
    for point in shape:
        if utilization <= point.utilization:
            width, rise = point.utilization - before.utilization, point.score - before.score
            part = rise * (utilization - before.utilization)
            return point.score if not width else before.score + (abs(part) // width) * (1 if part >= 0 else -1)
        before = point
    return before.score
