"""`ai-scheduler devices` as a user sees it: the table, JSON, one node, and what cannot be answered."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from aischeduler.analysis.cluster_snapshot import ClusterSnapshot, write_lines
from aischeduler.cli.app import main
from aischeduler.cli.devices import NONE
from aischeduler.kube.access.server import connect
from aischeduler.kube.crds import crd
from aischeduler.kube.http.client import Client
from aischeduler.kube.watch.cluster_lister import WITHOUT
from aischeduler.model.device import (
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    HeldDevice,
    HeldDevices,
    HolderSource,
    NodeDevices,
)
from aischeduler.model.device_request import DEVICE_ALLOCATED_KEY
from aischeduler.model.events import Seen
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.sandbox.http_server import HttpSandbox
from aischeduler.state.devices import DELIVERY_LABEL
from tests.build import a_node, a_pod, replace
from tests.devices import GIB, a_device, a_gpu, asks, devices_of, has, part_of, whole
from tests.objects import Json, node_object, pod_object

DEFINITION = Path(__file__).resolve().parents[2] / "manifests" / "devices" / "device-crd.yaml"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEVICES = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"

GOLDEN = """
Node  Type  Minor  Health       Core     Memory   Ratio   Amount  Holders
──────────────────────────────────────────────────────────────────────────────────────────────
n1    gpu       0  Healthy    90/100  72Gi/80Gi  90/100           default/p (device-allocated)
                                                                  default/q (device-allocated)
n1    gpu       1  Unhealthy   0/100     0/80Gi   0/100
n1    rdma      0  Healthy                                20/100  default/r (device-allocated)
n2    gpu       0  Healthy    30/100   1Gi/16Gi   7/100           default/hami (hami)
n2    gpu       -  -                                     2 whole  default/old (count)
n3    gpu       0  Healthy     0/100          -   0/100
"""


def objects() -> Iterator[Node | NodeDevices | Pod]:
    """Yield shared cards, a sick card, a further type; unknown holders; a card of no known memory; counts only."""
    hami = HeldDevices((HeldDevice(GPU, -1, ((GPU_CORE, 30), (GPU_MEMORY, GIB)), "GPU-0"),), source=HolderSource.HAMI)
    rdma = HeldDevice("rdma", 0, (("rdma", 20),), "rdma-0")
    plain = replace(a_gpu(0), totals=((GPU_CORE, 100), (GPU_MEMORY_RATIO, 100)), id="")
    faults = ("spec.devices[3].type: is missing",)
    for name in ("n1", "n2", "n3"):
        yield a_node(name, cpu="64", memory="64Gi", labels={DELIVERY_LABEL: "koordlet"})
    yield a_node("counts", gpu=2)
    yield replace(devices_of("n1", a_gpu(0), a_gpu(1, healthy=False), a_device("rdma", 0)), faults=faults)
    yield devices_of("n2", a_gpu(0, gib=16))
    yield devices_of("n3", plain)
    yield a_pod("q", node="n1", devices=asks(40), has=has(part_of(0, 40)))
    yield a_pod("p", node="n1", devices=asks(50), has=has(part_of(0, 50)))
    yield a_pod("r", node="n1", devices=asks(others={"rdma": 20}), has=has(rdma, whole(7)))
    yield a_pod("hami", node="n2", devices=asks(30), has=hami)
    yield a_pod("old", node="n2", devices=asks(100, count=2))


NOTES = [
    "the Device object of the node n1: spec.devices[3].type: is missing",
    "default/r has gpu 7 of the node n1, whose Device object does not have it",
]


def a_file(path: Path, *shown: Node | NodeDevices | Pod, gaps: tuple[str, ...] = ()) -> Path:
    """Write a snapshot of these objects."""
    lines = write_lines(ClusterSnapshot(1, tuple(map(Seen, shown)), (), gaps))
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    return a_file(tmp_path / "cluster.jsonl", *objects())


def test_table_has_a_row_for_each_device_and_one_for_devices_that_nobody_can_name(
    snapshot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["devices", "--snapshot", str(snapshot)]) == 0
    said = capsys.readouterr()
    assert said.out == GOLDEN[1:]
    assert said.err.splitlines() == NOTES


def test_json_has_every_field_for_every_device_and_null_for_what_nobody_says(
    snapshot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["devices", "-o", "json", "--snapshot", str(snapshot)]) == 0
    said = capsys.readouterr()
    shared, *_, hami, unknown, plain = json.loads(said.out)
    assert shared == {
        "node": "n1",
        "type": "gpu",
        "minor": 0,
        "id": "GPU-0",
        "health": True,
        "dimensions": {
            "gpu-core": {"used": 90, "total": 100},
            "gpu-memory": {"used": 72 * GIB, "total": 80 * GIB},
            "gpu-memory-ratio": {"used": 90, "total": 100},
        },
        "holders": [
            {"namespace": "default", "name": name, "uid": f"uid-{name}", "source": "device-allocated"} for name in "pq"
        ],
    }
    assert [holder["source"] for holder in hami["holders"]] == ["hami"]
    assert unknown == {
        "node": "n2",
        "type": "gpu",
        "minor": None,
        "id": None,
        "health": None,
        "dimensions": {},
        "holders": [{"namespace": "default", "name": "old", "uid": "uid-old", "source": "count"}],
    }
    assert (plain["id"], [*plain["dimensions"]], plain["holders"]) == (None, ["gpu-core", "gpu-memory-ratio"], [])
    assert said.err.splitlines() == NOTES


def test_name_shows_the_devices_and_faults_of_that_node_alone(
    snapshot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["devices", "n2", "--snapshot", str(snapshot)]) == 0
    said = capsys.readouterr()
    assert [line.split()[0] for line in said.out.splitlines()[2:]] == ["n2", "n2"]
    assert said.err == ""


@pytest.mark.parametrize(
    ("node", "sentence"),
    [
        ("count", "there is no node 'count'; is it counts?"),
        (
            "counts",
            "the node counts has no Device object: nodes without a Device object give whole GPUs, by count only",
        ),
    ],
)
def test_node_without_devices_is_one_sentence(
    node: str, sentence: str, snapshot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["devices", node, "--snapshot", str(snapshot)]) == 1
    assert capsys.readouterr() == ("", f"ai-scheduler: {sentence}\n")


@pytest.mark.parametrize("node", ["", "counts"])
def test_cluster_without_device_objects_says_what_is_missing(
    node: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = a_file(tmp_path / "cluster.jsonl", a_node("counts", gpu=2))
    assert main(["devices", node, "--snapshot", str(path), "-o", "json"]) == 1
    assert capsys.readouterr() == ("", f"ai-scheduler: {NONE}\n")


def test_without_the_right_to_list_device_objects_there_is_no_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gap = f"https://here does not allow you to list Devices (you cannot list it): {WITHOUT['Device']}"
    path = a_file(tmp_path / "cluster.jsonl", a_node("n"), gaps=(gap,))
    assert main(["devices", "--snapshot", str(path)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    last = "ai-scheduler: Device objects cannot be listed, and there is no answer without them"
    assert said.err.splitlines() == [gap, last]


@asynccontextmanager
async def served(tmp_path: Path) -> AsyncIterator[Path]:
    """A cluster with a node of two GPUs, a pod that has half of one, and a pod that waits; its kubeconfig."""
    path = tmp_path / "kubeconfig"
    card = {"type": "gpu", "health": True, "resources": {"koordinator.sh/gpu-memory": "80Gi"}}
    device = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": "n"},
        "spec": {"devices": [{**card, "minor": minor, "id": f"GPU-{minor}"} for minor in range(2)] + [{"minor": 2}]},
    }
    async with HttpSandbox() as sandbox:
        path.write_text(sandbox.kubeconfig)
        async with Client(await connect(str(path), None, lambda: 0.0)) as client:
            for definition in (crd("pools"), yaml.safe_load(DEFINITION.read_text())):
                await post(client, CRDS, definition)
            await post(client, NODES, node_object("n", cpu="64"))
            await post(client, DEVICES, device)
            amounts = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}
            half = {"minor": 1, "resources": {**amounts, "koordinator.sh/gpu-memory": "40Gi"}}
            for name, node, said in (
                ("p", "n", {DEVICE_ALLOCATED_KEY: json.dumps({"gpu": [half]})}),
                ("waits", "", {}),
            ):
                pod = pod_object(name, node=node, annotations=said)
                resources = pod["spec"]["containers"][0]["resources"]
                resources |= {"requests": {**resources["requests"], **amounts}, "limits": amounts}
                await post(client, PODS, pod)
        yield path


async def post(client: Client, path: str, item: Json) -> None:
    await client.post(path, json.dumps(item).encode())


async def test_devices_of_a_cluster_are_those_of_its_device_objects_and_used_as_its_pods_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with served(tmp_path) as path:
        assert await asyncio.to_thread(main, ["devices", "--kubeconfig", str(path)]) == 0
    said = capsys.readouterr()
    assert [line.split() for line in said.out.splitlines()[2:]] == [
        ["n", "gpu", "0", "Healthy", "0/100", "0/80Gi", "0/100"],
        ["n", "gpu", "1", "Healthy", "50/100", "40Gi/80Gi", "50/100", "default/p", "(device-allocated)"],
    ]
    assert said.err.splitlines() == ["the Device object of the node n: spec.devices[2].type: is missing"]
