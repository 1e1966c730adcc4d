"""The lagging proxy itself."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.api_contract.over_http import HttpStream, HttpTransport
from tests.api_contract.world import Call
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import create_nodes, create_pools
from tests.e2e.lagging_proxy import FOR_EVER, LaggingProxy, Piece, read_lines
from tests.objects import node_object, pool_object

SOON_SECONDS = 0.3
LAG_SECONDS = 1.0
NODES = "/api/v1/nodes"
POOLS = "/apis/resource.aibee.cn/v1alpha1/pools"


@pytest.fixture
def proxy(control_plane: ControlPlane, clean_cluster: None, pools_served: None) -> Iterator[LaggingProxy]:
    with LaggingProxy(control_plane) as proxy:
        yield proxy


@pytest.fixture
def transport(proxy: LaggingProxy) -> Iterator[HttpTransport]:
    transport = HttpTransport(proxy.url, lambda: None)
    yield transport
    transport.close()


def heard(stream: HttpStream, seconds: float = 10.0) -> list[str]:
    """Return the names of a watch's events until no event comes for this long."""
    names: list[str] = []
    while event := stream.next(seconds if not names else SOON_SECONDS):
        names.append(event["object"]["metadata"]["name"])
    return names


def test_watch_of_a_held_kind_has_no_events_and_its_list_has_all_objects(
    control_plane: ControlPlane, proxy: LaggingProxy, transport: HttpTransport
) -> None:
    stream = transport.watch(f"{NODES}?watch=true")
    proxy.hold("nodes", FOR_EVER)
    create_nodes(control_plane, [node_object("n1")])
    assert [one["metadata"]["name"] for one in transport.request(Call("GET", NODES)).body["items"]] == ["n1"]
    assert heard(stream, SOON_SECONDS) == []
    proxy.release()
    assert heard(stream) == ["n1"]
    stream.close()


def test_other_kinds_pass_while_one_is_held(
    control_plane: ControlPlane, proxy: LaggingProxy, transport: HttpTransport
) -> None:
    nodes, pools = transport.watch(f"{NODES}?watch=true"), transport.watch(f"{POOLS}?watch=true")
    proxy.hold("nodes", FOR_EVER)
    create_nodes(control_plane, [node_object("n1")])
    create_pools(control_plane, pool_object("a"))
    assert heard(pools) == ["a"]
    assert heard(nodes, SOON_SECONDS) == []
    nodes.close()
    pools.close()


def test_new_stream_of_a_held_kind_is_held_too(
    control_plane: ControlPlane, proxy: LaggingProxy, transport: HttpTransport
) -> None:
    proxy.hold("nodes", FOR_EVER)
    create_nodes(control_plane, [node_object("n1")])
    streams = [transport.watch(f"{NODES}?watch=true") for _ in range(2)]
    assert [heard(stream, SOON_SECONDS) for stream in streams] == [[], []]
    proxy.release()
    assert [heard(stream) for stream in streams] == [["n1"], ["n1"]]
    for stream in streams:
        stream.close()


def test_held_pieces_come_in_order_each_after_the_delay(
    control_plane: ControlPlane, proxy: LaggingProxy, transport: HttpTransport
) -> None:
    stream = transport.watch(f"{NODES}?watch=true")
    proxy.hold("nodes", LAG_SECONDS)
    names = [f"n{number}" for number in range(5)]
    for name in names:
        create_nodes(control_plane, [node_object(name)])
    last = proxy.wait_for("nodes", b'"n4"')
    assert heard(stream) == names
    assert time.monotonic() - last >= LAG_SECONDS
    stream.close()


def test_pieces_up_to_a_moment_are_delivered_and_later_ones_wait(
    control_plane: ControlPlane, proxy: LaggingProxy, transport: HttpTransport
) -> None:
    stream = transport.watch(f"{NODES}?watch=true")
    proxy.hold("nodes", FOR_EVER)
    create_nodes(control_plane, [node_object("n1")])
    until = proxy.wait_for("nodes", b'"n1"')
    create_nodes(control_plane, [node_object("n2")])
    proxy.wait_for("nodes", b'"n2"')
    proxy.let_through("nodes", until)
    assert heard(stream) == ["n1"]
    proxy.release()
    assert heard(stream) == ["n2"]
    stream.close()


def test_watch_that_the_server_breaks_is_broken(
    control_plane: ControlPlane, proxy: LaggingProxy, transport: HttpTransport
) -> None:
    stream = transport.watch(f"{NODES}?watch=true")
    control_plane.kill("kube-apiserver")
    assert stream.next(10.0) is None
    assert stream.ended
    stream.close()


def test_line_that_comes_in_two_parts_is_one_piece() -> None:
    async def stream() -> AsyncIterator[bytes]:
        for part in (b'{"a":', b'1}\n{"b":2}\n{"c"', b":3}"):
            yield part

    late = deque[Piece]()
    asyncio.run(read_lines(stream(), late, asyncio.Event()))
    assert [piece.content for piece in late] == [b'{"a":1}\n', b'{"b":2}\n', b'{"c":3}', b""]
