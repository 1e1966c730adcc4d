"""ImageLocality: prefer nodes that have the pod's images already, the more of them and the more common ones.

All nodes of the cluster count for how common an image is.

Source: kube-scheduler's ImageLocality.
"""

from typing import Final

import numpy as np

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import PlacementRequest, PreScoreState, Scores
from aischeduler.model.pod import PodSpec
from aischeduler.state.counted_pods import Counted
from aischeduler.state.image_index import ImageSums
from aischeduler.state.node_table import NodeTable

MIB: Final = 1024 * 1024
LEAST_BYTES: Final = 23 * MIB
"""Less than this scores nothing."""
MOST_BYTES: Final = 1000 * MIB
"""What one container may add at most."""
SCORE_MAX: Final = 100


class ImageLocality:
    """Score 0 to 100 by the sizes of the pod's images that a node has."""

    name = "ImageLocality"
    weight = 1

    def by_class(self, spec: PodSpec) -> bool:
        """Return whether the pod has no image, so that no change of the nodes matters."""
        return not spec.images

    def prefers(self, spec: PodSpec, nodes: NodeTable) -> bool:
        """Return whether the nodes differ in score: most images are small, or on all nodes."""
        sums = _sums(spec, nodes)
        if sums is None or sums.most <= LEAST_BYTES:
            return False
        return _scaled(sums.least, spec) != _scaled(sums.most, spec)

    def scored(self, spec: PodSpec) -> tuple[Counted, ...]:
        """Return nothing: no pods count."""
        return ()

    def prescore(self, ask: PlacementRequest, nodes: NodeTable, before: PreScoreState | None) -> PreScoreState:
        """Return the scores of all rows."""
        sums = _sums(ask.spec, nodes)
        if isinstance(before, ImageScores) and before.sums is sums:
            return before
        return ImageScores(sums, ask.spec, nodes.width)


class ImageScores:
    """The scores of all rows for one class, made from `sums`."""

    def __init__(self, sums: ImageSums | None, spec: PodSpec, width: int) -> None:
        self.sums = sums
        self._by_row = np.zeros(width, dtype=np.int64) if sums is None else _score(sums.by_row, spec)

    def score(self, at: NodeView) -> Scores:
        """Return the scores of these rows; they are not normalised."""
        return self._by_row.take(at.rows)


def _sums(spec: PodSpec, nodes: NodeTable) -> ImageSums | None:
    return nodes.images.sums(spec.images, nodes.alive, nodes.unlabelled_version) if spec.images else None


def _scaled(size_bytes: int, spec: PodSpec) -> int:
    """Scale a size: `LEAST_BYTES` to 0, and what all containers may add to 100."""
    most = MOST_BYTES * spec.containers
    return SCORE_MAX * (min(max(size_bytes, LEAST_BYTES), most) - LEAST_BYTES) // (most - LEAST_BYTES)


def _score(sizes_bytes: Scores, spec: PodSpec) -> Scores:
    """Scale the sizes of rows: there are few different ones, since images of a pod are on a row or not."""
    sizes, places = np.unique(sizes_bytes, return_inverse=True)
    scores: Scores = np.array([_scaled(size, spec) for size in sizes.tolist()], dtype=np.int64)[places]
    return scores
