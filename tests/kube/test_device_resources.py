"""Watches of Device objects: what the engine hears, and what it is told where the kind is not served."""

from typing import Any

from aischeduler.kube.watch.device_resources import devices
from aischeduler.model.device import Device, NodeDevices
from aischeduler.model.events import DevicesListed, Seen, gone
from tests.kube.api_objects import line, listing
from tests.kube.reflector_world import World
from tests.kube.scripted_server import reply, stream, until
from tests.kube.test_reflector_absent import Cluster

PATH = "/apis/scheduling.koordinator.sh/v1alpha1/devices"


def device(version: int, *, health: bool = True) -> dict[str, Any]:
    entry = {"type": "rdma", "id": "r", "health": health}
    return {
        "metadata": {"name": "n", "uid": "u", "resourceVersion": str(version)},
        "spec": {"devices": [entry]},
    }


def seen(*, healthy: bool = True) -> Seen:
    return Seen(NodeDevices("n", (Device("rdma", 0, "r", (("rdma", 100),), healthy=healthy),), uid="u"))


async def test_engine_hears_only_of_other_devices_and_of_the_end() -> None:
    world = World()
    world.script.on("get", PATH, reply(200, listing(device(1))))
    changes = [line("MODIFIED", device(101)), line("MODIFIED", device(102, health=False))]
    world.script.on("watch", PATH, stream(*changes, line("DELETED", device(103, health=False))))
    async with world.running(devices()):
        await until(lambda: len(world.events) == 4)
    listed = DevicesListed(listed=True)
    assert world.events == [seen(), listed, seen(healthy=False), gone(NodeDevices, "n")]


async def test_kind_that_is_not_served_counts_as_listed_and_is_found_once_it_is_defined() -> None:
    cluster = Cluster()
    async with cluster.running([devices()]):
        (reflector,) = cluster.reflectors
        assert (reflector.synced.is_set(), reflector.not_served, len(reflector)) == (True, True, 0)
        cluster.serve("scheduling.koordinator.sh/v1alpha1")
        cluster.answer(PATH, lambda _: reply(200, listing(device(1))))
        await cluster.minutes(1)
        assert (reflector.not_served, len(reflector)) == (False, 1)
