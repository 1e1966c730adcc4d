"""PodTopologySpread: how unevenly the pods that a selector matches are spread over the domains of a node label.

Pods on all nodes of the cluster count, whatever their pool: spread is about where things are, not about whose they are.
The domains among which a pod is spread are those in which its pool has nodes.

Source: kube-scheduler's PodTopologySpread.
"""

from aischeduler.framework.plugin import PlacementRequest, PreFilterState, PreScoreState
from aischeduler.model.pod import PodSpec
from aischeduler.plugins.spread_filter import SpreadState
from aischeduler.plugins.spread_scores import SpreadScores
from aischeduler.state.counted_pods import Counted
from aischeduler.state.node_table import NodeTable


class PodTopologySpread:
    """Filter nodes by the constraints that a pod requires (`DoNotSchedule`), score them by those that it prefers."""

    name = "PodTopologySpread"
    weight = 2

    def applies(self, spec: PodSpec, nodes: NodeTable) -> bool:
        """Return whether the pod requires constraints."""
        return bool(spec.topology_spread)

    def counts(self, spec: PodSpec) -> tuple[Counted, ...]:
        """Return the selectors of the required constraints."""
        return tuple(one.selector for one in spec.topology_spread if one.selector is not None)

    def prefilter(self, spec: PodSpec, nodes: NodeTable, before: PreFilterState | None) -> PreFilterState:
        """Return the pods by domain."""
        if isinstance(before, SpreadState) and before.is_of(nodes):
            return before
        return SpreadState(spec, spec.topology_spread, nodes)

    def prefers(self, spec: PodSpec, nodes: NodeTable) -> bool:
        """Return whether the pod prefers constraints."""
        return bool(spec.spread_preferences)

    def scored(self, spec: PodSpec) -> tuple[Counted, ...]:
        """Return the selectors of the preferred constraints."""
        return tuple(one.selector for one in spec.spread_preferences if one.selector is not None)

    def prescore(self, ask: PlacementRequest, nodes: NodeTable, before: PreScoreState | None) -> PreScoreState:
        """Return the pods by domain."""
        if isinstance(before, SpreadScores) and before.is_of(nodes):
            return before
        return SpreadScores(ask.spec, ask.spec.spread_preferences, nodes)
