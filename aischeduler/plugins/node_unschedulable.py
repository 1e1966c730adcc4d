"""NodeUnschedulable: cordoned nodes take only pods that tolerate the unschedulable taint.

Source: kube-scheduler's NodeUnschedulable.
"""

from collections import Counter

from aischeduler.framework.plugin import RowChange
from aischeduler.model.node import NO_SCHEDULE
from aischeduler.model.pod import PodSpec
from aischeduler.state.index import Mask, Rows
from aischeduler.state.nodes import Change, NodeTable

REASON = "node(s) were unschedulable"
TAINT_KEY = "node.kubernetes.io/unschedulable"


class NodeUnschedulable:
    """Filter by cordon."""

    name = "NodeUnschedulable"
    static = True

    def filter(self, spec: PodSpec, nodes: NodeTable, rows: Rows) -> Mask | None:
        """Pass rows that are not cordoned, or all where the pod tolerates cordons."""
        tolerates = any(
            t.key in ("", TAINT_KEY)
            and t.effect in ("", NO_SCHEDULE)
            and (t.operator == "Exists" or (t.key and not t.value))
            for t in spec.tolerations
        )
        return None if tolerates else ~nodes.cordoned[rows]

    def reasons(self, spec: PodSpec, nodes: NodeTable, rows: Rows) -> Counter[str]:
        """Give kube-scheduler's text."""
        return Counter({REASON: len(rows)})

    def helps(self, spec: PodSpec, change: RowChange) -> bool:
        """Expect help from the end of a cordon."""
        return bool(change.kind & Change.CORDON)
