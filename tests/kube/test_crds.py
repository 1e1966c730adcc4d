from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from aischeduler.kube import crds

ROOT = Path(__file__).resolve().parents[2]


def fields(path: str, schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from fields(f"{path}.{name}", child)
    if "items" in schema:
        yield from fields(f"{path}[]", schema["items"])


def schema() -> dict[str, Any]:
    version = crds.pool_crd()["spec"]["versions"][0]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return found


def test_written_files_are_what_the_source_says() -> None:
    directory = ROOT / "manifests" / "crds"
    assert {path.name: path.read_text() for path in directory.glob("*.yaml")} == crds.files()


def test_every_field_is_described() -> None:
    mute = [path for path, field in fields("pool", schema()) if path != "pool.metadata" and not field["description"]]
    assert mute == []


def test_every_list_and_free_map_has_a_limit() -> None:
    unbounded = [
        path
        for path, field in fields("pool", schema())
        if (field["type"] == "array" and "maxItems" not in field)
        or ("additionalProperties" in field and "maxProperties" not in field)
    ]
    assert unbounded == []


def test_switches_are_off_by_default() -> None:
    spec = schema()["properties"]["spec"]["properties"]
    assert [spec[name]["default"] for name in ("disablePreemption", "disableBorrowing", "disableSharing")] == [
        False
    ] * 3


def test_write_makes_the_directory(tmp_path: Path) -> None:
    crds.write(tmp_path / "new")
    written = yaml.safe_load((tmp_path / "new" / "pools.yaml").read_text())
    assert written["metadata"]["name"] == "pools.resource.aibee.cn"
    assert written["spec"]["scope"] == "Cluster"
