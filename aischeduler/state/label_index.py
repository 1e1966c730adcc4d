"""Inverted indexes over node rows: the rows that have a label, a taint or a port.

Invariants:
- An index keeps a set of rows per value, so that memory grows with what nodes have, not with nodes times values.
- A mask is built from the set on demand and kept until the set changes.
- The version of the labels of nodes grows only with a label that was read since it grew last: others may change often.
  What is kept of labels holds for its version, where that was taken before they were read.
"""

from collections.abc import Hashable, Sequence
from typing import Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

from aischeduler.model.selectors import Labels, NodeSelectorTerm, Operator, Requirement
from aischeduler.state.groups import Groups

Mask = npt.NDArray[np.bool_]
"""One bool per row of the node table, or per row of some rows."""
Rows = npt.NDArray[np.intp]
"""Row numbers, ascending."""

MASKS_MAX: Final = 512
"""The most masks that an index keeps; one that is dropped is built again on demand."""

NO_VALUE: Final = -1
READ_MAX: Final = 4096
"""The most keys of labels of which is known that they were read; with more, the version grows."""
NUMBERS_MAX: Final = 256
"""The most labels whose values are kept by row; with more, the version grows and all are made again."""
FEW_VALUES: Final = 16
"""A requirement of more values reads their rows and keeps no mask of each."""

Value = TypeVar("Value", bound=Hashable)


def all_hold(masks: Sequence[Mask]) -> Mask:
    """Return where all of these masks are True; there must be one at least."""
    return masks[0] if len(masks) == 1 else np.logical_and.reduce(masks)


class RowIndex(Generic[Value]):
    """Value -> the rows that have it. `width` is the length of every mask."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._rows: dict[Value, set[int]] = {}
        self._masks: LRUCache[Value, Mask] = LRUCache(MASKS_MAX)

    def widen(self, width: int) -> None:
        """Grow to more rows."""
        self._width = width
        self._masks.clear()

    def put(self, value: Value, row: int) -> None:
        """Add the value to a row."""
        self._rows.setdefault(value, set()).add(row)
        self._masks.pop(value, None)

    def drop(self, value: Value, row: int) -> None:
        """Remove the value from a row."""
        rows = self._rows[value]
        rows.discard(row)
        if not rows:
            del self._rows[value]
        self._masks.pop(value, None)

    def __contains__(self, value: Value) -> bool:
        return value in self._rows

    def values(self) -> tuple[Value, ...]:
        """Return all values that rows have, in the order in which they first came."""
        return tuple(self._rows)

    def rows(self, value: Value) -> list[int]:
        """Return the rows that have the value, ascending."""
        return sorted(self._rows.get(value, ()))

    def mask(self, value: Value) -> Mask:
        """Return a mask of the rows that have the value; the caller must not change it."""
        built = self._masks.get(value)
        if built is None:
            built = np.zeros(self._width, dtype=np.bool_)
            built[self.rows(value)] = True
            self._masks[value] = built
        return built


class LabelIndex:
    """The labels of all nodes; a requirement is matched against all rows at once."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._pairs: RowIndex[tuple[str, str]] = RowIndex(width)
        self._keys: RowIndex[str] = RowIndex(width)
        self._values: Groups[str, str, None] = Groups()
        """Label -> the values that rows have."""
        self._numbers: dict[str, Rows] = {}
        self._read: set[str] = set()
        """The keys that were read since the version grew by them last."""
        self._listed = False
        """Whether the keys of all rows were."""
        self.version = 0
        """Grows with every change of a label that was read."""

    def keys(self) -> dict[str, None]:
        """Return all keys that rows have, in the order in which they first came."""
        self._listed = True
        return dict.fromkeys(self._keys.values())

    def has_key(self, key: str) -> bool:
        """Return whether a row has a label of this key."""
        self._note_read(key)
        return key in self._keys

    def having_key(self, key: str) -> Mask:
        """Return a mask of the rows that have a label of this key; the caller must not change it."""
        self._note_read(key)
        return self._keys.mask(key)

    def values(self, key: str) -> tuple[str, ...]:
        """Return the values of a label that rows have, sorted."""
        self._note_read(key)
        return tuple(sorted(self._values.get(key, ())))

    def having(self, key: str, value: str) -> Mask:
        """Return a mask of the rows that have a label with this value; the caller must not change it."""
        self._note_read(key)
        return self._pairs.mask((key, value))

    def widen(self, width: int) -> None:
        """Grow to more rows."""
        self._width = width
        self._numbers.clear()
        self._pairs.widen(width)
        self._keys.widen(width)

    def change(self, row: int, old: Labels, new: Labels) -> None:
        """Replace the labels of one row."""
        follows = self._listed or self._read
        changed = {key for key in (*old, *new) if old.get(key) != new.get(key)} if follows else set[str]()
        known = {key for key in changed if key in self._keys}
        for key, value in old.items():
            if new.get(key) != value:
                self._pairs.drop((key, value), row)
                if (key, value) not in self._pairs:
                    self._values.drop(key, value)
            if key not in new:
                self._keys.drop(key, row)
        for key, value in new.items():
            if old.get(key) != value:
                self._pairs.put((key, value), row)
                self._keys.put(key, row)
                self._values.put(key, value, None)
        read = changed & self._read
        listed = self._listed and known != {key for key in changed if key in self._keys}
        if read or listed:
            self.version += 1
            self._listed &= not listed
            self._read -= read
            for key in read:
                self._numbers.pop(key, None)

    def numbers(self, key: str) -> Rows:
        """Return per row the number of its value of a label, -1 where it has none; the caller must not change it."""
        self._note_read(key)
        numbers = self._numbers.get(key)
        if numbers is None:
            if len(self._numbers) >= NUMBERS_MAX:
                self._read_anew()
                self._note_read(key)
            numbers = self._numbers[key] = np.full(self._width, NO_VALUE, dtype=np.intp)
            for number, value in enumerate(sorted(self._values.get(key, ()))):
                numbers[self._pairs.rows((key, value))] = number
        return numbers

    def keeps(self, key: str, numbers: Rows) -> bool:
        """Return whether these are the numbers of a label that are kept now."""
        return self._numbers.get(key) is numbers

    def rows_with(self, key: str, values: tuple[str, ...]) -> list[int]:
        """Return the rows that have a label with one of these values, ascending."""
        self._note_read(key)
        return sorted({row for value in values for row in self._pairs.rows((key, value))})

    def mask(self, requirement: Requirement) -> Mask:
        """Return a new mask of the rows whose labels satisfy the requirement."""
        match requirement.operator:
            case Operator.IN:
                return self.any_of(requirement.key, requirement.values)
            case Operator.NOT_IN:
                return ~self.any_of(requirement.key, requirement.values)
            case Operator.EXISTS:
                return self.having_key(requirement.key).copy()
            case Operator.DOES_NOT_EXIST:
                return ~self.having_key(requirement.key)
            case Operator.GT | Operator.LT:
                self._note_read(requirement.key)
                values = self._values.get(requirement.key, {})
                return self.any_of(requirement.key, tuple(value for value in values if requirement.compares(value)))

    def all_of(self, requirements: tuple[Requirement, ...]) -> Mask:
        """Return a new mask of the rows that satisfy every requirement; without requirements all rows do."""
        mask = np.ones(self._width, dtype=np.bool_)
        for requirement in requirements:
            mask &= self.mask(requirement)
        return mask

    def any_of(self, key: str, values: tuple[str, ...]) -> Mask:
        """Return a new mask of the rows that have a label with one of these values."""
        self._note_read(key)
        mask = np.zeros(self._width, dtype=np.bool_)
        for value in values:
            if len(values) > FEW_VALUES:
                mask[self._pairs.rows((key, value))] = True
            else:
                mask |= self._pairs.mask((key, value))
        return mask

    def _note_read(self, key: str) -> None:
        if key not in self._read:
            if len(self._read) >= READ_MAX:
                self._read_anew()
            self._read.add(key)

    def _read_anew(self) -> None:
        """Let everything that is kept of labels be read again, so that what was read may be forgotten."""
        self.version += 1
        self._read.clear()
        self._numbers.clear()
        self._listed = False


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
