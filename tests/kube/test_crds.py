"""The definitions: their copies, their descriptions and their limits."""

from pathlib import Path
from typing import Any

import pytest

from aischeduler.kube.crds import crd
from tests.crds import fields

ROOT = Path(__file__).resolve().parents[2]
CRDS = ("batchprocesses", "pools", "queues", "trainingjobs")
AS_THEY_ARE = "x-kubernetes-preserve-unknown-fields"


@pytest.fixture(params=CRDS)
def schemas(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    """Return the schema of each field of a definition by its path."""
    return dict(fields("", crd(request.param)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]))


def test_definitions_of_the_manifests_and_of_the_chart_are_those_of_the_package() -> None:
    texts = {path.name: path.read_bytes() for path in (ROOT / "aischeduler" / "crds").iterdir()}
    assert sorted(texts) == [f"{plural}.yaml" for plural in CRDS]
    manifests, chart = ROOT / "manifests" / "crds", ROOT / "helm" / "ai-scheduler" / "files"
    assert {path.name: path.read_bytes() for path in manifests.iterdir()} == texts, "run `make crds`"
    assert {name: (chart / name).read_bytes() for name in texts} == texts, "run `make crds`"


def test_changed_definition_is_changed_for_its_reader_only() -> None:
    crd("pools")["spec"].clear()
    assert crd("pools")["spec"]["scope"] == "Cluster"


def test_every_field_is_described(schemas: dict[str, dict[str, Any]]) -> None:
    assert [path for path, field in schemas.items() if path != ".metadata" and not field["description"]] == []


def test_everything_that_can_be_long_has_a_limit(schemas: dict[str, dict[str, Any]]) -> None:
    limits = {"array": "maxItems", "string": "maxLength", "object": "maxProperties"}
    unbounded = [
        path
        for path, field in schemas.items()
        if limits.get(field.get("type", "string")) not in field
        and field.get("type") not in {"boolean", "integer", "number"}
        and not {"properties", "enum", "format", AS_THEY_ARE} & field.keys()
        and path not in {".metadata", ".apiVersion", ".kind"}
    ]
    assert unbounded == []
