"""NodeResourcesBalancedAllocation: prefers nodes whose CPU and memory stay used in equal shares.

Source: kube-scheduler 1.36: the standard deviation of the used shares with the pod against without it.
"""

import numpy as np
import numpy.typing as npt

from aischeduler.framework.plugin import Ask, Scores
from aischeduler.model.names import CPU, MEMORY
from aischeduler.state.index import Mask, Rows
from aischeduler.state.nodes import CPU_AND_MEMORY, NodeTable, requested

Shares = npt.NDArray[np.float64]


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
        asked = np.array([[requested(amounts.get(resource, 0))] for resource in (CPU, MEMORY)])
        if not asked.any():
            return None
        capacity = nodes.allocatable[CPU_AND_MEMORY, rows]
        used = nodes.used[CPU_AND_MEMORY, rows]
        has_both = (capacity[0] > 0) & (capacity[1] > 0)
        safe = np.maximum(capacity, 1)
        return 50 + (50 + _balance((used + asked) / safe, has_both) - _balance(used / safe, has_both)) // 2


def _balance(shares: Shares, has_both: Mask) -> Scores:
    """Return 100 minus the deviation of the used shares [2, rows] in percent, cut to whole numbers."""
    full = np.minimum(shares, 1.0)
    deviation = np.abs(full[0] - full[1]) / 2 * has_both
    balance: Scores = ((1 - deviation) * 100).astype(np.int64)
    return balance
