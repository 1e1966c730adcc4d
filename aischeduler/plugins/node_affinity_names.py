"""NodeAffinity by name: where every required term names nodes, only those are looked at, before any other rule.

DaemonSet pods are of this kind: one node each. All other nodes are told apart from those that were looked at.

Source: the node set that kube-scheduler's NodeAffinity returns from PreFilter.
"""

from collections import Counter

import numpy as np

from aischeduler.model.node import Node
from aischeduler.model.pod import PodSpec
from aischeduler.model.selectors import NodeTerm, Operator
from aischeduler.state.excerpt import Excerpt
from aischeduler.state.index import Mask

REASON = "node(s) didn't satisfy plugin(s) [NodeAffinity]"


class NodeAffinityNames:
    """Filter by the names in required terms."""

    name = "NodeAffinityNames"
    static = True

    def filter(self, spec: PodSpec, at: Excerpt) -> Mask | None:
        """Pass the rows that some term names; a term without names leaves it to the other rules."""
        terms = [_named(term) for term in spec.required or ()]
        if not terms or None in terms:
            return None
        named = sorted({name for names in terms if names is not None for name in names})
        return np.isin(at.rows, [at.nodes.rows[name] for name in named if name in at.nodes.rows])

    def reasons(self, spec: PodSpec, at: Excerpt) -> Counter[str]:
        """Give kube-scheduler's text."""
        return Counter({REASON: len(at)})

    def helps(self, spec: PodSpec, node: Node) -> bool:
        """Leave it to NodeAffinity, which reads the same terms."""
        return True


def _named(term: NodeTerm) -> frozenset[str] | None:
    """Return the names to which a term is limited; None when it is not."""
    limits = [frozenset(field.values) for field in term.fields if field.operator is Operator.IN]
    return frozenset.intersection(*limits) if limits else None
