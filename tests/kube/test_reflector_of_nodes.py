import asyncio

from aischeduler.kube import reflector as module
from aischeduler.kube import resources
from tests.kube.docs import line, listing, node
from tests.kube.reflecting import World, quiet, told
from tests.kube.scripted import reply, stream, until

NODES = "/api/v1/nodes"


async def test_nodes_are_listed_without_a_selector() -> None:
    world = World()
    world.script.on("get", NODES, reply(200, listing(node("n1"))))
    async with world.running(resources.nodes()):
        await told(world, "+n1")
    assert "fieldSelector" not in world.script.asked("get")[0].query


async def test_watch_of_nodes_is_left_alone_for_a_moment_after_a_few_lines() -> None:
    world, later = World(), asyncio.Event()
    world.waits.hold()
    world.script.on("get", NODES, reply(200, listing()))
    lines = [line("ADDED", node(name, version=number)) for number, name in enumerate(("n1", "n2", "n3"), start=200)]
    world.script.on("watch", NODES, stream(lines[0], later, lines[1], lines[2]))
    async with world.running(resources.nodes()):
        await told(world, "+n1")
        await until(lambda: world.waits.held)
        later.set()
        await quiet()
        assert world.told == ["+n1"]
        world.waits.release()
        await told(world, "+n1", "+n2", "+n3")
    assert set(world.waits.seconds) == {resources.NODE_REST_SECONDS}


async def test_watch_of_nodes_that_has_much_to_tell_is_read_on_at_once() -> None:
    world = World()
    count = module.FEW_LINES + 1
    world.script.on("get", NODES, reply(200, listing()))
    lines = [line("ADDED", node(f"n{number}", version=200 + number)) for number in range(count)]
    world.script.on("watch", NODES, stream(b"".join(lines)))
    async with world.running(resources.nodes()):
        await told(world, *(f"+n{number}" for number in range(count)))
        await quiet()
    assert world.waits.seconds == []


async def test_line_that_has_begun_is_not_made_to_wait_for_its_end() -> None:
    world = World()
    world.script.on("get", NODES, reply(200, listing()))
    first, second = (line("ADDED", node(f"n{number}", version=200 + number)) for number in (1, 2))
    rest = asyncio.Event()
    world.script.on("watch", NODES, stream(first + second[:20], rest, second[20:]))
    async with world.running(resources.nodes()):
        await told(world, "+n1")
        await quiet()
        assert world.waits.seconds == []
        rest.set()
        await told(world, "+n1", "+n2")
