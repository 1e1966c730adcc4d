"""NodeUnschedulable: a cordoned node takes only pods that tolerate the unschedulable taint.

Source: kube-scheduler's NodeUnschedulable.
"""

from collections import Counter

from aischeduler.framework.node_view import NodeView
from aischeduler.model.node import NO_SCHEDULE, Node
from aischeduler.model.pod import PodSpec
from aischeduler.state.label_index import Mask

REASON = "node(s) were unschedulable"
TAINT_KEY = "node.kubernetes.io/unschedulable"


class NodeUnschedulable:
    """Filter nodes by spec.unschedulable."""

    name = "NodeUnschedulable"
    static = True

    def filter(self, spec: PodSpec, at: NodeView) -> Mask | None:
        """Pass the rows that are not cordoned; pass all rows where the pod tolerates the taint."""
        return None if _tolerates(spec) else ~at.nodes.cordoned[at.rows]

    def reasons(self, spec: PodSpec, at: NodeView) -> Counter[str]:
        """Return kube-scheduler's text."""
        return Counter({REASON: len(at)})

    def helps(self, spec: PodSpec, node: Node) -> bool:
        """Return whether the node is not cordoned, or the pod tolerates the taint."""
        return not node.unschedulable or _tolerates(spec)


def _tolerates(spec: PodSpec) -> bool:
    return any(
        t.key in ("", TAINT_KEY)
        and t.effect in ("", NO_SCHEDULE)
        and (t.operator == "Exists" or (t.key and not t.value))
        for t in spec.tolerations
    )
