"""The fields and the columns of the package's definitions, and the definitions on a real control plane."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from aischeduler.kube.crds import pool_crd
from tests.controlplane.plane import ControlPlane

CRDS: Final = Path(__file__).resolve().parents[1] / "manifests" / "crds"
PUBLISHED_WITHIN_SECONDS: Final = 30.0


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


def install(plane: ControlPlane, name: str, short_name: str) -> None:
    """Apply the repository's definitions; wait until this one is served and kubectl knows it by its short name."""
    applied = plane.kubectl("apply", "--server-side", "-f", str(CRDS))
    assert applied.returncode == 0, applied.stderr
    established = plane.kubectl("wait", "--for=condition=Established", f"crd/{name}.resource.aibee.cn")
    assert established.returncode == 0, established.stderr
    deadline = time.monotonic() + PUBLISHED_WITHIN_SECONDS
    while plane.kubectl("explain", short_name).returncode != 0:
        assert time.monotonic() < deadline, "the schema was not published"
        time.sleep(0.2)
