import asyncio
import io
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
import structlog

from aischeduler import daemon as module
from aischeduler.config.schema import Config, Logging
from aischeduler.daemon import Daemon, PoolLoops, run
from aischeduler.kube.auth import Server
from aischeduler.kube.client import Client
from aischeduler.kube.crds import pool_crd
from aischeduler.kube.pace import Pace
from aischeduler.model.actions import Action, ObjectRef, Warn
from aischeduler.observability.logging import configure
from aischeduler.sandbox.http import HttpSandbox
from tests.kube.scripted import Half, Script, hang, reply, serving, status, until

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POOLS = "/apis/resource.aibee.cn/v1alpha1/pools"
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


@pytest.fixture
def lines() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """What was logged so far."""
    out = io.BytesIO()
    configure(Logging(), out)
    yield lambda: [json.loads(line) for line in out.getvalue().splitlines()]
    structlog.reset_defaults()


async def brief(seconds: float) -> None:
    """Sleep a hundredth of what was asked."""
    await asyncio.sleep(seconds / 100)


@dataclass
class Cluster:
    """A sandbox with a client and a daemon."""

    sandbox: HttpSandbox
    client: Client
    daemon: Daemon

    async def create(self, path: str, document: dict[str, Any]) -> None:
        await self.client.post(path, json.dumps(document).encode())

    async def listed(self, path: str) -> list[Any]:
        items: list[Any] = json.loads(await self.client.get(path))["items"]
        return items

    async def node(self, name: str, *, cpu: str = "8", labels: dict[str, str] | None = None) -> None:
        amounts = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
        metadata = {"name": name, "labels": labels or {}}
        await self.create(NODES, {"metadata": metadata, "status": {"capacity": amounts, "allocatable": amounts}})

    async def pool(self, name: str, **spec: Any) -> None:
        await self.create(
            POOLS,
            {"apiVersion": "resource.aibee.cn/v1alpha1", "kind": "Pool", "metadata": {"name": name}, "spec": spec},
        )

    async def pod(self, name: str, *, pool: str = "", cpu: str = "1") -> None:
        annotations = {"resource.aibee.cn/pool": pool} if pool else {}
        container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
        spec = {"schedulerName": "ai-scheduler", "containers": [container]}
        await self.create(PODS, {"metadata": {"name": name, "annotations": annotations}, "spec": spec})

    async def placed(self) -> dict[str, str]:
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in await self.listed(PODS)}

    async def notes(self, reason: str) -> dict[str, str]:
        found = [event for event in await self.listed(EVENTS) if event["reason"] == reason]
        return {event["regarding"]["name"]: event["note"] for event in found}

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(10):
            while not await condition():
                await asyncio.sleep(0.01)

    async def all_placed(self) -> bool:
        return all((await self.placed()).values())


@asynccontextmanager
async def cluster(*, pools: bool = True) -> AsyncIterator[Cluster]:
    async with HttpSandbox() as sandbox:
        address = urlsplit(sandbox.url)
        assert address.hostname
        assert address.port
        server = Server(address.hostname, address.port, time.monotonic)
        async with Client(server) as client:
            if pools:
                await client.post(CRDS, json.dumps(pool_crd()).encode())
            stop = asyncio.Event()
            daemon = Daemon(server, Config(), stop, Pace(time.monotonic, brief, Half()))
            task = asyncio.create_task(daemon.run())
            try:
                await asyncio.wait([task, asyncio.create_task(daemon.deciding.wait())], return_when="FIRST_COMPLETED")
                yield Cluster(sandbox, client, daemon)
            finally:
                stop.set()
                async with asyncio.timeout(10):
                    await task


async def test_pods_are_bound_in_their_pool_and_the_user_is_told(lines: Callable[[], list[dict[str, Any]]]) -> None:
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
    assert lines()[0]["leader_election"].startswith("not available in this version")


async def told(world: Cluster, reason: str, count: int) -> bool:
    return len(await world.notes(reason)) == count


async def test_pod_that_fits_nowhere_is_explained_and_bound_when_room_appears() -> None:
    async with cluster() as world:
        await world.node("small", cpu="1")
        await world.pod("large", cpu="4")
        await world.until(lambda: told(world, "FailedScheduling", 1))
        assert (await world.notes("FailedScheduling"))["large"] == "0/1 nodes are available: 1 Insufficient cpu."
        await world.until(lambda: has_condition(world))
        await world.node("big")
        await world.until(world.all_placed)
        assert await world.placed() == {"large": "big"}


async def has_condition(world: Cluster) -> bool:
    (pod,) = await world.listed(PODS)
    found = [one for one in pod["status"].get("conditions", []) if one["type"] == "PodScheduled"]
    return [(one["status"], one["reason"]) for one in found] == [("False", "Unschedulable")]


async def test_without_the_pool_resource_everything_is_the_default_pool() -> None:
    async with cluster(pools=False) as world:
        await world.node("n1")
        await world.pod("a", pool="cpu")
        await world.until(world.all_placed)
        await world.until(lambda: told(world, "UnknownPool", 1))


async def test_pool_that_cannot_be_understood_says_so_and_harms_no_other() -> None:
    async with cluster() as world:
        await world.pool("bad", nodeSelector={"matchExpressions": [{"key": "a", "operator": "In"}]})
        await world.node("n1")
        await world.pod("a")
        await world.until(world.all_placed)

        async def refused() -> bool:
            (pool,) = await world.listed(POOLS)
            conditions = {one["type"]: one for one in pool.get("status", {}).get("conditions", [])}
            accepted = conditions.get("Accepted", {})
            return accepted.get("status") == "False" and "spec.nodeSelector" in accepted["message"]

        await world.until(refused)


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
        task = asyncio.create_task(run(server, Config()))
        await until(lambda: script.asked("post", PODS))
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: [line for line in lines() if line["event"] == "stopping"])
        await asyncio.sleep(0.02)
        assert not task.done()
        release.set()
        async with asyncio.timeout(5):
            await task
    assert [line["in_flight"] for line in lines() if line["event"] == "stopping"] == [1]
    assert len(script.asked("post", PODS)) == 1
    assert script.asked("post", EVENTS)[0].json["reason"] == "Scheduled"


async def test_what_stays_in_flight_beyond_the_grace_is_left(
    lines: Callable[[], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.05)
    script = scripted_cluster()
    script.on("post", f"{PODS}/p/binding", hang)
    stop = asyncio.Event()
    async with serving(script) as server:
        task = asyncio.create_task(run(server, Config(), stop))
        await until(lambda: script.asked("post", PODS))
        stop.set()
        async with asyncio.timeout(5):
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
        task = asyncio.create_task(run(server, Config(), stop))
        await until(lambda: len(script.asked("watch")) == 2)
        await asyncio.sleep(0.02)
        assert script.asked("post") == []
        release.set()
        await until(lambda: script.asked("post", PODS))
        stop.set()
        async with asyncio.timeout(5):
            await task


async def test_stopped_before_everything_was_listed_it_decides_nothing() -> None:
    script = scripted_cluster()
    script.always["get", POOLS] = lambda _: hang
    stop = asyncio.Event()
    async with serving(script) as server:
        task = asyncio.create_task(run(server, Config(), stop))
        await until(lambda: len(script.asked("watch")) == 2)
        stop.set()
        async with asyncio.timeout(5):
            await task
    assert script.asked("post") == []


async def test_object_that_cannot_be_read_gets_a_warning_and_the_rest_goes_on(
    lines: Callable[[], list[dict[str, Any]]],
) -> None:
    broken = {"metadata": {"name": "bad", "namespace": "default", "uid": "u-bad"}, "spec": {"containers": 5}}
    script = scripted_cluster(broken)
    script.on("post", f"{PODS}/p/binding", reply(201))
    stop = asyncio.Event()
    async with serving(script) as server:
        task = asyncio.create_task(run(server, Config(), stop))
        await until(lambda: len(script.asked("post", EVENTS)) == 2)
        stop.set()
        async with asyncio.timeout(5):
            await task
    reasons = {request.json["regarding"]["name"]: request.json["reason"] for request in script.asked("post", EVENTS)}
    assert reasons == {"bad": "Unreadable", "p": "Scheduled"}
    (line,) = [line for line in lines() if line["event"] == "object not readable"]
    assert (line["kind"], line["name"]) == ("Pod", "bad")


def scripted_cluster(*more: dict[str, Any]) -> Script:
    """One node and one pod that fits it; every other write is taken."""
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
    script.always["get", "/apis"] = lambda _: reply(200, {"kind": "APIGroupList"})
    script.always["post", EVENTS] = lambda _: reply(201)
    return script


def listing(*items: dict[str, Any]) -> Any:
    return reply(200, {"metadata": {"resourceVersion": "5"}, "items": list(items)})


@dataclass
class FakeEngine:
    """Pools with so many decisions left to take."""

    left: dict[str, int] = field(default_factory=dict)
    wakeup: float | None = None
    broken: set[str] = field(default_factory=set)
    limits: list[int] = field(default_factory=list)

    def decide(self, pool: str, now: float, limit: int) -> list[Action]:
        if pool in self.broken:
            raise ValueError("a bug")
        self.limits.append(limit)
        taken = min(limit, self.left[pool])
        self.left[pool] -= taken
        return [Warn(ObjectRef("Pool", pool, ""), "Decided", "")] * taken

    def ready(self, now: float) -> tuple[str, ...]:
        due = self.wakeup is not None and now >= self.wakeup
        return tuple(sorted(name for name, left in self.left.items() if left or due))

    def next_wakeup(self) -> float | None:
        return self.wakeup

    def pools(self) -> tuple[str, ...]:
        return tuple(sorted(self.left))


@dataclass
class Loops:
    engine: FakeEngine
    performed: list[Action] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def room(self) -> None:
        await self.gate.wait()

    def decided(self, pool: str) -> int:
        return len([one for one in self.performed if isinstance(one, Warn) and one.about.name == pool])

    @asynccontextmanager
    async def running(self) -> AsyncIterator[PoolLoops]:
        self.gate.set()
        loops = PoolLoops(self.engine, self.performed.extend, self.room, time.monotonic)
        daemon = Daemon(Server("h", 1, time.monotonic), Config(), asyncio.Event(), Pace(time.monotonic, brief, Half()))
        tasks: list[asyncio.Task[None]] = []

        def spawn(name: str, job: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
            tasks.append(asyncio.create_task(daemon._restarting(name, job)))
            return tasks[-1]

        loops.begin(spawn)
        yield loops
        loops.end()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_every_pool_is_decided_until_nothing_is_left() -> None:
    world = Loops(FakeEngine({"a": 700, "b": 3}))
    async with world.running():
        await until(lambda: (world.decided("a"), world.decided("b")) == (700, 3))
    assert world.engine.limits[0] == 1
    assert max(world.engine.limits) > 64


async def test_failing_pool_starts_again_while_the_others_go_on(lines: Callable[[], list[dict[str, Any]]]) -> None:
    world = Loops(FakeEngine({"bad": 2, "good": 5}, broken={"bad"}))
    async with world.running():
        await until(lambda: world.decided("good") == 5)
        assert world.decided("bad") == 0
        world.engine.broken.clear()
        await until(lambda: world.decided("bad") == 2)
    (failure, *_) = [line for line in lines() if line["event"] == "failed"]
    assert failure["job"] == "pool bad"
    assert "a bug" in failure["exception"]


async def test_pools_come_and_go() -> None:
    world = Loops(FakeEngine({"a": 1}))
    async with world.running() as loops:
        await until(lambda: world.decided("a") == 1)
        world.engine.left = {"b": 1}
        loops.wake_soon()
        await until(lambda: world.decided("b") == 1)
        assert list(loops._tasks) == ["b"]


async def test_nothing_is_decided_while_too_much_waits_to_be_bound() -> None:
    world = Loops(FakeEngine({"a": 0}))
    async with world.running() as loops:
        world.gate.clear()
        world.engine.left["a"] = 5
        loops.wake_soon()
        await asyncio.sleep(0.02)
        assert world.performed == []
        world.gate.set()
        await until(lambda: world.decided("a") == 5)


async def test_what_moves_by_itself_wakes_its_pool() -> None:
    world = Loops(FakeEngine({"a": 0}))
    async with world.running() as loops:
        world.engine.wakeup = time.monotonic() + 0.03
        loops.wake_soon()
        await until(lambda: world.engine.limits)
        world.engine.wakeup = None
