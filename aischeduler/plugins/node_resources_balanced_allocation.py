"""NodeResourcesBalancedAllocation: prefer nodes whose CPU and memory are used in equal shares.

Source: kube-scheduler 1.36: the standard deviation of the used shares with the pod, against that without it.
"""

from typing import Final

import numpy as np

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import PlacementRequest, Scores
from aischeduler.model.names import CPU, MEMORY
from aischeduler.state.node_table import CPU_AND_MEMORY

# 0-d arrays: for vectors of few rows, converting a Python number costs more than the operation.
HALF: Final = np.array(0.5)
ONE: Final = np.array(1.0)
HUNDRED: Final = np.array(100.0)
TWO: Final = np.array(2)
UNCHANGED_TWICE: Final = np.array(150)


class NodeResourcesBalancedAllocation:
    """Score 50 to 100: about 75 where the pod does not change the balance."""

    name = "NodeResourcesBalancedAllocation"
    static = False
    weight = 1
    normalize = False
    reverse = False

    def score(self, ask: PlacementRequest, at: NodeView) -> Scores | None:
        """Compare the balance with and without the pod; return None for a pod that requests neither resource."""
        amounts = ask.spec.request.amounts
        if not amounts.get(CPU) and not amounts.get(MEMORY):
            return None
        in_use = at.used[CPU_AND_MEMORY] + at.nodes.wanted(ask.spec).with_and_without
        half_shares = np.minimum(in_use / at.nodes.twice.take(at.rows, axis=1), HALF)
        deviation = np.abs(half_shares[:, 0] - half_shares[:, 1])
        balance = ((ONE - deviation) * HUNDRED).astype(np.int64)
        scores: Scores = (balance[0] - balance[1] + UNCHANGED_TWICE) // TWO
        return scores
