import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import structlog
from structlog.testing import CapturingLogger

from aischeduler.kube import resources
from aischeduler.kube.binder import Binder
from aischeduler.kube.client import Client
from aischeduler.kube.executor import Executor
from aischeduler.kube.podreader import PodReader
from aischeduler.kube.podspec import SpecCache
from aischeduler.kube.reflector import Ears, Reflector
from aischeduler.kube.reports import Reports, Voice
from aischeduler.kube.requests import Reporter
from aischeduler.kube.wire import Wire
from aischeduler.model.actions import Bind, Condition, ObjectRef, ReportPool, ReportWaiting, Settle, Warn
from aischeduler.model.events import BindAccepted, BindRefused, Event, PodGone, PodSeen, Refusal
from tests.build import a_pod
from tests.kube import docs
from tests.kube.scripted import Script, Waits, broken, reply, serving, status, until

POD = a_pod("p", uid="uid-p")
PATH = "/api/v1/namespaces/default/pods/p"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
BIND = Bind(POD, "n1", "cpu", "home", "d-1", 12)


@dataclass
class World:
    script: Script = field(default_factory=Script)
    waits: Waits = field(default_factory=Waits)
    events: list[Event] = field(default_factory=list)
    lines: CapturingLogger = field(default_factory=CapturingLogger)
    level: int = 20

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Executor]:
        pace = self.waits.pace()
        self.script.always["post", EVENTS] = lambda _: reply(201)
        self.script.always["patch", f"{PATH}/status"] = lambda _: reply(200)
        async with serving(self.script) as server, Client(server) as client:
            wire, specs = Wire(server, 4), SpecCache()
            ears = Ears(self.events.append, lambda _: None, lambda *_: None)
            reader = PodReader(client, Reflector(client, resources.pods(specs), ears, pace), specs)
            reports = Reports(wire, client, pace, Voice(Reporter("ai-scheduler", "i"), lambda: 1.0), broken)
            log = structlog.wrap_logger(
                self.lines, processors=[], wrapper_class=structlog.make_filtering_bound_logger(self.level)
            ).bind()
            executor = Executor(Binder(wire, reader.read, pace, 2, broken), reports, reader, self.events.append, log)
            task = asyncio.create_task(executor.run())
            try:
                yield executor
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                await wire.close()

    def logged(self) -> list[dict[str, Any]]:
        return [call.kwargs | {"level": call.method_name} for call in self.lines.calls]


async def test_bind_is_bound_told_logged_and_reported() -> None:
    world = World()
    world.script.on("post", f"{PATH}/binding", reply(201))
    async with world.running() as executor:
        executor.perform([BIND])
        await until(lambda: world.script.asked("post", EVENTS))
    assert world.events == [BindAccepted("uid-p", "n1")]
    assert world.logged() == [
        {
            "level": "info",
            "event": "bind",
            "pod": "p",
            "namespace": "default",
            "uid": "uid-p",
            "pool": "cpu",
            "home_pool": "home",
            "node": "n1",
            "decision": "d-1",
            "reason": "best of 12 nodes that fit",
        }
    ]


async def test_refused_bind_is_told_and_logged_and_not_reported_as_scheduled() -> None:
    world = World()
    world.script.on("post", f"{PATH}/binding", status(404, "NotFound", 'pods "p" not found'))
    async with world.running() as executor:
        executor.perform([BIND])
        await until(lambda: world.events)
    assert world.events == [BindRefused("uid-p", "n1", Refusal.GONE, 'pods "p" not found')]
    assert [(line["event"], line["level"]) for line in world.logged()] == [
        ("bind", "info"),
        ("bind refused", "warning"),
    ]
    assert world.script.asked("post", EVENTS) == []


async def test_no_line_is_built_below_the_level() -> None:
    world = World(level=30)
    world.script.on("post", f"{PATH}/binding", reply(201))
    async with world.running() as executor:
        executor.perform([BIND, ReportWaiting(POD, "cpu", "cpu", "no room", "d-2")])
        await until(lambda: world.events)
    assert world.logged() == []


async def test_waiting_warning_and_pool_are_reported_and_logged() -> None:
    world = World()
    async with world.running() as executor:
        executor.perform(
            [
                ReportWaiting(POD, "cpu", "cpu", "0/1 nodes are available: 1 Insufficient cpu.", "d-2"),
                Warn(ObjectRef("Pod", "p", "uid-p", "default"), "UnknownPool", "There is no pool 'x'."),
                ReportPool("cpu", "u", 1, (Condition("Accepted", status=False, reason="Invalid", message="no"),)),
            ]
        )
        await until(lambda: len(world.script.asked("post", EVENTS)) == 2)
        await until(lambda: world.script.asked("get", "/apis/resource.aibee.cn/v1alpha1/pools/cpu"))
    assert [line["event"] for line in world.logged()] == ["wait", "warned", "pool condition"]
    assert world.logged()[0]["reason"] == "0/1 nodes are available: 1 Insufficient cpu."


async def test_settle_reads_the_pod_and_feeds_its_truth_back() -> None:
    world = World()
    world.script.on("get", PATH, reply(200, docs.pod("p", version=9, spec={"nodeName": "n1"})))
    async with world.running() as executor:
        executor.perform([Settle(POD, "n1", "d-1")])
        await until(lambda: world.events)
    (event,) = world.events
    assert isinstance(event, PodSeen)
    assert event.pod.node_name == "n1"


async def test_settle_of_a_pod_that_is_gone_says_so() -> None:
    world = World()
    world.script.on("get", PATH, reply(200, docs.pod("p", version=9)), status(404, "NotFound"))
    async with world.running() as executor:
        executor.perform([Settle(POD, "n1", "d-1")])
        await until(lambda: world.events)
        executor.perform([Settle(POD, "n1", "d-1")])
        await until(lambda: len(world.events) == 2)
    assert world.events[1] == PodGone("uid-p")


async def test_settle_that_fails_is_logged_and_left_for_the_next_time() -> None:
    world = World()
    world.script.on("get", PATH, status(500, "InternalError"), reply(200, json.dumps({"spec": 1}).encode()))
    async with world.running() as executor:
        executor.perform([Settle(POD, "n1", "d-1")])
        await until(lambda: len(world.logged()) == 1)
        executor.perform([Settle(POD, "n1", "d-1")])
        await until(lambda: len(world.logged()) == 2)
    assert world.events == []
    assert [line["event"] for line in world.logged()] == ["pod not read"] * 2
