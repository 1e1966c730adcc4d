import asyncio
import gc
import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from aischeduler.config.schema import Config
from aischeduler.daemon import process
from aischeduler.daemon import shutdown as module
from aischeduler.daemon.process import Daemon
from aischeduler.daemon.reload import Source
from aischeduler.daemon.service import serve
from aischeduler.kube.access.server import Server
from aischeduler.kube.http.client import Client
from aischeduler.kube.report import reporter
from aischeduler.sandbox.http_server import HttpSandbox
from tests.daemon.cluster import (
    ALONE,
    BUDGETS,
    CLAIMS,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    POOLS,
    VOLUMES,
    Cluster,
    cluster,
)
from tests.kube.scripted_server import Request, Script, hang, reply, serving, settled, status, until
from tests.objects import pod_object


async def test_pods_are_bound_in_their_pool_and_get_an_event(lines: Callable[[], list[dict[str, Any]]]) -> None:
    async with cluster() as world:
        await world.pool("cpu", nodeSelector={"matchLabels": {"pool": "cpu"}})
        await world.node("n1", labels={"pool": "cpu"})
        await world.node("n2")
        for name in ("a", "b", "c"):
            await world.pod(name, pool="cpu")
        await world.until(world.all_placed)
        assert set((await world.placed()).values()) == {"n1"}
        await world.until(lambda: told(world, "Scheduled", 3))
        assert (await world.notes("Scheduled"))["a"] == "Successfully assigned default/a to n1"
        marks = (await world.listed(PODS))[0]["metadata"]["annotations"]
        assert marks["scheduling.resource.aibee.cn/pool"] == "cpu"
        assert marks["scheduling.resource.aibee.cn/home-pool"] == "cpu"
    binds = [line for line in lines() if line["event"] == "bind"]
    assert sorted(line["pod"] for line in binds) == ["a", "b", "c"]
    assert {(line["pool"], line["node"], line["level"]) for line in binds} == {("cpu", "n1", "info")}
    assert lines()[0]["leader_election"] is False


async def told(world: Cluster, reason: str, count: int) -> bool:
    return len(await world.notes(reason)) == count


async def test_garbage_collector_that_was_off_during_the_first_lists_is_on_again() -> None:
    gc.unfreeze()
    gc.disable()
    try:
        async with cluster() as world:
            await world.node("n1")
            await world.pod("a")
            await world.until(world.all_placed)
            assert gc.isenabled()
            assert gc.get_freeze_count() > 0
        assert gc.get_freeze_count() == 0
    finally:
        gc.enable()


async def test_without_the_pool_resource_everything_is_the_default_pool(
    lines: Callable[[], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporter, "REFUSED_RETRY_SECONDS", 0.1)
    looks = 0

    def look(request: Request) -> None:
        nonlocal looks
        looks += request.path == POOLS

    async with cluster(installed=False) as world:
        await world.node("n1")
        await world.pod("a", pool="cpu")
        await world.until(world.all_placed)
        await world.until(lambda: told(world, "UnknownPool", 1))
        world.between.rule = look
        await until(lambda: looks >= 4)
        found = [line for line in lines() if line["event"] in {"Pool definition missing", "list or watch failed"}]
        assert [(line["event"], line["kind"]) for line in found] == [("Pool definition missing", "Pool")]
        assert "kubectl apply -f manifests/crds" in found[0]["reason"]


async def test_restarted_api_server_loses_nothing() -> None:
    async with cluster() as world:
        await world.node("n1", cpu="40")
        await world.pod("before")
        await world.until(world.all_placed)
        world.sandbox.restart()
        for number in range(20):
            await world.pod(f"p{number}")
        await world.until(world.all_placed)
        assert len(await world.placed()) == 21


async def test_many_pods_are_all_bound_and_all_get_their_event() -> None:
    async with cluster() as world:
        for number in range(5):
            await world.node(f"n{number}", cpu="64")
        for number in range(200):
            await world.pod(f"p{number}")
        await world.until(world.all_placed)
        await world.until(lambda: told(world, "Scheduled", 200))


async def test_sigterm_finishes_what_is_in_flight_and_returns(lines: Callable[[], list[dict[str, Any]]]) -> None:
    script, release = scripted_cluster(), asyncio.Event()

    async def late(writer: asyncio.StreamWriter) -> None:
        await release.wait()
        await reply(201)(writer)

    script.on("post", f"{PODS}/p/binding", late)
    async with serving(script) as server:
        task = asyncio.create_task(serve(server, ALONE, Source(None, lambda: ALONE), lambda _: None))
        await until(lambda: script.asked("post", PODS))
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: [line for line in lines() if line["event"] == "stopping"])
        await settled()
        assert not task.done()
        release.set()
        async with asyncio.timeout(120):
            await task
    assert [line["in_flight"] for line in lines() if line["event"] == "stopping"] == [1]
    assert len(script.asked("post", PODS)) == 1
    assert script.asked("post", EVENTS)[0].json["reason"] == "Scheduled"


@pytest.mark.expects_errors("job failed")
async def test_configuration_is_still_reloaded_after_an_exception_of_a_reload(
    lines: Callable[[], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "RESTART_FIRST_SECONDS", 0.01)
    bugs = [RuntimeError("a bug")]

    def read() -> Config:
        if bugs:
            raise bugs.pop()
        return ALONE

    script = scripted_cluster()
    async with serving(script) as server:
        task = asyncio.create_task(serve(server, ALONE, Source(None, read), lambda _: None))
        await until(lambda: script.asked("post", PODS))
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: [line for line in lines() if line["event"] == "job failed"])
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: [line for line in lines() if line["event"] == "configuration reloaded"])
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(120):
            await task
    assert [line["job"] for line in lines() if line["event"] == "job failed"] == ["configuration"]


async def test_requests_in_flight_after_the_grace_period_are_abandoned(
    lines: Callable[[], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.05)
    script = scripted_cluster()
    script.on("post", f"{PODS}/p/binding", hang)
    stop = asyncio.Event()
    async with serving(script) as server:
        task = asyncio.create_task(Daemon(server, ALONE, stop).run())
        await until(lambda: script.asked("post", PODS))
        stop.set()
        async with asyncio.timeout(120):
            await task
    assert [line["count"] for line in lines() if line["event"] == "binds left in flight"] == [1]


async def test_nothing_is_decided_before_everything_was_listed() -> None:
    script, release = scripted_cluster(), asyncio.Event()

    async def late(writer: asyncio.StreamWriter) -> None:
        await release.wait()
        await reply(200, {"metadata": {"resourceVersion": "9"}, "items": []})(writer)

    script.always["get", POOLS] = lambda _: late
    script.on("post", f"{PODS}/p/binding", reply(201))
    stop = asyncio.Event()
    async with serving(script) as server:
        task = asyncio.create_task(Daemon(server, ALONE, stop).run())
        await until(lambda: len(script.asked("watch")) == 6)
        await settled()
        assert script.asked("post") == []
        release.set()
        await until(lambda: script.asked("post", PODS))
        stop.set()
        async with asyncio.timeout(120):
            await task


async def test_daemon_that_is_stopped_before_the_first_lists_decides_nothing() -> None:
    script = scripted_cluster()
    script.always["get", POOLS] = lambda _: hang
    stop = asyncio.Event()
    async with serving(script) as server:
        task = asyncio.create_task(Daemon(server, ALONE, stop).run())
        await until(lambda: len(script.asked("watch")) == 6)
        stop.set()
        async with asyncio.timeout(120):
            await task
    assert script.asked("post") == []


async def test_object_that_cannot_be_read_gets_a_warning_and_other_objects_are_scheduled(
    lines: Callable[[], list[dict[str, Any]]],
) -> None:
    broken = {"metadata": {"name": "bad", "namespace": "default", "uid": "u-bad"}, "spec": {"containers": 5}}
    script = scripted_cluster(broken)
    script.on("post", f"{PODS}/p/binding", reply(201))
    stop = asyncio.Event()
    async with serving(script) as server:
        task = asyncio.create_task(Daemon(server, ALONE, stop).run())
        await until(lambda: len(script.asked("post", EVENTS)) == 2)
        stop.set()
        async with asyncio.timeout(120):
            await task
    reasons = {request.json["regarding"]["name"]: request.json["reason"] for request in script.asked("post", EVENTS)}
    assert reasons == {"bad": "Unreadable", "p": "Scheduled"}
    (line,) = [line for line in lines() if line["event"] == "object not readable"]
    assert (line["kind"], line["name"]) == ("Pod", "bad")


def scripted_cluster(*more: dict[str, Any]) -> Script:
    """Return a server with one node and one pod that fits on it; it accepts every other write."""
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    node = {"metadata": {"name": "n1", "uid": "u-n1", "resourceVersion": "1"}, "status": {"allocatable": amounts}}
    pod = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u-p", "resourceVersion": "2"},
        "spec": {"schedulerName": "ai-scheduler", "containers": [{"name": "c"}]},
    }
    script = Script()
    script.always["get", NODES] = lambda _: listing(node)
    script.always["get", "/api/v1/pods"] = lambda _: listing(pod, *more)
    script.always["get", POOLS] = lambda _: status(404, "NotFound")
    script.always["get", NAMESPACES] = lambda _: listing()
    for path in (BUDGETS, CLAIMS, VOLUMES):
        script.always["get", path] = lambda _: listing()
    script.always["get", "/apis"] = lambda _: reply(200, {"kind": "APIGroupList"})
    script.always["post", EVENTS] = lambda _: reply(201)
    return script


def listing(*items: dict[str, Any]) -> Any:
    return reply(200, {"metadata": {"resourceVersion": "5"}, "items": list(items)})


async def test_cancelled_daemon_leaves_no_timer_of_its_pool_loops() -> None:
    async with HttpSandbox() as sandbox:
        address = urlsplit(sandbox.url)
        server = Server(address.hostname or "", address.port or 0, time.monotonic)
        async with Client(server) as client:
            pod = pod_object("waits", cpu="1")
            await client.post(PODS, json.dumps(pod).encode())
        daemon = Daemon(server, ALONE, asyncio.Event())
        task = asyncio.create_task(daemon.run())
        await until(lambda: pool_loop_timers() != [])
        task.cancel()
        await asyncio.wait([task])
        assert pool_loop_timers() == []


def pool_loop_timers() -> list[asyncio.TimerHandle]:
    """Return the timers of this event loop that wake pool loops."""
    handles: list[asyncio.TimerHandle] = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    return [handle for handle in handles if not handle.cancelled() and "PoolLoops" in repr(handle)]


async def test_the_clock_of_a_daemon_is_that_of_the_times_of_objects() -> None:
    daemon = Daemon(Server("h", 1, time.monotonic), ALONE, asyncio.Event())
    before, now, after = time.time(), daemon._timing.clock(), time.time()
    assert before - 1 < now < after + 1
