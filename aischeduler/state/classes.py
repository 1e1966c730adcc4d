"""Classes: pods with the same scheduling bytes share their masks and their score vector.

Laws:
- A view is a memory of what plugins said; dropping one costs time, never truth.
- A view is right for the versions that it names; whoever reads it catches it up first.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

from aischeduler.model.pod import PodSpec
from aischeduler.model.pool import PlacementStrategy
from aischeduler.state.diagnosis import Diagnosis
from aischeduler.state.index import Mask, Rows
from aischeduler.state.nodes import NODES_MAX

VIEWS_MAX: Final = 256
"""Live classes; the least recently used is forgotten."""

INFEASIBLE: Final = -NODES_MAX
"""Below every key of a row that would do: scores are not negative, and a tie rank takes away less."""


class ClassView:
    """What is known of one class under one placement.

    `static` is the mask of the rules that read only labels, taints and names. `keys` orders rows: infeasible rows
    hold INFEASIBLE, others score and tie rank in one int64, so that the largest key is the one best row.
    `preferences` are raw static scores that still have to be normalised over the feasible rows:
    (weight, reversed, raw).
    """

    def __init__(self, spec: PodSpec, placement: PlacementStrategy, width: int) -> None:
        self.spec = spec
        self.placement = placement
        self.static: Mask = np.zeros(width, dtype=np.bool_)
        self.keys: npt.NDArray[np.int64] = np.full(width, INFEASIBLE, dtype=np.int64)
        self.preferences: tuple[tuple[int, bool, npt.NDArray[np.int64]], ...] = ()
        self.refusal: tuple[int, Rows, Diagnosis] | None = None
        """Why no row of a pool would do: table version, the pool's rows, the answer."""
        self.static_version = -1
        self.version = -1


class Classes:
    """The views in use, by class and placement."""

    def __init__(self) -> None:
        self._views: LRUCache[tuple[bytes, PlacementStrategy], ClassView] = LRUCache(VIEWS_MAX)
        self._met: LRUCache[tuple[bytes, PlacementStrategy], bool] = LRUCache(VIEWS_MAX)

    def meets(self, spec: PodSpec, placement: PlacementStrategy) -> bool:
        """Say whether a pod of this class was met not long ago, and remember that one was."""
        key = (spec.key, placement)
        if key in self._views or key in self._met:
            return True
        self._met[key] = True
        return False

    def view(self, spec: PodSpec, placement: PlacementStrategy, width: int) -> ClassView:
        """Return the view of this class, a new one where it is not remembered or the table grew."""
        key = (spec.key, placement)
        view = self._views.get(key)
        if view is None or len(view.keys) != width:
            view = self._views[key] = ClassView(spec, placement, width)
        return view
