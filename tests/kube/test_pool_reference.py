"""The Pool reference page names every field, has the schema's defaults, and its examples work."""

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


def section(field: str) -> str:
    """Return the text under the heading of a field of the spec."""
    found = re.search(rf"^### {field}\n(.*?)(?=^##)", TEXT, re.DOTALL | re.MULTILINE)
    assert found is not None, field
    return found[1]


def test_every_field_of_spec_has_a_section_in_the_order_of_the_schema() -> None:
    assert re.findall(r"^### (\w+)$", TEXT, re.MULTILINE) == list(SPEC)


@pytest.mark.parametrize("field", SPEC)
def test_section_of_every_field_of_spec_has_an_example_and_the_default(field: str) -> None:
    assert any(field in pool["spec"] for pool in quoted())
    said = section(field)
    if "default" in SPEC[field]:
        default = SPEC[field]["default"]
        shown = str(default).lower() if isinstance(default, bool) else default
        assert f"Default: `{shown}`" in said or f"| `{shown}` | The default." in said
    else:
        assert "Default: " in said or "Absent: " in said
    for value in SPEC[field].get("enum", ()):
        assert f"| `{value}` |" in said


def test_every_field_of_status_is_in_the_table() -> None:
    table = TEXT[TEXT.index("## status") :]
    named = [*STATUS, *STATUS["columns"]["properties"]]
    assert [name for name in named if f"`{name}`" not in table] == []


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
