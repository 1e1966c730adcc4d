"""What a part of an object was before the write: by name in objects, by key in lists of kind map.

Items of other lists have no past: they are old only where their whole list is.
Source: `k8s.io/apiserver` pkg/cel/common (CorrelatedObject).
"""

from typing import Any, Final, cast

import orjson

from aischeduler.sandbox.objects import JsonObject, encode


class _Absent:
    """The past of what was not there."""


ABSENT: Final = _Absent()


def same(value: Any, old: Any) -> bool:
    """Say whether nothing has changed; 0 is no false here, and 1 no 1.0."""
    return old is not ABSENT and bool(value == old) and _sorted(value) == _sorted(old)


def _sorted(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def child(old: Any, key: str) -> Any:
    """Return what a field was."""
    return old.get(key, ABSENT) if isinstance(old, dict) else ABSENT


def counterpart(item: Any, schema: JsonObject, old: Any) -> Any:
    """Return what an item of a list was."""
    keys = cast("list[str]", schema.get("x-kubernetes-list-map-keys") or [])
    if not (keys and isinstance(old, list) and isinstance(item, dict)):
        return ABSENT
    mark = encode([item.get(key) for key in keys])
    matches = (one for one in old if isinstance(one, dict) and encode([one.get(key) for key in keys]) == mark)
    return next(matches, ABSENT)
