"""The events of nodes, whose updates are mostly heartbeats, and of objects made again under the same name."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aischeduler.kube.decode.meta_types import Metadata
from aischeduler.kube.watch import watched_resources
from aischeduler.kube.watch.cluster_lister import resources
from aischeduler.kube.watch.known_objects import KnownObjects
from aischeduler.kube.watch.watched_resources import ReflectorCounts, WatchedResource
from aischeduler.model.events import Event, Seen, gone
from aischeduler.model.node import Node
from aischeduler.model.pool import Pool
from tests.build import replace
from tests.kube.api_objects import line, listing, node, trouble
from tests.kube.reflector_world import World, told
from tests.kube.scripted_server import reply, stream

NODES = "/api/v1/nodes"
KINDS = {resource.kind: resource for resource in resources()}


async def test_heartbeat_of_a_node_emits_no_event_and_every_change_does() -> None:
    world = World()
    world.script.on("get", NODES, reply(200, listing(node("n1"))))
    cordoned = node("n1", version=103, spec={"unschedulable": True})
    beats = [node("n1", version=version) for version in (101, 102, 104, 105)]
    news = [line("MODIFIED", node) for node in (*beats[:2], cordoned, *beats[2:])]
    world.script.on(
        "watch", NODES, stream(*news, line("DELETED", node("n1", version=106)), line("ADDED", node("n1", version=107)))
    )
    async with world.running(watched_resources.nodes()) as reflector:
        await told(world, "+n1", "+n1", "+n1", "-n1", "+n1")
        assert [
            event.object.unschedulable
            for event in world.events[:3]
            if isinstance(event, Seen) and isinstance(event.object, Node)
        ] == [
            False,
            True,
            False,
        ]
        assert reflector.counts.events == 7


async def test_later_list_emits_only_the_nodes_that_changed() -> None:
    world = World()
    grown = node("n2", version=150, status={"allocatable": {"cpu": "8"}})
    world.script.on("get", NODES, reply(200, listing(node("n1"), node("n2"))))
    world.script.on("get", NODES, reply(200, listing(node("n1", version=150), grown, version=200)))
    world.script.on("watch", NODES, stream(trouble(410, "Expired")))
    async with world.running(watched_resources.nodes()):
        await told(world, "+n1", "+n2", "+n2")


def document(resource: WatchedResource[Any], uid: str, version: int) -> Any:
    metadata = {"name": "x", "namespace": "ns", "uid": uid, "resourceVersion": str(version)}
    parts = {"template": {}, "spec": {"containers": [{"name": "c"}]}, "status": {}, "provisioner": "p"}
    body = json.dumps({"metadata": metadata, **parts}).encode()
    return resource.object_decoder.decode(body)


class Watched:
    """The known objects of a kind whose conversions and observers write down when they are called."""

    def __init__(self, kind: WatchedResource[Any]) -> None:
        self.calls: list[str] = []
        self.fail_at = ""

        def seen(found: Any) -> Event | None:
            if found.metadata.uid == self.fail_at:
                raise ZeroDivisionError
            self.calls.append(f"convert {found.metadata.uid}")
            return kind.seen_event(found)

        def gone(namespace: str, name: str, uid: str) -> Event | None:
            self.calls.append(f"end {uid}")
            return kind.gone_event(namespace, name, uid)

        self.resource = replace(
            kind,
            seen_event=seen,
            gone_event=gone,
            on_seen=lambda found: self.calls.append(f"seen {found.metadata.uid}"),
            on_gone=lambda namespace, name: self.calls.append(f"gone {namespace}/{name}"),
        )
        self.known = KnownObjects(self.resource, ReflectorCounts())
        self.told: list[Event] = []

    def show(self, uid: str, version: int) -> None:
        self.told += self.known.upsert(document(self.resource, uid, version))


@pytest.mark.parametrize("kind", KINDS)
def test_object_made_again_is_gone_for_everyone_before_the_new_one_is_looked_at(kind: str) -> None:
    watched = Watched(KINDS[kind])
    watched.show("old", 1)
    watched.show("new", 2)
    assert watched.calls == ["convert old", "seen old", "gone ns/x", "end old", "convert new", "seen new"]


@pytest.mark.parametrize("kind", KINDS)
def test_late_end_of_an_object_does_not_end_the_one_made_again(kind: str) -> None:
    watched = Watched(KINDS[kind])
    watched.show("old", 1)
    watched.show("new", 9)
    before = list(watched.told)
    watched.told += watched.known.delete(Metadata(name="x", namespace="ns", uid="old", resource_version="5"))
    assert watched.told == before
    assert len(watched.known) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_end_of_an_object_that_was_never_seen_ends_the_older_one_of_its_name(kind: str) -> None:
    watched = Watched(KINDS[kind])
    watched.show("old", 1)
    watched.told += watched.known.delete(Metadata(name="x", namespace="ns", uid="new", resource_version="9"))
    assert watched.calls[-1] == "end old"
    assert len(watched.known) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_object_made_again_that_cannot_be_read_ends_the_older_one(kind: str) -> None:
    watched = Watched(KINDS[kind])
    watched.show("old", 1)
    watched.told += watched.known.keep(Metadata(name="x", namespace="ns", uid="old", resource_version="2"))
    assert len(watched.known) == 1
    watched.told += watched.known.keep(Metadata(name="x", namespace="ns", uid="new", resource_version="9"))
    assert watched.calls[-1] == "end old"
    assert len(watched.known) == 0


def test_object_made_again_whose_conversion_fails_is_not_known_and_the_older_one_is_gone() -> None:
    watched = Watched(watched_resources.pools())
    watched.show("old", 1)
    watched.fail_at = "new"
    events = iter(watched.known.upsert(document(watched.resource, "new", 2)))
    assert next(events) == gone(Pool, "x")
    with pytest.raises(ZeroDivisionError):
        next(events)
    assert len(watched.known) == 0


@dataclass
class Truth:
    """One name on a server, its history, and what a watch, which lags behind, has shown of it."""

    history: list[tuple[str, str, int]] = field(default_factory=list)
    """What happened, uid and version."""
    shown: int = 0
    """How much of the history the watch has shown, or passed over by a list."""

    @property
    def version(self) -> int:
        return self.history[-1][2] if self.history else 0

    @property
    def now(self) -> tuple[str, int] | None:
        """The uid and the version of the object that exists."""
        if not self.history or self.history[-1][0] == "DELETED":
            return None
        return self.history[-1][1:]


def _create(truth: Truth, _: Watched) -> None:
    if truth.now is None:
        truth.history.append(("ADDED", f"uid-{truth.version + 1}", truth.version + 1))


def _update(truth: Truth, _: Watched) -> None:
    if truth.now is not None:
        truth.history.append(("MODIFIED", truth.now[0], truth.version + 1))


def _delete(truth: Truth, _: Watched) -> None:
    if truth.now is not None:
        truth.history.append(("DELETED", truth.now[0], truth.version + 1))


def _watch(truth: Truth, watched: Watched) -> None:
    for what, uid, version in truth.history[truth.shown : truth.shown + 1]:
        if what == "DELETED":
            metadata = Metadata(name="x", namespace="ns", uid=uid, resource_version=str(version))
            watched.told += watched.known.delete(metadata)
        else:
            watched.show(uid, version)
        watched.known.advance(str(version))
        truth.shown += 1


def _list_beside_the_watch(truth: Truth, watched: Watched) -> None:
    if truth.now is not None:
        watched.show(*truth.now)
    watched.told += watched.known.delete_missing(["ns/x"] if truth.now is not None else [], str(truth.version))


def _list_again(truth: Truth, watched: Watched) -> None:
    watched.known.begin_list()
    if truth.now is not None:
        watched.show(*truth.now)
    watched.told += watched.known.end_list()
    watched.known.advance(str(truth.version))
    truth.shown = len(truth.history)


def _read_one(truth: Truth, watched: Watched) -> None:
    if truth.now is not None:
        watched.show(*truth.now)


STEPS: tuple[Callable[[Truth, Watched], None], ...] = (
    _create,
    _update,
    _delete,
    _watch,
    _list_beside_the_watch,
    _list_again,
    _read_one,
)


@given(st.lists(st.sampled_from(STEPS), min_size=10, max_size=40))
def test_engine_and_observer_know_what_exists_once_the_watch_has_shown_it(
    steps: list[Callable[[Truth, Watched], None]],
) -> None:
    truth, watched = Truth(), Watched(watched_resources.pools())
    for step in steps:
        step(truth, watched)
    while truth.shown < len(truth.history):
        _watch(truth, watched)
    uid = truth.now[0] if truth.now is not None else ""
    last = watched.told[-1] if watched.told else None
    assert (last.object.uid if isinstance(last, Seen) and isinstance(last.object, Pool) else "") == uid
    observed = [call for call in watched.calls if call.startswith(("seen", "gone"))]
    assert (observed[-1].removeprefix("seen ") if observed and observed[-1].startswith("seen") else "") == uid
