"""CPU of a decision about pods that get single GPUs, beside the same pods that get GPUs by count.

The engine sees the pods, decides, and sees the Bindings. `restart` is an engine that sees pods with allocations.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from aischeduler.model.actions import Bind
from aischeduler.model.device import DEVICES, WHOLE, DeviceRequest, HeldDevices
from aischeduler.model.device_request import GPU_UUIDS_KEY
from aischeduler.model.events import Seen
from aischeduler.model.pod import RUNNING, Pod
from aischeduler.state.devices import DELIVERY_LABEL
from tests.bench.apart import apart
from tests.bench.arena import FLOOD, Scene, arena, node_name
from tests.bench.cases.backlog import run_backlog
from tests.bench.core import World, cpu_of_all, decide_all, evidence, see, tell, world
from tests.bench.processes import resident_bytes
from tests.bench.spec import OURS, Case, Goal, Measure, Measured
from tests.build import a_pod, replace
from tests.controlplane.many import Request, create, send
from tests.devices import asks, gpus, part_of
from tests.objects import Json

COUNT, QUARTERS = "the same pods by count", "quarters of GPUs"
RATE, NODE_BYTES, RESTART = "decisions/s of CPU", "engine's bytes/node", "CPU s to see all pods on nodes"
GPUS, POOLS, SHAPES = 8, 20, 48
NODES, PODS, ALLOCATED = 2_500, 10_000, 20_000
SERVED_NODES, SERVED_PODS = (1_000, 5_000), 4_000
DEFINITION: Final = Path(__file__).resolve().parents[3] / "manifests" / "devices" / "device-crd.yaml"
PATH: Final = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
SHOWN: Final = {"fieldRef": {"fieldPath": f"metadata.annotations['{GPU_UUIDS_KEY}']"}}


def cases(shrink: int) -> tuple[Case, ...]:
    """Return the cases of this module, with sizes divided by `shrink`."""
    nodes, pods, allocated = NODES // shrink, PODS // shrink, ALLOCATED // shrink

    @contextmanager
    def opened() -> Iterator[Measure]:
        yield lambda side: apart(decide, side, nodes, pods)

    @contextmanager
    def restarted() -> Iterator[Measure]:
        yield lambda side: apart(restart, side, nodes, allocated)

    return (
        Case(
            name="devices",
            about=f"in process: {nodes:,} nodes of {GPUS} GPUs with Device objects, {pods:,} pods of one GPU",
            sides=(OURS, QUARTERS, COUNT),
            open=opened,
            goals=(Goal(RATE, 0.85, peer=COUNT), Goal(NODE_BYTES, 1.3, at_least=False, peer=COUNT)),
        ),
        Case(
            name="devices-restart",
            about=f"in process: {allocated:,} pods with allocations on {nodes:,} nodes are seen anew",
            sides=(OURS, COUNT),
            open=restarted,
            goals=(Goal(RESTART, 1.15, at_least=False, peer=COUNT),),
        ),
        *(backlog(size // shrink, SERVED_PODS // shrink) for size in SERVED_NODES),
    )


def backlog(nodes: int, pods: int) -> Case:
    """Return the case of waiting pods of a quarter of a GPU on a real API server."""
    return Case(
        name=f"devices-backlog-{nodes}n-{pods}",
        about=f"{pods:,} waiting pods of a quarter of a GPU, {nodes:,} nodes of {GPUS} GPUs, one API server",
        sides=(OURS, FLOOD),
        open=partial(served, nodes, pods),
        goals=(Goal("pods/s", 0.9, peer=FLOOD),),
        needs_server=True,
    )


@contextmanager
def served(nodes: int, pods: int) -> Iterator[Measure]:
    with arena(Scene(nodes, pools=4, dress=ask_for_a_quarter)) as ground:
        plane = ground.plane
        applied = plane.kubectl("apply", "-f", str(DEFINITION))
        assert applied.returncode == 0, applied.stderr
        plane.kubectl("wait", "--for=condition=Established", "crd/devices.scheduling.koordinator.sh")
        create(plane.connect, PATH, (device_object(node_name(number)) for number in range(nodes)))
        amounts = {"koordinator.sh/gpu": str(GPUS * WHOLE)}
        listed = {"status": {"capacity": amounts, "allocatable": amounts}}
        send(
            plane.connect,
            [Request("PATCH", f"/api/v1/nodes/{node_name(number)}/status", listed) for number in range(nodes)],
        )
        yield partial(run_backlog, ground, pods)


def ask_for_a_quarter(number: int, document: Json) -> None:
    """Let a pod ask for a quarter of a GPU, and its container show it."""
    container = document["spec"]["containers"][0]
    for part in ("requests", "limits"):
        container.setdefault("resources", {}).setdefault(part, {})["koordinator.sh/gpu"] = "25"
    container["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": SHOWN}]


def device_object(node: str) -> Json:
    """Return a Device object of GPUs of 80 GiB."""
    amounts = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory": "80Gi"}
    devices = [
        {"type": "gpu", "id": f"GPU-{node}-{minor}", "minor": minor, "health": True, "resources": amounts}
        for minor in range(GPUS)
    ]
    kind = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device"}
    return {**kind, "metadata": {"name": node}, "spec": {"devices": devices}}


def a_world(side: str, nodes: int) -> World:
    """Return an engine and its nodes, with Device objects but for GPUs by count."""
    there = world(nodes, POOLS, gpu=GPUS)
    if side == COUNT:
        return there
    known = [replace(node, labels={**node.labels, DELIVERY_LABEL: "koordlet"}) for node in there.nodes]
    tell(there.scheduler, (Seen(gpus(node.name, GPUS)) for node in known))
    tell(there.scheduler, (Seen(node) for node in known))
    return World(there.scheduler, known)


def pods_of(side: str, count: int) -> list[Pod]:
    """Return pods of one GPU or a quarter of one, of several shapes in each pool."""
    quarter = side == QUARTERS
    asked: DeviceRequest = asks(25) if quarter else asks(100, vendor="nvidia")
    made = [
        a_pod(
            cpu=f"{500 + kind}m", memory="1Gi", gpu=0 if quarter else 1, pool=f"pool-{kind % POOLS:03d}", devices=asked
        )
        for kind in range(SHAPES)
    ]
    return [
        replace(made[number % SHAPES], uid=f"new-{number}", name=f"new-{number}", created_seconds=number + 1)
        for number in range(count)
    ]


def decide(side: str, nodes: int, count: int) -> Measured:
    """Measure the decisions about a backlog."""
    before = resident_bytes(os.getpid())
    there = a_world(side, nodes)
    after = resident_bytes(os.getpid())
    pods = pods_of(side, count)
    see(there.scheduler, pods)
    said = []
    deciding = cpu_of_all(lambda: said.extend(decide_all(there.scheduler)))
    held = [bind.allocation.part(DEVICES) for bind in said if isinstance(bind, Bind)]
    assert side == COUNT or all(isinstance(one, HeldDevices) and one.devices for one in held), "each pod got devices"
    figures = {RATE: count / deciding, NODE_BYTES: (after - before) / nodes}
    return Measured(evidence(there.nodes, (), pods, said), figures)


def restart(side: str, nodes: int, count: int) -> Measured:
    """Measure how an engine takes in pods that run on nodes, with what they say to have."""
    there = a_world(side, nodes)
    pods = []
    for number, pod in enumerate(pods_of(side, count)):
        node = there.nodes[number // GPUS % nodes].name
        has = None if side == COUNT else HeldDevices((part_of(number % GPUS, 100),))
        pods.append(replace(pod, node_name=node, phase=RUNNING, started_seconds=number + 1, devices=has))
    seeing = cpu_of_all(partial(see, there.scheduler, pods))
    return Measured(evidence(there.nodes, pods, (), ()), {RESTART: seeing})
