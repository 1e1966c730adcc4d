"""The definition of TrainingJob has the names, limits and defaults of the operator."""

from typing import Any

from aischeduler.kube.crds import crd
from aischeduler.model.elastic import INSTANCES_MAX, PriorityLevel
from aischeduler.model.names import GROUP, VERSION
from aischeduler.operator.owner import BACKOFF_LIMIT_MAX, PLURALS
from aischeduler.operator.training_job import (
    ALLOWED_MAX,
    KIND,
    NAME_LENGTH_MAX,
    PASSES_MAX,
    PORT_MAX,
    PORTS_MAX,
    TEXT_LENGTH_MAX,
    CleanPodPolicy,
)
from aischeduler.operator.training_plan import SCALE_RECORDS_MAX, WHY_LENGTH_MAX, TrainingPhase
from tests.crds import fields


def version() -> dict[str, Any]:
    found: dict[str, Any] = crd("trainingjobs")["spec"]["versions"][0]
    return found


def part(name: str) -> dict[str, Any]:
    return dict(fields(name, version()["schema"]["openAPIV3Schema"]["properties"][name]))


def test_definition_has_the_names_of_the_operator() -> None:
    definition = crd("trainingjobs")
    names = definition["spec"]["names"]
    assert definition["metadata"]["name"] == f"{PLURALS[KIND]}.{GROUP}"
    assert (names["kind"], names["plural"], names["shortNames"]) == (KIND, PLURALS[KIND], ["tj"])
    assert (version()["name"], version()["subresources"]) == (VERSION, {"status": {}})


def test_definition_has_the_limits_of_the_operator() -> None:
    spec = part("spec")
    counts = [f"spec.{role}.{name}" for role in ("trainer", "pserver") for name in ("minInstances", "maxInstances")]
    assert {spec[path]["maximum"] for path in counts} == {INSTANCES_MAX}
    assert [spec[path]["minimum"] for path in counts] == [1, 1, 0, 0]
    assert spec["spec.trainer.allowedInstances"]["maxItems"] == ALLOWED_MAX
    assert spec["spec.passes"]["maximum"] == PASSES_MAX
    assert (spec["spec.port"]["maximum"], spec["spec.portsNum"]["maximum"]) == (PORT_MAX, PORTS_MAX)
    assert spec["spec.backoffLimit"]["maximum"] == BACKOFF_LIMIT_MAX
    assert spec["spec.trainer.entrypoint"]["maxLength"] == TEXT_LENGTH_MAX
    assert {spec[f"spec.{name}"]["maxLength"] for name in ("pool", "queue")} == {NAME_LENGTH_MAX}


def test_definition_has_the_choices_of_the_operator() -> None:
    spec, status = part("spec"), part("status")
    assert spec["spec.priorityLevel"]["enum"] == list(PriorityLevel)
    assert spec["spec.cleanPodPolicy"]["enum"] == list(CleanPodPolicy)
    assert status["status.phase"]["enum"] == list(TrainingPhase)
    assert status["status.scaleRecords"]["maxItems"] == SCALE_RECORDS_MAX
    assert status["status.scaleRecords[].why"]["maxLength"] >= WHY_LENGTH_MAX


def test_level_has_no_default_in_the_schema_because_a_priority_class_may_say_it() -> None:
    assert "default" not in part("spec")["spec.priorityLevel"]


def test_columns_are_phase_level_trainers_frozen_and_age() -> None:
    columns = [one["name"] for one in version()["additionalPrinterColumns"] if not one.get("priority")]
    assert columns == ["Phase", "Level", "Trainers", "Frozen", "Age"]
