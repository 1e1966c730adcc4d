"""NodeMaintenance: nodes that leave the cluster soon take no pods that ask for GPUs, and are the last for all others.

Vector form: every method answers for all rows at once.
"""

from collections import Counter
from typing import Any

import numpy as np

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import PlacementRequest, Scores
from aischeduler.model.node import Node
from aischeduler.model.pod import PodSpec
from aischeduler.model.selectors import Operator, Requirement
from aischeduler.state.label_index import Mask


class NodeMaintenance:
    """Keep pods that ask for GPUs off nodes that leave soon, and let the others prefer nodes that stay."""

    name = "NodeMaintenance"
    static = True
    weight = 2
    normalize = True
    reverse = True

    def __init__(self, args: dict[str, Any]) -> None:
        """Read the arguments: `label` is the label of nodes that leave, `resources` what long pods ask for."""
        unknown = args.keys() - {"label", "resources"}
        if unknown:
            raise ValueError(f"unknown arguments: {', '.join(sorted(unknown))}")
        self._leaving = Requirement(args.get("label", "example.com/maintenance"), Operator.EXISTS)
        self._resources = frozenset(args.get("resources", ["nvidia.com/gpu"]))

    def filter(self, spec: PodSpec, at: NodeView) -> Mask | None:
        """Pass nodes that stay; pods without GPUs pass everywhere."""
        if self._resources.isdisjoint(spec.request.amounts):
            return None
        return ~at.nodes.labels.mask(self._leaving)[at.rows]

    def reasons(self, spec: PodSpec, at: NodeView) -> Counter[str]:
        """Return the reason as `kubectl describe pod` shows it."""
        return Counter({"node(s) were about to leave for maintenance": len(at)})

    def helps(self, spec: PodSpec, node: Node) -> bool:
        """Return whether the node can suit the pod: it stays, or the pod asks for no GPU."""
        return self._resources.isdisjoint(spec.request.amounts) or not self._leaving.matches(node.labels)

    def score(self, ask: PlacementRequest, at: NodeView) -> Scores | None:
        """Give 1 to nodes that leave soon; `reverse` turns the largest value into the worst."""
        return at.nodes.labels.mask(self._leaving)[at.rows].astype(np.int64)
