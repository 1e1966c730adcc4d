"""MachineGroup: a pod that names a machine group runs on its nodes only, any other pod never does.

A node belongs to the group that its label names; an empty label names none.
"""

from collections import Counter
from typing import Final

import numpy as np

from aischeduler.framework.node_view import NodeView
from aischeduler.model.names import MACHINE_GROUP_KEY
from aischeduler.model.node import Node
from aischeduler.model.pod import PodSpec
from aischeduler.state.label_index import Mask

GROUPS_NAMED_MAX: Final = 16
"""The most groups that reasons name; the nodes of others are counted together."""


class MachineGroup:
    """Filter nodes by their machine group."""

    name = "MachineGroup"
    static = True

    def filter(self, spec: PodSpec, at: NodeView) -> Mask | None:
        """Pass the rows of the group that the pod names, or those of no group."""
        labels, group = at.nodes.labels, spec.machine_group
        if group:
            return labels.having(MACHINE_GROUP_KEY, group)[at.rows]
        if not labels.has_key(MACHINE_GROUP_KEY):
            return None
        in_none = ~labels.having_key(MACHINE_GROUP_KEY) | labels.having(MACHINE_GROUP_KEY, "")
        return in_none[at.rows]

    def reasons(self, spec: PodSpec, at: NodeView) -> Counter[str]:
        """Count the rows outside of the group, or those of each group that the pod does not name."""
        if spec.machine_group:
            return Counter({f"node(s) didn't belong to the machine group {spec.machine_group}": len(at)})
        labels = at.nodes.labels
        values, numbers = labels.values(MACHINE_GROUP_KEY), labels.numbers(MACHINE_GROUP_KEY)[at.rows]
        counts = np.bincount(numbers[numbers >= 0], minlength=len(values)).tolist()
        groups = [(value, count) for value, count in zip(values, counts, strict=True) if value and count]
        ordered = sorted(groups, key=lambda item: (-item[1], item[0]))
        found = Counter(
            {
                f"node(s) belonged to the machine group {group}, which the pod does not name": count
                for group, count in ordered[:GROUPS_NAMED_MAX]
            }
        )
        others = sum(count for _, count in ordered[GROUPS_NAMED_MAX:])
        if others:
            found["node(s) belonged to other machine groups, of which the pod names none"] = others
        return found

    def helps(self, spec: PodSpec, node: Node) -> bool:
        """Return whether the node's group is the one that the pod names, if any."""
        return node.labels.get(MACHINE_GROUP_KEY, "") == spec.machine_group
