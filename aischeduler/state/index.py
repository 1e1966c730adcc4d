"""Inverted indexes over node rows: which rows carry a label, a taint, a port.

Laws:
- Truth is a set of rows per value, so that memory follows what nodes carry, not nodes times values.
- A mask is built from the set when somebody asks and kept until that set changes.
"""

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from aischeduler.model.selectors import Labels, NodeSelectorTerm, Operator, Requirement

Mask = npt.NDArray[np.bool_]
"""One bool per row of the node table, or per row of the rows that were asked about."""
Rows = npt.NDArray[np.intp]
"""Row numbers, ascending."""

MASKS_MAX: Final = 512
"""Built masks kept per index; more are dropped and built again on demand."""

FEW_VALUES: Final = 16
"""A requirement of more values is answered from their rows, without keeping a mask of each."""

Value = TypeVar("Value", bound=Hashable)


class RowIndex(Generic[Value]):
    """Value -> rows that carry it. `width` is the number of rows of every mask."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._rows: dict[Value, set[int]] = {}
        self._masks: dict[Value, Mask] = {}

    def widen(self, width: int) -> None:
        """Make room for more rows."""
        self._width = width
        self._masks.clear()

    def put(self, value: Value, row: int) -> None:
        """Note that the row carries the value."""
        self._rows.setdefault(value, set()).add(row)
        self._masks.pop(value, None)

    def drop(self, value: Value, row: int) -> None:
        """Note that the row no longer carries the value."""
        rows = self._rows[value]
        rows.discard(row)
        if not rows:
            del self._rows[value]
        self._masks.pop(value, None)

    def values(self) -> tuple[Value, ...]:
        """Return all values that some row carries, in the order in which they first came."""
        return tuple(self._rows)

    def rows(self, value: Value) -> list[int]:
        """Return the rows that carry the value, ascending."""
        return sorted(self._rows.get(value, ()))

    def mask(self, value: Value) -> Mask:
        """Return a mask of the rows that carry the value; the caller must not change it."""
        built = self._masks.get(value)
        if built is None:
            built = np.zeros(self._width, dtype=np.bool_)
            built[self.rows(value)] = True
            if len(self._masks) >= MASKS_MAX:
                self._masks.clear()
            self._masks[value] = built
        return built


class LabelIndex:
    """Labels of all nodes, answering requirements for every row at once."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._pairs: RowIndex[tuple[str, str]] = RowIndex(width)
        self._keys: RowIndex[str] = RowIndex(width)
        self._values: dict[str, dict[str, int]] = {}

    def widen(self, width: int) -> None:
        """Make room for more rows."""
        self._width = width
        self._pairs.widen(width)
        self._keys.widen(width)

    def change(self, row: int, old: Labels, new: Labels) -> None:
        """Replace the labels of one row."""
        for key, value in old.items():
            if new.get(key) != value:
                self._drop(row, key, value)
            if key not in new:
                self._keys.drop(key, row)
        for key, value in new.items():
            if old.get(key) != value:
                self._pairs.put((key, value), row)
                self._keys.put(key, row)
                counts = self._values.setdefault(key, {})
                counts[value] = counts.get(value, 0) + 1

    def _drop(self, row: int, key: str, value: str) -> None:
        self._pairs.drop((key, value), row)
        counts = self._values[key]
        counts[value] -= 1
        if not counts[value]:
            del counts[value]
            if not counts:
                del self._values[key]

    def mask(self, requirement: Requirement) -> Mask:
        """Return a new mask of the rows whose labels satisfy the requirement."""
        match requirement.operator:
            case Operator.IN:
                return self._any(requirement.key, requirement.values)
            case Operator.NOT_IN:
                return ~self._any(requirement.key, requirement.values)
            case Operator.EXISTS:
                return self._keys.mask(requirement.key).copy()
            case Operator.DOES_NOT_EXIST:
                return ~self._keys.mask(requirement.key)
            case Operator.GT | Operator.LT:
                values = self._values.get(requirement.key, {})
                return self._any(requirement.key, tuple(value for value in values if requirement.compares(value)))

    def all_of(self, requirements: tuple[Requirement, ...]) -> Mask:
        """Return a new mask of the rows that satisfy every requirement; none at all satisfies everywhere."""
        mask = np.ones(self._width, dtype=np.bool_)
        for requirement in requirements:
            mask &= self.mask(requirement)
        return mask

    def _any(self, key: str, values: tuple[str, ...]) -> Mask:
        mask = np.zeros(self._width, dtype=np.bool_)
        for value in values:
            if len(values) > FEW_VALUES:
                mask[self._pairs.rows((key, value))] = True
            else:
                mask |= self._pairs.mask((key, value))
        return mask


def term_mask(term: NodeSelectorTerm, labels: LabelIndex, names: dict[str, int]) -> Mask:
    """Return a new mask of the rows that satisfy a node selector term; `names` maps node names to rows."""
    mask = labels.all_of(term.expressions)
    if term.empty:
        mask[:] = False
    for field in term.fields:
        named = np.zeros_like(mask)
        named[[names[value] for value in field.values if value in names]] = True
        mask &= named if field.operator is Operator.IN else ~named
    return mask
