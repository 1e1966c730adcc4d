"""NodeResourcesFit: the node must have every requested resource free, and allow one more pod.

The score is that of the profile's strategy. Without one it is LeastAllocated where the pool spreads and MostAllocated
where it packs. A GPU pod is scored by GPUs too, with a weight that outweighs CPU and memory, because large jobs wait
for whole free GPU nodes.

Source: kube-scheduler's NodeResourcesFit (filter, scoring strategies, non-zero defaults).
"""

from collections import Counter
from typing import Final

import numpy as np

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import PlacementRequest, Scores
from aischeduler.model.names import PODS
from aischeduler.model.node import Node
from aischeduler.model.pod import PodSpec
from aischeduler.model.pool import PlacementStrategy
from aischeduler.model.scoring import ScoringStrategy
from aischeduler.plugins.resource_scores import StrategyScore, free_percent, used_percent
from aischeduler.state.label_index import Mask
from aischeduler.state.node_table import CPU_AND_MEMORY
from aischeduler.state.requests import requested

GPU_WEIGHT: Final = 5
KUBERNETES: Final = "kubernetes.io/"
"""In the names of resources that are not extended ones."""
ONE: Final = np.array(1)
"""A 0-d array: for vectors of few rows, converting a Python number costs more than the operation."""


class NodeResourcesFit:
    """Filter and score nodes by their free resources.

    `ignored_resources` and `ignored_resource_groups`, which are the parts of names before the slash, are extended
    resources that count nowhere for the profile's pods: another program decides about them.
    """

    name = "NodeResourcesFit"
    static = False
    by_amounts = True
    weight = 1
    normalize = False
    reverse = False

    def __init__(
        self,
        gpu_resources: tuple[str, ...],
        strategy: ScoringStrategy | None = None,
        ignored_resources: frozenset[str] = frozenset(),
        ignored_resource_groups: frozenset[str] = frozenset(),
    ) -> None:
        self._gpu_resources = gpu_resources
        self._strategy = StrategyScore(strategy) if strategy is not None else None
        self._ignored, self._ignored_groups = ignored_resources, ignored_resource_groups

    def ignores(self, resource: str) -> bool:
        """Return whether an extended resource counts nowhere."""
        group, slash, _ = resource.partition("/")
        extended = bool(slash) and KUBERNETES not in resource
        return extended and (resource in self._ignored or group in self._ignored_groups)

    @property
    def ignores_any(self) -> bool:
        """Whether there are resources that count nowhere."""
        return bool(self._ignored or self._ignored_groups)

    def filter(self, spec: PodSpec, at: NodeView) -> Mask | None:
        """Pass the rows that have every requested resource free."""
        least = at.nodes.wanted(spec).least
        has_room: Mask = np.logical_and.reduce(at.left[: len(least)] >= least, axis=0)
        return has_room

    def reasons(self, spec: PodSpec, at: NodeView) -> Counter[str]:
        """Count the rows of every resource that is short; a row may count for several resources."""
        wanted = at.nodes.wanted(spec)
        words = ["Too many pods" if name == PODS else f"Insufficient {name}" for name in spec.request.taken]
        short = np.count_nonzero(at.left.take(wanted.columns, axis=0) < wanted.amounts, axis=1).tolist()
        return Counter({word: rows_short for word, rows_short in zip(words, short, strict=True) if rows_short})

    def helps(self, spec: PodSpec, node: Node) -> bool:
        """Return True: free resources are not part of the node object."""
        return True

    def score(self, ask: PlacementRequest, at: NodeView) -> Scores | None:
        """Return 0 to 100: the free (or used) share with the pod, averaged over the resources by weight."""
        if self._strategy is not None:
            return self._strategy.score(ask.spec, at)
        shares_of = free_percent if ask.placement is PlacementStrategy.SPREAD else used_percent
        request = ask.spec.request
        after = at.scored + at.nodes.wanted(ask.spec).scored
        shares = shares_of(at.allocatable[CPU_AND_MEMORY], after)
        total, weights = shares[0] + shares[1], at.nodes.sized.take(at.rows)
        gpus = [resource for resource in self._gpu_resources if resource in request.amounts]
        if not gpus:
            halved: Scores = total >> (weights >> ONE)  # a weight of 2 halves; a division takes three times as long
            return halved
        for resource in gpus:
            column = at.nodes.column(resource)
            capacity = at.allocatable[column]
            after = at.used[column] + requested(request.amounts[resource])
            total += GPU_WEIGHT * shares_of(capacity, after)
            weights += GPU_WEIGHT * (capacity > 0)
        average: Scores = total // np.maximum(weights, ONE)
        return average
