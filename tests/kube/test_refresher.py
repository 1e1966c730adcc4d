"""Reads before an eviction, and of Pools that pods name and no watch has shown."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
import structlog
from structlog.testing import CapturingLogger

from aischeduler.kube.decode.gang_owners import GangOwners
from aischeduler.kube.decode.pod_spec import SpecCache
from aischeduler.kube.http.client import Client
from aischeduler.kube.watch import watched_resources
from aischeduler.kube.watch.gang_resources import gang_resources
from aischeduler.kube.watch.pre_eviction_reads import LISTED_MAX, Reflectors, Refresher, selector_text
from aischeduler.kube.watch.queue_resources import queue_resources
from aischeduler.kube.watch.reflector import Handlers, Reflector
from aischeduler.model.actions import Refresh
from aischeduler.model.events import Event, Gone, Refreshed, RefreshFailed, Seen, gone
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Pool
from aischeduler.model.selectors import LabelSelector, Operator, Requirement
from aischeduler.model.tenant_queue import TenantQueue
from aischeduler.model.workload import Workload
from tests.kube.api_objects import bookmark, line, listing, pod
from tests.kube.scripted_server import Script, Waits, broken, reply, serving, settled, status, stream, until

NODES, PODS, POOLS = "/api/v1/nodes", "/api/v1/pods", "/apis/resource.aibee.cn/v1alpha1/pools"
BUDGETS, NAMESPACES = "/apis/policy/v1/poddisruptionbudgets", "/api/v1/namespaces"
QUEUES, VOLCANO_QUEUES = "/apis/resource.aibee.cn/v1alpha1/queues", "/apis/scheduling.volcano.sh/v1beta1/queues"
JOBS = "/apis/batch/v1/jobs"
NEWEST = "/api/v1/namespaces/default/pods"
TEAM = LabelSelector((Requirement("team", Operator.IN, ("a",)),))
REFRESH = Refresh("a", TEAM, ("n1",), namespaces=False)
OF_TENANTS = Refresh("a", TEAM, ("n1",), namespaces=False, tenants=True)


def listed(version: int, *items: dict[str, Any]) -> Any:
    return reply(200, listing(*items, version=version))


def named(name: str, version: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"u-{name}", "resourceVersion": version}, **more}


@dataclass
class Scene:
    script: Script = field(default_factory=Script)
    events: list[Event] = field(default_factory=list)
    lines: CapturingLogger = field(default_factory=CapturingLogger)
    waits: Waits = field(default_factory=Waits)
    watches: dict[str, Reflector[Any]] = field(default_factory=dict)

    @asynccontextmanager
    async def running(self, *, follow: tuple[str, ...] = ("Pod", "Node", "Pool")) -> AsyncIterator[Refresher]:
        """Run a refresher with reflectors of these kinds."""
        for path in (NODES, PODS, POOLS, BUDGETS, NAMESPACES, QUEUES, VOLCANO_QUEUES, JOBS):
            self.script.always.setdefault(("get", path), lambda _: listed(5))
        timing = self.waits.timing()
        async with serving(self.script) as server, Client(server) as client:
            handlers = Handlers(self.events.append, lambda _: None, lambda *_: None)
            kinds = (
                watched_resources.pods(SpecCache()),
                watched_resources.nodes(),
                watched_resources.pools(),
                watched_resources.budgets(),
                watched_resources.namespaces(),
            )
            made = [Reflector(client, kind, handlers, timing) for kind in kinds]
            queues = tuple(Reflector(client, kind, handlers, timing) for kind in queue_resources())
            (jobs,) = (kind for kind in gang_resources(GangOwners()) if kind.path == JOBS)
            workloads = (Reflector(client, jobs, handlers, timing),)
            reflectors = Reflectors(*made, queues=queues, workloads=workloads)
            self.watches = {reflector.resource.kind: reflector for reflector in (*made, *queues, *workloads)}
            log = structlog.wrap_logger(self.lines, processors=[]).bind()
            refresher = Refresher(client, reflectors, timing, self.events.append, log)
            runs: list[Callable[[], Any]] = [lambda: refresher.run(broken)]
            runs += [self.watches[kind].run for kind in follow]
            tasks = [asyncio.create_task(run()) for run in runs]
            for kind in follow:
                await self.watches[kind].synced.wait()
            try:
                yield refresher
            finally:
                for task in tasks:
                    task.cancel()
                for task in tasks:
                    with suppress(asyncio.CancelledError):
                        await task

    async def comes(self, event: Event) -> None:
        await until(lambda: event in self.events)

    async def fails(self, refresher: Refresher, action: Refresh, message: str, count: int) -> None:
        """Request a refresh until it has failed so often with this message."""
        refresher.submit(action)
        await until(lambda: self.events.count(RefreshFailed(action.pool, message)) == count)


async def test_pods_that_the_watch_has_not_shown_are_emitted_before_the_answer_and_nothing_is_written() -> None:
    scene = Scene()
    scene.script.on("get", PODS, listed(4, pod("old", version=2)))
    async with scene.running() as refresher:
        scene.script.on("get", PODS, listed(9, pod("new", version=7)))
        refresher.submit(REFRESH)
        await scene.comes(Refreshed("a"))
    events = [event for event in scene.events if isinstance(event, Seen | Gone | Refreshed)]
    assert [type(event) for event in events] == [Seen, Seen, Gone, Refreshed]
    assert events[2] == gone(Pod, "uid-old")
    assert {request.method for request in scene.script.requests} == {"GET"}
    assert not scene.script.asked("get", NAMESPACES), "the pool takes pods from all namespaces"


def many_pods(scene: Scene) -> None:
    """Let the cluster have so many pods that they are not listed; the newest version is 30."""
    scene.script.on("get", PODS, listed(20, *(pod(f"p{i}", version=2) for i in range(LISTED_MAX))))
    scene.script.always["get", NEWEST] = lambda _: listed(30)


async def test_pool_of_a_large_cluster_is_refreshed_when_the_watch_of_pods_has_reached_the_newest_version() -> None:
    scene, gate = Scene(), asyncio.Event()
    many_pods(scene)

    async def held_back(writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        await stream(line("MODIFIED", pod("p1", version=31)))(writer)

    scene.script.on("watch", PODS, held_back)
    async with scene.running() as refresher:
        refresher.submit(REFRESH)
        await until(lambda: scene.script.asked("get", BUDGETS))
        assert Refreshed("a") not in scene.events
        gate.set()
        await scene.comes(Refreshed("a"))
    assert len(scene.script.asked("get", PODS)) == 1, "the pods are not listed again"


async def test_watch_beside_the_other_proves_that_no_pod_has_changed_lately() -> None:
    scene, gate = Scene(), asyncio.Event()
    many_pods(scene)

    async def held_back(writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        await stream(line("MODIFIED", pod("p1", version=25)))(writer)

    scene.script.on("watch", PODS, held_back, stream(line("MODIFIED", pod("p1", version=25)), bookmark(33)))
    async with scene.running() as refresher:
        refresher.submit(REFRESH)
        await until(lambda: len(scene.script.asked("watch", PODS)) == 2)
        proof = scene.script.asked("watch", PODS)[1].query
        assert (proof["resourceVersion"], proof["timeoutSeconds"]) == ("20", "3")
        assert Refreshed("a") not in scene.events, "the watch has not shown the change of version 25"
        gate.set()
        await scene.comes(Refreshed("a"))


async def test_pool_is_not_refreshed_where_the_api_server_does_not_say_whether_the_watch_is_behind() -> None:
    scene = Scene()
    many_pods(scene)
    scene.script.on("watch", PODS, stream(), stream(bookmark(29), end="clean"))
    async with scene.running() as refresher:
        await scene.fails(refresher, REFRESH, "the API server does not say whether the watch of pods is behind", 1)


async def test_queues_and_workloads_are_read_before_the_answer_and_only_where_there_are_tenants() -> None:
    scene = Scene()
    async with scene.running() as refresher:
        scene.watches["Queue.scheduling.volcano.sh"].not_served = True
        refresher.submit(REFRESH)
        await scene.comes(Refreshed("a"))
        assert not scene.script.asked("get", QUEUES) + scene.script.asked("get", JOBS)
        scene.script.on("get", QUEUES, listed(8, named("q", "6")))
        scene.script.on("get", JOBS, listed(9, named("train", "7")))
        scene.events.clear()
        refresher.submit(OF_TENANTS)
        await scene.comes(Refreshed("a"))
    seen = {type(event.object) for event in scene.events[:-1] if isinstance(event, Seen)}
    assert {TenantQueue, Workload} <= seen
    assert scene.events[-1] == Refreshed("a")
    assert not scene.script.asked("get", VOLCANO_QUEUES), "it is not served"


@pytest.mark.parametrize(("path", "kind"), [(QUEUES, "Queue"), (JOBS, "Job")])
async def test_kind_of_tenants_that_may_not_be_listed_stops_nothing_and_one_that_cannot_be_listed_does(
    path: str, kind: str
) -> None:
    scene = Scene()
    async with scene.running() as refresher:
        scene.script.on("get", path, status(403, "Forbidden", "no"), status(500, "InternalError", "no etcd"))
        refresher.submit(OF_TENANTS)
        await scene.comes(Refreshed("a"))
        await scene.fails(refresher, OF_TENANTS, "500 InternalError: no etcd", 1)


async def test_many_workloads_are_not_listed_and_their_watch_has_to_reach_the_newest_version() -> None:
    scene, gate = Scene(), asyncio.Event()
    scene.script.on("get", JOBS, listed(20, *(named(f"j{i}", "2") for i in range(LISTED_MAX))))
    scene.script.always["get", "/apis/batch/v1/namespaces/default/jobs"] = lambda _: listed(30)

    async def held_back(writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        await stream(line("MODIFIED", named("j1", "31")))(writer)

    scene.script.on("watch", JOBS, held_back)
    async with scene.running(follow=("Pod", "Node", "Pool", "Job")) as refresher:
        refresher.submit(OF_TENANTS)
        await until(lambda: scene.script.asked("get", QUEUES))
        await settled()
        assert Refreshed("a") not in scene.events
        gate.set()
        await scene.comes(Refreshed("a"))
    assert len(scene.script.asked("get", JOBS)) == 1, "the Jobs are not listed again"


async def test_pool_whose_nodes_cannot_be_read_stops_no_other_pool_and_rests_ever_longer() -> None:
    scene, team_b = Scene(), LabelSelector((Requirement("team", Operator.IN, ("b",)),))
    other = Refresh("b", team_b, (), namespaces=False)
    async with scene.running() as refresher:
        refused = status(422, "Invalid", "no such label")
        scene.script.always["get", NODES] = lambda request: (
            refused if request.query.get("labelSelector") == "team in (a)" else listed(9)
        )
        for count in (1, 2, 3):
            await scene.fails(refresher, REFRESH, "422 Invalid: no such label", count)
            refresher.submit(other)
            await until(lambda: scene.events.count(Refreshed("b")) == count)  # noqa: B023
        await until(lambda: len([seconds for seconds in scene.waits.seconds if seconds]) == 3)
    assert [seconds for seconds in scene.waits.seconds if seconds] == [0.75, 1.5, 3.0]


async def test_nodes_that_the_watch_has_not_shown_are_emitted_before_the_answer() -> None:
    scene = Scene()
    async with scene.running() as refresher:
        new = named("n2", "6", status={"allocatable": {"cpu": "4"}})
        scene.script.on("get", NODES, listed(8, named("n1", "6"), new))
        refresher.submit(REFRESH)
        await scene.comes(Refreshed("a"))
        assert [
            event.object.name for event in scene.events if isinstance(event, Seen) and isinstance(event.object, Node)
        ] == ["n1", "n2"]
        assert isinstance(scene.events[-1], Refreshed)
        assert scene.script.asked("get", NODES)[-1].query["labelSelector"] == "team in (a)"


async def test_node_that_has_left_the_pool_makes_all_nodes_be_read() -> None:
    scene = Scene()
    scene.script.on("get", NODES, listed(5, named("n1", "3")))
    async with scene.running() as refresher:
        scene.script.on("get", NODES, listed(8), listed(9, named("n3", "6")))
        refresher.submit(REFRESH)
        await scene.comes(Refreshed("a"))
        assert gone(Node, "n1") in scene.events
        assert "labelSelector" not in scene.script.asked("get", NODES)[-1].query


async def test_failed_refresh_is_emitted_with_its_reason_and_logged_once() -> None:
    scene = Scene()
    async with scene.running() as refresher:
        scene.script.on("get", BUDGETS, *[status(403, "Forbidden", "budgets are forbidden")] * 2)
        failed = RefreshFailed("a", "403 Forbidden: budgets are forbidden")
        for count in (1, 2):
            await scene.fails(refresher, REFRESH, failed.message, count)
    assert [call.kwargs["reason"] for call in scene.lines.calls] == [failed.message]


async def test_list_of_pools_is_retried_until_it_succeeds_and_emits_them_before_the_answer() -> None:
    scene = Scene()
    async with scene.running(follow=("Pod", "Node")) as refresher:
        unready = status(404, "NotFound", "the server could not find the requested resource")
        proxy = reply(404, {"error": "no route"})
        down = status(503, "ServiceUnavailable", "starting")
        scene.script.on("get", POOLS, unready, proxy, down, listed(9, named("new", "9", spec={})))
        refresher.submit(Refresh())
        await scene.comes(Refreshed(""))
        failures = [event for event in scene.events if isinstance(event, RefreshFailed)]
        assert len(failures) == 3, "a Pool is missing only by the answer of an API server that serves Pools"
        assert {failure.pool for failure in failures} == {""}
        new = next(event for event in scene.events if isinstance(event, Seen) and isinstance(event.object, Pool))
        assert isinstance(new.object, Pool)
        assert new.object.name == "new"
        assert scene.events.index(new) < scene.events.index(Refreshed(""))
    assert {call.kwargs["event"] for call in scene.lines.calls} == {"pools not listed"}


@pytest.mark.parametrize("code", [400, 401, 403, 408, 409, 410, 422, 429, 500, 503])
async def test_pools_that_cannot_be_listed_for_now_are_listed_until_the_answer(code: int) -> None:
    scene = Scene()
    async with scene.running(follow=("Pod", "Node")) as refresher:
        scene.script.on("get", POOLS, status(code, "Refused", "not now"), listed(9))
        refresher.submit(Refresh())
        await scene.comes(Refreshed(""))
        assert [event.pool for event in scene.events if isinstance(event, RefreshFailed)] == [""]


async def test_no_pool_exists_where_the_api_server_serves_no_pools() -> None:
    scene = Scene()
    scene.script.on("get", POOLS, reply(404, b"404 page not found"))
    async with scene.running() as refresher:
        scene.watches["Pool"].not_served = True
        refresher.submit(Refresh())
        await scene.comes(Refreshed(""))


def test_selector_is_written_as_a_query_parameter() -> None:
    selector = LabelSelector(
        (
            Requirement("a", Operator.IN, ("x", "y")),
            Requirement("b", Operator.NOT_IN, ("z",)),
            Requirement("c", Operator.EXISTS),
            Requirement("d", Operator.DOES_NOT_EXIST),
        )
    )
    assert selector_text(selector) == "a in (x,y),b notin (z),c,!d"


async def test_one_success_ends_the_growing_waits_between_refreshes() -> None:
    scene = Scene()
    tired, well = status(503, "ServiceUnavailable"), listed(5)
    async with scene.running() as refresher:
        scene.script.on("get", BUDGETS, *[tired] * 6, well, tired, well)
        for count in range(1, 10):
            refresher.submit(REFRESH)
            await until(lambda: len([event for event in scene.events if is_answer(event)]) == count)  # noqa: B023
    waits = [seconds for seconds in scene.waits.seconds if seconds]
    assert waits == [0.75, 1.5, 3.0, 6.0, 7.5, 7.5, 0.75]


def is_answer(event: Event) -> bool:
    return isinstance(event, Refreshed | RefreshFailed)
