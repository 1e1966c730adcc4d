"""Structural schemas of CRDs: what is unknown, what is defaulted, what is refused.

Law: what was wrong before and has not changed is let through on an update.
Source: `k8s.io/apiextensions-apiserver` (pruning, defaulting, validation and its words). Rules
(`x-kubernetes-validations`) are in `rules`.
"""

import re
from collections.abc import Callable
from typing import Any

from aischeduler.sandbox.correlation import ABSENT, child, counterpart, same
from aischeduler.sandbox.objects import JsonObject, copy_object, encode
from aischeduler.sandbox.patterns import go_pattern
from aischeduler.sandbox.status import Cause, forbidden_field, invalid_value, required, unsupported_value

DEPTH_MAX = 64
_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: (isinstance(value, int) and not isinstance(value, bool)) or _whole(value),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}


def _whole(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer()


def prune(value: Any, schema: JsonObject, path: str = "") -> list[str]:
    """Take fields that the schema does not know out of a value, in place; returns their paths."""
    if isinstance(value, list):
        items = schema.get("items") or {}
        return [one for index, item in enumerate(value) for one in prune(item, items, f"{path}[{index}]")]
    if not isinstance(value, dict):
        return []
    known, others = schema.get("properties") or {}, schema.get("additionalProperties")
    keeps = schema.get("x-kubernetes-preserve-unknown-fields") is True
    unknown = []
    for key in list(value):
        where = f"{path}.{key}" if path else key
        if key in known:
            unknown += prune(value[key], known[key], where)
        elif isinstance(others, dict):
            unknown += prune(value[key], others, where)
        elif not keeps and others is not True:
            del value[key]
            unknown.append(where)
    return unknown


def drop_nulls(value: Any, schema: JsonObject) -> None:
    """Take fields that are null out where the schema does not allow that, in place; in lists nulls stay."""
    if isinstance(value, list):
        for item in value:
            drop_nulls(item, schema.get("items") or {})
    if not isinstance(value, dict):
        return
    for key in list(value):
        inner = _property(schema, key)
        if value[key] is None and inner and not inner.get("nullable"):
            del value[key]
        elif value[key] is not None:
            drop_nulls(value[key], inner)


def schema_errors(schema: JsonObject, path: str, depth: int = 0) -> list[Cause]:
    """Say what is wrong with a schema itself, so that one that was taken can always be applied."""
    if depth > DEPTH_MAX:
        return [invalid_value(path, "", f"is nested deeper than {DEPTH_MAX}")]
    causes = []
    kind, pattern = schema.get("type"), schema.get("pattern")
    if kind and kind not in _TYPES:
        causes.append(unsupported_value(f"{path}.type", kind, sorted(_TYPES)))
    if pattern is not None and not _is_pattern(pattern):
        causes.append(invalid_value(f"{path}.pattern", pattern, "must be a valid regular expression"))
    inner = {f"{path}.properties[{key}]": one for key, one in (schema.get("properties") or {}).items()}
    if isinstance(schema.get("items"), bool):
        causes.append(forbidden_field(f"{path}.items", "items must be a schema object"))
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            inner[f"{path}.{key}"] = schema[key]
    for where, one in inner.items():
        causes += schema_errors(one, where, depth + 1)
    return causes


def _is_pattern(text: str) -> bool:
    try:
        go_pattern(text)
    except re.error:
        return False
    return True


def _property(schema: JsonObject, key: str) -> JsonObject:
    known = schema.get("properties") or {}
    if key in known:
        inner: JsonObject = known[key]
        return inner
    others = schema.get("additionalProperties")
    return others if isinstance(others, dict) else {}


def fill_defaults(value: Any, schema: JsonObject) -> None:
    """Put defaults where fields are absent, in place."""
    if isinstance(value, list):
        for item in value:
            fill_defaults(item, schema.get("items") or {})
    if not isinstance(value, dict):
        return
    for key, inner in (schema.get("properties") or {}).items():
        if key not in value and "default" in inner:
            value[key] = copy_object(encode(inner["default"]))
    for key, one in value.items():
        fill_defaults(one, _property(schema, key))


def errors(value: Any, schema: JsonObject, path: str = "", depth: int = 0, old: Any = ABSENT) -> list[Cause]:
    """Say what is wrong with a value; `old` is what stood there before an update."""
    found = _errors(value, schema, path, depth, old)
    return [] if found and same(value, old) else found


def _errors(value: Any, schema: JsonObject, path: str, depth: int, old: Any) -> list[Cause]:
    if depth > DEPTH_MAX:
        return [invalid_value(path, "", f"is nested deeper than {DEPTH_MAX}")]
    if value is None and (schema.get("nullable") or not schema):
        return []
    kind = schema.get("type")
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not (isinstance(value, int | str) or _whole(value)):
            return [_wrong_type(value, "integer,string", path)]
    elif kind and not _TYPES[kind](value):
        return [_wrong_type(value, kind, path), *_enum_errors(value, schema, path)]
    causes = _enum_errors(value, schema, path)
    match value:
        case dict():
            return causes + _object_errors(value, schema, path, depth, old)
        case list():
            return causes + _list_errors(value, schema, path, depth, old)
        case str():
            return causes + _text_errors(value, schema, path)
        case int() | float() if not isinstance(value, bool):
            return causes + _number_errors(value, schema, path)
        case _:
            return causes


def _wrong_type(value: Any, kind: str, path: str) -> Cause:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
    given = "null" if value is None else names.get(type(value), "object")
    detail = f'{path} in body must be of type {kind}: "{given}"'
    return Cause(path, "FieldValueTypeInvalid", f'Invalid value: "{given}": {detail}')


def _enum_errors(value: Any, schema: JsonObject, path: str) -> list[Cause]:
    allowed = schema.get("enum")
    if not allowed or value in allowed:
        return []
    return [unsupported_value(path, value, [str(one) for one in allowed])]


def _object_errors(value: JsonObject, schema: JsonObject, path: str, depth: int, old: Any) -> list[Cause]:
    lead = f"{path}." if path else ""
    causes = [required(lead + key) for key in schema.get("required") or () if key not in value]
    limit = schema.get("maxProperties")
    if limit is not None and len(value) > limit:
        causes.append(Cause(path, "FieldValueTooMany", f"Too many: {len(value)}: must have at most {limit} items"))
    for key, one in value.items():
        inner = _property(schema, key)
        if inner:
            causes += errors(one, inner, lead + key, depth + 1, child(old, key))
    return causes


def _list_errors(value: list[Any], schema: JsonObject, path: str, depth: int, old: Any) -> list[Cause]:
    causes = []
    low, high = schema.get("minItems"), schema.get("maxItems")
    if low is not None and len(value) < low:
        causes.append(invalid_value(path, len(value), f"{path} in body should have at least {low} items"))
    if high is not None and len(value) > high:
        causes.append(Cause(path, "FieldValueTooMany", f"Too many: {len(value)}: must have at most {high} items"))
    inner = schema.get("items") or {}
    for index, one in enumerate(value):
        causes += errors(one, inner, f"{path}[{index}]", depth + 1, counterpart(one, schema, old))
    if schema.get("x-kubernetes-list-type") in {"set", "map"}:
        causes += _duplicates(value, schema, path)
    return causes


def _duplicates(value: list[Any], schema: JsonObject, path: str) -> list[Cause]:
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    seen: dict[bytes, None] = {}
    causes = []
    for index, one in enumerate(value):
        identity = {key: one.get(key) for key in keys} if keys and isinstance(one, dict) else one
        mark = encode(identity)
        if mark in seen:
            causes.append(Cause(f"{path}[{index}]", "FieldValueDuplicate", f"Duplicate value: {mark.decode()}"))
        seen[mark] = None
    return causes


def _text_errors(value: str, schema: JsonObject, path: str) -> list[Cause]:
    """Say the first thing that is wrong with a text."""
    low, high, pattern = schema.get("minLength"), schema.get("maxLength"), schema.get("pattern")
    if high is not None and len(value) > high:
        return [Cause(path, "FieldValueTooLong", f"Too long: may not be more than {high} bytes")]
    if low is not None and len(value) < low:
        return [invalid_value(path, value, f"{path} in body should be at least {low} chars long")]
    if pattern is not None and not go_pattern(pattern).search(value):
        return [invalid_value(path, value, f"{path} in body should match '{pattern}'")]
    return []


def _number_errors(value: float, schema: JsonObject, path: str) -> list[Cause]:
    causes = []
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and value < low:
        causes.append(invalid_value(path, value, f"{path} in body should be greater than or equal to {low}"))
    if high is not None and value > high:
        causes.append(invalid_value(path, value, f"{path} in body should be less than or equal to {high}"))
    return causes
