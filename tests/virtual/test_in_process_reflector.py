import json
from typing import Any

from aischeduler.kube.decode.api_types import NodeDocument
from aischeduler.kube.decode.meta_types import Metadata
from aischeduler.kube.watch.watched_resources import nodes
from aischeduler.model.events import Event, Gone, objects_of
from aischeduler.model.node import Node
from aischeduler.sandbox.api_server import ApiServer
from aischeduler.sandbox.request import Response, request
from tests.objects import node_object
from tests.virtual.in_process_reflector import InProcessReflector

NODES = "/api/v1/nodes"


def send(server: ApiServer, method: str, path: str, document: dict[str, Any] | None = None) -> bytes:
    response = server.handle(request(method, path, json.dumps(document or {}).encode()), 0.0)
    assert isinstance(response, Response)
    assert response.status < 300
    return response.body


def a_reflector(*names: str) -> tuple[ApiServer, InProcessReflector[NodeDocument]]:
    """A server with these nodes, and a reflector before its first read."""
    server = ApiServer()
    for name in names:
        send(server, "POST", NODES, node_object(name))
    return server, InProcessReflector(server, nodes())


def seen(events: list[Event]) -> list[str]:
    return [node.name for node in objects_of(events, Node)]


def ended(events: list[Event]) -> list[str]:
    return [event.key[0] for event in events if isinstance(event, Gone) and event.kind == "Node"]


def test_first_read_returns_all_objects_and_later_reads_the_changes() -> None:
    server, reflector = a_reflector("a", "b")
    assert seen(reflector.read(0.0)) == ["a", "b"]
    assert reflector.read(0.0) == []
    send(server, "POST", NODES, node_object("c"))
    send(server, "DELETE", f"{NODES}/a")
    events = reflector.read(0.0)
    assert (seen(events), ended(events)) == (["c"], ["a"])


def test_watch_that_timed_out_goes_on_without_a_list() -> None:
    server, reflector = a_reflector("a")
    reflector.read(0.0)
    send(server, "POST", NODES, node_object("b"))
    assert seen(reflector.read(10_000.0)) == ["b"]
    send(server, "POST", NODES, node_object("c"))
    assert seen(reflector.read(10_000.0)) == ["c"]
    assert (reflector.counts.lists, reflector.counts.watches) == (1, 2)


def test_list_after_a_restart_returns_only_the_differences() -> None:
    server, reflector = a_reflector("a", "b", "c")
    reflector.read(0.0)
    send(server, "DELETE", f"{NODES}/a")
    send(server, "POST", NODES, node_object("d"))
    server.restart()
    events = reflector.read(0.0)
    assert (seen(events), ended(events)) == (["d"], ["a"])
    assert reflector.counts.lists == 2


def test_object_that_cannot_be_decoded_hides_no_other_object() -> None:
    server, reflector = a_reflector("a")
    collection = server.cluster.store.collections["nodes."]
    for name in ("odd-in-the-list", "odd-in-the-watch"):
        odd = node_object(name)
        odd["metadata"]["uid"] = name
        odd["spec"] = {"taints": "none"}
        collection.put(odd)
        assert "a" in [*seen(reflector.read(0.0)), "a"]
    send(server, "POST", NODES, node_object("b"))
    assert seen(reflector.read(0.0)) == ["b"]
    assert reflector.counts.unreadable_objects == 2


def test_object_of_a_get_request_is_an_event_once() -> None:
    server, reflector = a_reflector()
    reflector.read(0.0)
    body = send(server, "POST", NODES, node_object("a"))
    assert seen(list(reflector.seen(body))) == ["a"]
    assert reflector.read(0.0) == []


def test_object_that_a_get_request_did_not_find_is_gone_once() -> None:
    server, reflector = a_reflector("a")
    reflector.read(0.0)
    send(server, "DELETE", f"{NODES}/a")
    assert ended(list(reflector.gone(Metadata(name="a")))) == ["a"]
    assert reflector.read(0.0) == []
