"""All that an engine keeps, for tests that nothing changed: every attribute of every object, in order.

Left out are kept results, whose loss changes no decision: `CACHES`.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any, Final

import msgspec
import numpy as np

from aischeduler.engine.cluster import Cluster

CACHES: Final = frozenset(
    {
        "Cards._kinds",
        "Cards._labels",
        "Cards._masks",
        "Cards._masks_made_from",
        "Cards._numbers",
        "Cards._numbers_made_from",
        "Cards._unnamed",
        "Cards._unnamed_made_from",
        "CarriedTerms._selecting",
        "PodClasses._divided",
        "Cluster.searches",
        "CrossRows._filters",
        "CrossRows._interests",
        "CrossRows._scores",
        "CrossRows._scoring",
        "CrossRows._states",
        "Runner._classes",
        "Runner._trial",
        "Runner._in_trial",
        "ImageIndex._last",
        "ImageIndex._sums",
        "LabelIndex._numbers",
        "LabelIndex._read",
        "LabelIndex._listed",
        "PodCounts._by_label",
        "PodSets._found",
        "PodCount._domains",
        "PodCount._followed",
        "NodeTable._wanted",
        "NodeTable._pool_rows",
        "NodeTable._pool_rows_version",
        "NodeTable._grouped",
        "NodeTable._grouped_version",
        "NodeTable._ranks",
        "NodeTable.trial_rows",
        "RowIndex._masks",
        "BorrowingContext.fits",
        "BudgetTable._covered",
        "PoolTable._sorted",
        "PodClasses._profiled",
        "Storage.limits",
        "Storage.nodes",
        "Storage.tables",
        "Storage.topology",
        "Stamp._made",
        "UnitCapacity._kept",
        "UnitCapacity._rooms",
        "UnitCapacity._spare",
        "UnitCapacity._state",
        "VolumeUse.stale",
    }
)
"""Type and attribute."""
VERSIONS: Final = frozenset(
    {
        "BudgetTable.version",
        "ChangeLog._changes",
        "ChangeLog._start",
        "ChangeLog.version",
        "ImageIndex.version",
        "LabelIndex.version",
        "Ledger.shrunk",
        "Ledger.added",
        "Ledger.version",
        "_Image.changed",
        "NodeTable.offered_version",
        "NodeTable.pool_version",
        "NodeTable.unlabelled_version",
        "PodCounts.changed",
        "PodCounts.changed_specs",
        "PoolTable.version",
        "PoolTable.conflicts_version",
        "Stamp.version",
        "Storage.version",
        "Cards.version",
    }
)
"""What says that something changed, if only for a moment."""
UNORDERED: Final = frozenset(
    {
        "ChosenVolumes._by_volume",
        "ChosenVolumes._on",
        "ChosenVolumes.by_claim",
        "HostPorts.on",
        "NodeTable.tentative",
        "PodCount._members",
        "PodCount.claimed",
        "PodCount.rows",
        "RowIndex._rows",
        "VolumeUse.on",
        "VolumeUse.rows",
    }
)
"""Mappings by row or value, in which nothing depends on the order."""
PLAIN: Final = (str, int, float, bytes, Enum)
ABSENT: Final = object()


def state(cluster: Cluster, *, versions: bool = True) -> list[str | bytes]:
    """Return the state of an engine as a list of its parts: equal states have equal lists.

    Without versions, mappings come in the order of their keys: what was out for a moment is the last again.
    """
    reader = _Reader(CACHES if versions else CACHES | VERSIONS, in_order=versions)
    reader.read(cluster)
    return reader.parts


def change(before: Sequence[str | bytes], after: Sequence[str | bytes]) -> str:
    """Return where two states differ first, with the parts before it; empty where they are equal."""
    at = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after)))
    if before == after:
        return ""
    return f"{before[max(0, at - 8) : at + 1]} -> {after[at : at + 1]}"


class _Reader:
    """Reads objects into `parts`, each object once, without these attributes. It is fast: long runs wait for it.

    Tuples, frozen sets and frozen structs are values: an equal one may take the place of another. A struct is one
    part.
    """

    def __init__(self, left_out: frozenset[str], *, in_order: bool) -> None:
        self.parts: list[str | bytes] = []
        self._left_out, self._in_order = left_out, in_order
        self._seen: dict[int, int] = {}
        self._values: dict[int, str] = {}
        """By the id of a frozen struct, its part."""

    def read(self, value: Any, *, unordered: bool = False) -> None:
        """Read the parts of a value; an `unordered` mapping comes in the order of its keys."""
        if value is None or isinstance(value, PLAIN):
            self.parts.append(repr(value))
            return
        if isinstance(value, msgspec.Struct) and value.__struct_config__.frozen:
            self.parts.append(self._values.get(id(value)) or self._value(value))
            return
        number = len(self._seen)
        if type(value) not in (tuple, frozenset) and self._seen.setdefault(id(value), number) != number:
            self.parts.append(f"again {self._seen[id(value)]}")
            return
        kind = type(value)
        self.parts.append(kind.__name__)
        if isinstance(value, np.ndarray):
            self.parts += (repr((value.dtype.str, value.shape)), value.tobytes())
        elif isinstance(value, set | frozenset):
            for one in sorted(value, key=repr):
                self.read(one)
        elif isinstance(value, Mapping):
            as_it_is = self._in_order and not unordered
            for key, held in value.items() if as_it_is else sorted(value.items(), key=lambda pair: repr(pair[0])):
                self.read(key, unordered=unordered)
                self.read(held, unordered=unordered)
        elif not isinstance(value, msgspec.Struct) and hasattr(value, "__iter__"):
            for one in value:
                self.read(one)
        if kind.__module__.startswith("aischeduler") and not callable(value):
            self._read_attributes(value)

    def _value(self, value: Any) -> str:
        """Return what stands for a frozen struct: its type, and a hash of what it holds, wherever it is read first."""
        name = self._values[id(value)] = type(value).__name__  # for a struct that holds itself
        outer = self.parts, self._seen
        self.parts, self._seen = [], {}
        self._read_attributes(value)
        found = self._values[id(value)] = f"{name} {hash(tuple(self.parts))}"
        self.parts, self._seen = outer
        return found

    def _read_attributes(self, value: Any) -> None:
        kind: Any = type(value)
        for name in (*getattr(value, "__dict__", ()), *_slots(kind)):
            path = f"{kind.__name__}.{name}"
            if path not in self._left_out and not name.startswith("__"):  # msgspec caches a hash
                held = getattr(value, name, ABSENT)
                if held is not ABSENT:
                    self.parts.append(name)
                    self.read(held, unordered=path in UNORDERED)


@cache
def _slots(kind: type[Any]) -> tuple[str, ...]:
    slots = (name for base in kind.__mro__ for name in getattr(base, "__slots__", ()))
    return *slots, *getattr(kind, "__struct_fields__", ())
