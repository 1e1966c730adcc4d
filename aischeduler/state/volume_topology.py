"""The rows on which volumes can be used, by their node affinity.

Invariant: what is kept was made from the labels and rows as they are.
"""

from typing import TYPE_CHECKING, Final

import numpy as np
from cachetools import LRUCache

from aischeduler.model.selectors import Operator
from aischeduler.state.class_volumes import Affinity, ClassVolumes, GroupRows
from aischeduler.state.kept import StatePart, Versions, reading
from aischeduler.state.label_index import Mask, Rows, term_mask

if TYPE_CHECKING:
    from aischeduler.state.node_table import NodeTable

MASKS_MAX: Final = 128
"""The most affinities whose masks are kept."""
READ: Final = reading(StatePart.UNLABELLED, StatePart.LABELS)


class VolumeTopology:
    """The rows by affinity, kept until a label or a row changes."""

    def __init__(self) -> None:
        self._made_from: Versions = ()
        self._masks: LRUCache[Affinity, Mask] = LRUCache(MASKS_MAX)
        self._of_class: dict[str, GroupRows] = {}

    def mask(self, affinity: Affinity, nodes: "NodeTable") -> Mask:
        """Return a mask over all rows, True where the volume can be used; the caller must not change it."""
        self._catch_up(nodes)
        mask = self._masks.get(affinity)
        if mask is None:
            mask = self._masks[affinity] = _any_term(affinity, nodes)
        return mask

    def of_class(self, name: str, table: ClassVolumes, nodes: "NodeTable", *, changed: bool) -> GroupRows:
        """Return the rows of each group of a class; its groups have `changed` since the last call."""
        self._catch_up(nodes)
        found = None if changed else self._of_class.get(name)
        if found is None:
            rows = [self._rows(affinity, nodes) for affinity in table.affinities]
            groups = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
            every = np.concatenate(rows) if rows else np.zeros(0, dtype=np.intp)
            found = self._of_class[name] = GroupRows(groups, every, nodes.width)
        return found

    def forget_classes(self) -> None:
        """Forget the rows of the groups of all classes."""
        self._of_class.clear()

    def _catch_up(self, nodes: "NodeTable") -> None:
        versions = READ(nodes)
        if versions != self._made_from:
            self._made_from = versions
            self._masks.clear()
            self._of_class.clear()

    def _rows(self, affinity: Affinity, nodes: "NodeTable") -> Rows:
        """Return the rows of an affinity; the usual one of a local volume, one label of one value, is looked up."""
        if affinity is not None and len(affinity) == 1 and not affinity[0].fields:
            expressions = affinity[0].expressions
            if len(expressions) == 1 and expressions[0].operator is Operator.IN:
                expression = expressions[0]
                return np.array(nodes.labels.rows_with(expression.key, expression.values), dtype=np.intp)
        return np.flatnonzero(self.mask(affinity, nodes) & nodes.alive)


def _any_term(affinity: Affinity, nodes: "NodeTable") -> Mask:
    """Return a new mask of the rows that satisfy one of the terms; all rows where there is no affinity."""
    if affinity is None:
        return np.ones(nodes.width, dtype=np.bool_)
    mask = np.zeros(nodes.width, dtype=np.bool_)
    for term in affinity:
        mask |= term_mask(term, nodes.labels, nodes.rows)
    return mask
