"""Watches of the kinds that declare gangs: missing and forbidden kinds, and Jobs of which the engine hears nothing."""

import json
from typing import Any

import pytest

from aischeduler.kube.decode.gang_owners import GangOwners
from aischeduler.kube.watch.gang_resources import gang_resources
from aischeduler.kube.watch.reflector import NOT_NEEDED_POLL_SECONDS
from aischeduler.model.events import Event, Gone, Seen, gone
from aischeduler.model.gang import GANG_KEY, Gang, GangKey, GangSource
from aischeduler.model.workload import Workload
from tests.kube.api_objects import line, listing, trouble
from tests.kube.reflector_world import World
from tests.kube.scripted_server import Waits, reply, settled, status, stream, until

RESOURCES = {resource.kind: resource for resource in gang_resources(GangOwners())}
GROUPS = reply(200, {"kind": "APIGroupList", "groups": [{"name": "batch", "versions": [{"groupVersion": "batch/v1"}]}]})
FORBIDDEN = status(403, "Forbidden", "you cannot list it")
POD_GROUP = "PodGroup.scheduling.x-k8s.io"
PATH = RESOURCES[POD_GROUP].path
JOBS = "/apis/batch/v1/jobs"


def group(version: int, *, member: int = 2, phase: str = "") -> dict[str, Any]:
    metadata = {"name": "g", "namespace": "default", "uid": "u", "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"minMember": member}, "status": {"phase": phase} if phase else {}}


def job(version: int, *, asks: bool, ready: int = 0) -> dict[str, Any]:
    annotations = {"annotations": {GANG_KEY: "true"}} if asks else {}
    metadata = {"name": "j", "namespace": "default", "uid": "u", "resourceVersion": str(version), **annotations}
    return {"metadata": metadata, "spec": {"parallelism": 4}, "status": {"ready": ready}}


GONE = gone(Gang, GangSource.COSCHEDULING, "default", "g")
JOB_GONE = gone(Gang, GangSource.JOB, "default", "j")


def gangs(world: World) -> list[Event]:
    """Return what the engine heard of gangs."""
    return [event for event in world.events if is_of(event, Gang)]


def is_of(event: Event, kind: type) -> bool:
    if isinstance(event, Seen):
        return isinstance(event.object, kind)
    return isinstance(event, Gone) and event.kind == kind.__name__


def seen(member: int, **fields: Any) -> Seen:
    return Seen(Gang(GangKey(GangSource.COSCHEDULING, "default", "g"), member, uid="u", **fields))


def job_seen(member: int = 4, **fields: Any) -> Seen:
    return Seen(Gang(GangKey(GangSource.JOB, "default", "j"), member, uid="u", **fields))


def test_kinds_have_unique_names_and_none_is_needed() -> None:
    assert len(RESOURCES) == len(gang_resources(GangOwners()))
    assert not any(resource.needed for resource in RESOURCES.values())
    assert {resource.path for resource in RESOURCES.values()} >= {
        PATH,
        JOBS,
        "/apis/scheduling.volcano.sh/v1beta1/podgroups",
    }


async def test_pod_groups_are_none_until_their_definition_is_installed() -> None:
    world = World()
    world.script.on("get", PATH, status(404, "NotFound"), reply(200, listing(group(1))))
    versions = [{"groupVersion": "scheduling.x-k8s.io/v1alpha1"}]
    world.script.on(
        "get", "/apis", GROUPS, GROUPS, reply(200, {"kind": "APIGroupList", "groups": [{"versions": versions}]})
    )
    async with world.running(RESOURCES[POD_GROUP]) as reflector:
        await until(lambda: gangs(world) == [seen(2)])
        assert reflector.current()
    first_look = NOT_NEEDED_POLL_SECONDS - Waits().now % NOT_NEEDED_POLL_SECONDS
    assert world.waits.seconds == [first_look, NOT_NEEDED_POLL_SECONDS]


async def test_kind_that_may_not_be_listed_has_no_objects_until_it_may() -> None:
    world = World()
    world.script.on("get", PATH, FORBIDDEN, FORBIDDEN, reply(200, listing(group(1))))
    world.waits.hold()
    async with world.running(RESOURCES[POD_GROUP]) as reflector:
        await reflector.synced.wait()
        await until(lambda: reflector.not_served)
        assert not reflector.current()
        world.waits.release()
        await until(lambda: gangs(world) == [seen(2)])
        assert reflector.current()
    assert len(world.failures) == 1


async def test_gangs_stay_when_the_right_to_list_them_is_taken_away() -> None:
    world = World()
    world.script.on("get", PATH, reply(200, listing(group(1))), FORBIDDEN, FORBIDDEN)
    world.script.on("watch", PATH, stream(trouble(410, "Expired")))
    async with world.running(RESOURCES[POD_GROUP]):
        await until(lambda: len(world.script.asked("get")) >= 3)
    assert gangs(world) == [seen(2)]


async def test_removed_definition_ends_its_gangs() -> None:
    world = World()
    world.script.on("get", PATH, reply(200, listing(group(1))), status(404, "NotFound"))
    world.script.on("get", "/apis", GROUPS)
    world.script.on("watch", PATH, stream(trouble(410, "Expired")))
    async with world.running(RESOURCES[POD_GROUP]):
        await until(lambda: len(gangs(world)) == 2)
    assert gangs(world) == [seen(2), GONE]


async def test_engine_hears_of_a_change_and_not_of_a_status_that_changes_nothing() -> None:
    world = World()
    world.script.on("get", PATH, reply(200, listing(group(1))))
    changes = [group(101, phase="Pending"), group(102, phase="Running"), group(103, member=3, phase="Running")]
    world.script.on("watch", PATH, stream(*(line("MODIFIED", change) for change in changes)))
    async with world.running(RESOURCES[POD_GROUP]):
        await until(lambda: len(gangs(world)) == 3)
    assert gangs(world) == [seen(2), seen(2, started=True), seen(3, started=True)]


async def test_engine_hears_only_of_jobs_that_ask_for_a_gang() -> None:
    world = World()
    world.script.on("get", JOBS, reply(200, listing(job(1, asks=False))))
    changes = [line("MODIFIED", job(101, asks=False, ready=1)), line("DELETED", job(102, asks=False))]
    changes += [line("ADDED", job(103, asks=True)), line("MODIFIED", job(104, asks=True, ready=1))]
    changes += [line("MODIFIED", job(105, asks=False)), line("DELETED", job(106, asks=False))]
    world.script.on("watch", JOBS, stream(*changes))
    async with world.running(RESOURCES["Job"]) as reflector:
        await until(lambda: reflector.counts.events == len(changes))
        await settled()
    expected = [job_seen(), job_seen(started=True), job_seen(1), JOB_GONE]
    assert gangs(world) == expected


@pytest.mark.parametrize("kind", RESOURCES)
def test_object_of_each_kind_without_spec_and_status_is_read(kind: str) -> None:
    metadata = {"name": "x", "namespace": "default", "uid": "u", "annotations": {GANG_KEY: "true"}}
    workload, event = RESOURCES[kind].read(json.dumps({"metadata": metadata}).encode())
    assert workload == Seen(Workload(kind.partition(".")[0], "default", "x", "u", retries=6 if kind == "Job" else -1))
    assert isinstance(event, Seen)
    assert isinstance(event.object, Gang)
    assert (event.object.key.name, event.object.uid) == ("x", "u")
