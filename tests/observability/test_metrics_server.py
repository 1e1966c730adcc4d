"""The pages for monitoring and the kubelet."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from aischeduler.config.errors import ConfigError
from aischeduler.observability.metrics_server import Pages, serving
from aischeduler.observability.telemetry import listen
from tests.observability.world import World, summary


class Said:
    """The current problems of liveness and readiness."""

    def __init__(self) -> None:
        self.live = ""
        self.ready = ""


@asynccontextmanager
async def pages(world: World, said: Said) -> AsyncIterator[aiohttp.ClientSession]:
    listener = listen("127.0.0.1:0")
    assert listener is not None
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with (
        serving(
            listener,
            Pages(world.recorder.registry, world.collector.take, lambda: said.live, lambda: said.ready),
        ),
        aiohttp.ClientSession(url) as session,
    ):
        yield session


async def read(session: aiohttp.ClientSession, path: str, **headers: str) -> tuple[int, str, str]:
    async with session.get(path, headers=headers) as answer:
        return answer.status, answer.headers["Content-Type"], await answer.text()


async def test_healthy_daemon_answers_ok_everywhere() -> None:
    async with pages(World(), Said()) as session:
        for path in ("/livez", "/healthz", "/readyz"):
            assert await read(session, path) == (200, "text/plain; charset=utf-8", "ok\n")


async def test_stuck_daemon_is_neither_live_nor_ready() -> None:
    said = Said()
    said.live = "a pool's loop is stuck"
    async with pages(World(), said) as session:
        for path, status in (("/livez", 500), ("/healthz", 500), ("/readyz", 503)):
            assert (await read(session, path))[::2] == (status, "a pool's loop is stuck\n")


async def test_daemon_that_still_lists_is_live_and_not_ready() -> None:
    said = Said()
    said.ready = "not listed yet: Pod"
    async with pages(World(), said) as session:
        assert (await read(session, "/livez"))[0] == 200
        assert (await read(session, "/readyz"))[::2] == (503, "not listed yet: Pod\n")


async def test_metrics_are_plain_text_or_openmetrics_as_the_client_accepts() -> None:
    async with pages(World(summary("a")), Said()) as session:
        status, kind, text = await read(session, "/metrics")
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert 'ai_scheduler_pool_nodes{pool="a"} 0.0' in text
        _, kind, text = await read(session, "/metrics", Accept="application/openmetrics-text;version=1.0.0,*/*;q=0.1")
        assert kind.startswith("application/openmetrics-text; version=1.0.0")
        assert text.endswith("# EOF\n")


async def test_many_scrapes_at_once_are_answered_beside_probes() -> None:
    async with pages(World(summary("a")), Said()) as session:

        async def scrape() -> int:
            async with session.get("/metrics") as answer:
                assert 'ai_scheduler_pool_nodes{pool="a"} 0.0' in await answer.text()
                return answer.status

        assert await asyncio.gather(*(scrape() for _ in range(30))) == [200] * 30
        assert await read(session, "/livez") == (200, "text/plain; charset=utf-8", "ok\n")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("POST", "/metrics", 405), ("DELETE", "/metrics", 405), ("HEAD", "/livez", 200)],
)
async def test_other_paths_and_methods_are_refused(method: str, path: str, status: int) -> None:
    async with pages(World(), Said()) as session, session.request(method, path) as answer:
        assert answer.status == status


def test_address_none_takes_no_port() -> None:
    assert listen("none") is None


@pytest.mark.parametrize("address", [":0", "127.0.0.1:0", "localhost:0"])
def test_address_is_listened_on(address: str) -> None:
    listener = listen(address)
    assert listener is not None
    with listener, socket.create_connection(("127.0.0.1", listener.getsockname()[1]), timeout=5):
        pass


def test_port_in_use_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError) as caught:
            listen(f"127.0.0.1:{port}")
    assert str(caught.value) == f"http.address: cannot listen on 127.0.0.1:{port}: Address already in use"


def test_host_that_does_not_exist_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"^http\.address: cannot listen on no\.such\.host\.invalid:80: [^\n]+$"):
        listen("no.such.host.invalid:80")
