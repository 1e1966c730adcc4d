"""NodeName: a pod that asks for a node by name fits only there.

A pod with `spec.nodeName` counts as bound and is never tried; the rule serves what-ifs about one node.

Source: kube-scheduler's NodeName.
"""

from collections import Counter

import numpy as np

from aischeduler.model.node import Node
from aischeduler.model.pod import PodSpec
from aischeduler.state.excerpt import Excerpt
from aischeduler.state.index import Mask

REASON = "node(s) didn't match the requested node name"


class NodeName:
    """Filter by name."""

    name = "NodeName"
    static = True

    def filter(self, spec: PodSpec, at: Excerpt) -> Mask | None:
        """Pass the one row of that name."""
        if not spec.node_name:
            return None
        return np.asarray(at.rows == at.nodes.rows.get(spec.node_name, -1))

    def reasons(self, spec: PodSpec, at: Excerpt) -> Counter[str]:
        """Give kube-scheduler's text."""
        return Counter({REASON: len(at)})

    def helps(self, spec: PodSpec, node: Node) -> bool:
        """Expect help from the node of that name."""
        return spec.node_name in ("", node.name)
