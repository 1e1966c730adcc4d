"""NodeAffinity: nodeSelector and required terms filter nodes by labels and names; preferred terms add their weights.

Source: kube-scheduler's NodeAffinity; terms are ORed, the expressions and fields of one term ANDed.
"""

from collections import Counter

import numpy as np

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import PlacementRequest, Scores
from aischeduler.model.node import Node
from aischeduler.model.pod import PodSpec
from aischeduler.model.selectors import NodeSelectorTerm, Operator, Requirement
from aischeduler.state.label_index import Mask, term_mask

REASON = "node(s) didn't match Pod's node affinity/selector"
NAMES_REASON = "node(s) didn't satisfy plugin(s) [NodeAffinity]"


class NodeAffinityNames:
    """Filter by node name where every required term names nodes, as the terms of DaemonSet pods do.

    It runs before all other filters, so that the other nodes count for `NAMES_REASON` alone.

    Source: the node set that kube-scheduler's NodeAffinity returns from PreFilter.
    """

    name = "NodeAffinityNames"
    static = True

    def filter(self, spec: PodSpec, at: NodeView) -> Mask | None:
        """Pass the rows that some term names; pass every row where a term names no node."""
        terms = [_named(term) for term in spec.required or ()]
        if not terms or None in terms:
            return None
        named = sorted({name for names in terms if names is not None for name in names})
        return np.isin(at.rows, [at.nodes.rows[name] for name in named if name in at.nodes.rows])

    def reasons(self, spec: PodSpec, at: NodeView) -> Counter[str]:
        """Return kube-scheduler's text."""
        return Counter({NAMES_REASON: len(at)})

    def helps(self, spec: PodSpec, node: Node) -> bool:
        """Return True: NodeAffinity reads the same terms."""
        return True


class NodeAffinity:
    """Filter and score nodes by their labels and names."""

    name = "NodeAffinity"
    static = True
    weight = 2
    normalize = True
    reverse = False

    def filter(self, spec: PodSpec, at: NodeView) -> Mask | None:
        """Pass the rows that have every label of nodeSelector and satisfy one required term, if there are terms."""
        if not spec.node_selector and spec.required is None:
            return None
        mask = at.nodes.labels.all_of(tuple(Requirement(k, Operator.IN, (v,)) for k, v in spec.node_selector))
        if spec.required is not None:
            either = np.zeros(at.nodes.width, dtype=np.bool_)
            for term in spec.required:
                either |= term_mask(term, at.nodes.labels, at.nodes.rows)
            mask &= either
        return mask[at.rows]

    def reasons(self, spec: PodSpec, at: NodeView) -> Counter[str]:
        """Return kube-scheduler's text."""
        return Counter({REASON: len(at)})

    def helps(self, spec: PodSpec, node: Node) -> bool:
        """Return whether the labels and the name match."""
        if any(node.labels.get(key) != value for key, value in spec.node_selector):
            return False
        return spec.required is None or any(term.matches(node.name, node.labels) for term in spec.required)

    def score(self, ask: PlacementRequest, at: NodeView) -> Scores | None:
        """Return the sum of the weights of the preferred terms that match."""
        if not ask.spec.preferred:
            return None
        sums = np.zeros(at.nodes.width, dtype=np.int64)
        for preferred in ask.spec.preferred:
            sums += preferred.weight * term_mask(preferred.term, at.nodes.labels, at.nodes.rows)
        return sums[at.rows]


def _named(term: NodeSelectorTerm) -> frozenset[str] | None:
    """Return the names to which a term is limited; None when it is not."""
    limits = [frozenset(field.values) for field in term.fields if field.operator is Operator.IN]
    return frozenset.intersection(*limits) if limits else None
