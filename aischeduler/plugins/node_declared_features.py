"""NodeDeclaredFeatures: the kubelet of the node must declare every feature that the pod needs.

Almost no pod needs a feature.

Source: kube-scheduler's NodeDeclaredFeatures.
"""

from collections import Counter
from typing import Final

import numpy as np

from aischeduler.framework.node_view import NodeView
from aischeduler.model.node import Node
from aischeduler.model.pod import PodSpec
from aischeduler.state.label_index import Mask

REASON: Final = "node(s) didn't match Pod's required features"


class NodeDeclaredFeatures:
    """Filter nodes by the features that they declare."""

    name = "NodeDeclaredFeatures"
    static = True

    def filter(self, spec: PodSpec, at: NodeView) -> Mask | None:
        """Pass the rows that declare every feature."""
        if not spec.features:
            return None
        mask: Mask = np.logical_and.reduce([at.nodes.features.mask(name) for name in spec.features])[at.rows]
        return mask

    def reasons(self, spec: PodSpec, at: NodeView) -> Counter[str]:
        """Return kube-scheduler's text."""
        return Counter({REASON: len(at)})

    def helps(self, spec: PodSpec, node: Node) -> bool:
        """Return whether the node declares every feature."""
        return set(spec.features) <= set(node.features)
