"""The events of nodes, whose updates are mostly heartbeats."""

from aischeduler.kube import watched_resources
from aischeduler.model.events import NodeSeen
from tests.kube.api_objects import line, listing, node, trouble
from tests.kube.reflector_world import World, told
from tests.kube.scripted_server import reply, stream

NODES = "/api/v1/nodes"


async def test_heartbeat_of_a_node_emits_no_event_and_every_change_does() -> None:
    world = World()
    world.script.on("get", NODES, reply(200, listing(node("n1"))))
    cordoned = node("n1", version=103, spec={"unschedulable": True})
    beats = [node("n1", version=version) for version in (101, 102, 104, 105)]
    news = [line("MODIFIED", one) for one in (*beats[:2], cordoned, *beats[2:])]
    world.script.on(
        "watch", NODES, stream(*news, line("DELETED", node("n1", version=106)), line("ADDED", node("n1", version=107)))
    )
    async with world.running(watched_resources.nodes()) as reflector:
        await told(world, "+n1", "+n1", "+n1", "-n1", "+n1")
        assert [event.node.unschedulable for event in world.events[:3] if isinstance(event, NodeSeen)] == [
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
