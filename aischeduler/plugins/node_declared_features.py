"""NodeDeclaredFeatures: the kubelet of the node must declare every feature that the pod needs.

It is a `CrossRowFilter`, because kube-scheduler asks it last: a node counts for what else it lacks. Almost no pod needs
a feature.

Source: kube-scheduler's NodeDeclaredFeatures.
"""

from collections import Counter
from typing import Final

import numpy as np

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import PreFilterState
from aischeduler.model.pod import PodSpec
from aischeduler.state.counted_pods import Counted
from aischeduler.state.label_index import Mask
from aischeduler.state.node_table import NodeTable

REASON: Final = "node(s) didn't match Pod's required features"


class NodeDeclaredFeatures:
    """Filter nodes by the features that they declare."""

    name = "NodeDeclaredFeatures"
    by_class = True

    def applies(self, spec: PodSpec, nodes: NodeTable) -> bool:
        """Return whether the pod needs a feature."""
        return bool(spec.features)

    def counts(self, spec: PodSpec) -> tuple[Counted, ...]:
        """Return nothing: no pods count."""
        return ()

    def prefilter(self, spec: PodSpec, nodes: NodeTable, before: PreFilterState | None) -> PreFilterState:
        """Return the rows that declare every feature."""
        return _Declaring(np.logical_and.reduce([nodes.features.mask(name) for name in spec.features]))


class _Declaring:
    """The rows that declare every feature of one class."""

    def __init__(self, declaring: Mask) -> None:
        self._declaring = declaring

    def filter(self, at: NodeView) -> Mask:
        """Return a mask of the rows that declare every feature."""
        mask: Mask = self._declaring[at.rows]
        return mask

    def resolvable(self, at: NodeView) -> Mask:
        """Return the same: no pod that leaves helps."""
        return self.filter(at)

    def reasons(self, at: NodeView) -> Counter[str]:
        """Return kube-scheduler's text."""
        return Counter({REASON: len(at)})
