import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from aischeduler.kube import pool_crd
from aischeduler.kube.pool_writes import pool_status
from aischeduler.sandbox.schema import errors, prune
from tests.build import replace
from tests.controlplane.plane import ControlPlane
from tests.controlplane.sweep import sweep
from tests.kube.pool_reports import EMPTY, NOTHING, WRITER, a_report
from tests.objects import pool_object

ROOT = Path(__file__).resolve().parents[2]
CRDS = ROOT / "manifests" / "crds"
PUBLISHED_WITHIN_SECONDS = 30.0
COST_OF_A_LOOK_AT_AN_AMOUNT = 314_573
"""A tenth of the largest request: Kubernetes 1.31 ignores the maxLength of an int-or-string."""
COST_OF_A_RULE_MAX = 10_000_000


def fields(path: str, schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from fields(f"{path}.{name}", child)
    if "items" in schema:
        yield from fields(f"{path}[]", schema["items"])
    if "additionalProperties" in schema:
        yield from fields(f"{path}{{}}", schema["additionalProperties"])


def schema() -> dict[str, Any]:
    version = pool_crd.pool_crd()["spec"]["versions"][0]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return found


def test_generated_files_are_up_to_date() -> None:
    assert {name: (CRDS / name).read_text() for name in pool_crd.files()} == pool_crd.files()


def test_every_field_is_described() -> None:
    mute = [path for path, field in fields("pool", schema()) if path != "pool.metadata" and not field["description"]]
    assert mute == []


def test_everything_that_can_be_long_has_a_limit() -> None:
    limits = {"array": "maxItems", "string": "maxLength", "object": "maxProperties"}
    unbounded = [
        path
        for path, field in fields("pool", schema())
        if limits.get(field.get("type", "string")) not in field
        and field.get("type") not in {"boolean", "integer"}
        and not {"properties", "enum", "format"} & field.keys()
        and path not in {"pool.metadata", "pool.apiVersion", "pool.kind"}
    ]
    assert unbounded == []


def test_every_rule_has_a_message() -> None:
    rules = [rule for _, field in fields("pool", schema()) for rule in field.get("x-kubernetes-validations", ())]
    assert len(rules) > 5
    assert [rule["rule"] for rule in rules if not rule.get("message")] == []


def test_rules_of_amounts_are_within_what_the_oldest_api_server_allows() -> None:
    """Kubernetes 1.31 rejects the definition otherwise; a run with `KUBERNETES_VERSION=v1.31.0` tries it."""
    dear = re.compile(r"isQuantity\(|\bquantity\(|matches\(|string\(|==|!=")
    found = [
        len(dear.findall(rule["rule"])) * limits["maxProperties"]
        for _, limits in fields("pool", schema())
        for rule in limits.get("additionalProperties", {}).get("x-kubernetes-validations", ())
    ]
    assert len(found) == 4
    assert max(found) * COST_OF_A_LOOK_AT_AN_AMOUNT <= COST_OF_A_RULE_MAX


def test_defaults_are_in_the_schema() -> None:
    spec = schema()["properties"]["spec"]["properties"]
    assert {name: field["default"] for name, field in spec.items() if "default" in field} == {
        "disablePreemption": False,
        "disableBorrowing": False,
        "disableSharing": False,
        "lendRareTypes": False,
        "reclaimPolicy": "OnDemand",
    }


def test_every_column_shows_a_field_of_the_schema() -> None:
    known = {path.removeprefix("pool"): field for path, field in fields("pool", schema())}
    for name, (kind, path) in {**pool_crd.COLUMNS, **pool_crd.WIDE_COLUMNS}.items():
        field, _, rest = path.partition("[")
        assert field in known or (field.rpartition(".")[0] + "{}") in known, name
        assert rest or known[field]["type"] == kind, name
        assert bool(rest) == (field == ".status.conditions"), name


def test_schema_has_every_field_of_a_written_status() -> None:
    status = pool_status(a_report(), {}, WRITER)
    known = schema()["properties"]["status"]
    assert prune(status, known) == []
    assert errors(status, known) == []
    assert [name for name in known["properties"] if name not in status] == []
    assert list(status["columns"]) == list(known["properties"]["columns"]["properties"])


def test_schema_accepts_the_status_of_a_pool_with_a_hundred_resources() -> None:
    asked = {f"a.example/thing-{number}": 1 for number in range(100)}
    summary = replace(
        EMPTY, capacity={**NOTHING, "nvidia.com/gpu": 8}, pending={**NOTHING, **asked, "nvidia.com/gpu": 3}
    )
    status = pool_status(a_report(summary=summary), {}, WRITER)
    assert errors(status, schema()["properties"]["status"]) == []
    assert (status["pending"]["nvidia.com/gpu"], status["pending"]["pods"]) == ("3", "0")


def test_write_creates_the_directory(tmp_path: Path) -> None:
    pool_crd.write(tmp_path / "new")
    written = yaml.safe_load((tmp_path / "new" / "pools.yaml").read_text())
    assert written["metadata"]["name"] == "pools.resource.aibee.cn"
    assert written["spec"]["scope"] == "Cluster"


@pytest.fixture
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Yield the real control plane with the repository's definition of Pools."""
    applied = control_plane.kubectl("apply", "--server-side", "-f", str(CRDS))
    assert applied.returncode == 0, applied.stderr
    established = control_plane.kubectl("wait", "--for=condition=Established", "crd/pools.resource.aibee.cn")
    assert established.returncode == 0, established.stderr
    deadline = time.monotonic() + PUBLISHED_WITHIN_SECONDS
    while control_plane.kubectl("explain", "pool").returncode != 0:
        assert time.monotonic() < deadline, "the schema was not published"
        time.sleep(0.2)
    yield control_plane
    sweep(control_plane)


def test_explain_describes_every_field(plane: ControlPlane) -> None:
    said = plane.kubectl("get", "--raw", "/openapi/v3/apis/resource.aibee.cn/v1alpha1")
    published = json.loads(said.stdout)["components"]["schemas"]["cn.aibee.resource.v1alpha1.Pool"]
    ours = {path: field["description"] for path, field in fields("pool", schema()) if path != "pool.metadata"}
    theirs = {path: field.get("description") for path, field in fields("pool", published)}
    kept = {path: theirs[path] for path in ours if path not in {"pool.apiVersion", "pool.kind"}}
    assert kept == {path: text for path, text in ours.items() if path in kept}


def test_explain_reads_like_documentation(plane: ControlPlane) -> None:
    for path in ("pool.spec", "pool.spec.lendingLimit", "pool.status.columns", "pool.spec.nodeSelector.matchLabels"):
        said = plane.kubectl("explain", path)
        assert said.returncode == 0, said.stderr
        assert "<empty>" not in said.stdout, path
    assert "evict borrowers" in " ".join(plane.kubectl("explain", "pool.spec.makeRoom").stdout.split())


def test_kubectl_shows_the_columns_and_wide_shows_more(plane: ControlPlane) -> None:
    plane.api("POST", "/apis/resource.aibee.cn/v1alpha1/pools", pool_object("team-a", placement="Pack"))
    columns = {"cpu": "5/24", "memory": "9Gi/96Gi", "gpu": "1/8", "shared": "1", "flags": "p✓ b✓ s✗"}
    ready = {"type": "Ready", "status": "True", "reason": "R", "message": "", "lastTransitionTime": WRITER.time_text}
    status = {"columns": columns, "nodes": 3, "pods": 7, "conditions": [ready]}
    path = "/apis/resource.aibee.cn/v1alpha1/pools/team-a/status"
    assert plane.api("PATCH", path, {"status": status}).status == 200
    heads, row = plane.kubectl("get", "pool").stdout.splitlines()
    assert heads.split() == ["NAME", *(name.upper() for name in pool_crd.COLUMNS), "AGE"]
    assert row.split()[:7] == ["team-a", "True", "3", "5/24", "9Gi/96Gi", "1/8", "1"]
    assert "p✓ b✓ s✗" in row
    wide, row = plane.kubectl("get", "pool", "-o", "wide").stdout.splitlines()
    assert wide.split() == [*heads.split(), *(name.upper() for name in pool_crd.WIDE_COLUMNS)]
    assert "OnDemand" in row
    assert "team-a" in plane.kubectl("get", "ai-scheduler").stdout


def test_kubectl_names_the_wrong_field_of_a_pool(plane: ControlPlane) -> None:
    wrong = pool_object("team-a", borrowingPools=["team-a"], lendingLimit={"cpu": "-1"})
    said = plane.kubectl("create", "-f", "-", stdin=json.dumps(wrong))
    assert said.returncode != 0
    shown = re.sub(r'Invalid value: ("[^"]*": )?', "", said.stderr)  # the shown values differ between versions
    assert "spec.borrowingPools: a pool cannot borrow from itself" in shown
    assert "spec.lendingLimit[cpu]: must not be below zero" in shown


def test_reference_quotes_the_refusals_of_the_api_server(plane: ControlPlane) -> None:
    gpu = {"matchExpressions": [{"key": "gpu", "operator": "In"}]}
    wrong = [
        pool_object("speech", borrowingPools=["speech"]),
        pool_object("vision", lendingLimit={"cpu": "-1"}),
        pool_object("vision", lendingLimit={"memory": "64 GB"}),
        pool_object("vision", lendingLimit={"gpu": 8}),
        pool_object("training", nodeSelector=gpu),
    ]
    said = [plane.kubectl("create", "-f", "-", stdin=json.dumps(pool)).stderr.strip() for pool in wrong]
    text = (ROOT / "docs" / "pools.md").read_text()
    assert re.findall(r"^The Pool .*$", text, re.MULTILINE) == said
