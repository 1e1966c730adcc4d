"""Objects and answers that cannot be decoded."""

import json

from aischeduler.kube.decode.api_types import PodDocument
from aischeduler.kube.decode.pod_spec import SpecCache
from aischeduler.kube.watch import watched_resources
from aischeduler.model.events import Event
from tests.build import replace
from tests.kube.api_objects import line, listing, pod, trouble
from tests.kube.reflector_world import World, told
from tests.kube.scripted_server import reply, stream

PODS = "/api/v1/pods"


async def test_pod_with_labels_that_are_not_utf_8_loses_only_its_labels() -> None:
    world = World()
    odd = line("ADDED", pod("a", version=101, metadata={"labels": {"k": "@"}})).replace(b"@", b"\xff")
    world.script.on("get", PODS, reply(200, listing()))
    world.script.on("watch", PODS, stream(odd, line("ADDED", pod("b", version=102))))
    async with world.running():
        await told(world, "+a:uid-a", "+b:uid-b")


async def test_answer_that_is_nested_too_deeply_is_a_failure_of_the_server() -> None:
    world = World()
    nested = json.dumps(listing(pod("a"))).encode().replace(b'"Pending"', b"[" * 100_000 + b"]" * 100_000)
    world.script.on("get", PODS, reply(200, nested), reply(200, listing(pod("a"))))
    async with world.running():
        await told(world, "+a:uid-a")
    assert "/api/v1/pods: the list cannot be read" in str(world.failures[0])


async def test_object_that_causes_an_exception_affects_no_other_object() -> None:
    world = World()
    pods = watched_resources.pods(SpecCache())
    bugs = [TypeError("a bug")]

    def seen(document: PodDocument) -> Event | None:
        if document.metadata.name == "odd" and bugs:
            raise bugs.pop()
        return pods.seen_event(document)

    again = reply(200, listing(pod("odd", version=101), pod("b", version=102), version=110))
    world.script.on("get", PODS, reply(200, listing()), again)
    first = [line("ADDED", pod("odd", version=101)), line("ADDED", pod("b", version=102))]
    world.script.on("watch", PODS, stream(*first, trouble(410, "Expired")))
    async with world.running(replace(pods, seen_event=seen)):
        await told(world, "+b:uid-b", "+odd:uid-odd")
    (unreadable,) = world.unreadable
    assert (unreadable.name, unreadable.message) == ("odd", "an internal error of the scheduler: TypeError('a bug')")
