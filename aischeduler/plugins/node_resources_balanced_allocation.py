"""NodeResourcesBalancedAllocation: prefers nodes whose CPU and memory stay used in equal shares.

Source: kube-scheduler 1.36: the standard deviation of the used shares with the pod against without it.
"""

import numpy as np
import numpy.typing as npt

from aischeduler.framework.plugin import Ask, Scores
from aischeduler.model.names import CPU, MEMORY
from aischeduler.state.index import Rows
from aischeduler.state.nodes import NodeTable, requested

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
        asked = [requested(amounts.get(resource, 0)) for resource in (CPU, MEMORY)]
        if not any(asked):
            return None
        columns = [nodes.column(resource) for resource in (CPU, MEMORY)]
        capacity = [nodes.allocatable[column][rows] for column in columns]
        used = [nodes.used[column][rows] for column in columns]
        both = (capacity[0] > 0) & (capacity[1] > 0)
        without = _balance(capacity, used, both)
        after = _balance(capacity, [u + a for u, a in zip(used, asked, strict=True)], both)
        return 50 + (50 + after - without) // 2


def _balance(capacity: list[Scores], used: list[Scores], both: npt.NDArray[np.bool_]) -> Scores:
    """Return 100 minus the deviation of the used shares in percent, cut to whole numbers."""
    shares: list[Shares] = [
        np.minimum(u.astype(np.float64) / np.maximum(c, 1), 1.0) for c, u in zip(capacity, used, strict=True)
    ]
    deviation = np.where(both, np.abs((shares[0] - shares[1]) / 2), 0.0)
    return ((1 - deviation) * 100).astype(np.int64)
