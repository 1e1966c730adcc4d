"""Plain plugins, which judge one node at a time, as filters and scores of the framework.

Invariant: a plain plugin is called in a Python loop, once per row that is asked. It is slow: 5,000 nodes cost
milliseconds per class of pods, and again for each row that changed. With `static`, its answers are kept.

The plugin has `filter_node`, `score_node`, or both. `static`, `weight`, `normalize` and `reverse` mean what they mean
in `framework.plugin`; without them it is live, has the weight 1, and scores from 0 to 100.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, Protocol

import numpy as np
from msgspec import Struct

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import PlacementRequest, Scores
from aischeduler.model.node import Node
from aischeduler.model.pod import PodSpec
from aischeduler.state.label_index import Mask

SCORE_MAX: Final = 100


class PlainNode(Struct, frozen=True):
    """A node as a plain plugin sees it: the object, and what is free on it by resource (CPU in millicores)."""

    node: Node
    free: Mapping[str, int]


class PlainFilter(Protocol):
    """A plain plugin that filters."""

    name: str

    def filter_node(self, pod: PodSpec, node: PlainNode) -> str | None:
        """Return why a pod of this class may not run on the node; None where it may."""


class PlainScore(Protocol):
    """A plain plugin that scores."""

    name: str

    def score_node(self, pod: PodSpec, node: PlainNode) -> int:
        """Return how good the node is for a pod of this class, from 0 to 100 where it is not normalised."""


class NodeByNodeFilter:
    """A plain plugin as a filter."""

    def __init__(self, plugin: PlainFilter) -> None:
        self.plugin, self.name = plugin, plugin.name
        self.static = bool(getattr(plugin, "static", False))

    def filter(self, spec: PodSpec, at: NodeView) -> Mask | None:
        """Ask the plugin about each row."""
        return np.array([not self._why(spec, at, row) for row in at.rows.tolist()], dtype=np.bool_)

    def reasons(self, spec: PodSpec, at: NodeView) -> Counter[str]:
        """Count the texts of the plugin."""
        texts = (self._why(spec, at, row) for row in at.rows.tolist())
        return Counter(text for text in texts if text)

    def helps(self, spec: PodSpec, node: Node) -> bool:
        """Return what the plugin's own `helps` says; True where it has none."""
        hint: Any = getattr(self.plugin, "helps", None)
        return hint is None or bool(hint(spec, node))

    def _why(self, spec: PodSpec, at: NodeView, row: int) -> str:
        node = _plain(at, row)
        return "" if node is None else self.plugin.filter_node(spec, node) or ""


class NodeByNodeScore:
    """A plain plugin as a score."""

    def __init__(self, plugin: PlainScore) -> None:
        self.plugin, self.name = plugin, plugin.name
        self.static = bool(getattr(plugin, "static", False))
        self.weight = int(getattr(plugin, "weight", 1))
        self.normalize = bool(getattr(plugin, "normalize", False))
        self.reverse = bool(getattr(plugin, "reverse", False))

    def score(self, ask: PlacementRequest, at: NodeView) -> Scores | None:
        """Ask the plugin about each row; raises ValueError for a score that is not allowed."""
        return np.array([self._score(ask.spec, at, row) for row in at.rows.tolist()], dtype=np.int64)

    def _score(self, spec: PodSpec, at: NodeView, row: int) -> int:
        node = _plain(at, row)
        score = 0 if node is None else self.plugin.score_node(spec, node)
        if score < 0 or (score > SCORE_MAX and not self.normalize):
            raise ValueError(f"the score {score} of the node {at.nodes.names[row]} is not from 0 to {SCORE_MAX}")
        return score


def _plain(at: NodeView, row: int) -> PlainNode | None:
    """Return the node of a row; None where it is gone and some of its pods are left."""
    node = at.nodes.nodes[row]
    return None if node is None else PlainNode(node, at.nodes.named(at.nodes.room(row)))
