"""One suite for two API servers: each scenario gets a `world`, in process or real.

The sandbox over HTTP runs the same server code as the virtual world; what its transport adds is in
`tests/sandbox/test_http.py`.
"""

from collections.abc import Iterator
from contextlib import closing
from itertools import count

import pytest

from aischeduler.kube.crds import pool_crd
from tests.api_contract.over_http import HttpTransport
from tests.api_contract.virtual import VirtualTransport
from tests.api_contract.world import Call, Transport, World, condition, encode
from tests.controlplane.plane import ControlPlane
from tests.controlplane.sweep import sweep

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

WORLDS = ["virtual", pytest.param("real", marks=pytest.mark.real)]

_numbers = count(1)


@pytest.fixture(scope="package", params=WORLDS)
def transport(request: pytest.FixtureRequest) -> Iterator[Transport]:
    """Yield a transport to one of the two, with Pools served."""
    match request.param:
        case "virtual":
            yield with_pools(VirtualTransport())
        case _:
            plane: ControlPlane = request.getfixturevalue("control_plane")
            with closing(HttpTransport(plane.url, lambda: plane.restart("kube-apiserver"), plane.tls)) as real:
                yield with_pools(real)
            sweep(plane)


@pytest.fixture
def world(transport: Transport) -> Iterator[World]:
    """Yield a world with a namespace of its own on the server."""
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
