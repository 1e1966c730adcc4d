"""Assumed pods that no watch event has confirmed are read, and their Bindings are settled."""

import asyncio
import json

from aischeduler.kube.write.binder import READ_TRIES_MAX
from aischeduler.model.actions import (
    Bind,
    ReadPod,
)
from aischeduler.model.events import BindRefusal, BindRefused, Seen, gone
from aischeduler.model.pod import Pod
from tests.kube import api_objects
from tests.kube.executor_world import BIND, PATH, POD, World
from tests.kube.scripted_server import Counted, reply, settled, status, until


async def test_settle_reads_the_pod_and_emits_its_state() -> None:
    world = World()
    world.script.on("get", PATH, reply(200, api_objects.pod("p", version=9, spec={"nodeName": "n1"})))
    async with world.running() as executor:
        executor.perform([ReadPod(POD, "n1", "d-1")])
        await until(lambda: world.events)
    (event,) = world.events
    assert isinstance(event, Seen)
    assert isinstance(event.object, Pod)
    assert event.object.node_name == "n1"


async def test_settle_of_a_pod_whose_binding_was_lost_frees_its_room() -> None:
    world = World()
    world.script.on("get", PATH, reply(200, api_objects.pod("p", version=9)))
    async with world.running() as executor:
        executor.perform([ReadPod(POD, "n1", "d-1")])
        await until(lambda: len(world.events) == 2)
    assert world.events[1] == BindRefused(
        "uid-p", "n1", BindRefusal.UNAVAILABLE, "no Binding of this decision is in flight"
    )


async def test_settle_of_a_pod_that_the_engine_no_longer_assumes_emits_only_its_state() -> None:
    world = World(engine=Counted(settled={"uid-p"}))
    world.script.on("get", PATH, reply(200, api_objects.pod("p", version=9)))
    async with world.running() as executor:
        executor.perform([ReadPod(POD, "n1", "d-1")])
        await until(lambda: world.events)
        await settled()
    assert [type(event.object) for event in world.events if isinstance(event, Seen)] == [Pod]


async def test_pod_is_not_read_while_its_binding_is_in_progress() -> None:
    world, release = World(), asyncio.Event()

    async def late(writer: asyncio.StreamWriter) -> None:
        await release.wait()
        await reply(201)(writer)

    world.script.on("post", f"{PATH}/binding", late)
    async with world.running() as executor:
        executor.perform([BIND, ReadPod(POD, "n1", "d-1")])
        await until(lambda: world.script.asked("post", PATH))
        await settled()
        release.set()
        await until(lambda: world.observed)
    assert world.script.asked("get") == []


async def test_binding_in_doubt_is_settled_by_a_read_pod_action() -> None:
    world = World()
    world.script.on("post", f"{PATH}/binding", status(500, "InternalError"))
    world.script.on("get", PATH, *[status(403, "Forbidden", "cannot get pods")] * (READ_TRIES_MAX + 1))
    world.script.always["get", PATH] = lambda _: reply(200, api_objects.pod("p", version=9, spec={"nodeName": "n1"}))
    async with world.running() as executor:
        executor.perform([BIND])
        await until(lambda: executor._workers.binder.in_doubt)
        executor.perform([ReadPod(POD, "n1", "d-1")])
        await until(lambda: executor.pod_read_failure == "403 Forbidden")
        executor.perform([ReadPod(POD, "n1", "d-1")])
        await until(lambda: world.observed)
    assert executor.pod_read_failure == ""
    assert [(type(action), outcome) for action, outcome, _ in world.observed] == [(Bind, "Accepted")]


async def test_pods_that_cannot_be_read_are_logged_once_a_minute_with_the_missing_permission() -> None:
    world = World()
    world.script.always["get", PATH] = lambda _: status(403, "Forbidden", 'cannot get resource "pods"')
    async with world.running() as executor:
        executor.perform([ReadPod(POD, "n1", "d-1")] * 5)
        await until(lambda: len(world.script.asked("get")) == 5)
        for _ in range(50):  # the answer to the last read is handled
            await asyncio.sleep(0)
        world.waits.now += 60.0
        executor.perform([ReadPod(POD, "n1", "d-1")])
        await until(lambda: len(world.logged()) == 2)
    assert [line["left_out"] for line in world.logged()] == [0, 4]
    assert 'cannot get resource "pods"' in world.logged()[0]["reason"]


async def test_settle_of_a_pod_that_is_gone_emits_that_it_is_gone() -> None:
    world = World(engine=Counted(settled={"uid-p"}))
    world.script.on("get", PATH, reply(200, api_objects.pod("p", version=9)), status(404, "NotFound"))
    async with world.running() as executor:
        executor.perform([ReadPod(POD, "n1", "d-1")])
        await until(lambda: world.events)
        executor.perform([ReadPod(POD, "n1", "d-1")])
        await until(lambda: len(world.events) == 2)
    assert world.events[1] == gone(Pod, "uid-p")


async def test_settle_that_fails_is_logged_and_changes_nothing() -> None:
    world = World()
    world.script.on("get", PATH, status(500, "InternalError"), reply(200, json.dumps({"spec": 1}).encode()))
    async with world.running() as executor:
        executor.perform([ReadPod(POD, "n1", "d-1")])
        await until(lambda: len(world.logged()) == 1)
        executor.perform([ReadPod(POD, "n1", "d-1")])
        await until(lambda: len(world.logged()) == 2)
    assert world.events == []
    assert [line["event"] for line in world.logged()] == ["pod not read"] * 2
