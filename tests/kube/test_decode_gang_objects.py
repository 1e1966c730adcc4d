"""The objects that declare gangs: PodGroups, Jobs and JobSets, with the malformed fields of each."""

import json
from typing import Any

import msgspec
import pytest

from aischeduler.kube.decode.gang_objects import (
    PodGroupDocument,
    read_job,
    read_job_set,
    read_native_group,
    read_pod_group,
)
from aischeduler.kube.decode.job_documents import JobDocument, JobSetDocument
from aischeduler.model.gang import (
    GANG_KEY,
    GANG_SPAN_KEY,
    GANG_TIMEOUT_KEY,
    GANG_TOPOLOGY_KEY,
    Gang,
    GangKey,
    GangSource,
    TopologyLevel,
)
from tests.gang_objects import (
    indexed_job_object,
    job_set_object,
    native_pod_group_object,
    pod_group_object,
    volcano_pod_group_object,
)
from tests.objects import Json

CREATED = 1_767_323_045
FURTHER = {GANG_TIMEOUT_KEY: "60", GANG_SPAN_KEY: "true", GANG_TOPOLOGY_KEY: "Preferred:rack"}
RACK = TopologyLevel("rack", required=False)


def sent(document: Json, **parts: Any) -> bytes:
    """Return the object as the API server sends it, with `parts` in its place of the object."""
    document["metadata"] |= {"uid": "u", "generation": 3, "creationTimestamp": "2026-01-02T03:04:05Z"}
    return json.dumps(document | parts).encode()


def coscheduling(document: Json, **parts: Any) -> Gang:
    return read_pod_group(msgspec.json.decode(sent(document, **parts), type=PodGroupDocument), GangSource.COSCHEDULING)


def volcano(document: Json, **parts: Any) -> Gang:
    return read_pod_group(msgspec.json.decode(sent(document, **parts), type=PodGroupDocument), GangSource.VOLCANO)


def native(document: Json, **parts: Any) -> Gang:
    return read_native_group(msgspec.json.decode(sent(document, **parts), type=PodGroupDocument))


def of_job(document: Json, **parts: Any) -> tuple[Gang, bool]:
    return read_job(msgspec.json.decode(sent(document, **parts), type=JobDocument))


def of_job_set(document: Json, **parts: Any) -> tuple[Gang, bool]:
    return read_job_set(msgspec.json.decode(sent(document, **parts), type=JobSetDocument))


def gang(source: GangSource, name: str, minimum: int, **fields: Any) -> Gang:
    return Gang(GangKey(source, "default", name), minimum, uid="u", generation=3, created_seconds=CREATED, **fields)


def test_pod_group_of_coscheduling() -> None:
    document = pod_group_object(min_member=4, timeout_seconds=30, min_resources={"cpu": "8", "nvidia.com/gpu": 32})
    expected = gang(GangSource.COSCHEDULING, "group", 4, timeout_seconds=30)
    assert coscheduling(document) == expected


def test_annotations_of_a_pod_group_say_what_it_has_no_field_for() -> None:
    found = coscheduling(pod_group_object(annotations=FURTHER))
    assert found == gang(GangSource.COSCHEDULING, "group", 2, timeout_seconds=60, span=True, topology=(RACK,))
    assert coscheduling(pod_group_object(annotations=FURTHER, timeout_seconds=5)).timeout_seconds == 5


@pytest.mark.parametrize(
    ("phase", "started"),
    [("Pending", False), ("", False), ("Scheduling", True), ("Running", True), ("Finished", True), ("Failed", False)],
)
def test_phase_of_coscheduling_shows_whether_the_gang_has_started(phase: str, started: bool) -> None:
    assert coscheduling(pod_group_object(), status={"phase": phase}).started is started


@pytest.mark.parametrize(
    ("phase", "started"), [("Pending", False), ("Inqueue", False), ("Unknown", False), ("Running", True)]
)
def test_phase_of_volcano_shows_whether_the_gang_has_started(phase: str, started: bool) -> None:
    assert volcano(volcano_pod_group_object(), status={"phase": phase}).started is started


def test_pod_group_of_volcano_has_roles() -> None:
    document = volcano_pod_group_object(
        min_member=5, min_task_member={"worker": 4, "master": 1, "spare": 0}, min_resources={"memory": "1Gi"}
    )
    roles = (("master", 1), ("worker", 4))
    assert volcano(document) == gang(GangSource.VOLCANO, "group", 5, roles=roles)


def test_pod_group_of_volcano_without_a_minimum_is_no_gang() -> None:
    assert volcano(volcano_pod_group_object(min_member=0)) == gang(GangSource.VOLCANO, "group", 1)


def test_native_pod_group() -> None:
    rack = TopologyLevel("x.io/rack", required=True)
    found = native(native_pod_group_object(min_count=4, topology="x.io/rack"))
    assert found == gang(GangSource.NATIVE, "group", 4, topology=(rack,))
    assert native(native_pod_group_object(min_count=None)) == gang(GangSource.NATIVE, "group", 1)
    scheduled = {"conditions": [{"type": "PodGroupScheduled", "status": "True"}]}
    assert native(native_pod_group_object(), status=scheduled).started


SIZE = "must be a whole number from 1 to 5000, not"


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({}, f"spec.minMember: {SIZE} empty"),
        (None, f"spec.minMember: {SIZE} empty"),
        ([], "spec: must be a mapping, not an empty list"),
        ({"minMember": 0}, f"spec.minMember: {SIZE} 0"),
        ({"minMember": -3}, f"spec.minMember: {SIZE} -3"),
        ({"minMember": 5001}, f"spec.minMember: {SIZE} 5001"),
        ({"minMember": 2**70}, f"spec.minMember: {SIZE} a number of more than 64 bits"),
        ({"minMember": True}, f"spec.minMember: {SIZE} true"),
        ({"minMember": "4"}, f"spec.minMember: {SIZE} '4'"),
        ({"minMember": 2.5}, f"spec.minMember: {SIZE} 2.5"),
        ({"minMember": 2, "scheduleTimeoutSeconds": -1}, "spec.scheduleTimeoutSeconds: must be a whole number from 0"),
    ],
)
def test_malformed_field_of_a_pod_group_is_named(spec: Any, problem: str) -> None:
    found = coscheduling(pod_group_object(), spec=spec)
    assert found.invalid.startswith(f"PodGroup default/group: {problem}")
    assert found.key.name == "group"


def test_malformed_minimum_of_a_task_is_named() -> None:
    found = volcano(volcano_pod_group_object(min_task_member={"worker": -1}))
    assert found.invalid == (
        "PodGroup default/group: spec.minTaskMember.worker: must be a whole number from 0 to 5000, not -1"
    )


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({}, "spec.schedulingPolicy: has neither gang nor basic"),
        ({"schedulingPolicy": {"gang": {}}}, f"spec.schedulingPolicy.gang.minCount: {SIZE} empty"),
        ({"schedulingPolicy": {"gang": 4}}, "spec.schedulingPolicy.gang: must be a mapping, not 4"),
        (
            {"schedulingPolicy": {"basic": {}}, "schedulingConstraints": {"topology": [{}]}},
            "spec.schedulingConstraints.topology[0].key: '' is not a label key",
        ),
    ],
)
def test_malformed_field_of_a_native_pod_group_is_named(spec: Any, problem: str) -> None:
    assert native(native_pod_group_object(), spec=spec).invalid.startswith(f"PodGroup default/group: {problem}")


def test_annotated_job_is_a_gang_of_the_pods_that_exist_at_one_time() -> None:
    assert of_job(indexed_job_object(pods=4)) == (gang(GangSource.JOB, "job", 4), True)
    assert of_job(indexed_job_object(), spec={"parallelism": 8, "completions": 3})[0].min_member == 3
    assert of_job(indexed_job_object(), spec={"parallelism": 8})[0].min_member == 8
    assert of_job(indexed_job_object(), spec={})[0].min_member == 1


def test_job_without_the_annotation_asks_for_no_gang() -> None:
    assert not of_job(indexed_job_object(gang=""))[1]
    assert not of_job(indexed_job_object(gang="false"))[1]
    assert not of_job(indexed_job_object(gang="false", template_annotations={GANG_KEY: "true"}))[1]


def test_job_asks_for_a_gang_by_the_annotation_of_its_template() -> None:
    found, asks = of_job(indexed_job_object(gang="", template_annotations={GANG_KEY: "true", **FURTHER}))
    assert asks
    assert found == gang(GangSource.JOB, "job", 2, timeout_seconds=60, span=True, topology=(RACK,))


def test_misspelt_annotation_of_a_job_makes_its_gang_invalid() -> None:
    found, asks = of_job(indexed_job_object(gang="yes"))
    assert asks
    assert (
        found.invalid == f"""Job default/job: metadata.annotations[{GANG_KEY}]: must be "true" or "false", not 'yes'"""
    )


def test_job_of_too_many_pods_is_invalid() -> None:
    found, _ = of_job(indexed_job_object(pods=5001))
    assert found.invalid == "Job default/job: spec: has 5001 pods at one time, which is more than 5000"


@pytest.mark.parametrize(
    ("status", "started"), [({}, False), ({"active": 2}, False), ({"ready": 1}, True), ({"succeeded": 1}, True)]
)
def test_job_with_a_pod_that_is_ready_or_succeeded_has_started(status: Json, started: bool) -> None:
    assert of_job(indexed_job_object(), status=status)[0].started is started


@pytest.mark.parametrize(
    ("status", "minimum"),
    [
        ({"succeeded": 2}, 4),
        ({"succeeded": 7}, 3),
        ({"succeeded": 3, "failedIndexes": "0,4-6"}, 3),
        ({"succeeded": 10}, 0),
        ({"failedIndexes": "none,1-,-"}, 4),
    ],
)
def test_last_pods_of_a_job_wait_for_no_more_than_it_still_creates(status: Json, minimum: int) -> None:
    spec = {"parallelism": 4, "completions": 10}
    assert of_job(indexed_job_object(), spec=spec, status=status)[0].min_member == minimum


def test_jobs_of_a_job_set_that_have_succeeded_are_not_waited_for() -> None:
    status = {"replicatedJobsStatus": [{"name": "driver", "succeeded": 1}, {"name": "workers", "succeeded": 1}]}
    found, _ = of_job_set(job_set_object(jobs={"workers": (2, 4), "driver": (1, 1)}), status=status)
    assert (found.min_member, found.roles) == (4, (("workers", 4),))


def test_job_set_is_a_gang_of_all_its_pods_with_its_replicated_jobs_as_roles() -> None:
    found, asks = of_job_set(job_set_object(jobs={"workers": (2, 4), "driver": (1, 1)}))
    assert asks
    assert found == gang(GangSource.JOB_SET, "set", 9, roles=(("driver", 1), ("workers", 8)))


def test_job_set_whose_pods_cannot_exist_together_is_invalid() -> None:
    found, _ = of_job_set(job_set_object(jobs={"a": (1, 1)}, startup_order="InOrder"))
    assert found.invalid.startswith("JobSet default/set: spec.startupPolicy: creates some pods after others")
    document = job_set_object(jobs={"a": (1, 1)})
    document["spec"]["replicatedJobs"][0]["dependsOn"] = [{"name": "b", "status": "Ready"}]
    assert of_job_set(document)[0].invalid.startswith("JobSet default/set: spec.replicatedJobs[].dependsOn: creates")


def test_job_set_asks_for_a_gang_by_the_annotation_of_a_pod_template() -> None:
    document = job_set_object(gang="", jobs={"a": (1, 1)})
    assert not of_job_set(document)[1]
    template = document["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    template["metadata"] = {"annotations": {GANG_KEY: "true"}}
    assert of_job_set(document)[1]


def test_job_set_with_a_ready_job_has_started() -> None:
    status = {"replicatedJobsStatus": [{"name": "a", "ready": 0}, {"name": "b", "ready": 1}]}
    assert of_job_set(job_set_object(jobs={"a": (1, 1)}), status=status)[0].started
