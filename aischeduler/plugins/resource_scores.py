"""What the scores of resources read: how much of a resource a row offers, and how much is in use there.

Source: resourceAllocationScorer of kube-scheduler's noderesources.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import Scores
from aischeduler.model.names import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from aischeduler.model.pod import PodSpec
from aischeduler.model.scoring import (
    SHAPE_SCORE_MAX,
    UTILIZATION_MAX,
    ScoringStrategy,
    ShapePoint,
    StrategyType,
    on_curve,
)
from aischeduler.state.requests import requested

SCORE_MAX: Final = 100
_SMALL: Final = {CPU: 0, MEMORY: 1}
"""The resources of which a container without a request counts as a small one, by their row in `NodeView.scored`."""
# 0-d arrays: for vectors of few rows, converting a Python number costs more than the operation.
_ZERO: Final = np.array(0)
_ONE: Final = np.array(1)
_TWO: Final = np.array(2)
_PERCENT: Final = np.array(100)


class Share(NamedTuple):
    """A resource on rows: what they offer, what is in use, and what the pod adds."""

    capacity: Scores
    used: Scores
    amount: int


def share_of(resource: str, spec: PodSpec, at: NodeView, *, small: bool = False) -> Share | None:
    """Return a resource on rows; None where it does not count for the pod.

    A device counts only for pods that request it. With `small`, a container without a request of CPU or memory counts
    as a small one, for the pod and for those on the rows.
    """
    amount = spec.request.amounts.get(resource, 0)
    if small and resource in _SMALL:
        index = _SMALL[resource]
        return Share(at.allocatable[index], at.scored[index], int(at.nodes.wanted(spec).scored[index, 0]))
    if resource == PODS or (not amount and resource not in (*_SMALL, EPHEMERAL_STORAGE)):
        return None
    column = at.nodes.column(resource)
    return Share(at.allocatable[column], at.used[column], requested(amount))


def free_percent(capacity: Scores, after: Scores) -> Scores:
    """Return how much stays free; 0 where more is in use than the row offers, or it offers none."""
    percent: Scores = np.maximum(capacity - after, _ZERO) * _PERCENT // np.maximum(capacity, _ONE)
    return percent


def used_percent(capacity: Scores, after: Scores) -> Scores:
    """Return how much is in use, at most 100; 0 where the row offers none."""
    percent: Scores = np.minimum(after, capacity) * _PERCENT // np.maximum(capacity, _ONE)
    return percent


class StrategyScore:
    """The score of a strategy that a profile has set."""

    def __init__(self, strategy: ScoringStrategy) -> None:
        self._resources = strategy.resources
        self._type = strategy.type
        scale = SCORE_MAX // SHAPE_SCORE_MAX
        points = tuple(ShapePoint(point.utilization, point.score * scale) for point in strategy.shape)
        curve = [on_curve(points, percent) for percent in range(UTILIZATION_MAX + 1)] if points else [0]
        self._curve: npt.NDArray[np.int64] = np.array(curve, dtype=np.int64)
        """Score by percent in use."""

    def score(self, spec: PodSpec, at: NodeView) -> Scores:
        """Return 0 to 100: the mean of the resources by weight. A resource that a row lacks does not count there."""
        on_a_curve = self._type is StrategyType.REQUESTED_TO_CAPACITY_RATIO
        total, weights = np.zeros(len(at), dtype=np.int64), np.zeros(len(at), dtype=np.int64)
        for resource in self._resources:
            share = share_of(resource.name, spec, at, small=True)
            if share is None:
                continue
            percent = self._percent(share.capacity, share.used + share.amount)
            counts = (share.capacity > 0) & (percent > 0) if on_a_curve else share.capacity > 0
            total += resource.weight * percent * counts
            weights += resource.weight * counts
        safe = np.maximum(weights, _ONE)
        mean: Scores = (_TWO * total + weights) // (_TWO * safe) if on_a_curve else total // safe  # a curve rounds
        return mean

    def _percent(self, capacity: Scores, after: Scores) -> Scores:
        if self._type is StrategyType.LEAST_ALLOCATED:
            return free_percent(capacity, after)
        if self._type is StrategyType.MOST_ALLOCATED:
            return used_percent(capacity, after)
        return self._curve[used_percent(capacity, after)]
