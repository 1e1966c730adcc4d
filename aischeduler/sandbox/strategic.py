"""Strategic merge patch: lists of known types are merged by key instead of being replaced.

Source: `k8s.io/apimachinery/pkg/util/strategicpatch`; the keys are in `types.txt`.
"""

from typing import Any

from aischeduler.sandbox.objects import JsonObject
from aischeduler.sandbox.status import bad_request
from aischeduler.sandbox.types import Kind, api_types

ORDER, DELETIONS = "$setElementOrder/", "$deleteFromPrimitiveList/"
DIRECTIVE, RETAIN = "$patch", "$retainKeys"


def strategic_merge(target: JsonObject, patch: JsonObject, type_name: str) -> JsonObject:
    """Return an object of a type with a patch applied."""
    return _merge_map(target, patch, Kind("struct", type_name))


def _field_kind(kind: Kind | None, key: str) -> Kind | None:
    if kind is None:
        return None
    if kind.shape == "struct":
        return api_types()[kind.name].fields.get(key)
    return kind.inner if kind.shape == "map" else None


def _merge_map(target: Any, patch: JsonObject, kind: Kind | None) -> JsonObject:
    plain = {key: value for key, value in patch.items() if not key.startswith("$")}
    match patch.get(DIRECTIVE):
        case "replace":
            return plain
        case "delete":
            return {}
    result: JsonObject = dict(target) if isinstance(target, dict) else {}
    if RETAIN in patch:
        result = {key: value for key, value in result.items() if key in patch[RETAIN]}
    for key, value in plain.items():
        _merge_field(result, key, value, _field_kind(kind, key))
    for directive, value in patch.items():
        if directive.startswith(DELETIONS):
            key = directive.removeprefix(DELETIONS)
            result[key] = [one for one in result.get(key) or () if one not in value]
    for directive, value in patch.items():
        if directive.startswith(ORDER):
            key = directive.removeprefix(ORDER)
            if isinstance(result.get(key), list):
                result[key] = _ordered(result[key], value, _field_kind(kind, key))
    return result


def _merge_field(result: JsonObject, key: str, value: Any, kind: Kind | None) -> None:
    if value is None:
        result.pop(key, None)
    elif isinstance(value, dict):
        result[key] = _merge_map(result.get(key), value, kind)
    elif isinstance(value, list) and kind is not None and kind.merges:
        result[key] = _merge_list(result.get(key) or [], value, kind)
    else:
        result[key] = value


def _merge_list(target: list[Any], patch: list[Any], kind: Kind) -> list[Any]:
    merge_key = kind.merge_key
    if merge_key is None:
        return [*target, *(one for one in patch if one not in target)]
    if any(isinstance(one, dict) and one.get(DIRECTIVE) == "replace" for one in patch):
        return [one for one in patch if one.get(DIRECTIVE) != "replace"]
    before = [old.get(merge_key) for old in target]
    named = [one.get(merge_key) for one in patch if isinstance(one, dict)]
    result = list(target)
    for one in patch:
        if not isinstance(one, dict) or merge_key not in one:
            raise bad_request(f"map: {one} does not contain declared merge key: {merge_key}")
        place = next((index for index, old in enumerate(result) if old.get(merge_key) == one[merge_key]), None)
        if one.get(DIRECTIVE) == "delete":
            if place is not None:
                del result[place]
        elif place is None:
            result.append(_merge_map({}, one, kind.inner))
        else:
            result[place] = _merge_map(result[place], one, kind.inner)
    return _interleaved(result, named, before, merge_key)


def _identity(item: Any, key: str | None) -> Any:
    return item.get(key) if key and isinstance(item, dict) else item


def _ordered(items: list[Any], order: list[Any], kind: Kind | None) -> list[Any]:
    key = kind.merge_key if kind is not None else None
    places = [_identity(one, key) for one in order]
    return _interleaved(items, places, [_identity(one, key) for one in items], key)


def _interleaved(items: list[Any], order: list[Any], before: list[Any], key: str | None) -> list[Any]:
    """Put items that the patch names in its order; others keep their place before named ones that they preceded."""
    named = [one for one in items if _identity(one, key) in order]
    named.sort(key=lambda one: order.index(_identity(one, key)))
    others = [one for one in items if _identity(one, key) not in order]
    result: list[Any] = []
    for one in named:
        place = before.index(_identity(one, key)) if _identity(one, key) in before else -1
        while others and place > before.index(_identity(others[0], key)):
            result.append(others.pop(0))
        result.append(one)
    return result + others
