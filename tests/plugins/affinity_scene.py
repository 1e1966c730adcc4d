"""Nodes, pods and namespaces around the plugin InterPodAffinity."""

from dataclasses import dataclass, field

import numpy as np

from aischeduler.engine.pod_classes import PodClasses
from aischeduler.engine.profile import default_profile
from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import PlacementRequest, Plugins
from aischeduler.framework.runner import Runner
from aischeduler.model.names import SCHEDULER_NAME
from aischeduler.model.pod import Pod
from aischeduler.model.pool import PlacementStrategy
from aischeduler.model.selectors import Labels
from aischeduler.plugins.inter_pod_affinity import InterPodAffinity
from aischeduler.state.counted_pods import Interest
from aischeduler.state.label_index import Rows
from aischeduler.state.node_table import NodeTable
from tests.build import a_node, on_row, replace


@dataclass
class Scene:
    """Nodes with labels, pods on them, and the plugin. The pods of a class agree in all labels."""

    nodes: dict[str, Labels] = field(default_factory=dict)
    rule: InterPodAffinity = field(default_factory=InterPodAffinity)
    namespaces: dict[str, Labels] = field(default_factory=dict)
    pods: dict[str, tuple[Pod, str]] = field(default_factory=dict)
    """The pods on nodes by uid, with their nodes."""

    def __post_init__(self) -> None:
        plugins = Plugins((), (), (), (self.rule,), (self.rule,))
        self.table, self._divided = NodeTable(), PodClasses(default_profile())
        self.counts = self.table.pod_counts
        self.counts.pods_on_rows = lambda: [(pod, self.table.rows[node], False) for pod, node in self.pods.values()]
        self.runner = Runner(plugins, self.table)
        for name, labels in self.nodes.items():
            self.table.see(a_node(name, labels=labels))
        for name, labels in self.namespaces.items():
            self.counts.namespace_changed(name, None, labels)

    def know(self, pod: Pod) -> Pod:
        """Count what a pod is interested in from now on; return it with the spec of its class.

        Of another scheduler's pod, only the terms that it carries count.
        """
        ours = pod.scheduler_name == SCHEDULER_NAME
        labels = tuple(sorted(pod.labels.items()))
        spec = self._divided.divided(pod.spec, pod.namespace, labels) if ours else pod.spec
        self.counts.use(spec, self.interest(pod))
        return replace(pod, spec=spec)

    def interest(self, pod: Pod) -> Interest:
        """Return what is counted for a pod."""
        ours = pod.scheduler_name == SCHEDULER_NAME
        return self.runner.interest(pod.spec) if ours else Interest(carried=pod.spec.pod_affinity.carried)

    def place(self, pod: Pod, node: str) -> Pod:
        """Put a pod on a node; return it with the spec of its class."""
        known = self.know(pod)
        self.table.add(on_row(known, self.table.row(node)))
        self.pods[known.uid] = known, node
        return known

    def rows(self, *names: str) -> Rows:
        """Return the rows of these nodes, or of all nodes."""
        return np.array([self.table.rows[name] for name in names or self.nodes], dtype=np.intp)

    def reasons(self, pod: Pod) -> dict[str, str]:
        """Return for each node why a pod, which is known, may not be there; empty where it may."""
        rows = {int(self.table.rows[name]): name for name in self.nodes}
        found = dict.fromkeys(self.nodes, "")
        for rule, at in self.runner.refused(pod.spec, self.rows()):
            for row in at.rows.tolist():
                (found[rows[row]],) = rule.reasons(pod.spec, NodeView(self.table, np.array([row], dtype=np.intp)))
        return found

    def scores(self, pod: Pod, *names: str) -> list[int]:
        """Return the scores of these nodes, or of all nodes, for a pod that is known; all zero where it is skipped."""
        rows = self.rows(*names)
        if not self.rule.prefers(pod.spec, self.table):
            return [0] * len(rows)
        ask = PlacementRequest(pod.spec, PlacementStrategy.SPREAD)
        return [int(one) for one in self.rule.prescore(ask, self.table, None).score(NodeView(self.table, rows))]
