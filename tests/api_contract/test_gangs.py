"""PodGroups: custom resources whose status is written by a merge patch at one resource version."""

from aischeduler.kube.report.gang_writes import object_paths, status_patch
from aischeduler.model.actions import ReportGang
from aischeduler.model.gang import Gang, GangKey, GangPhase, GangSource, GangStatus
from tests.api_contract.world import Json, World, encode
from tests.gang_objects import coscheduling_crd, pod_group_object

NOW = "2026-01-02T03:04:05Z"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def a_group(world: World) -> Json:
    """Return a PodGroup of this scenario; the definition stays for the others."""
    assert world.post(DEFINITIONS, coscheduling_crd()).status in (201, 409)
    document = pod_group_object(namespace=world.namespace)
    url = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{world.namespace}/podgroups"
    return world.until(lambda: answer.body if (answer := world.post(url, document)).status == 201 else None)


def a_report(world: World, group: Json, phase: GangPhase) -> ReportGang:
    gang = Gang(GangKey(GangSource.COSCHEDULING, world.namespace, "group"), 2, uid=group["metadata"]["uid"])
    return ReportGang(gang, GangStatus(phase, 2, members=2, placed=2, running=1))


def test_status_of_a_pod_group_is_stored_without_what_its_definition_lacks(world: World) -> None:
    group = a_group(world)
    report = a_report(world, group, GangPhase.SCHEDULED)
    (path,) = object_paths(report.gang)
    stored = world.patch(f"{path}/status", encode_patch(report, group))
    assert stored["status"] == {"phase": "Scheduling", "running": 1}
    assert stored["metadata"]["generation"] == group["metadata"]["generation"]
    assert status_patch(report, stored, NOW) is None


def test_status_at_an_older_resource_version_is_a_conflict(world: World) -> None:
    group = a_group(world)
    report = a_report(world, group, GangPhase.SCHEDULED)
    (path,) = object_paths(report.gang)
    world.patch(path, {"metadata": {"labels": {"edited": "yes"}}})
    answer = world.try_patch(f"{path}/status", encode_patch(report, group))
    assert (answer.status, answer.reason) == (409, "Conflict")


def encode_patch(report: ReportGang, group: Json) -> bytes:
    patch = status_patch(report, group, NOW)
    assert patch is not None
    return encode(patch)
