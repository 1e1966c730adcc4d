"""CPU of a decision about pods that get single GPUs, beside the same pods that get GPUs by count.

The engine sees the pods, decides, and sees the Bindings. A process starts where pods with allocations run.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from aischeduler.kube.decode.device import DeviceDocument, read_device
from aischeduler.model.actions import Bind
from aischeduler.model.device import DEVICES, WHOLE, DeviceRequest, HeldDevices
from aischeduler.model.device_request import GPU_UUIDS_KEY
from aischeduler.model.events import Seen
from aischeduler.model.pod import Pod
from aischeduler.state.devices import DELIVERY_LABEL
from tests.bench.apart import apart
from tests.bench.arena import FLOOD, Scene, arena, node_name
from tests.bench.cases.backlog import run_backlog
from tests.bench.cases.restart import FIRST, OWN_CPU, Crowd, restarted_on_records
from tests.bench.core import World, cpu_of_all, decide_all, evidence, see, tell, world
from tests.bench.documents import GPUS, compact, device_object
from tests.bench.processes import compile_ours, resident_bytes
from tests.bench.recorded import ALLOCATED, COUNTED
from tests.bench.spec import OURS, Case, Goal, Measure, Measured
from tests.build import a_pod, replace
from tests.controlplane.many import Request, create, send
from tests.devices import asks
from tests.objects import Json

COUNT, QUARTERS = "the same pods by count", "quarters of GPUs"
RATE, NODE_BYTES = "decisions/s of CPU", "engine's bytes/node"
POOLS, SHAPES = 20, 48
NODES, PODS, WAITING = 2_500, 10_000, 100
SERVED_NODES, SERVED_PODS = (1_000, 5_000), 4_000
DEFINITION: Final = Path(__file__).resolve().parents[3] / "manifests" / "devices" / "device-crd.yaml"
PATH: Final = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
SHOWN: Final = {"fieldRef": {"fieldPath": f"metadata.annotations['{GPU_UUIDS_KEY}']"}}


def cases(shrink: int) -> tuple[Case, ...]:
    """Return the cases of this module, with sizes divided by `shrink`."""
    nodes, pods = NODES // shrink, PODS // shrink
    crowd = Crowd(nodes, nodes * GPUS, WAITING // min(shrink, 10))

    @contextmanager
    def opened() -> Iterator[Measure]:
        yield lambda side: apart(decide, side, nodes, pods)

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
            about=f"{crowd.text} with allocations, generated lists; from the start of the process",
            sides=(OURS, COUNT),
            open=partial(restarted, crowd),
            goals=tuple(Goal(figure, 1.15, at_least=False, peer=COUNT) for figure in (FIRST, OWN_CPU)),
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
def restarted(crowd: Crowd) -> Iterator[Measure]:
    compile_ours()
    yield lambda side: restarted_on_records(crowd, COUNTED if side == COUNT else ALLOCATED)


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


def a_world(side: str, nodes: int) -> World:
    """Return an engine and its nodes, with Device objects but for GPUs by count."""
    there = world(nodes, POOLS, gpu=GPUS)
    if side == COUNT:
        return there
    known = [replace(node, labels={**node.labels, DELIVERY_LABEL: "koordlet"}) for node in there.nodes]
    documents = (compact(device_object(node.name)) for node in known)
    tell(there.scheduler, (Seen(read_device(msgspec.json.decode(text, type=DeviceDocument))) for text in documents))
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
