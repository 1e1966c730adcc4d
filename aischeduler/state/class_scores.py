"""Kept results of plugins by class: pods with equal specs share masks and score vectors.

Invariants:
- A view keeps results of plugins; dropping one costs time and changes no decision.
- A view is valid for its versions; a reader must update it first.
"""

from collections import OrderedDict
from typing import Final

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

from aischeduler.model.pod import PodSpec
from aischeduler.model.pool import PlacementStrategy
from aischeduler.state.diagnosis import Diagnosis
from aischeduler.state.kept import Kept
from aischeduler.state.label_index import Mask, Rows
from aischeduler.state.node_table import NODES_MAX

VIEWS_MAX: Final = 256
"""The most views; the least recently used is dropped."""

NO_ROWS: Final[frozenset[int]] = frozenset()

INFEASIBLE: Final = -NODES_MAX
"""Below the key of every feasible row: scores are not negative, and a tie rank is smaller."""


class ClassView:
    """The kept results of one class for one placement.

    `static` is the mask of the static filters. `keys` orders rows: an infeasible row has INFEASIBLE, others have score
    and tie rank in one int64, so that the largest key is the best row. `preferences` are raw static scores that are
    normalised over the feasible rows in each call: (weight, reversed, raw).
    """

    def __init__(self, spec: PodSpec, placement: PlacementStrategy, width: int) -> None:
        self.spec = spec
        self.placement = placement
        self.static: Mask = np.zeros(width, dtype=np.bool_)
        self.keys: npt.NDArray[np.int64] = np.full(width, INFEASIBLE, dtype=np.int64)
        self.preferences: tuple[tuple[int, bool, npt.NDArray[np.int64]], ...] = ()
        self.refusal: tuple[Rows, Kept[Diagnosis]] | None = None
        """Why no row of a pool fits: the pool's rows, the diagnosis."""
        self.behind: frozenset[int] = NO_ROWS
        """The rows that were tentative when they were to be read: their keys are older than `version`."""
        self.crosses: bool | None = None
        """Whether a rule may apply to the class that looks across rows; None while it was not asked."""
        self.static_version = -1
        self.version = -1


class Classes:
    """The views by class and placement."""

    def __init__(self) -> None:
        self._views: OrderedDict[tuple[bytes, PlacementStrategy], ClassView] = OrderedDict()  # an LRUCache takes 1 µs
        self._met: LRUCache[tuple[bytes, PlacementStrategy], bool] = LRUCache(VIEWS_MAX)

    def meets(self, spec: PodSpec, placement: PlacementStrategy) -> bool:
        """Return whether a pod of this class came before, and note that one came."""
        key = (spec.key, placement)
        if key in self._views or key in self._met:
            return True
        self._met[key] = True
        return False

    def view(self, spec: PodSpec, placement: PlacementStrategy, width: int) -> ClassView:
        """Return the view of this class, a new one where there is none or the table grew."""
        key = (spec.key, placement)
        view = self._views.get(key)
        if view is None or len(view.keys) != width:
            view = self._views[key] = ClassView(spec, placement, width)
            if len(self._views) > VIEWS_MAX:
                self._views.popitem(last=False)
        self._views.move_to_end(key)
        return view
