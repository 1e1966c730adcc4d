"""A reflector whose watch may lag behind lists again on request."""

import asyncio
from typing import Any

from aischeduler.kube.decode.pod_spec import SpecCache
from aischeduler.kube.http.client import Client
from aischeduler.kube.watch.pod_reader import PodReader
from tests.kube import api_objects
from tests.kube.reflector_world import World, told
from tests.kube.scripted_server import reply, serving, status, until

PODS = "/api/v1/pods"


def listing(version: str, *items: Any) -> Any:
    return reply(200, {"metadata": {"resourceVersion": version}, "items": list(items)})


async def test_silent_watch_is_left_and_everything_is_listed_again() -> None:
    world = World()
    world.script.on("get", PODS, listing("5"), listing("9", api_objects.pod("p", version=8)))
    async with world.running() as reflector:
        await until(lambda: world.script.asked("watch"))
        await reflector.relist()
        await told(world, "+p:uid-p")
        await until(lambda: len(world.script.asked("watch")) == 2)
        assert (reflector.version, reflector.newest_version) == ("9", 8)
    assert world.failures == []


async def test_list_that_fails_is_retried_until_it_succeeds() -> None:
    world = World()
    world.script.on("get", PODS, listing("5"), status(500), status(500), listing("9"))
    async with world.running() as reflector:
        await until(lambda: world.script.asked("watch"))
        await reflector.relist()
        assert reflector.version == "9"


async def test_backoff_ends_when_a_list_is_requested() -> None:
    world = World()
    world.script.on("get", PODS, listing("5"), listing("9"))
    world.script.on("watch", PODS, status(500))
    world.waits.hold()
    async with world.running() as reflector:
        await until(lambda: world.waits.held)
        await reflector.relist()
        assert reflector.version == "9"


async def test_list_that_began_before_the_request_is_not_enough() -> None:
    world, release = World(), asyncio.Event()

    async def late(writer: asyncio.StreamWriter) -> None:
        await release.wait()
        await listing("5")(writer)

    world.script.on("get", PODS, late, listing("9"))
    async with world.running() as reflector:
        await until(lambda: world.script.asked("get", PODS))
        again = asyncio.create_task(reflector.relist())
        await asyncio.sleep(0)
        release.set()
        await again
        assert reflector.version == "9"


async def test_version_of_pods_is_read_beside_the_watch() -> None:
    world = World()
    world.script.on("get", PODS, listing("5"), listing("77", api_objects.pod("p", version=8)))
    async with world.running() as reflector, serving(world.script) as server, Client(server) as client:
        await until(lambda: world.script.asked("watch"))
        reader = PodReader(client, reflector, SpecCache())
        assert (await reader.version(), reader.watch_version) == ("77", "5")
    assert world.script.asked("get", PODS)[-1].query["limit"] == "1"
