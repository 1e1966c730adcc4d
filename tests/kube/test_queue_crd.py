"""The definition of Queues: its names, limits and columns are those of the code, and an API server takes it."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from aischeduler.kube.crds import crd, pool_crd
from aischeduler.kube.decode import fields as decoded
from aischeduler.kube.decode import tenant_queue
from aischeduler.kube.report import queue_writes, status_writes
from aischeduler.model.card_types import FORM_LENGTH_MAX
from aischeduler.model.names import GROUP, POOL_NAME_LENGTH_MAX, VERSION
from aischeduler.model.tenant_queue import (
    CARDS_MAX,
    DEFAULT_QUEUE,
    LEVELS_MAX,
    QUEUE_KEY,
    VOLCANO_QUEUE_KEY,
    QueueState,
)
from aischeduler.sandbox.schema import errors, prune
from tests.controlplane.plane import ControlPlane
from tests.controlplane.sweep import sweep
from tests.crds import fields, install
from tests.kube.pool_reports import WRITER
from tests.kube.queue_reports import BUSY, a_queue_report
from tests.queue_objects import queue_object

PATH = f"/apis/{GROUP}/{VERSION}/queues"
(SERVED,) = crd("queues")["spec"]["versions"]
SCHEMA: Any = SERVED["schema"]["openAPIV3Schema"]
FIELDS = dict(fields("queue", SCHEMA))


def test_definition_has_the_names_of_the_code() -> None:
    definition = crd("queues")
    assert definition["metadata"]["name"] == f"queues.{GROUP}"
    assert (definition["spec"]["group"], SERVED["name"]) == (GROUP, VERSION)
    assert QUEUE_KEY in SCHEMA["description"]
    assert VOLCANO_QUEUE_KEY in SCHEMA["description"]
    assert f"named {DEFAULT_QUEUE}" in SCHEMA["description"]
    assert f"At most {LEVELS_MAX} levels" in FIELDS["queue.spec.parent"]["description"]


def test_limits_of_the_spec_are_those_of_its_reader() -> None:
    spec = {path.removeprefix("queue.spec."): field for path, field in FIELDS.items()}
    cards, capability, selector = spec["cards"], spec["capability"], spec["allowedNamespaces"]["properties"]
    assert cards["maxProperties"] == CARDS_MAX
    assert f"size(name) <= {FORM_LENGTH_MAX}" in cards["x-kubernetes-validations"][0]["rule"]
    for whole in (cards["additionalProperties"], spec["priority"]):
        assert (whole["minimum"], whole["maximum"]) == (0, tenant_queue.WHOLE_MAX)
    assert (spec["parent"]["maxLength"], spec["parent"]["pattern"]) == (
        POOL_NAME_LENGTH_MAX,
        f"^{decoded.NAME.pattern}$",
    )
    assert spec["state"]["enum"] == FIELDS["queue.status.state"]["enum"] == list(QueueState)
    for name in ("drainAfter", "minRuntime", "shrinkAfter"):
        assert (spec[name]["minLength"], spec[name]["pattern"]) == (1, f"^{tenant_queue.DURATION.pattern}$")
    assert selector["matchLabels"]["maxProperties"] == decoded.REQUIREMENTS_MAX
    pools = dict(fields("pool", pool_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]))
    limits = pools["pool.spec.lendingLimit"]
    assert {name: value for name, value in capability.items() if name != "description"} == {
        name: value for name, value in limits.items() if name != "description"
    }


def test_defaults_are_those_of_the_reader() -> None:
    spec = SCHEMA["properties"]["spec"]["properties"]
    assert {name: field["default"] for name, field in spec.items() if "default" in field} == {
        "priority": 0,
        "reclaimable": True,
        "state": "Open",
    }


def test_schema_has_every_field_of_a_written_status_and_its_limits() -> None:
    status = queue_writes.queue_status(a_queue_report(summary=BUSY), {}, WRITER)
    known = SCHEMA["properties"]["status"]
    assert prune(status, known) == []
    assert errors(status, known) == []
    assert [name for name in known["properties"] if name not in status] == []
    assert list(status["columns"]) == list(known["properties"]["columns"]["properties"])
    assert {known["properties"][name]["maxProperties"] for name in queue_writes.AMOUNTS} == {
        status_writes.RESOURCES_MAX
    }
    assert known["properties"]["cards"]["maxItems"] == queue_writes.CARDS_SHOWN_MAX
    assert FIELDS["queue.status.cards[].name"]["maxLength"] == FORM_LENGTH_MAX
    columns = known["properties"]["columns"]["properties"].values()
    assert {field["maxLength"] for field in columns} == {status_writes.COLUMN_LENGTH_MAX}


def test_columns_are_those_that_operators_read() -> None:
    def named(priority: int) -> list[str]:
        return [one["name"] for one in SERVED["additionalPrinterColumns"] if one.get("priority", 0) == priority]

    assert named(0) == ["Ready", "Parent", "Priority", "Cards", "CPU", "Memory", "Pending", "State", "Age"]
    assert named(1) == ["Borrowed", "Accepted", "OverQuota"]
    for column in SERVED["additionalPrinterColumns"]:
        path = f"queue{column['jsonPath'].partition('[')[0]}"
        assert path in FIELDS or path == "queue.metadata.creationTimestamp", column


def test_every_rule_has_a_message() -> None:
    rules = [rule for field in FIELDS.values() for rule in field.get("x-kubernetes-validations", ())]
    assert len(rules) > 5
    assert [rule["rule"] for rule in rules if not rule.get("message")] == []


@pytest.fixture
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Yield the real control plane with the repository's definition of Queues."""
    install(control_plane, "queues", "aiq")
    yield control_plane
    sweep(control_plane)


def test_kubectl_explains_what_is_not_named_and_shows_the_columns(plane: ControlPlane) -> None:
    said = " ".join(plane.kubectl("explain", "aiq.spec.cards").stdout.split())
    assert "If any card is named, the quota of every card that is not named is 0" in said
    assert plane.api("POST", PATH, queue_object("tenant-a", cards={"H200": 8}, minRuntime="1h30m")).status == 201
    status = queue_writes.queue_status(a_queue_report(summary=BUSY), {}, WRITER)
    assert plane.api("PATCH", f"{PATH}/tenant-a/status", {"status": status}).status == 200
    heads, row = plane.kubectl("get", "aiq", "-o", "wide").stdout.splitlines()
    assert heads.split() == ["NAME", *(one["name"].upper() for one in SERVED["additionalPrinterColumns"])]
    assert row.split()[:8] == ["tenant-a", "True", "0", "H200", "0/4,RTX-4090", "6/8,V100", "1", "3/4"]


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        ({"parent": "tenant-a"}, "spec.parent: a queue cannot be its own parent"),
        ({"capability": {"cpu": "-1"}}, "spec.capability[cpu]: must not be below zero"),
        ({"cards": {"?": 1}}, "spec.cards: every name must be that of a card"),
        ({"cards": {"H200": -1}}, "spec.cards.H200: -1: spec.cards.H200 in body should be greater than or equal to 0"),
        ({"cards": {f"A{number}": 1 for number in range(65)}}, "spec.cards: Too many: 65: must have at most 64 items"),
        ({"minRuntime": "1d"}, "spec.minRuntime in body should match"),
    ],
)
def test_kubectl_names_the_wrong_field(plane: ControlPlane, spec: dict[str, Any], refusal: str) -> None:
    said = plane.kubectl("create", "-f", "-", stdin=json.dumps(queue_object("tenant-a", **spec)))
    assert said.returncode != 0
    shown = re.sub(r'Invalid value: ("[^"]*": )?', "", said.stderr)
    assert refusal in shown
