"""NodeAffinity: nodeSelector and required terms filter nodes by labels and names; preferred terms add their weights.

A profile may add terms of its own, `addedAffinity`, to those of every pod.

Source: kube-scheduler's NodeAffinity; terms are ORed, the expressions and fields of one term ANDed.
"""

from collections import Counter
from typing import Final

import numpy as np

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import PlacementRequest, Scores
from aischeduler.model.node import Node
from aischeduler.model.pod import PodSpec
from aischeduler.model.selectors import NodeSelectorTerm, Operator, PreferredSchedulingTerm, Requirement
from aischeduler.state.diagnosis import AFFINITY_CONFLICT
from aischeduler.state.label_index import Mask, term_mask
from aischeduler.state.node_table import NodeTable

REASON = "node(s) didn't match Pod's node affinity/selector"
ENFORCED_REASON = "node(s) didn't match scheduler-enforced node affinity"
NAMES_REASON = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
FEW_NAMES: Final = 16
"""A class that names more nodes is judged on all rows, with results that are kept."""
FEW_ROWS: Final = 16
"""So few rows are judged one by one: masks of the whole table take longer."""


class NodeAffinityNames:
    """Filter by node name where every required term names nodes, as the terms of DaemonSet pods do.

    It runs before all other filters, so that the other nodes count for `NAMES_REASON` alone.

    Source: the node set that kube-scheduler's NodeAffinity returns from PreFilter.
    """

    name = "NodeAffinityNames"
    static = True

    def filter(self, spec: PodSpec, at: NodeView) -> Mask | None:
        """Pass the rows that some term names; pass every row where a term names no node."""
        names = _all_named(spec)
        if names is None:
            return None
        if len(at) <= FEW_ROWS:
            return np.array([at.nodes.names[row] in names for row in at.rows.tolist()], dtype=np.bool_)
        return np.isin(at.rows, _rows_of(names, at.nodes))

    def named(self, spec: PodSpec, nodes: NodeTable) -> list[int] | None:
        """Return the rows that the terms name, ascending; None where a term names no node, or they name many."""
        names = _all_named(spec)
        return None if names is None or len(names) > FEW_NAMES else _rows_of(names, nodes)

    def reasons(self, spec: PodSpec, at: NodeView) -> Counter[str]:
        """Return kube-scheduler's text; that every term names nodes and excludes them is another one."""
        return Counter({NAMES_REASON if _all_named(spec) else AFFINITY_CONFLICT: len(at)})

    def helps(self, spec: PodSpec, node: Node) -> bool:
        """Return True: NodeAffinity reads the same terms."""
        return True


class NodeAffinity:
    """Filter and score nodes by their labels and names.

    `added_required` are terms of the profile, one of which each node of its pods must satisfy, None where there are
    none; `added_preferred` are scored for each pod too.
    """

    name = "NodeAffinity"
    static = True
    weight = 2
    normalize = True
    reverse = False

    def __init__(
        self,
        added_required: tuple[NodeSelectorTerm, ...] | None = None,
        added_preferred: tuple[PreferredSchedulingTerm, ...] = (),
    ) -> None:
        self._added_required, self._added_preferred = added_required, added_preferred

    def filter(self, spec: PodSpec, at: NodeView) -> Mask | None:
        """Pass the rows that have every label of nodeSelector and satisfy one required term, if there are terms."""
        if len(at) <= FEW_ROWS and self._reads(spec):
            found = (at.nodes.nodes[row] for row in at.rows.tolist())
            return np.array([node is not None and self.helps(spec, node) for node in found], dtype=np.bool_)
        enforced = None if self._added_required is None else _either(self._added_required, at.nodes)[at.rows]
        own = self._of_pod(spec, at)
        return own if enforced is None else enforced if own is None else enforced & own

    def _reads(self, spec: PodSpec) -> bool:
        """Return whether the pod or the profile requires labels or names of nodes."""
        return bool(spec.node_selector) or spec.required is not None or self._added_required is not None

    @staticmethod
    def _of_pod(spec: PodSpec, at: NodeView) -> Mask | None:
        """Return a mask of the rows that the pod itself allows."""
        if not spec.node_selector and spec.required is None:
            return None
        mask = at.nodes.labels.all_of(tuple(Requirement(k, Operator.IN, (v,)) for k, v in spec.node_selector))
        if spec.required is not None:
            mask &= _either(spec.required, at.nodes)
        return mask[at.rows]

    def reasons(self, spec: PodSpec, at: NodeView) -> Counter[str]:
        """Return kube-scheduler's texts: a row counts for the terms of the profile, else for those of the pod."""
        allowed = len(at)
        if self._added_required is not None:
            allowed = int(np.count_nonzero(_either(self._added_required, at.nodes)[at.rows]))
        return +Counter({ENFORCED_REASON: len(at) - allowed, REASON: allowed})

    def helps(self, spec: PodSpec, node: Node) -> bool:
        """Return whether the labels and the name match."""
        added = self._added_required
        if added is not None and not any(term.matches(node.name, node.labels) for term in added):
            return False
        if any(node.labels.get(key) != value for key, value in spec.node_selector):
            return False
        return spec.required is None or any(term.matches(node.name, node.labels) for term in spec.required)

    def score(self, ask: PlacementRequest, at: NodeView) -> Scores | None:
        """Return the sum of the weights of the preferred terms that match."""
        if not ask.spec.preferred and not self._added_preferred:
            return None
        sums = np.zeros(at.nodes.width, dtype=np.int64)
        for preferred in (*ask.spec.preferred, *self._added_preferred):
            sums += preferred.weight * term_mask(preferred.term, at.nodes.labels, at.nodes.rows)
        return sums[at.rows]


def _either(terms: tuple[NodeSelectorTerm, ...], nodes: NodeTable) -> Mask:
    """Return a mask of all rows of the table, True where one of the terms holds."""
    either = np.zeros(nodes.width, dtype=np.bool_)
    for term in terms:
        either |= term_mask(term, nodes.labels, nodes.rows)
    return either


def _all_named(spec: PodSpec) -> set[str] | None:
    """Return the names of nodes that some required term allows; None where a term names no node, or there is none."""
    terms = [_named(term) for term in spec.required or ()]
    if not terms or None in terms:
        return None
    return {name for names in terms if names is not None for name in names}


def _rows_of(names: set[str], nodes: NodeTable) -> list[int]:
    return sorted(nodes.rows[name] for name in names if name in nodes.rows)


def _named(term: NodeSelectorTerm) -> frozenset[str] | None:
    """Return the names to which a term is limited; None when it is not."""
    limits = [frozenset(field.values) for field in term.fields if field.operator is Operator.IN]
    return frozenset.intersection(*limits) if limits else None
