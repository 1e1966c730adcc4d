"""Watches of tenant queues: which objects the engine and the writer of statuses hear of."""

from typing import Any

from aischeduler.kube.decode.api_types import QueueDocument
from aischeduler.kube.watch.queue_resources import queue_resources
from aischeduler.model.events import QueuesServed, Seen, gone
from aischeduler.model.tenant_queue import QueueSource, QueueState, TenantQueue
from tests.kube.api_objects import line, listing
from tests.kube.reflector_world import World
from tests.kube.scripted_server import reply, stream, until

OWN, VOLCANO = queue_resources()


def queue(version: int, *, priority: int = 1, pods: int = 0, **fields: Any) -> dict[str, Any]:
    metadata = {"name": "q", "uid": "u", "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"priority": priority}, "status": {"pods": pods, **fields}}


class Observer:
    """Records what it observes: the status of a Queue, or that it is gone."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def queue_seen(self, document: QueueDocument) -> None:
        self.seen.append(document.status["pods"])

    def queue_gone(self, name: str) -> None:
        self.seen.append(name)


def test_kinds_are_the_sources_of_the_model_and_none_is_needed() -> None:
    assert [resource.kind for resource in (OWN, VOLCANO)] == list(QueueSource)
    assert not any(resource.needed for resource in (OWN, VOLCANO))
    assert OWN.path == "/apis/resource.aibee.cn/v1alpha1/queues"
    assert VOLCANO.path == "/apis/scheduling.volcano.sh/v1beta1/queues"


async def test_observer_hears_of_each_status_and_the_engine_only_of_another_queue() -> None:
    world, observer = World(), Observer()
    world.script.on("get", OWN.path, reply(200, listing(queue(1))))
    changes = [queue(101, pods=5), queue(102, priority=2, pods=5)]
    lines = [*(line("MODIFIED", change) for change in changes), line("DELETED", queue(103, priority=2))]
    world.script.on("watch", OWN.path, stream(*lines))
    async with world.running(queue_resources(observer)[0]):
        await until(lambda: len(world.events) == 4)
    assert world.events == [
        Seen(TenantQueue("q", uid="u", priority=1)),
        QueuesServed(served=True),
        Seen(TenantQueue("q", uid="u", priority=2)),
        gone(TenantQueue, "Queue", "q"),
    ]
    assert observer.seen == [0, 5, 5, "q"]


async def test_queue_of_volcano_closes_by_its_status() -> None:
    world = World()
    world.script.on("get", VOLCANO.path, reply(200, listing(queue(1, state="Open"))))
    world.script.on("watch", VOLCANO.path, stream(line("MODIFIED", queue(101, state="Closing"))))
    async with world.running(queue_resources()[1]):
        await until(lambda: len(world.events) == 3)
    found = TenantQueue("q", source=QueueSource.VOLCANO, uid="u", priority=1)
    closed = TenantQueue("q", source=QueueSource.VOLCANO, uid="u", priority=1, state=QueueState.CLOSED)
    assert world.events == [Seen(found), QueuesServed(served=True), Seen(closed)]


def test_engine_hears_when_the_first_kind_is_served_and_when_the_last_one_is_not() -> None:
    own, volcano = queue_resources()
    told = [
        resource.listed(served=served)
        for resource, served in [(own, False), (volcano, True), (own, True), (volcano, False), (own, False)]
    ]
    assert told == [(), (QueuesServed(served=True),), (), (), (QueuesServed(served=False),)]
