"""PodTopologySpread: how unevenly the pods that a selector matches are spread over the domains of a node label.

Pods on all nodes of the cluster count, whatever their pool: spread is about where things are, not about whose they are.
The domains among which a pod is spread are those in which its pool has nodes.

Source: kube-scheduler's PodTopologySpread.
"""

from aischeduler.framework.plugin import PlacementRequest, PreFilterState, PreScoreState
from aischeduler.model.pod import PodSpec
from aischeduler.model.topology_spread import SYSTEM_DEFAULTS, DefaultConstraint, TopologySpreadConstraint
from aischeduler.plugins.spread_filter import SpreadState
from aischeduler.plugins.spread_scores import SpreadScores
from aischeduler.state.counted_pods import Counted
from aischeduler.state.node_table import NodeTable


class PodTopologySpread:
    """Filter nodes by the constraints that a pod requires (`DoNotSchedule`), score them by those that it prefers.

    A pod without constraints has the `defaults`, if a Service or its controller selects it. None are those of the
    system, by which nodes without one of the labels are scored too.
    """

    name = "PodTopologySpread"
    weight = 2
    by_class = True

    def __init__(self, defaults: tuple[DefaultConstraint, ...] | None = None) -> None:
        chosen = SYSTEM_DEFAULTS if defaults is None else defaults
        self._hard = tuple(constraint for constraint in chosen if constraint.hard)
        self._soft = tuple(constraint for constraint in chosen if not constraint.hard)
        self._every_key = defaults is not None

    def applies(self, spec: PodSpec, nodes: NodeTable) -> bool:
        """Return whether the pod requires constraints."""
        return bool(spec.topology_spread or (self._hard and spec.default_selector is not None))

    def counts(self, spec: PodSpec) -> tuple[Counted, ...]:
        """Return the selectors of the required constraints."""
        return _selectors(self._required(spec))

    def prefilter(self, spec: PodSpec, nodes: NodeTable, before: PreFilterState | None) -> PreFilterState:
        """Return the pods by domain."""
        if isinstance(before, SpreadState) and before.is_of(nodes):
            return before
        return SpreadState(spec, self._required(spec), nodes)

    def prefers(self, spec: PodSpec, nodes: NodeTable) -> bool:
        """Return whether the pod prefers constraints."""
        return bool(spec.spread_preferences or (self._soft and spec.default_selector is not None))

    def scored(self, spec: PodSpec) -> tuple[Counted, ...]:
        """Return the selectors of the preferred constraints."""
        return _selectors(self._preferred(spec))

    def prescore(self, ask: PlacementRequest, nodes: NodeTable, before: PreScoreState | None) -> PreScoreState:
        """Return the pods by domain."""
        if isinstance(before, SpreadScores) and before.is_of(nodes):
            return before
        every_key = self._every_key or ask.spec.default_selector is None
        return SpreadScores(ask.spec, self._preferred(ask.spec), nodes, every_key=every_key)

    def _required(self, spec: PodSpec) -> tuple[TopologySpreadConstraint, ...]:
        return _constraints(spec, spec.topology_spread, self._hard)

    def _preferred(self, spec: PodSpec) -> tuple[TopologySpreadConstraint, ...]:
        return _constraints(spec, spec.spread_preferences, self._soft)


def _constraints(
    spec: PodSpec, own: tuple[TopologySpreadConstraint, ...], defaults: tuple[DefaultConstraint, ...]
) -> tuple[TopologySpreadConstraint, ...]:
    """Return the constraints of a class; one with constraints of its own has no default selector."""
    selector = spec.default_selector
    return own if selector is None else tuple(default.of(selector) for default in defaults)


def _selectors(constraints: tuple[TopologySpreadConstraint, ...]) -> tuple[Counted, ...]:
    return tuple(constraint.selector for constraint in constraints if constraint.selector is not None)
