"""What the filter and the scores of PodTopologySpread share: the nodes that count, and the pods by domain.

Invariant: the numbers of pods are those of now, trials included; what depends on nodes and pools is kept by version.
"""

from typing import Final

from aischeduler.framework.node_view import NodeView
from aischeduler.model.pod import PodSpec
from aischeduler.model.topology_spread import TopologySpreadConstraint
from aischeduler.plugins.node_affinity import NodeAffinity
from aischeduler.plugins.taint_toleration import TaintToleration
from aischeduler.state.kept import StatePart, reading
from aischeduler.state.label_index import Mask, Rows
from aischeduler.state.node_table import NodeTable
from aischeduler.state.pod_counts import DomainCounts, PodCount

READ: Final = reading(StatePart.UNLABELLED, StatePart.LABELS, StatePart.POOLS)


class KeptCounts:
    """The counts by domain of some constraints, and the numbers of what they were made from."""

    def __init__(self, nodes: NodeTable) -> None:
        self._made_from = READ(nodes)
        self._counts: list[PodCount] = []

    def is_of(self, nodes: NodeTable) -> bool:
        """Return whether what is kept still holds: nodes and pools are as they were, and no count began anew."""
        return self._made_from == READ(nodes) and all(
            nodes.pod_counts.of(counts.by) is counts for counts in self._counts
        )

    def follow(
        self, constraint: TopologySpreadConstraint, of_row: Rows, nodes: NodeTable, counted: Mask | None
    ) -> DomainCounts:
        """Return the pods of a constraint by these domains."""
        if constraint.selector is None:
            return DomainCounts(of_row, {}, {}, counted)
        count = nodes.pod_counts.of(constraint.selector)
        self._counts.append(count)
        return count.follow(of_row, counted)


def counted_rows(
    spec: PodSpec, constraints: tuple[TopologySpreadConstraint, ...], nodes: NodeTable, *, every_key: bool = True
) -> list[Mask]:
    """Return for each constraint a mask over all rows, True where pods on the row count.

    The node passes the policies of the constraint and, with `every_key`, has the labels of all of them.
    """
    labelled = nodes.alive.copy()
    for constraint in constraints if every_key else ():
        labelled &= nodes.labels.having_key(constraint.topology_key)
    at = NodeView.everywhere(nodes)
    matching, tolerated = NodeAffinity().filter(spec, at), TaintToleration().filter(spec, at)
    found = []
    for constraint in constraints:
        counted = labelled
        if constraint.honors_affinity and matching is not None:
            counted = counted & matching
        if constraint.honors_taints and tolerated is not None:
            counted = counted & tolerated
        found.append(counted)
    return found
