"""The definition of BatchProcess has the names and limits of the operator."""

from typing import Any

from aischeduler.kube.crds import crd
from aischeduler.model.gang import GANG_SIZE_MAX
from aischeduler.model.names import GROUP
from aischeduler.operator.batch_process import (
    BATCH_VERSION,
    KIND,
    PLURAL,
    ROLE_LENGTH_MAX,
    ROLES_MAX,
    TIMEOUT_SECONDS_MAX,
)
from aischeduler.operator.owner import BACKOFF_LIMIT, BACKOFF_LIMIT_MAX
from aischeduler.operator.progress import Phase
from tests.crds import fields


def schema() -> dict[str, Any]:
    found: dict[str, Any] = crd("batchprocesses")["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def test_definition_has_the_names_of_the_operator() -> None:
    definition = crd("batchprocesses")
    spec = definition["spec"]
    assert definition["metadata"]["name"] == f"{PLURAL}.{GROUP}"
    assert (spec["group"], spec["versions"][0]["name"]) == (GROUP, BATCH_VERSION)
    assert (spec["names"]["kind"], spec["names"]["plural"]) == (KIND, PLURAL)


def test_definition_has_the_limits_of_the_operator() -> None:
    spec = dict(fields("spec", schema()["properties"]["spec"]))
    roles, group = "spec.simpleProcesses", "spec.podGroup"
    counts = [f"{path}.{name}" for path in (group, f"{roles}[]") for name in ("replicas", "minAvailable")]
    assert {spec[path]["maximum"] for path in counts} == {GANG_SIZE_MAX}
    assert spec[f"{group}.timeoutSeconds"]["maximum"] == TIMEOUT_SECONDS_MAX
    assert spec["spec.backoffLimit"]["maximum"] == BACKOFF_LIMIT_MAX
    assert f"Default: {BACKOFF_LIMIT}." in spec["spec.backoffLimit"]["description"]
    assert (spec[roles]["maxItems"], spec[f"{roles}[].name"]["maxLength"]) == (ROLES_MAX, ROLE_LENGTH_MAX)


def test_status_has_the_phases_of_the_operator_and_room_for_every_pod() -> None:
    status = dict(fields("status", schema()["properties"]["status"]))
    assert status["status.phase"]["enum"] == list(Phase)
    assert status["status.roles"]["maxItems"] == ROLES_MAX
    lists = ("status.roles[].attempts", "status.roles[].completedIndexes")
    assert {status[path]["maxItems"] for path in lists} == {GANG_SIZE_MAX}
