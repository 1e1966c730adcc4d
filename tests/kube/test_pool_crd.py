import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from aischeduler.kube.crds import pool_crd, pool_schema
from aischeduler.kube.decode import fields as decoded
from aischeduler.kube.decode import pool
from aischeduler.kube.report import pool_writes, status_writes
from aischeduler.kube.report.pool_writes import pool_status
from aischeduler.model.card_types import TYPE_LENGTH_MAX
from aischeduler.model.names import (
    DEFAULT_POOL,
    GPU_TYPE_KEY,
    GROUP,
    MACHINE_GROUP_KEY,
    POOL_KEY,
    POOL_NAME_LENGTH_MAX,
    VERSION,
)
from aischeduler.model.pool import MakeRoomOrder, PlacementStrategy, ReclaimPolicy
from aischeduler.model.pool_summary import CARD_TYPES_MAX, OTHER_TYPES
from aischeduler.model.selectors import LABEL_OPERATORS
from aischeduler.sandbox.schema import errors, prune
from tests.build import replace
from tests.controlplane.plane import ControlPlane
from tests.controlplane.sweep import sweep
from tests.crds import columns_of_pools, fields, install
from tests.kube.pool_reports import EMPTY, NOTHING, WRITER, a_report
from tests.objects import pool_object

ROOT = Path(__file__).resolve().parents[2]
COST_OF_A_LOOK_AT_AN_AMOUNT = 314_573
"""A tenth of the largest request: Kubernetes 1.31 ignores the maxLength of an int-or-string."""
COST_OF_A_RULE_MAX = 10_000_000


def test_definition_has_the_names_of_the_code() -> None:
    definition = pool_crd()
    assert definition["metadata"]["name"] == f"pools.{GROUP}"
    assert (definition["spec"]["group"], definition["spec"]["versions"][0]["name"]) == (GROUP, VERSION)
    said = {path: field.get("description", "") for path, field in fields("pool", pool_schema())}
    assert POOL_KEY in said["pool"]
    assert f"named {DEFAULT_POOL}" in said["pool.spec.nodeSelector"]
    assert GPU_TYPE_KEY in said["pool.spec.rareTypes"]
    assert MACHINE_GROUP_KEY in said["pool.spec.machineGroups"]
    assert said["pool.status.cardsByType"].endswith(f"one entry named {OTHER_TYPES}.")


def test_choices_are_those_of_the_model() -> None:
    spec = dict(fields("spec", pool_schema()["properties"]["spec"]))
    assert spec["spec.makeRoom"]["enum"] == list(MakeRoomOrder)
    assert spec["spec.reclaimPolicy"]["enum"] == list(ReclaimPolicy)
    assert spec["spec.placement"]["enum"] == list(PlacementStrategy)
    operators = [field["enum"] for path, field in spec.items() if path.endswith(".operator")]
    assert operators == [sorted(LABEL_OPERATORS)] * 4


def test_limits_of_the_spec_are_those_of_its_reader() -> None:
    spec = dict(fields("spec", pool_schema()["properties"]["spec"]))
    lenders, types, groups = spec["spec.borrowingPools"], spec["spec.rareTypes"], spec["spec.machineGroups"]
    assert lenders["maxItems"] == pool.POOLS_NAMED_MAX
    assert (types["maxItems"], types["items"]["maxLength"]) == (pool.RARE_TYPES_MAX, TYPE_LENGTH_MAX)
    assert groups["maxItems"] == pool.GROUP_RULES_MAX
    for name in (lenders["items"], spec["spec.profile"]):
        assert (name["maxLength"], name["pattern"]) == (POOL_NAME_LENGTH_MAX, f"^{decoded.NAME.pattern}$")
    for limit in (spec["spec.lendingLimit"], spec["spec.borrowingLimit"]):
        assert limit["maxProperties"] < decoded.RESOURCES_MAX
        (names,) = limit["x-kubernetes-validations"]
        assert f"name.matches('^{decoded.RESOURCE.pattern}$')" in names["rule"]
        assert names["message"].endswith(decoded.RESOURCES_TEXT)


@pytest.mark.parametrize("of", ["nodeSelector", "allowedNamespaces", "machineGroups[].namespaceSelector"])
def test_limits_of_selectors_are_those_of_their_reader(of: str) -> None:
    selector = dict(fields("spec", pool_schema()["properties"]["spec"]))[f"spec.{of}"]["properties"]
    expressions = selector["matchExpressions"]
    assert selector["matchLabels"]["maxProperties"] == expressions["maxItems"] == decoded.REQUIREMENTS_MAX
    assert expressions["items"]["properties"]["values"]["maxItems"] == decoded.VALUES_MAX


def test_limits_of_the_status_are_those_of_its_writer() -> None:
    status = dict(fields("status", pool_schema()["properties"]["status"]))
    amounts = [status[f"status.{name}"] for name in pool_writes.AMOUNTS]
    assert {field["maxProperties"] for field in amounts} == {status_writes.RESOURCES_MAX}
    columns = [field for path, field in status.items() if path.startswith("status.columns.")]
    assert {field["maxLength"] for field in columns} == {status_writes.COLUMN_LENGTH_MAX}
    assert status["status.cardsByType"]["maxItems"] == CARD_TYPES_MAX
    assert status["status.cardsByType[].type"]["maxLength"] == TYPE_LENGTH_MAX


def test_every_rule_has_a_message() -> None:
    rules = [rule for _, field in fields("pool", pool_schema()) for rule in field.get("x-kubernetes-validations", ())]
    assert len(rules) > 5
    assert [rule["rule"] for rule in rules if not rule.get("message")] == []


def test_rules_of_amounts_are_within_what_the_oldest_api_server_allows() -> None:
    """Kubernetes 1.31 rejects the definition otherwise; a run with `KUBERNETES_VERSION=v1.31.0` tries it."""
    dear = re.compile(r"isQuantity\(|\bquantity\(|matches\(|string\(|==|!=")
    found = [
        len(dear.findall(rule["rule"])) * limits["maxProperties"]
        for _, limits in fields("pool", pool_schema())
        for rule in limits.get("additionalProperties", {}).get("x-kubernetes-validations", ())
    ]
    assert len(found) == 4
    assert max(found) * COST_OF_A_LOOK_AT_AN_AMOUNT <= COST_OF_A_RULE_MAX


def test_defaults_are_in_the_schema() -> None:
    spec = pool_schema()["properties"]["spec"]["properties"]
    assert {name: field["default"] for name, field in spec.items() if "default" in field} == {
        "disablePreemption": False,
        "disableBorrowing": False,
        "disableSharing": False,
        "lendRareTypes": False,
        "reclaimPolicy": "OnDemand",
    }


def test_every_column_shows_a_field_of_the_schema() -> None:
    known = {path.removeprefix("pool"): field for path, field in fields("pool", pool_schema())}
    for column in pool_crd()["spec"]["versions"][0]["additionalPrinterColumns"]:
        name, path = column["name"], column["jsonPath"]
        field, _, rest = path.partition("[")
        if name == "Age":
            assert path == ".metadata.creationTimestamp"
            continue
        assert field in known or (field.rpartition(".")[0] + "{}") in known, name
        assert rest or known[field]["type"] == column["type"], name
        assert bool(rest) == (field == ".status.conditions"), name


def test_schema_has_every_field_of_a_written_status() -> None:
    status = pool_status(a_report(), {}, WRITER)
    known = pool_schema()["properties"]["status"]
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
    assert errors(status, pool_schema()["properties"]["status"]) == []
    assert (status["pending"]["nvidia.com/gpu"], status["pending"]["pods"]) == ("3", "0")


@pytest.fixture
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Yield the real control plane with the repository's definition of Pools."""
    install(control_plane, "pools", "pool")
    yield control_plane
    sweep(control_plane)


def test_explain_describes_every_field(plane: ControlPlane) -> None:
    said = plane.kubectl("get", "--raw", "/openapi/v3/apis/resource.aibee.cn/v1alpha1")
    published = json.loads(said.stdout)["components"]["schemas"]["cn.aibee.resource.v1alpha1.Pool"]
    ours = {path: field["description"] for path, field in fields("pool", pool_schema()) if path != "pool.metadata"}
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
    assert heads.split() == ["NAME", *(name.upper() for name in columns_of_pools(0))]
    assert row.split()[:7] == ["team-a", "True", "3", "5/24", "9Gi/96Gi", "1/8", "1"]
    assert "p✓ b✓ s✗" in row
    wide, row = plane.kubectl("get", "pool", "-o", "wide").stdout.splitlines()
    assert wide.split() == [*heads.split(), *(name.upper() for name in columns_of_pools(1))]
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
