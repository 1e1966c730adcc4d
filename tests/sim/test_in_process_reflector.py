import json
from typing import Any

from aischeduler.kube.api_types import Metadata, NodeDocument
from aischeduler.kube.watched_resources import nodes
from aischeduler.model.events import Event, NodeGone, NodeSeen
from aischeduler.sandbox.api_server import ApiServer
from aischeduler.sandbox.request import Response, request
from aischeduler.sim.in_process_reflector import Feed
from tests.objects import node_object

NODES = "/api/v1/nodes"


def send(server: ApiServer, method: str, path: str, document: dict[str, Any] | None = None) -> bytes:
    answer = server.handle(request(method, path, json.dumps(document or {}).encode()), 0.0)
    assert isinstance(answer, Response)
    assert answer.status < 300
    return answer.body


def a_feed(*names: str) -> tuple[ApiServer, Feed[NodeDocument]]:
    """A server with these nodes, and a feed that has not been read."""
    server = ApiServer()
    for name in names:
        send(server, "POST", NODES, node_object(name))
    return server, Feed(server, nodes())


def seen(events: list[Event]) -> list[str]:
    return [event.node.name for event in events if isinstance(event, NodeSeen)]


def gone(events: list[Event]) -> list[str]:
    return [event.name for event in events if isinstance(event, NodeGone)]


def test_first_reading_tells_all_there_is_and_later_ones_what_is_new() -> None:
    server, feed = a_feed("a", "b")
    assert seen(feed.read(0.0)) == ["a", "b"]
    assert feed.read(0.0) == []
    send(server, "POST", NODES, node_object("c"))
    send(server, "DELETE", f"{NODES}/a")
    events = feed.read(0.0)
    assert (seen(events), gone(events)) == (["c"], ["a"])


def test_watch_that_has_run_its_time_is_taken_up_again_without_a_list() -> None:
    server, feed = a_feed("a")
    feed.read(0.0)
    send(server, "POST", NODES, node_object("b"))
    assert seen(feed.read(10_000.0)) == ["b"]
    send(server, "POST", NODES, node_object("c"))
    assert seen(feed.read(10_000.0)) == ["c"]
    assert (feed.counts.lists, feed.counts.watches) == (1, 2)


def test_list_after_a_restart_tells_only_what_differs() -> None:
    server, feed = a_feed("a", "b", "c")
    feed.read(0.0)
    send(server, "DELETE", f"{NODES}/a")
    send(server, "POST", NODES, node_object("d"))
    server.restart()
    events = feed.read(0.0)
    assert (seen(events), gone(events)) == (["d"], ["a"])
    assert feed.counts.lists == 2


def test_object_that_cannot_be_read_costs_itself_alone() -> None:
    server, feed = a_feed("a")
    collection = server.cluster.store.collections["nodes."]
    for name in ("odd-in-the-list", "odd-in-the-watch"):
        odd = node_object(name)
        odd["metadata"]["uid"] = name
        odd["spec"] = {"taints": "none"}
        collection.put(odd)
        assert "a" in [*seen(feed.read(0.0)), "a"]
    send(server, "POST", NODES, node_object("b"))
    assert seen(feed.read(0.0)) == ["b"]
    assert feed.counts.unreadable_objects == 2


def test_object_read_by_itself_is_news_once() -> None:
    server, feed = a_feed()
    feed.read(0.0)
    body = send(server, "POST", NODES, node_object("a"))
    assert seen(list(feed.told(body))) == ["a"]
    assert feed.read(0.0) == []


def test_object_looked_for_in_vain_is_gone_once() -> None:
    server, feed = a_feed("a")
    feed.read(0.0)
    send(server, "DELETE", f"{NODES}/a")
    assert gone(list(feed.missing(Metadata(name="a")))) == ["a"]
    assert feed.read(0.0) == []
