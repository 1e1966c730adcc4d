"""NodeResourcesBalancedAllocation: prefers nodes whose CPU and memory stay used in equal shares.

Source: kube-scheduler 1.36: the standard deviation of the used shares with the pod against without it.
"""

from typing import Final

import numpy as np

from aischeduler.framework.plugin import Ask, Scores
from aischeduler.model.names import CPU, MEMORY
from aischeduler.state.index import Rows
from aischeduler.state.nodes import CPU_AND_MEMORY, NodeTable

WITH_AND_WITHOUT: Final = np.array([[[1]], [[0]]])


class NodeResourcesBalancedAllocation:
    """Score 50 to 100: about 75 where the pod changes nothing."""

    name = "NodeResourcesBalancedAllocation"
    static = False
    weight = 1
    normalize = False
    reverse = False

    def score(self, ask: Ask, nodes: NodeTable, rows: Rows) -> Scores | None:
        """Compare the balance with and without the pod; a pod that asks for neither resource is not scored."""
        amounts = ask.spec.request.amounts
        if not amounts.get(CPU) and not amounts.get(MEMORY):
            return None
        asked = nodes.wanted(ask.spec).cpu_and_memory
        capacity = nodes.allocatable[CPU_AND_MEMORY].take(rows, axis=1)
        with_and_without = nodes.used[CPU_AND_MEMORY].take(rows, axis=1) + asked * WITH_AND_WITHOUT
        full = np.minimum(with_and_without / np.maximum(capacity, 1), 1.0)
        has = capacity > 0
        deviation = np.abs(full[:, 0] - full[:, 1]) / 2 * (has[0] & has[1])
        balance = ((1 - deviation) * 100).astype(np.int64)
        scores: Scores = 50 + (50 + balance[0] - balance[1]) // 2
        return scores
