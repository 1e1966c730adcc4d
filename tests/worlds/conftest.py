"""One suite, three worlds: each scenario gets `world` and cannot tell which it is."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from threading import Thread

import pytest

from aischeduler.kube.pool_crd import pool_crd
from aischeduler.sandbox.http import HttpSandbox
from tests.controlplane.plane import ControlPlane
from tests.controlplane.sweep import sweep
from tests.worlds.over_http import HttpTransport
from tests.worlds.virtual import VirtualTransport
from tests.worlds.world import Call, Transport, World, condition, encode

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

WORLDS = [
    "virtual",
    pytest.param("sandbox", marks=pytest.mark.whole),
    pytest.param("real", marks=pytest.mark.real),
]

_numbers = count(1)


@pytest.fixture(scope="package", params=WORLDS)
def transport(request: pytest.FixtureRequest) -> Iterator[Transport]:
    """The way to one of the three, with Pools served."""
    match request.param:
        case "virtual":
            yield with_pools(VirtualTransport())
        case "sandbox":
            with sandbox_in_a_thread() as sandbox_transport:
                yield with_pools(sandbox_transport)
        case _:
            plane: ControlPlane = request.getfixturevalue("control_plane")
            with closing(HttpTransport(plane.url, lambda: plane.restart("kube-apiserver"), plane.tls)) as real:
                yield with_pools(real)
            sweep(plane)


@pytest.fixture
def world(transport: Transport) -> Iterator[World]:
    """A namespace of its own on the server."""
    world = World(transport, f"world-{next(_numbers)}")
    world.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": world.namespace}})
    yield world
    world.close()


def with_pools(transport: Transport) -> Transport:
    """Define Pools and wait until they are served."""
    world = World(transport, "default")
    answer = transport.request(Call("POST", DEFINITIONS, encode(pool_crd())))
    assert answer.status in {201, 409}, answer
    crd = f"{DEFINITIONS}/{pool_crd()['metadata']['name']}"
    world.until(lambda: condition(world.send(Call("GET", crd)).body, "Established").get("status") == "True")
    world.until(lambda: world.listed("Pool").status == 200)
    return transport


@contextmanager
def sandbox_in_a_thread() -> Iterator[HttpTransport]:
    """The sandbox's HTTP server on an event loop of its own."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()
    sandbox = HttpSandbox()

    async def restart() -> None:
        sandbox.restart()

    asyncio.run_coroutine_threadsafe(sandbox.start(), loop).result()
    transport = HttpTransport(sandbox.url, lambda: asyncio.run_coroutine_threadsafe(restart(), loop).result())
    yield transport
    transport.close()
    asyncio.run_coroutine_threadsafe(sandbox.stop(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
