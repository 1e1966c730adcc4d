"""The plugins of several profiles over one node table: each class of pods is judged by those of its profile.

Invariant: every public method of `Runner` is here, and asks the runner of the profile that the class of pods has.
"""

from collections.abc import Iterator, Mapping

from aischeduler.framework.cross_rows import CrossRowAnswer
from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import Filter, PlacementRequest, Plugins
from aischeduler.framework.runner import Runner
from aischeduler.model.node import Node
from aischeduler.model.pod import PodSpec
from aischeduler.state.counted_pods import Counted, Interest
from aischeduler.state.diagnosis import Diagnosis
from aischeduler.state.label_index import Mask, Rows
from aischeduler.state.node_table import Column, NodeTable


def make_runner(plugins: Plugins, others: Mapping[str, Plugins], nodes: NodeTable) -> Runner:
    """Return what runs the plugins on a table; `others` are those of the profiles with a name."""
    return ProfileRunners(plugins, others, nodes) if others else Runner(plugins, nodes)


class ProfileRunners(Runner):
    """Asks the runner of the class's profile; it keeps no results of its own."""

    def __init__(self, plugins: Plugins, others: Mapping[str, Plugins], nodes: NodeTable) -> None:
        super().__init__(plugins, nodes)
        self._of = {"": Runner(plugins, nodes), **{name: Runner(one, nodes) for name, one in others.items()}}

    def best(self, ask: PlacementRequest, rows: Rows) -> tuple[int, int] | None:
        """Return what the runner of the profile returns; so in the other methods."""
        return self._of[ask.spec.profile].best(ask, rows)

    def best_of_few(self, ask: PlacementRequest, rows: Rows) -> tuple[int, int] | None:
        """See `Runner`."""
        return self._of[ask.spec.profile].best_of_few(ask, rows)

    def ranked(self, ask: PlacementRequest, rows: Rows) -> list[tuple[int, int]]:
        """See `Runner`."""
        return self._of[ask.spec.profile].ranked(ask, rows)

    def feasible(self, ask: PlacementRequest) -> Mask:
        """See `Runner`."""
        return self._of[ask.spec.profile].feasible(ask)

    def allowed(self, spec: PodSpec, rows: Rows) -> Mask:
        """See `Runner`."""
        return self._of[spec.profile].allowed(spec, rows)

    def fits(self, spec: PodSpec, rows: Rows) -> Mask:
        """See `Runner`."""
        return self._of[spec.profile].fits(spec, rows)

    def interest(self, spec: PodSpec) -> Interest:
        """See `Runner`."""
        return self._of[spec.profile].interest(spec)

    def counts(self, spec: PodSpec) -> tuple[Counted, ...]:
        """See `Runner`."""
        return self._of[spec.profile].counts(spec)

    def crosses_rows(self, spec: PodSpec) -> bool:
        """See `Runner`."""
        return self._of[spec.profile].crosses_rows(spec)

    def by_amounts(self, spec: PodSpec) -> bool:
        """See `Runner`."""
        return self._of[spec.profile].by_amounts(spec)

    def fits_using(self, spec: PodSpec, rows: Rows, used: Column) -> Mask:
        """See `Runner`."""
        return self._of[spec.profile].fits_using(spec, rows, used)

    def passes(self, spec: PodSpec, rows: Rows) -> Mask:
        """See `Runner`."""
        return self._of[spec.profile].passes(spec, rows)

    def could_run(self, spec: PodSpec, rows: Rows) -> Mask:
        """See `Runner`."""
        return self._of[spec.profile].could_run(spec, rows)

    def refused_for_now(self, spec: PodSpec, rows: Rows) -> Mask:
        """See `Runner`."""
        return self._of[spec.profile].refused_for_now(spec, rows)

    def plugins_of(self, spec: PodSpec) -> Plugins:
        """See `Runner`."""
        return self._of[spec.profile].plugins

    def prefiltered(self, spec: PodSpec) -> list[CrossRowAnswer]:
        """See `Runner`."""
        return self._of[spec.profile].prefiltered(spec)

    def helps(self, spec: PodSpec, node: Node) -> bool:
        """See `Runner`."""
        return self._of[spec.profile].helps(spec, node)

    def diagnose(self, ask: PlacementRequest, rows: Rows) -> Diagnosis:
        """See `Runner`."""
        return self._of[ask.spec.profile].diagnose(ask, rows)

    def refusals(self, spec: PodSpec, rows: Rows, filters: tuple[Filter, ...] | None = None) -> Diagnosis:
        """See `Runner`."""
        return self._of[spec.profile].refusals(spec, rows, filters)

    def refused(
        self, spec: PodSpec, rows: Rows, filters: tuple[Filter, ...] | None = None
    ) -> Iterator[tuple[Filter | CrossRowAnswer, NodeView]]:
        """See `Runner`."""
        return self._of[spec.profile].refused(spec, rows, filters)
