from typing import Any

import pytest

from aischeduler.sandbox.structural import errors, fill_defaults, prune

SCHEMA: Any = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
        "count": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3},
        "amount": {"x-kubernetes-int-or-string": True},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        "inner": {"type": "object", "properties": {"deep": {"type": "boolean", "default": False}}},
        "parts": {
            "type": "array",
            "maxItems": 2,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["id"],
            "items": {"type": "object", "properties": {"id": {"type": "string"}}},
        },
    },
}


def test_unknown_fields_are_pruned_where_the_schema_does_not_keep_them() -> None:
    value = {"name": "a", "x": 1, "free": {"y": 1}, "tags": {"z": "1"}, "parts": [{"id": "a", "w": 1}]}
    assert prune(value, SCHEMA) == ["x", "parts[0].w"]
    assert value == {"name": "a", "free": {"y": 1}, "tags": {"z": "1"}, "parts": [{"id": "a"}]}


def test_defaults_fill_what_is_absent_and_only_inside_what_is_there() -> None:
    value: Any = {"name": "a", "inner": {}}
    fill_defaults(value, SCHEMA)
    assert value == {"name": "a", "count": 3, "inner": {"deep": False}}


@pytest.mark.parametrize(
    ("value", "field", "words"),
    [
        ({}, "name", "Required value"),
        ({"name": 5}, "name", 'name in body must be of type string: "integer"'),
        ({"name": "A"}, "name", "name in body should match '^[a-z]+$'"),
        ({"name": "abcdef"}, "name", "Too long: may not be more than 5 bytes"),
        ({"name": "a", "count": 0}, "count", "count in body should be greater than or equal to 1"),
        ({"name": "a", "count": 10}, "count", "count in body should be less than or equal to 9"),
        ({"name": "a", "count": 1.5}, "count", 'must be of type integer: "number"'),
        ({"name": "a", "amount": True}, "amount", "must be of type integer,string"),
        ({"name": "a", "tags": {"x": 1}}, "tags.x", "must be of type string"),
        ({"name": "a", "parts": [{"id": "a"}, {"id": "a"}]}, "parts[1]", 'Duplicate value: {"id":"a"}'),
        ({"name": "a", "parts": [{}, {}, {}]}, "parts", "Too many: 3: must have at most 2 items"),
    ],
)
def test_violations_name_field_and_rule(value: Any, field: str, words: str) -> None:
    first = errors(value, SCHEMA)[0]
    assert first.field == field
    assert words in first.message


def test_good_value_has_no_errors() -> None:
    assert errors({"name": "a", "count": 2, "amount": "50%", "parts": [{"id": "a"}]}, SCHEMA) == []
