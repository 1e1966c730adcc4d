"""NodeAffinity: nodeSelector and required terms must match; preferred terms that match add their weights.

Source: kube-scheduler's NodeAffinity; terms are ORed, the expressions and fields of one term ANDed.
"""

from collections import Counter

import numpy as np

from aischeduler.framework.plugin import Ask, Scores
from aischeduler.model.node import Node
from aischeduler.model.pod import PodSpec
from aischeduler.model.selectors import Operator, Requirement
from aischeduler.state.excerpt import Excerpt
from aischeduler.state.index import Mask, term_mask

REASON = "node(s) didn't match Pod's node affinity/selector"


class NodeAffinity:
    """Filter and score by node labels and names."""

    name = "NodeAffinity"
    static = True
    weight = 2
    normalize = True
    reverse = False

    def filter(self, spec: PodSpec, at: Excerpt) -> Mask | None:
        """Pass rows that carry every label of nodeSelector and satisfy one required term, if there are terms."""
        if not spec.node_selector and spec.required is None:
            return None
        mask = at.nodes.labels.all_of(tuple(Requirement(k, Operator.IN, (v,)) for k, v in spec.node_selector))
        if spec.required is not None:
            either = np.zeros(at.nodes.width, dtype=np.bool_)
            for term in spec.required:
                either |= term_mask(term, at.nodes.labels, at.nodes.rows)
            mask &= either
        return mask[at.rows]

    def reasons(self, spec: PodSpec, at: Excerpt) -> Counter[str]:
        """Give kube-scheduler's text."""
        return Counter({REASON: len(at)})

    def helps(self, spec: PodSpec, node: Node) -> bool:
        """Expect help where the labels match."""
        if any(node.labels.get(key) != value for key, value in spec.node_selector):
            return False
        return spec.required is None or any(term.matches(node.name, node.labels) for term in spec.required)

    def score(self, ask: Ask, at: Excerpt) -> Scores | None:
        """Add up the weights of the preferred terms that match."""
        if not ask.spec.preferred:
            return None
        sums = np.zeros(at.nodes.width, dtype=np.int64)
        for preferred in ask.spec.preferred:
            sums += preferred.weight * term_mask(preferred.term, at.nodes.labels, at.nodes.rows)
        return sums[at.rows]
