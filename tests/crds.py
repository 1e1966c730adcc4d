"""The fields and the columns of the package's definitions."""

from collections.abc import Iterator
from typing import Any

from aischeduler.kube.crds import pool_crd


def fields(path: str, schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path and the schema of a field and of all fields in it."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from fields(f"{path}.{name}", child)
    if "items" in schema:
        yield from fields(f"{path}[]", schema["items"])
    if "additionalProperties" in schema:
        yield from fields(f"{path}{{}}", schema["additionalProperties"])


def columns_of_pools(priority: int) -> list[str]:
    """Return the columns that `kubectl get pool` shows after the name (0), or only with `-o wide` (1)."""
    columns = pool_crd()["spec"]["versions"][0]["additionalPrinterColumns"]
    return [column["name"] for column in columns if column.get("priority", 0) == priority]
