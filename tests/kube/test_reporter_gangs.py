"""The status of a gang is read, compared and written; conflicts, deletions and refusals."""

import json
from typing import Any

import pytest

from aischeduler.kube.report.reporter import REFUSED_RETRY_SECONDS
from aischeduler.model.gang import GangPhase, GangSource
from tests.kube.reporter_world import World, written
from tests.kube.scripted_server import Answer, Request, reply, status, until
from tests.kube.test_gang_writes import report

PATH = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team/podgroups/g"
VOLCANO = "/apis/scheduling.volcano.sh/v1beta1/namespaces/team/podgroups/g"
NATIVE = "/apis/scheduling.k8s.io/{}/namespaces/team/podgroups/g"
EVENTS = "/apis/events.k8s.io/v1/namespaces/team/events"
MISSING = status(404, "NotFound", "the server could not find the requested resource")


def group(**found: Any) -> dict[str, Any]:
    return {"metadata": {"uid": "u", "resourceVersion": "7"}, "status": found}


def a_world() -> World:
    world = World()
    world.script.always["post", EVENTS] = lambda _: reply(201)
    return world


class Stored:
    """A PodGroup whose status is written."""

    def __init__(self, world: World, path: str = PATH) -> None:
        self.status: dict[str, Any] = {}
        world.script.always["get", path] = lambda _: reply(200, group(**self.status))
        world.script.always["patch", f"{path}/status"] = self.patch

    def patch(self, request: Request) -> Answer:
        self.status |= json.loads(request.body)["status"]
        return reply(200, group(**self.status))


def patches(world: World) -> int:
    return len(world.script.asked("patch"))


async def test_status_is_written_once_for_equal_reports() -> None:
    world = a_world()
    stored = Stored(world)
    async with world.running() as reports:
        for _ in range(3):
            reports.report_gang(report(GangPhase.SCHEDULED, placed=4))
            await written(reports)
    assert (stored.status["phase"], patches(world)) == ("Scheduling", 1)
    assert [event["reason"] for event in world.events] == ["Scheduled"]


async def test_only_the_newest_of_waiting_reports_is_written() -> None:
    world = a_world()
    stored = Stored(world)
    world.binds_done.clear()
    async with world.running() as reports:
        for phase in (GangPhase.PENDING, GangPhase.SCHEDULING, GangPhase.RUNNING):
            reports.report_gang(report(phase))
        world.binds_done.set()
        await written(reports)
    assert (stored.status["phase"], patches(world)) == ("Running", 1)


async def test_conflict_leads_to_another_read() -> None:
    world = a_world()
    Stored(world)
    world.script.on("patch", f"{PATH}/status", status(409, "Conflict", "modified"), reply(200, group()))
    async with world.running() as reports:
        reports.report_gang(report(GangPhase.SCHEDULING))
        await written(reports)
    assert [request.method for request in world.script.requests] == ["GET", "PATCH", "GET", "PATCH"]


@pytest.mark.parametrize("answer", [MISSING, status(400, "BadRequest", "may not contain '%'")])
async def test_pod_group_that_does_not_exist_is_not_written_and_not_retried(answer: Answer) -> None:
    world = a_world()
    world.script.always["get", PATH] = lambda _: answer
    async with world.running() as reports:
        reports.report_gang(report(GangPhase.SCHEDULING))
        await written(reports)
        assert (reports.counts.refused, reports.counts.dropped) == (0, 0)
    assert [request.method for request in world.script.requests] == ["GET"]


async def test_pod_group_that_is_deleted_during_a_write_is_given_up() -> None:
    world = a_world()
    world.script.always["get", PATH] = lambda _: reply(200, group())
    for path in (f"{PATH}/status", PATH):
        world.script.always["patch", path] = lambda _: MISSING
    async with world.running() as reports:
        reports.report_gang(report(GangPhase.SCHEDULING))
        await written(reports)
        assert (reports.counts.refused, reports.counts.dropped) == (0, 0)


async def test_definition_without_the_subresource_gets_the_status_in_the_object() -> None:
    world = a_world()
    world.script.always["get", VOLCANO] = lambda _: reply(200, group())
    world.script.always["patch", f"{VOLCANO}/status"] = lambda _: MISSING
    world.script.always["patch", VOLCANO] = lambda _: reply(200, group())
    async with world.running() as reports:
        reports.report_gang(report(GangPhase.SCHEDULING, GangSource.VOLCANO))
        await written(reports)
    assert [request.path for request in world.script.asked("patch")] == [f"{VOLCANO}/status", VOLCANO]


async def test_pod_group_that_is_deleted_between_read_and_write_gets_one_patch_that_counts_as_no_refusal() -> None:
    world = a_world()
    world.script.always["get", PATH] = lambda _: reply(200, group())
    world.script.always["patch", f"{PATH}/status"] = lambda _: MISSING
    async with world.running() as reports:
        reports.report_gang(report(GangPhase.SCHEDULING))
        await written(reports)
        assert (reports.counts.refused, reports.counts.dropped) == (0, 0)
    assert [request.path for request in world.script.asked("patch")] == [f"{PATH}/status"]


async def test_native_pod_group_is_written_in_the_version_that_is_served() -> None:
    world, older = a_world(), NATIVE.format("v1alpha2")
    world.script.always["get", NATIVE.format("v1beta1")] = lambda _: MISSING
    Stored(world, older)
    async with world.running() as reports:
        reports.report_gang(report(GangPhase.SCHEDULING, GangSource.NATIVE))
        await written(reports)
    assert [request.path for request in world.script.asked("patch")] == [f"{older}/status"]


async def test_refused_status_is_written_once_the_right_is_granted() -> None:
    world = a_world()
    stored = Stored(world)
    world.script.on("get", PATH, status(403, "Forbidden", "no right"), reply(200, group()))
    async with world.running() as reports:
        reports.report_gang(report(GangPhase.RUNNING))
        await until(lambda: stored.status.get("phase") == "Running")
    assert REFUSED_RETRY_SECONDS in world.waits.seconds
    (line,) = world.logged("write refused")
    assert "gang status" in line.values()


async def test_gang_of_a_job_gets_events_and_no_other_request() -> None:
    world = a_world()
    async with world.running() as reports:
        for phase in (GangPhase.SCHEDULING, GangPhase.FAILED, GangPhase.SCHEDULED):
            reports.report_gang(report(phase, GangSource.JOB, message="why"))
        await written(reports)
    assert [(event["reason"], event["type"]) for event in world.events] == [
        ("FailedScheduling", "Warning"),
        ("Scheduled", "Normal"),
    ]
    assert {request.method for request in world.script.requests} == {"POST"}
