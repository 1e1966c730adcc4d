"""Structural schemas: the fields of an object, what the server prunes, and the defaults that it sets.

Built-in kinds have short schemas of the fields that the sandbox reads (`object_schemas.yaml`); a custom resource has
the schema of its definition. Checked are types, required fields, enums and bounds; CEL rules are not.
"""

import re
from collections.abc import Callable
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from aischeduler.sandbox.objects import JsonObject, copy_object, encode
from aischeduler.sandbox.status_errors import Cause

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer or string": lambda value: isinstance(value, int | str) and not isinstance(value, bool),
}

_PERCENT = re.compile(r"[0-9]{1,9}%", re.ASCII)


@cache
def _object_schemas() -> dict[str, JsonObject]:
    text = files(__package__).joinpath("object_schemas.yaml").read_text(encoding="utf-8")
    loaded: dict[str, JsonObject] = yaml.safe_load(text)
    return loaded


def schema_of(kind: str) -> JsonObject:
    """Return the schema of a built-in kind or of the body of one of its subresources."""
    return _object_schemas().get(kind, {"type": "object"})


def _inner(schema: JsonObject, key: str) -> JsonObject | None:
    """Return the schema of a field; None for a field that the schema does not have."""
    properties = schema.get("properties")
    found = properties.get(key) if properties else None
    found = schema.get("additionalProperties") if found is None else found
    return found if isinstance(found, dict) else None


def prune(value: Any, schema: JsonObject, path: str = "") -> list[str]:
    """Remove fields that the schema does not have from a value, in place; return their paths."""
    unknown = []
    if isinstance(value, list):
        for index, item in enumerate(value):
            unknown += prune(item, schema.get("items") or {}, f"{path}[{index}]")
    elif isinstance(value, dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        for key in list(value):
            where, inner = f"{path}.{key}".removeprefix("."), _inner(schema, key)
            if inner is not None:
                unknown += prune(value[key], inner, where)
            else:
                del value[key]
                unknown.append(where)
    return unknown


def fill_defaults(value: Any, schema: JsonObject) -> None:
    """Set the defaults of absent fields, in place."""
    if isinstance(value, list):
        for item in value:
            fill_defaults(item, schema.get("items") or {})
    elif isinstance(value, dict):
        for key, inner in (schema.get("properties") or {}).items():
            if key not in value and "default" in inner:
                value[key] = copy_object(encode(inner["default"]))
        for key, field in value.items():
            fill_defaults(field, _inner(schema, key) or {})


def errors(value: Any, schema: JsonObject, path: str = "") -> list[Cause]:
    """Return the invalid fields of a value."""
    kind = "integer or string" if schema.get("x-kubernetes-int-or-string") else schema.get("type")
    if kind is not None and not _TYPES[kind](value):
        return [Cause(path, f"must be of type {kind}", "FieldValueTypeInvalid")]
    if "enum" in schema and value not in schema["enum"]:
        return [Cause(path, f"must be one of {', '.join(map(str, schema['enum']))}", "FieldValueNotSupported")]
    match value:
        case dict():
            lead = f"{path}." if path else ""
            missing = [key for key in schema.get("required") or () if key not in value]
            causes = [Cause(lead + key, "is required", "FieldValueRequired") for key in missing]
            for key, field in value.items():
                inner = _inner(schema, key)
                if inner and not (len(inner) == 1 and "type" in inner and _TYPES[inner["type"]](field)):
                    causes += errors(field, inner, lead + key)
            return causes
        case list():
            items = schema.get("items") or {}
            causes = [cause for index, item in enumerate(value) for cause in errors(item, items, f"{path}[{index}]")]
            return causes if len(value) >= schema.get("minItems", 0) else [Cause(path, "needs an item")]
        case str() if schema.get("format") == "date-time" and not _is_time(value):
            return [Cause(path, "must be a time such as 2026-01-02T03:04:05Z")]
        case str() if schema.get("format") == "percent" and not _PERCENT.fullmatch(value):
            return [Cause(path, "must be a number or a percentage such as 50%")]
        case int() | float() if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
            return [Cause(path, f"must be from {schema.get('minimum', 'any')} to {schema.get('maximum', 'any')}")]
        case _:
            return []


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
