"""A watch that is reopened, and how long it is open and idle."""

from tests.kube.api_objects import bookmark, line, listing, pod
from tests.kube.reflector_world import World, told
from tests.kube.scripted_server import hang, reply, status, stream, until

PODS = "/api/v1/pods"


async def test_watch_is_reopened_at_its_version_and_nothing_is_lost_or_listed_again() -> None:
    world = World()
    world.script.on("get", PODS, reply(200, listing(version=10)))
    world.script.on("watch", PODS, stream(bookmark(150)), stream(line("ADDED", pod("a", version=151))))
    async with world.running() as reflector:
        await until(lambda: reflector.version == "150")
        reflector.reopen_watch()
        await told(world, "+a:uid-a")
        assert world.script.asked("watch")[1].query["resourceVersion"] == "150"
        assert (reflector.counts.lists, reflector.counts.failures, world.failures) == (1, 0, [])
    assert world.waits.seconds == []


async def test_watch_without_events_is_reopened_without_a_wait() -> None:
    world = World()
    world.script.on("get", PODS, reply(200, listing(version=10)))
    world.script.on("watch", PODS, stream(), stream(line("ADDED", pod("a", version=151))))
    async with world.running() as reflector:
        await reflector.watching.wait()
        reflector.reopen_watch()
        await told(world, "+a:uid-a")
    assert world.waits.seconds == []


async def test_watch_that_is_being_opened_is_replaced_by_another_one() -> None:
    world = World()
    world.script.on("get", PODS, reply(200, listing(version=10)))
    world.script.on("watch", PODS, hang, stream(line("ADDED", pod("a", version=151))))
    async with world.running() as reflector:
        await until(lambda: world.script.asked("watch"))
        reflector.reopen_watch()
        await told(world, "+a:uid-a")
        assert (reflector.counts.failures, world.failures) == (0, [])
    assert world.waits.seconds == []


async def test_backoff_ends_when_the_watch_is_to_be_reopened() -> None:
    world = World()
    world.script.on("get", PODS, reply(200, listing(version=10)))
    world.script.on("watch", PODS, status(500), stream(line("ADDED", pod("a", version=151))))
    world.waits.hold()
    async with world.running() as reflector:
        await until(lambda: world.waits.held)
        reflector.reopen_watch()
        await told(world, "+a:uid-a")


async def test_watch_counts_how_long_it_has_been_open_and_idle() -> None:
    world = World()
    world.script.on("get", PODS, reply(200, listing(version=10)))
    world.script.on("watch", PODS, stream(bookmark(150)), stream())
    async with world.running() as reflector:
        assert (reflector.watch_open_seconds, reflector.watch_idle_seconds) == (0.0, 0.0)
        await until(lambda: reflector.version == "150")
        world.waits.now += 7.0
        assert (reflector.watch_open_seconds, reflector.watch_idle_seconds) == (7.0, 7.0)
        world.waits.hold()
        world.waits.now += 3.0
        reflector.reopen_watch()
        await reflector.watching.wait()
        assert (reflector.watch_open_seconds, reflector.watch_idle_seconds) == (0.0, 0.0)
