"""The page on Pools explains every field of the spec, and its examples work."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from aischeduler.kube.crds import pool_crd, pool_schema
from aischeduler.kube.decode.api_types import PoolDocument
from aischeduler.kube.decode.pool import read_pool
from aischeduler.sandbox.api_server import ApiServer
from aischeduler.sandbox.request import Response, request

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "pools.md").read_text()
SPEC: dict[str, Any] = pool_schema()["properties"]["spec"]["properties"]
STATUS: dict[str, Any] = pool_schema()["properties"]["status"]["properties"]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POOLS = "/apis/resource.aibee.cn/v1alpha1/pools?fieldValidation=Strict"


def quoted() -> list[dict[str, Any]]:
    """Return all Pools on the page."""
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)]


def examples() -> list[dict[str, Any]]:
    """Return all Pools in the reference and in the example files."""
    names = ("pools.yaml", "team-pools.yaml", "card-pools.yaml")
    files = [(ROOT / "examples" / name).read_text() for name in names]
    return [*quoted(), *(pool for text in files for pool in yaml.safe_load_all(text))]


@pytest.mark.parametrize("field", SPEC)
def test_every_field_of_spec_is_in_an_example_and_explained_with_its_values(field: str) -> None:
    prose = re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL)
    assert any(field in pool["spec"] for pool in quoted())
    assert re.search(rf"`{field}(: true)?`", prose)
    assert [value for value in SPEC[field].get("enum", ()) if f"`{value}`" not in prose] == []


@pytest.mark.parametrize("field", [field for field in SPEC if "enum" in SPEC[field] and "default" in SPEC[field]])
def test_default_of_an_enumeration_is_marked(field: str) -> None:
    assert f"`{SPEC[field]['default']}` (default)" in TEXT


def test_every_condition_is_in_the_table() -> None:
    described = STATUS["conditions"]["items"]["properties"]["type"]["description"]
    table = TEXT[TEXT.index("| Condition |") :].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == re.findall(r"(\w+) \(", described)


def written(pool: dict[str, Any]) -> Response:
    """Return the answer to the creation of a Pool, of a server with the definition."""
    server = ApiServer()
    server.handle(request("POST", DEFINITIONS, msgspec.json.encode(pool_crd())), 0.0)
    answer = server.handle(request("POST", POOLS, msgspec.json.encode(pool)), 0.0)
    assert isinstance(answer, Response)
    return answer


@pytest.mark.parametrize("pool", examples(), ids=lambda pool: pool["metadata"]["name"])
def test_every_example_is_accepted_by_the_schema_and_by_the_scheduler(pool: dict[str, Any]) -> None:
    answer = written(pool)
    assert answer.status == 201, answer.body
    assert read_pool(msgspec.json.decode(answer.body, type=PoolDocument)).invalid == ""
