"""GpuType: nodes of the card types that a pod names, the left ones preferred; rare types only for pods that name them.

The score decides before every other one: of the nodes that fit, those of the leftmost type come first.
"""

from collections import Counter
from typing import Final

import numpy as np

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import PlacementRequest, Scores
from aischeduler.model.names import GPU_TYPE_LABELS
from aischeduler.model.node import Node
from aischeduler.model.pod import PodSpec
from aischeduler.state.cards import kind_of
from aischeduler.state.label_index import Mask

RARE_NAMED_MAX: Final = 16
"""The most rare types that reasons name; nodes of others count for one reason without a name."""


class GpuType:
    """Filter and score nodes by the types of their cards."""

    name = "GpuType"
    static = True
    weight = 4000
    """One of 16 places is 6 points: 24000 with this weight, more than all other scores together."""
    normalize = True
    reverse = False

    def __init__(self, labels: tuple[str, ...] = GPU_TYPE_LABELS) -> None:
        self._labels = labels

    def filter(self, spec: PodSpec, at: NodeView) -> Mask | None:
        """Pass the rows of a type that the pod names; without types, or where others will do, all but rare ones."""
        nodes = at.nodes
        named = self._named(spec, at) if spec.gpu_types and spec.gpu_type_required else None
        if not nodes.cards.rare:
            return named
        is_open = ~nodes.cards.closed(nodes, spec.gpu_types)[at.rows]
        return is_open if named is None else named & is_open

    def reasons(self, spec: PodSpec, at: NodeView) -> Counter[str]:
        """Count the rows of other types, then those of each rare type."""
        rows = at.rows
        found: Counter[str] = Counter()
        if spec.gpu_types and spec.gpu_type_required:
            named = self._named(spec, at)
            rows = rows[named]
            if len(rows) < len(at):
                found[f"node(s) didn't match the GPU type {'|'.join(spec.gpu_types)}"] = len(at) - len(rows)
        rare = at.nodes.cards.rare_among(at.nodes, rows, spec.gpu_types)
        ordered = sorted(rare.items(), key=lambda item: (-item[1], item[0]))
        for name, count in ordered[:RARE_NAMED_MAX]:
            found[f"node(s) had the rare GPU type {name}, which the pod does not name"] = count
        others = sum(count for _, count in ordered[RARE_NAMED_MAX:])
        if others:
            found["node(s) had other rare GPU types, of which the pod names none"] = others
        return found

    def helps(self, spec: PodSpec, node: Node) -> bool:
        """Return whether the node has a type that the pod names; True where rare types alone decide."""
        if not spec.gpu_types or not spec.gpu_type_required:
            return True
        return not set(spec.gpu_types).isdisjoint(kind_of(node.labels, self._labels).names)

    def score(self, ask: PlacementRequest, at: NodeView) -> Scores | None:
        """Return how far left the best type of the node is among those that the pod names; 0 where it has none."""
        types = ask.spec.gpu_types
        if not types or (len(types) == 1 and ask.spec.gpu_type_required):
            return None
        return at.nodes.cards.named(at.nodes, types)[at.rows].astype(np.int64)

    def _named(self, spec: PodSpec, at: NodeView) -> Mask:
        mask: Mask = at.nodes.cards.named(at.nodes, spec.gpu_types)[at.rows] > 0
        return mask
