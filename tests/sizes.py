"""The sizes of all that an object keeps: of every container that can be reached from it, by type and attribute.

Caches with a limit are not looked into.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from types import FunctionType, MethodType
from typing import Any, Final
from weakref import WeakSet

import numpy as np
from cachetools import Cache
from msgspec import Struct
from sortedcontainers import SortedKeyList

from aischeduler.engine.pod_classes import SPECS_MAX
from aischeduler.framework.cross_rows import CLASSES_MAX, STATES_MAX
from aischeduler.state.cards import MASKS_MAX as CARD_MASKS_MAX
from aischeduler.state.class_scores import VIEWS_MAX
from aischeduler.state.class_volumes import SHAPES_MAX
from aischeduler.state.image_index import SUMS_MAX
from aischeduler.state.label_index import NUMBERS_MAX, READ_MAX
from aischeduler.state.requests import WANTED_MAX
from aischeduler.state.storage import NODES_NOTED_MAX, TABLES_MAX

CONTAINERS: Final = (Mapping, AbstractSet, list, deque, SortedKeyList, Cache, WeakSet)
LEAVES: Final = (str, bytes, int, float, Enum, FunctionType, MethodType, type(None), type)
STATE: Final = (
    "aischeduler.state",
    "aischeduler.engine",
    "aischeduler.framework",
    "aischeduler.plugins",
    "aischeduler.policies",
    "aischeduler.kube",
)
"""The packages whose objects are looked into; values of the model are counted where they are kept."""
LIMITS: Final[dict[str, int]] = {
    "CrossRows._filters": CLASSES_MAX,
    "CrossRows._interests": CLASSES_MAX,
    "CrossRows._scores": CLASSES_MAX,
    "Classes._views": VIEWS_MAX,
    "Cards._masks": CARD_MASKS_MAX,
    "PodClasses._divided": SPECS_MAX,
    "ImageIndex._sums": SUMS_MAX,
    "LabelIndex._numbers": NUMBERS_MAX,
    "LabelIndex._read": READ_MAX,
    "PodCount._domains": NUMBERS_MAX,
    "PodCount._followed": 2 * STATES_MAX,
    "ChangeLog._changes": 2**13,
    "ClassVolumes._fitting": SHAPES_MAX,
    "Storage.nodes": NODES_NOTED_MAX,
    "Storage.tables": TABLES_MAX,
    "WantedRequests.by_class": WANTED_MAX,
    "WantedRequests._by_request": WANTED_MAX,
    "VolumeLimits._limits[]": 2**9,
    "VolumeUse.stale": 2**10,
}
"""What is kept up to a limit; a `ChangeLog` per row of the table, an array by row per driver once a pod has volumes."""


def sizes(root: object) -> tuple[Counter[str], dict[str, int]]:
    """Return the entries in the containers of each path, `Type.attribute` and `[]` for inner ones, and known limits."""
    found: Counter[str] = Counter()
    limits = dict(LIMITS)
    seen: set[int] = set()
    kept: list[Any] = []  # so that no id is used again
    left: list[tuple[str, Any]] = [("", root)]
    while left:
        path, value = left.pop()
        if isinstance(value, LEAVES) or id(value) in seen:
            continue
        seen.add(id(value))
        kept.append(value)
        if isinstance(value, np.ndarray):
            found[path] += int(value.size)
        elif isinstance(value, CONTAINERS):
            found[path] += len(value)
            if isinstance(value, Cache):
                limits[path] = limits.get(path, 0) + int(value.maxsize)
            if path not in LIMITS and not isinstance(value, Cache):
                left += ((f"{path}[]", one) for one in _inner(value))
        elif isinstance(value, tuple):
            left += ((path, one) for one in value)
        left += ((f"{type(value).__name__}.{name}", one) for name, one in _attributes(value))
    return +found, limits


def _inner(value: Any) -> Iterator[Any]:
    yield from value
    if isinstance(value, Mapping):
        yield from value.values()


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    if not type(value).__module__.startswith(STATE):
        return
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    fields = value.__struct_fields__ if isinstance(value, Struct) else ()
    for name in dict.fromkeys((*getattr(value, "__dict__", ()), *slots, *fields)):
        if hasattr(value, name) and name != "__weakref__":
            yield name, getattr(value, name)
