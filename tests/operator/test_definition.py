"""The definition of BatchProcess: up to date, described, bounded."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aischeduler.operator import definition

ROOT = Path(__file__).resolve().parents[2]
AS_THEY_ARE = "x-kubernetes-preserve-unknown-fields"


def fields(path: str, schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from fields(f"{path}.{name}", child)
    for name in ("items", "additionalProperties"):
        if name in schema:
            yield from fields(f"{path}[]", schema[name])


def schema() -> dict[str, Any]:
    found: dict[str, Any] = definition.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def test_generated_file_is_up_to_date() -> None:
    assert (ROOT / "manifests" / "crds" / definition.FILE).read_text() == definition.file_text()


def test_every_field_is_described() -> None:
    mute = [path for path, field in fields("bp", schema()) if path != "bp.metadata" and not field["description"]]
    assert mute == []


def test_everything_that_can_be_long_has_a_limit() -> None:
    limits = {"array": "maxItems", "string": "maxLength", "object": "maxProperties"}
    unbounded = [
        path
        for path, field in fields("bp", schema())
        if limits.get(field.get("type", "string")) not in field
        and field.get("type") not in {"boolean", "integer"}
        and not {"properties", "enum", "format", AS_THEY_ARE} & field.keys()
        and path not in {"bp.metadata", "bp.apiVersion", "bp.kind"}
    ]
    assert unbounded == []
