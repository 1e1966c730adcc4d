"""TaintToleration: the pod must tolerate NoSchedule and NoExecute taints; PreferNoSchedule taints lower the score.

Source: kube-scheduler's TaintToleration.
"""

from collections import Counter

import numpy as np

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import PlacementRequest, Scores
from aischeduler.model.node import NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE, Node, Taint
from aischeduler.model.pod import PodSpec, Toleration
from aischeduler.state.label_index import Mask

REASON = "node(s) had untolerated taint(s)"


class TaintToleration:
    """Filter nodes by NoSchedule and NoExecute taints, score them by PreferNoSchedule taints."""

    name = "TaintToleration"
    static = True
    weight = 3
    normalize = True
    reverse = True

    def filter(self, spec: PodSpec, at: NodeView) -> Mask | None:
        """Pass the rows whose NoSchedule and NoExecute taints are all tolerated."""
        refused = [
            taint
            for taint in at.nodes.taints.values()
            if taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not tolerated(taint, spec.tolerations)
        ]
        if not refused:
            return None
        mask = np.ones(at.nodes.width, dtype=np.bool_)
        for taint in refused:
            mask &= ~at.nodes.taints.mask(taint)
        return mask[at.rows]

    def reasons(self, spec: PodSpec, at: NodeView) -> Counter[str]:
        """Return kube-scheduler's one text for all taints."""
        return Counter({REASON: len(at)})

    def helps(self, spec: PodSpec, node: Node) -> bool:
        """Return whether the pod tolerates every taint of the node, PreferNoSchedule taints aside."""
        return all(taint.effect == PREFER_NO_SCHEDULE or tolerated(taint, spec.tolerations) for taint in node.taints)

    def score(self, ask: PlacementRequest, at: NodeView) -> Scores | None:
        """Return the number of PreferNoSchedule taints that the pod does not tolerate."""
        preferring = tuple(t for t in ask.spec.tolerations if t.effect in ("", PREFER_NO_SCHEDULE))
        counts = np.zeros(at.nodes.width, dtype=np.int64)
        for taint in at.nodes.taints.values():
            if taint.effect == PREFER_NO_SCHEDULE and not tolerated(taint, preferring):
                counts += at.nodes.taints.mask(taint)
        return counts[at.rows]


def tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    """Return whether one of the tolerations tolerates the taint."""
    return any(
        toleration.effect in ("", taint.effect)
        and toleration.key in ("", taint.key)
        and (toleration.operator == "Exists" or (toleration.key == taint.key and toleration.value == taint.value))
        for toleration in tolerations
    )
