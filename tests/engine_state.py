"""All that an engine keeps, for tests that nothing changed: every attribute of every object, in order.

Left out are kept results, whose loss changes no decision: `CACHES`.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final

import msgspec
import numpy as np

from aischeduler.engine.cluster import Cluster

CACHES: Final = frozenset(
    {
        "Cards._kinds",
        "Cards._masks",
        "Cards._masks_made_from",
        "Cards._numbers",
        "Cards._numbers_made_from",
        "CarriedTerms._selecting",
        "Cluster.divided",
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
        "ProfiledSpecs._specs",
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
        "Loans.version",
        "_Image.changed",
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
        "ChosenVolumes.by_claim",
        "NodeTable.ports",
        "NodeTable.tentative",
        "PodCount._members",
        "PodCount.claimed",
        "PodCount.rows",
        "RowIndex._rows",
        "VolumeUse.disks",
        "VolumeUse.on",
        "VolumeUse.rows",
    }
)
"""Mappings by row or value, in which nothing depends on the order."""


def state(cluster: Cluster, *, versions: bool = True) -> list[bytes]:
    """Return the state of an engine as a list of its parts: equal states have equal lists.

    Without versions, mappings come in the order of their keys: what was out for a moment is the last again.
    """
    reader = _Reader(CACHES if versions else CACHES | VERSIONS, in_order=versions)
    return list(reader.parts(cluster))


def change(before: list[bytes], after: list[bytes]) -> str:
    """Return where two states differ first, with the parts before it; empty where they are equal."""
    at = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after)))
    if before == after:
        return ""
    return f"{before[max(0, at - 8) : at + 1]} -> {after[at : at + 1]}"


class _Reader:
    """Reads the parts of objects, each object once, without these attributes."""

    def __init__(self, left_out: frozenset[str], *, in_order: bool) -> None:
        self._left_out, self._in_order = left_out, in_order
        self._seen: dict[int, int] = {}

    def parts(self, value: Any, *, unordered: bool = False) -> Iterator[bytes]:
        """Yield the parts of a value; an `unordered` mapping comes in the order of its keys."""
        if value is None or isinstance(value, str | int | float | bytes | Enum):
            yield repr(value).encode()
            return
        if id(value) in self._seen:
            yield b"again %d" % self._seen[id(value)]
            return
        self._seen[id(value)] = len(self._seen)
        yield type(value).__name__.encode()
        if isinstance(value, np.ndarray):
            yield repr((value.dtype.str, value.shape)).encode()
            yield value.tobytes()
        elif isinstance(value, set | frozenset):
            yield from (part for one in sorted(value, key=repr) for part in self.parts(one))
        elif isinstance(value, Mapping):
            as_it_is = self._in_order and not unordered
            pairs = value.items() if as_it_is else sorted(value.items(), key=lambda pair: repr(pair[0]))
            yield from (part for pair in pairs for one in pair for part in self.parts(one, unordered=unordered))
        elif hasattr(value, "__iter__") and not isinstance(value, msgspec.Struct):
            yield from (part for one in value for part in self.parts(one))
        for name in () if callable(value) else _attributes(value):
            path = f"{type(value).__name__}.{name}"
            if path not in self._left_out:
                yield name.encode()
                yield from self.parts(getattr(value, name), unordered=path in UNORDERED)


def _attributes(value: Any) -> list[str]:
    if not type(value).__module__.startswith("aischeduler"):
        return []
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    fields = getattr(value, "__struct_fields__", ())
    every = (*getattr(value, "__dict__", ()), *slots, *fields)
    return [name for name in every if not name.startswith("__") and hasattr(value, name)]  # msgspec caches a hash
