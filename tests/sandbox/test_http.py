import asyncio

import aiohttp
import orjson
import pytest
import yaml

from aischeduler.sandbox.http_server import HttpSandbox
from tests.sandbox.cluster import a_pod

PODS = "/api/v1/namespaces/default/pods"


async def test_watch_over_http_shows_what_is_created_meanwhile() -> None:
    async with (
        HttpSandbox() as sandbox,
        aiohttp.ClientSession(sandbox.url) as http,
        http.get(f"{PODS}?watch=1&resourceVersion=1") as watch,
    ):
        assert watch.headers["Transfer-Encoding"] == "chunked"
        async with http.post(PODS, json=a_pod("p1")) as created:
            assert created.status == 201
        event = orjson.loads(await watch.content.readline())
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "p1")


async def test_restart_ends_the_stream_cleanly_and_the_old_revision_is_gone() -> None:
    async with HttpSandbox() as sandbox, aiohttp.ClientSession(sandbox.url) as http:
        async with http.get(f"{PODS}?watch=1&resourceVersion=2") as watch:
            sandbox.restart()
            assert await watch.read() == b""
        async with http.get(f"{PODS}?watch=1&resourceVersion=2") as again:
            assert again.status == 200
            event = orjson.loads(await again.read())
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


async def test_watch_of_a_client_that_disconnects_is_closed() -> None:
    async with HttpSandbox() as sandbox, aiohttp.ClientSession(sandbox.url) as http:
        watchers = sandbox.server.cluster.store.collections["pods."].watchers
        async with http.get(f"{PODS}?watch=1&resourceVersion=1"):
            assert len(watchers) == 1
        async with asyncio.timeout(120):
            while watchers:
                await asyncio.sleep(0.01)


async def test_stop_ends_open_watches_and_frees_the_port() -> None:
    sandbox = HttpSandbox()
    await sandbox.start()
    async with aiohttp.ClientSession(sandbox.url) as http:
        async with http.get(f"{PODS}?watch=1&resourceVersion=1") as watch:
            await sandbox.stop()
            assert await watch.read() == b""
        with pytest.raises(aiohttp.ClientConnectorError):
            await http.get(PODS)


async def test_kubeconfig_names_the_server() -> None:
    async with HttpSandbox() as sandbox:
        config = yaml.safe_load(sandbox.kubeconfig)
    assert config["clusters"][0]["cluster"] == {"server": sandbox.url}
    assert config["current-context"] == config["contexts"][0]["name"]
