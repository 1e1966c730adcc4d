"""The volume rules against a slow reference for one node at a time, on random clusters, also inside dropped trials."""

from collections import Counter
from random import Random  # noqa: TID251 - the generator is made from the seed

import numpy as np
import pytest

from aischeduler.framework.allocating import allocation_on
from aischeduler.framework.plugin import Plugins
from aischeduler.framework.runner import Runner
from aischeduler.model.allocation import Allocation, allocation_of
from aischeduler.model.pod import Pod
from aischeduler.model.selectors import NodeSelectorTerm, Operator, label_selector
from aischeduler.model.storage_objects import (
    CsiDriver,
    CsiNode,
    StorageCapacity,
    StorageClass,
    StorageObject,
    VolumeAttachment,
)
from aischeduler.model.volumes import (
    ONE_POD,
    ClaimRef,
    DriverVolume,
    Volume,
    VolumeChoice,
    VolumeClaim,
    VolumeClaimUse,
)
from aischeduler.plugins.node_volume_limits import NodeVolumeLimits
from aischeduler.plugins.volume_binding import VolumeBinding
from aischeduler.plugins.volume_restrictions import VolumeRestrictions
from aischeduler.plugins.volume_zone import VolumeZone
from aischeduler.state.node_table import NodeTable
from aischeduler.state.pod_records import AssignedPod
from aischeduler.state.what_if import Trial
from tests import seeds
from tests.build import a_node, a_pod, a_term, expression, replace
from tests.volume_oracle import StorageWorld

ZONES = ("z1", "z2", "z3")
ZONE, OLD_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
DRIVERS = ("csi.a", "csi.b")
CLASSES = ("local", "fast", "slow")
MODES = ("ReadWriteOnce", "ReadWriteMany", ONE_POD)
RULES = (VolumeRestrictions(), NodeVolumeLimits(), VolumeBinding(), VolumeZone())


def some_term(chance: Random, nodes: list[str]) -> NodeSelectorTerm:
    """Return a term that a few nodes satisfy, mostly one."""
    if chance.random() < 0.5:
        return a_term(expression("host", Operator.IN, chance.choice(nodes)))
    return a_term(expression("zone", chance.choice((Operator.IN, Operator.NOT_IN)), chance.choice(ZONES)))


def some_terms(chance: Random, nodes: list[str]) -> tuple[NodeSelectorTerm, ...] | None:
    if chance.random() < 0.3:
        return None
    return tuple(some_term(chance, nodes) for _ in range(chance.choice((1, 1, 1, 2))))


def a_world(chance: Random) -> StorageWorld:
    """Return a random cluster."""
    world, hosts = StorageWorld(), [f"n{number}" for number in range(chance.randint(1, 8))]
    for name in hosts:
        labels = {"host": name, "zone": chance.choice(ZONES)}
        if chance.random() < 0.6:
            labels[chance.choice((ZONE, OLD_ZONE))] = chance.choice(ZONES)
        world.nodes[name] = a_node(name, cpu="100", labels=labels)
        if chance.random() < 0.8:
            counts = {driver: chance.randint(0, 3) for driver in DRIVERS if chance.random() < 0.7}
            world.csi_nodes[name] = CsiNode(name, counts)
    world.classes["local"] = StorageClass("local", "kubernetes.io/no-provisioner", waits=True)
    for name, driver in zip(("fast", "slow"), DRIVERS, strict=True):
        near = (some_term(chance, hosts),) if chance.random() < 0.3 else ()
        world.classes[name] = StorageClass(name, driver, waits=True, topologies=near)
        if chance.random() < 0.6:
            world.drivers[driver] = CsiDriver(driver, tracks_capacity=chance.random() < 0.7)
    for number in range(chance.randint(0, 5)):
        where = label_selector("t", {"zone": chance.choice(ZONES)}, ()) if chance.random() < 0.9 else None
        limit = chance.choice((None, 3, 6, 9))
        world.capacities.append(StorageCapacity("d", f"c{number}", chance.choice(CLASSES), where, limit))
    for number in range(chance.randint(0, 12)):
        add_volume(chance, world, f"v{number}", hosts)
    for number in range(8):
        add_claim(chance, world, f"c{number}", hosts)
    add_pods(chance, world, hosts)
    for number in range(chance.randint(0, 4)):
        volume = chance.choice([*world.volumes, "unknown"])
        world.attachments.append(VolumeAttachment(f"a{number}", chance.choice(DRIVERS), chance.choice(hosts), volume))
    return world


def add_volume(chance: Random, world: StorageWorld, name: str, hosts: list[str]) -> None:
    labels = {"kind": chance.choice("xy")}
    if chance.random() < 0.3:
        labels[chance.choice((ZONE, OLD_ZONE))] = chance.choice(("z1", "z2", "z1__z2"))
    world.volumes[name] = Volume(
        name,
        some_terms(chance, hosts),
        labels,
        storage_class=chance.choice(CLASSES),
        capacity_bytes=chance.choice((3, 5, 5, 9)),
        access_modes=tuple(chance.sample(MODES, chance.randint(1, 3))),
        block=chance.random() < 0.1,
        attributes_class="gold" if chance.random() < 0.1 else "",
        available=chance.random() < 0.8,
        terminating=chance.random() < 0.1,
        driver=DriverVolume(chance.choice(DRIVERS), name) if chance.random() < 0.7 else None,
    )


def add_claim(chance: Random, world: StorageWorld, name: str, hosts: list[str]) -> None:
    claim = VolumeClaim(
        "default",
        name,
        uid=f"uid-{name}",
        storage_class=chance.choice(CLASSES),
        request_bytes=chance.choice((None, 2, 4, 5, 8)),
        access_modes=tuple(chance.sample(MODES, chance.choice((1, 1, 2)))),
        block=chance.random() < 0.1,
        attributes_class="gold" if chance.random() < 0.1 else "",
        selector=label_selector("s", {"kind": "x"}, ()) if chance.random() < 0.2 else None,
        selected_node=chance.choice(hosts) if chance.random() < 0.1 else "",
    )
    free = [one for one in world.volumes.values() if one.claim is None]
    if free and chance.random() < 0.4:
        volume, known = chance.choice(free), chance.random() < 0.7
        world.volumes[volume.name] = replace(volume, claim=ClaimRef("default", name, claim.uid if known else ""))
        if known:
            claim = replace(claim, volume=volume.name, bound=True)
    world.claims[claim.key] = claim


def a_user(chance: Random, world: StorageWorld, name: str, node: str = "") -> Pod:
    """Return a pod with a few claims."""
    names = chance.sample([key[1] for key in world.claims], chance.randint(1, 3))
    uses = tuple(VolumeClaimUse(f"spec.volumes[{at}].persistentVolumeClaim", one) for at, one in enumerate(names))
    return a_pod(name, claims=uses, node=node)


def add_pods(chance: Random, world: StorageWorld, hosts: list[str]) -> None:
    """Add pods on nodes; some were placed just now, with the volumes that were chosen for them."""
    for number in range(chance.randint(0, 6)):
        world.pods.append(a_user(chance, world, f"on-{number}", chance.choice(hosts)))
    for number in range(chance.randint(0, 2)):
        pod = a_user(chance, world, f"new-{number}")
        fitting = [node for node in world.nodes.values() if not world.refusal(pod, node)]
        if fitting:
            node = chance.choice(fitting)
            chosen = world.volumes_for(pod, node)
            world.choices += [
                VolumeChoice(("default", claim), f"uid-{claim}", volume, "" if volume else node.name)
                for claim, volume in chosen.items()
            ]
            world.pods.append(replace(pod, node_name=node.name))


def table_of(world: StorageWorld) -> NodeTable:
    """Return the node table of a cluster; the choices are all on the first row, which does not matter."""
    nodes = NodeTable()
    storage = nodes.storage
    for csi_node in world.csi_nodes.values():
        storage.see(csi_node)
    for node in world.nodes.values():
        nodes.see(node)
    objects: tuple[StorageObject, ...] = (*world.classes.values(), *world.drivers.values(), *world.capacities)
    for one in (*objects, *world.attachments):
        storage.see(one)
    for volume in world.volumes.values():
        storage.see_volume(volume)
    for claim in world.claims.values():
        storage.see_claim(claim)
    for pod in world.pods:
        nodes.add(AssignedPod(pod, pod.spec, nodes.rows[pod.node_name], allocation_of(pod.spec)))
    for choice in world.choices:
        storage.chosen.put(choice, 0)
    return nodes


def compare(world: StorageWorld, nodes: NodeTable, pod: Pod) -> None:
    """Compare which nodes are refused, why, and what is chosen on the others."""
    allocators = tuple(rule for rule in RULES if isinstance(rule, VolumeBinding))
    runner = Runner(Plugins((), (), (), RULES, allocators=allocators), nodes)
    rows = np.array([nodes.rows[name] for name in world.nodes], dtype=np.intp)
    refused = [world.refusal(pod, node) for node in world.nodes.values()]
    assert runner.fits(pod.spec, rows).tolist() == [not reasons for reasons in refused], (refused, pod)
    assert runner.refusals(pod.spec, rows).reasons == Counter(reason for reasons in refused for reason in reasons)
    for row, node, reasons in zip(rows.tolist(), world.nodes.values(), refused, strict=True):
        if not reasons:
            chosen = {one.claim[1]: one.volume for one in allocation_on(runner, pod.spec, row).choices}
            assert chosen == world.volumes_for(pod, node), (pod, node)


@pytest.mark.parametrize("number", range(50))
def test_rules_refuse_what_a_reference_for_one_node_refuses_and_choose_the_same_volumes(number: int) -> None:
    chance = seeds.random(f"volume rules {number}")
    world = a_world(chance)
    nodes = table_of(world)
    for probe in range(4):
        compare(world, nodes, a_user(chance, world, f"probe-{probe}"))
        change(chance, world, nodes)


def change(chance: Random, world: StorageWorld, nodes: NodeTable) -> None:
    """Change something in the cluster, and drop a trial that changed something else."""
    with Trial(nodes) as trial:
        for pod in chance.sample(world.pods, min(len(world.pods), 2)):
            trial.remove([AssignedPod(pod, pod.spec, nodes.rows[pod.node_name], allocation_of(pod.spec))])
        guest = a_user(chance, world, "guest")
        row = nodes.rows[chance.choice(list(world.nodes))]
        trial.place(AssignedPod(guest, guest.spec, row, Allocation((), guest.spec.volumes)))
        Runner(Plugins((), (), (), RULES), nodes).fits(guest.spec, np.array([row], dtype=np.intp))
    hosts = list(world.nodes)
    match chance.randrange(5):
        case 0 if world.volumes:
            name = chance.choice(list(world.volumes))
            claim = world.volumes[name].claim
            add_volume(chance, world, name, hosts)
            world.volumes[name] = replace(world.volumes[name], claim=claim)
            nodes.storage.see_volume(world.volumes[name])
        case 1 if world.pods:
            gone = world.pods.pop(chance.randrange(len(world.pods)))
            nodes.remove(AssignedPod(gone, gone.spec, nodes.rows[gone.node_name], allocation_of(gone.spec)))
        case 2:
            name = chance.choice(hosts)
            world.csi_nodes[name] = CsiNode(name, {driver: chance.randint(0, 3) for driver in DRIVERS})
            nodes.storage.see(world.csi_nodes[name])
        case 3:
            name = chance.choice(hosts)
            labels = {**world.nodes[name].labels, "zone": chance.choice(ZONES)}
            world.nodes[name] = replace(world.nodes[name], labels=labels)
            nodes.see(world.nodes[name])
        case _ if world.attachments:
            gone_from = world.attachments.pop()
            nodes.storage.forget("VolumeAttachment", "", gone_from.name)
