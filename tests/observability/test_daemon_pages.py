"""The health pages of a running daemon, from its first list to its end."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from aischeduler.config.schema import Config
from aischeduler.daemon import process, shutdown
from aischeduler.daemon.process import Daemon
from aischeduler.kube.http.backoff import Timing, unix_clock
from aischeduler.observability import metrics_server
from aischeduler.observability.telemetry import listen
from tests.daemon.cluster import ALONE, PODS, POOLS, brief
from tests.daemon.test_daemon import listing, scripted_cluster
from tests.daemon.test_leadership import ELECTED
from tests.kube.lease_server import LEASE, LeaseServer
from tests.kube.scripted_server import Answer, Half, Request, Script, hang, reply, serving, until


@dataclass
class Pages:
    """A daemon with a scripted API server, and its pages."""

    daemon: Daemon
    stop: asyncio.Event
    http: aiohttp.ClientSession

    async def says(self, path: str) -> tuple[int, str]:
        async with self.http.get(path) as answer:
            return answer.status, (await answer.text()).strip()

    async def comes_to(self, path: str, status: int) -> str:
        """Request the page until it has this status; return its text."""
        async with asyncio.timeout(120):
            while (said := await self.says(path))[0] != status:
                await asyncio.sleep(0.01)
        return said[1]


@asynccontextmanager
async def pages(script: Script, config: Config = ALONE) -> AsyncIterator[Pages]:
    listener, stop = listen("127.0.0.1:0"), asyncio.Event()
    assert listener is not None
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with serving(script) as server, aiohttp.ClientSession(url) as http:
        daemon = Daemon(server, config, stop, Timing(unix_clock(), brief, Half()), listener=listener)
        task = asyncio.create_task(daemon.run())
        try:
            await until(lambda: daemon.components is not None)
            yield Pages(daemon, stop, http)
        finally:
            stop.set()
            async with asyncio.timeout(120):
                await task


async def test_daemon_that_cannot_list_one_kind_is_live_and_names_that_kind() -> None:
    script = scripted_cluster()
    script.always["get", POOLS] = lambda _: hang
    async with pages(script) as asked:
        async with asyncio.timeout(120):
            while await asked.says("/readyz") != (503, "not listed yet: Pool"):
                await asyncio.sleep(0.01)
        assert await asked.says("/livez") == (200, "ok")


async def test_daemon_without_the_definition_of_pools_decides_and_is_not_ready() -> None:
    script = scripted_cluster()
    script.on("post", "/api/v1/namespaces/default/pods/p/binding", reply(201))
    async with pages(script) as asked:
        await until(lambda: script.asked("post", "/api/v1/namespaces/default/pods/p/binding"))
        said = "the definition of pools.resource.aibee.cn is not installed: kubectl apply -f manifests/crds"
        assert await asked.comes_to("/readyz", 503) == said
        assert await asked.says("/livez") == (200, "ok")
        versions = [{"groupVersion": "resource.aibee.cn/v1alpha1"}]
        script.always["get", "/apis"] = lambda _: reply(
            200, {"kind": "APIGroupList", "groups": [{"versions": versions}]}
        )
        script.always["get", POOLS] = lambda _: listing()
        assert await asked.comes_to("/readyz", 200) == "ok"


async def test_daemon_that_decides_is_ready() -> None:
    script = scripted_cluster()
    script.always["get", POOLS] = lambda _: listing()
    script.on("post", "/api/v1/namespaces/default/pods/p/binding", reply(201))
    async with pages(script) as asked:
        assert await asked.comes_to("/readyz", 200) == "ok"
        assert await asked.says("/healthz") == (200, "ok")


@pytest.mark.expects_errors("job=pool default left_out=0 ValueError('a bug')")
@pytest.mark.expects_errors("job=cluster left_out=0 ValueError('a bug')")
async def test_loop_that_keeps_failing_makes_the_daemon_not_live_without_naming_the_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(pool: str, now: float, limit: int) -> None:
        raise ValueError("a bug")

    async with pages(scripted_cluster()) as asked:
        monkeypatch.setattr(asked.daemon.scheduler, "decide", broken)
        said = await asked.comes_to("/livez", 500)
        assert said.startswith("a loop keeps failing: ")
        assert "default" not in said
        assert await asked.comes_to("/readyz", 503) == said


async def test_daemon_that_stops_is_not_ready_while_it_finishes() -> None:
    script = scripted_cluster()
    release = asyncio.Event()

    async def late(writer: asyncio.StreamWriter) -> None:
        await release.wait()
        await reply(201)(writer)

    script.on("post", "/api/v1/namespaces/default/pods/p/binding", late)
    async with pages(script) as asked:
        await until(lambda: script.asked("post", "/api/v1/namespaces/default/pods/p/binding"))
        asked.stop.set()
        assert await asked.comes_to("/readyz", 503) == "stopping"
        assert await asked.says("/livez") == (200, "ok")
        release.set()


async def test_scrape_that_is_being_made_does_not_delay_the_next_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, finish = threading.Event(), threading.Event()

    def slow(registry: CollectorRegistry, form: metrics_server.Form) -> bytes:
        begun.set()
        finish.wait(10)
        return encode(registry, form)

    encode = metrics_server.encode
    monkeypatch.setattr(metrics_server, "encode", slow)
    script = scripted_cluster()
    script.always["get", POOLS] = lambda _: listing()
    LeaseServer(script)
    patch = script.always["patch", LEASE]
    waited_at_release: list[bool] = []

    def patched(request: Request) -> Answer:
        if not request.json["spec"]["holderIdentity"]:
            waited_at_release.append(not waiting.done())
        return patch(request)

    script.always["patch", LEASE] = patched
    async with pages(script, ELECTED) as asked:
        await asked.comes_to("/readyz", 200)
        waiting = asyncio.create_task(asked.says("/metrics"))
        await until(begun.is_set)
        asked.stop.set()
        with pytest.raises(aiohttp.ClientError):
            await waiting
        finish.set()
    assert waited_at_release == [True]


async def test_bindings_without_an_outcome_make_the_daemon_unready_but_live(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "NO_OUTCOME_SECONDS", 0.0)
    monkeypatch.setattr(shutdown, "GRACE_SECONDS", 0.05)
    script = scripted_cluster()
    script.always["get", POOLS] = lambda _: listing()
    script.on("post", f"{PODS}/p/binding", hang)
    async with pages(script) as world:
        await until(lambda: script.asked("post", PODS))
        said = await world.comes_to("/readyz", 503)
        assert said.startswith("Bindings make no progress: the oldest has had no outcome for 0 seconds")
        assert (await world.says("/livez"))[0] == 200
        assert "ai_scheduler_oldest_binding_seconds 0" in (await world.says("/metrics"))[1]
