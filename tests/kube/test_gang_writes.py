"""The status of a gang as each kind of PodGroup has it, and the Events about its object."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from aischeduler.kube.report import event_messages
from aischeduler.kube.report.event_messages import ReportingController
from aischeduler.kube.report.gang_writes import object_paths, phase_event, status_patch
from aischeduler.model.actions import ReportGang
from aischeduler.model.gang import Gang, GangKey, GangPhase, GangSource, GangStatus

NOW = "2026-01-02T03:04:05Z"
BEFORE = "2026-01-01T00:00:00Z"


def report(
    phase: GangPhase,
    source: GangSource = GangSource.COSCHEDULING,
    *,
    placed: int = 0,
    running: int = 0,
    message: str = "",
    started: bool = False,
    invalid: str = "",
) -> ReportGang:
    gang = Gang(GangKey(source, "team", "g"), 4, uid="u", generation=3, started=started, invalid=invalid)
    return ReportGang(gang, GangStatus(phase, 4, members=4, placed=placed, running=running, message=message))


def patched(found: ReportGang, status: Mapping[str, Any] | None = None, *, uid: str = "u") -> dict[str, Any] | None:
    """Return the patch of a PodGroup with this status."""
    document = {"metadata": {"uid": uid, "resourceVersion": "7"}, **({"status": status} if status is not None else {})}
    patch = status_patch(found, document, NOW)
    return json.loads(patch) if patch is not None else None


def written(found: ReportGang, status: Mapping[str, Any] | None = None) -> dict[str, Any]:
    patch = patched(found, status)
    assert patch is not None
    assert patch["metadata"] == {"resourceVersion": "7"}
    status = patch["status"]
    assert isinstance(status, dict)
    return status


@pytest.mark.parametrize(
    ("source", "path"),
    [
        (GangSource.COSCHEDULING, ["/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team/podgroups/g"]),
        (GangSource.VOLCANO, ["/apis/scheduling.volcano.sh/v1beta1/namespaces/team/podgroups/g"]),
        (
            GangSource.NATIVE,
            [f"/apis/scheduling.k8s.io/{v}/namespaces/team/podgroups/g" for v in ("v1beta1", "v1alpha2")],
        ),
        (GangSource.JOB, []),
        (GangSource.JOB_SET, []),
        (GangSource.LABELS, []),
    ],
)
def test_only_pod_groups_have_a_status_to_write(source: GangSource, path: list[str]) -> None:
    assert list(object_paths(report(GangPhase.PENDING, source).gang)) == path


@pytest.mark.parametrize(
    ("phase", "coscheduling", "volcano"),
    [
        (GangPhase.PENDING, "Pending", "Inqueue"),
        (GangPhase.SCHEDULING, "Pending", "Inqueue"),
        (GangPhase.SCHEDULED, "Scheduling", "Running"),
        (GangPhase.RUNNING, "Running", "Running"),
        (GangPhase.FAILED, "Failed", "Inqueue"),
    ],
)
def test_phases_have_the_names_of_their_kind(phase: GangPhase, coscheduling: str, volcano: str) -> None:
    assert written(report(phase))["phase"] == coscheduling
    assert written(report(phase, GangSource.VOLCANO))["phase"] == volcano


def test_native_pod_group_has_one_condition() -> None:
    message = "0 of 4 pods are on nodes, and 4 start together: no room"
    condition = {"type": "PodGroupScheduled", "lastTransitionTime": NOW, "observedGeneration": 3}
    found = report(GangPhase.SCHEDULING, GangSource.NATIVE, message="no room")
    waiting = condition | {"status": "False", "reason": "Unschedulable", "message": message}
    assert written(found) == {"conditions": [waiting]}
    found = report(GangPhase.SCHEDULED, GangSource.NATIVE, placed=4)
    scheduled = condition | {"status": "True", "reason": "Scheduled"}
    assert written(found) == {"conditions": [scheduled | {"message": "4 of 4 pods are on nodes, and 4 start together"}]}


def test_volcano_has_two_conditions_that_exclude_each_other() -> None:
    conditions = written(report(GangPhase.SCHEDULING, GangSource.VOLCANO))["conditions"]
    assert [(condition["type"], condition["status"], condition["reason"]) for condition in conditions] == [
        ("Scheduled", "False", "NotEnoughResources"),
        ("Unschedulable", "True", "NotEnoughResources"),
    ]
    conditions = written(report(GangPhase.PENDING, GangSource.VOLCANO))["conditions"]
    assert {condition["reason"] for condition in conditions} == {"NotEnoughTasks"}


@pytest.mark.parametrize("source", [GangSource.COSCHEDULING, GangSource.VOLCANO, GangSource.NATIVE])
def test_current_status_is_not_written_again(source: GangSource) -> None:
    found = report(GangPhase.RUNNING, source, placed=4, running=4)
    assert patched(found, written(found)) is None


def test_conditions_that_the_definition_does_not_have_are_not_written_again() -> None:
    found = report(GangPhase.RUNNING, placed=4, running=4)
    stored = {name: value for name, value in written(found).items() if name != "conditions"}
    assert patched(found, stored) is None
    assert written(report(GangPhase.RUNNING, placed=4, running=3), stored)["running"] == 3


def test_fields_and_conditions_of_others_stay_and_an_unchanged_status_keeps_its_time() -> None:
    other = {"type": "Theirs", "status": "True", "lastTransitionTime": BEFORE}
    own = {"type": "PodGroupScheduled", "status": "False", "lastTransitionTime": BEFORE, "message": "old"}
    found = report(GangPhase.SCHEDULING, GangSource.NATIVE)
    status = written(found, {"conditions": [own, other, "odd"], "resourceClaimStatuses": [1]})
    assert list(status) == ["conditions"]
    assert [condition if isinstance(condition, str) else condition["type"] for condition in status["conditions"]] == [
        "PodGroupScheduled",
        "Theirs",
        "odd",
    ]
    assert status["conditions"][0]["lastTransitionTime"] == BEFORE
    assert status["conditions"][1] == other


def test_recreated_pod_group_is_not_written() -> None:
    assert patched(report(GangPhase.RUNNING), uid="another") is None


def test_long_message_is_cut() -> None:
    found = report(GangPhase.SCHEDULING, GangSource.NATIVE, message="x" * 5000)
    assert len(written(found)["conditions"][0]["message"]) == 1024


@pytest.mark.parametrize(
    ("before", "phase", "reason"),
    [
        (None, GangPhase.SCHEDULED, "Scheduled"),
        (GangPhase.SCHEDULING, GangPhase.RUNNING, "Scheduled"),
        (GangPhase.SCHEDULED, GangPhase.RUNNING, None),
        (GangPhase.SCHEDULED, GangPhase.SCHEDULED, None),
        (GangPhase.SCHEDULING, GangPhase.FAILED, "FailedScheduling"),
        (GangPhase.FAILED, GangPhase.FAILED, None),
        (None, GangPhase.PENDING, None),
        (None, GangPhase.SCHEDULING, None),
    ],
)
def test_gang_that_was_scheduled_or_failed_gets_an_event(
    before: GangPhase | None, phase: GangPhase, reason: str | None
) -> None:
    found = phase_event(report(phase, message="no room"), before)
    assert (found.reason if found is not None else None) == reason


def test_gang_that_started_before_is_not_scheduled_anew() -> None:
    assert phase_event(report(GangPhase.SCHEDULED, started=True), None) is None


def test_invalid_source_gets_an_event() -> None:
    found = phase_event(report(GangPhase.PENDING, GangSource.JOB, invalid="Job team/g: bad"), GangPhase.PENDING)
    assert found is not None
    assert (found.reason, found.text) == ("InvalidSpec", "Job team/g: bad")


@pytest.mark.parametrize(
    ("source", "kind", "version"),
    [
        (GangSource.COSCHEDULING, "PodGroup", "scheduling.x-k8s.io/v1alpha1"),
        (GangSource.VOLCANO, "PodGroup", "scheduling.volcano.sh/v1beta1"),
        (GangSource.NATIVE, "PodGroup", "scheduling.k8s.io/v1alpha2"),
        (GangSource.JOB, "Job", "batch/v1"),
        (GangSource.JOB_SET, "JobSet", "jobset.x-k8s.io/v1alpha2"),
    ],
)
def test_event_is_about_the_object(source: GangSource, kind: str, version: str) -> None:
    message = phase_event(report(GangPhase.SCHEDULED, source), None)
    assert message is not None
    _, body = event_messages.event(message, 1, ReportingController("a", "b"), NOW)
    regarding = {"apiVersion": version, "kind": kind, "name": "g", "uid": "u", "namespace": "team"}
    assert json.loads(body)["regarding"] == regarding


def test_gang_of_labels_has_no_object_for_an_event() -> None:
    assert phase_event(report(GangPhase.SCHEDULED, GangSource.LABELS), None) is None
