"""A reflector after an outage: retries, lists, and reads beside its watch."""

import asyncio
from contextlib import suppress

from aischeduler.kube.decode.pod_spec import SpecCache
from aischeduler.kube.http.backoff import RETRY_AFTER_SECONDS_MAX, Timing
from aischeduler.kube.http.client import Client
from aischeduler.kube.watch import watched_resources
from aischeduler.kube.watch.reflector import Handlers, Reflector
from aischeduler.model.events import Event
from tests.kube.api_objects import line, listing, node, pod, pool, trouble
from tests.kube.reflector_world import World, told, word
from tests.kube.scripted_server import Half, Script, reply, serving, status, stream, until

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
POOLS = "/apis/resource.aibee.cn/v1alpha1/pools"
GROUP = POOLS.rpartition("/")[0]


async def test_first_stream_that_is_answered_lets_the_others_retry_at_once() -> None:
    script, events, down = Script(), list[Event](), status(503, "ServiceUnavailable")
    script.on("get", PODS, down, reply(200, listing(pod("p", version=5))))
    script.on("get", NODES, down, reply(200, listing(node("n", version=5))))
    nodes_wait = asyncio.Event()

    async def until_nodes_wait(_seconds: float) -> None:
        await nodes_wait.wait()

    async def for_ever(_seconds: float) -> None:
        nodes_wait.set()
        await asyncio.Event().wait()

    clock, handlers = asyncio.get_running_loop().time, Handlers(events.append, lambda _: None, lambda *_: None)
    async with serving(script) as server, Client(server) as client:
        pods = Reflector(client, watched_resources.pods(SpecCache()), handlers, Timing(clock, until_nodes_wait, Half()))
        nodes = Reflector(client, watched_resources.nodes(), handlers, Timing(clock, for_ever, Half()))
        tasks = [asyncio.create_task(reflector.run()) for reflector in (pods, nodes)]
        await until(nodes.synced.is_set)
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
    assert [word(event) for event in events] == ["+p:uid-p", "+n"]


async def test_stream_with_retry_after_waits_no_longer_than_that_once_another_is_answered() -> None:
    script, events, slept = Script(), list[Event](), list[float]()
    script.on("get", PODS, status(503, "ServiceUnavailable"), reply(200, listing(pod("p", version=5))))
    tired = status(429, "TooManyRequests", headers={"Retry-After": "1"})
    script.on("get", NODES, *[tired] * 5, reply(200, listing(node("n", version=5))))
    last_wait, pods_back = asyncio.Event(), asyncio.Event()

    async def until_nodes_wait(_seconds: float) -> None:
        await last_wait.wait()

    async def nodes_sleep(seconds: float) -> None:
        slept.append(seconds)
        if slept.count(1.0) == 5:
            last_wait.set()
            await (pods_back.wait() if seconds == 1.0 else asyncio.Event().wait())

    clock, handlers = asyncio.get_running_loop().time, Handlers(events.append, lambda _: None, lambda *_: None)
    async with serving(script) as server, Client(server) as client:
        pods = Reflector(client, watched_resources.pods(SpecCache()), handlers, Timing(clock, until_nodes_wait, Half()))
        nodes = Reflector(client, watched_resources.nodes(), handlers, Timing(clock, nodes_sleep, Half()))
        tasks = [asyncio.create_task(reflector.run()) for reflector in (pods, nodes)]
        await until(pods.synced.is_set)
        assert not nodes.synced.is_set()
        pods_back.set()
        await until(nodes.synced.is_set)
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
    assert [word(event) for event in events] == ["+p:uid-p", "+n"]
    assert slept.count(1.0) == 5


async def test_retry_after_is_obeyed_for_a_minute_at_most() -> None:
    world = World()
    tired = status(429, "TooManyRequests", headers={"Retry-After": "86400"})
    world.script.on("get", PODS, tired, reply(200, listing(pod("a"))))
    async with world.running():
        await told(world, "+a:uid-a")
    assert world.waits.seconds == [RETRY_AFTER_SECONDS_MAX]


async def test_pools_stay_while_the_api_server_lists_their_kind_but_does_not_serve_it_yet() -> None:
    world = World()
    missing = status(404, "NotFound", "the server could not find the requested resource")
    world.script.on(
        "get", POOLS, reply(200, listing(pool("cpu"))), missing, reply(200, listing(pool("cpu"), version=200))
    )
    groups = {"kind": "APIGroupList", "groups": [{"versions": [{"groupVersion": "resource.aibee.cn/v1alpha1"}]}]}
    world.script.on("get", "/apis", reply(200, groups))
    world.script.on("get", GROUP, reply(200, {"kind": "APIResourceList", "resources": [{"name": "pools"}]}))
    world.script.on("watch", POOLS, stream(trouble(410, "Expired")), stream(line("ADDED", pool("gpu", version=201))))
    async with world.running(watched_resources.pools()):
        await told(world, "+cpu", "+gpu")


async def test_pools_are_deleted_where_their_group_is_served_without_them() -> None:
    world = World()
    world.script.on("get", POOLS, reply(200, listing(pool("cpu"))))
    groups = {"kind": "APIGroupList", "groups": [{"versions": [{"groupVersion": "resource.aibee.cn/v1alpha1"}]}]}
    world.script.on("get", "/apis", reply(200, groups))
    world.script.on("get", GROUP, reply(200, {"kind": "APIResourceList", "resources": [{"name": "queues"}]}))
    world.script.on("watch", POOLS, stream(trouble(410, "Expired")))
    async with world.running(watched_resources.pools()):
        await told(world, "+cpu", "-cpu")


async def test_object_deleted_by_a_list_beside_the_watch_does_not_come_back_by_an_older_event() -> None:
    world = World()
    world.script.on(
        "get", NODES, reply(200, listing(node("n", version=5), version=10)), reply(200, listing(version=30))
    )
    gate = asyncio.Event()
    late = [
        line("MODIFIED", node("n", version=15)),
        line("DELETED", node("n", version=20)),
        line("ADDED", node("n", version=40)),
    ]

    async def held_back(writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        await stream(*late)(writer)

    world.script.on("watch", NODES, held_back)
    async with world.running(watched_resources.nodes()) as reflector:
        await reflector.synced.wait()
        await reflector.refresh()
        await told(world, "+n", "-n")
        gate.set()
        await reflector.wait_for_version("40")
        await told(world, "+n", "-n", "+n")
