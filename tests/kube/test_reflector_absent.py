"""Kinds that the API server does not serve, over many minutes of a clock that only the test moves."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from aischeduler.kube.access.server_version import Discovery
from aischeduler.kube.decode.gang_owners import GangOwners
from aischeduler.kube.http.backoff import Timing
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.errors import ApiError
from aischeduler.kube.watch.gang_resources import gang_resources
from aischeduler.kube.watch.reflector import NOT_NEEDED_POLL_SECONDS, Handlers, Reflector
from aischeduler.kube.watch.watched_resources import WatchedResource, pools
from tests.kube.api_objects import listing, pool
from tests.kube.scripted_server import Half, Rule, Script, reply, serving, status, stream, until

GANGS = tuple(resource for resource in gang_resources(GangOwners()) if resource.kind != "Job")
MINUTES = 30


class StoppedClock:
    """A clock that moves to the end of the next sleep when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.sleeping: list[tuple[float, asyncio.Event]] = []

    async def sleep(self, seconds: float) -> None:
        sleeper = self.now + seconds, asyncio.Event()
        self.sleeping.append(sleeper)
        try:
            await sleeper[1].wait()
        finally:
            self.sleeping.remove(sleeper)

    def move(self) -> None:
        self.now = min(due for due, _ in self.sleeping)
        for due, ended in self.sleeping:
            if due <= self.now:
                ended.set()

    def timing(self) -> Timing:
        return Timing(lambda: self.now, self.sleep, Half())


class Cluster:
    """Reflectors of one scheduler that share their looks, and a server that serves these group versions."""

    def __init__(self, *served: str) -> None:
        self.script, self.clock = Script(), StoppedClock()
        self.failures: list[tuple[str, ApiError]] = []
        self.reflectors: list[Reflector[Any]] = []
        self.serve(*served)

    def serve(self, *versions: str) -> None:
        groups = [{"name": version.partition("/")[0], "versions": [{"groupVersion": version}]} for version in versions]
        self.script.always["get", "/apis"] = lambda _: reply(200, {"kind": "APIGroupList", "groups": groups})

    def answer(self, path: str, rule: Rule) -> None:
        self.script.always["get", path] = rule
        self.script.always["watch", path] = lambda _: stream()

    @asynccontextmanager
    async def running(self, resources: Sequence[WatchedResource[Any]]) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(serving(self.script))
            client = await stack.enter_async_context(Client(server))
            timing = self.clock.timing()
            handlers = Handlers(
                lambda _: None,
                lambda _: None,
                lambda kind, error: self.failures.append((kind, error)),
                discovery=Discovery(client, timing),
            )
            self.reflectors = [Reflector(client, resource, handlers, timing) for resource in resources]
            tasks = [asyncio.create_task(reflector.run()) for reflector in self.reflectors]
            try:
                await self.all_sleep()
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def all_sleep(self) -> None:
        await until(
            lambda: len(self.clock.sleeping) == sum(not reflector.watching.is_set() for reflector in self.reflectors)
        )

    async def minutes(self, count: int) -> int:
        """Let so many minutes pass; return the number of requests in them."""
        before, end = len(self.script.requests), self.clock.now + count * 60
        while min((due for due, _ in self.clock.sleeping), default=end + 1) <= end:
            self.clock.move()
            await asyncio.sleep(0.002)
            await self.all_sleep()
        return len(self.script.requests) - before


async def test_kinds_that_are_not_served_count_no_failure_in_half_an_hour() -> None:
    cluster = Cluster("batch/v1", "scheduling.k8s.io/v1")
    async with cluster.running(GANGS):
        await cluster.minutes(MINUTES)
    assert [reflector.counts.failures for reflector in cluster.reflectors] == [0] * len(GANGS)
    assert [kind for kind, _ in cluster.failures] == [resource.kind for resource in GANGS]


async def test_all_kinds_that_are_not_served_share_one_request_a_minute() -> None:
    cluster = Cluster("batch/v1", "scheduling.k8s.io/v1")
    async with cluster.running(GANGS):
        assert await cluster.minutes(MINUTES) == MINUTES


async def test_kind_whose_version_has_other_resources_is_looked_for_once_a_minute() -> None:
    cluster = Cluster("scheduling.volcano.sh/v1beta1")
    cluster.answer("/apis/scheduling.volcano.sh/v1beta1", lambda _: reply(200, {"resources": [{"name": "queues"}]}))
    async with cluster.running(GANGS):
        assert await cluster.minutes(MINUTES) <= 4 * MINUTES
    assert not any(reflector.counts.failures for reflector in cluster.reflectors)


async def test_kind_is_listed_within_a_minute_after_it_is_served() -> None:
    cluster = Cluster()
    (volcano,) = (resource for resource in GANGS if resource.kind == "PodGroup.scheduling.volcano.sh")
    async with cluster.running(GANGS):
        await cluster.minutes(3)
        cluster.serve("scheduling.volcano.sh/v1beta1")
        cluster.answer(volcano.path, lambda _: reply(200, listing()))
        await cluster.minutes(1)
        assert [reflector.resource.kind for reflector in cluster.reflectors if reflector.current()] == [volcano.kind]


async def test_pools_are_listed_within_five_seconds_after_they_are_defined() -> None:
    cluster, resource = Cluster(), pools()
    async with cluster.running([resource, *GANGS]):
        await cluster.minutes(1)
        cluster.serve("resource.aibee.cn/v1alpha1")
        cluster.answer(resource.path, lambda _: reply(200, listing(pool("cpu"))))
        defined_at = cluster.clock.now
        while not cluster.reflectors[0].watching.is_set():
            cluster.clock.move()
            await asyncio.sleep(0.002)
            await cluster.all_sleep()
        assert cluster.clock.now - defined_at <= 5.0


async def test_forbidden_kind_is_listed_once_a_minute_and_counts_no_failure() -> None:
    cluster = Cluster()
    cluster.answer(GANGS[0].path, lambda _: status(403, "Forbidden", "no"))
    async with cluster.running(GANGS[:1]):
        assert await cluster.minutes(MINUTES) == MINUTES * 60 / NOT_NEEDED_POLL_SECONDS
    assert cluster.reflectors[0].counts.failures == 0


async def test_kind_is_looked_for_again_when_the_looks_fail_for_a_while() -> None:
    cluster = Cluster()
    async with cluster.running(GANGS[:1]):
        cluster.answer("/apis", lambda _: reply(200, b"<html>"))
        await cluster.minutes(3)
        cluster.serve("scheduling.x-k8s.io/v1alpha1")
        cluster.answer(GANGS[0].path, lambda _: reply(200, listing()))
        await cluster.minutes(1)
        assert cluster.reflectors[0].current()
        assert cluster.reflectors[0].counts.failures == 0


async def test_kind_that_is_not_served_any_more_is_noticed_by_its_watch() -> None:
    cluster = Cluster("scheduling.x-k8s.io/v1alpha1")
    cluster.script.on("get", GANGS[0].path, reply(200, listing()))
    cluster.script.on("watch", GANGS[0].path, status(404, "NotFound"))
    async with cluster.running(GANGS[:1]):
        cluster.serve()
        await cluster.minutes(1)
        assert cluster.reflectors[0].not_served
