"""The device reporter on an API server: what it writes, when it writes again, and what it survives."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from typing import Any

import orjson
import pytest
import structlog
import yaml
from structlog.testing import capture_logs

from aischeduler.device_reporter.agent import Agent
from aischeduler.device_reporter.hardware import DriverError, Gpu, Gpus, Place, Xid
from aischeduler.kube.access.server import Server
from aischeduler.kube.http.client import Client
from aischeduler.model.device import Device
from aischeduler.model.device_request import DEVICE_ALLOCATED_KEY
from aischeduler.sandbox.api_server import ApiServer
from aischeduler.sandbox.http_server import HOST, HttpSandbox
from aischeduler.sandbox.request import Request, Response
from aischeduler.sandbox.watches import WatchStream
from tests.chart.rendering import CHART
from tests.device_reporter.hosts import entry, write_checkpoint
from tests.kube.scripted_server import Waits, until

Json = dict[str, Any]
DEFINITION = yaml.safe_load((CHART / "files" / "devices" / "device-crd.yaml").read_text())
DEVICES = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
MEMORY = 80 * 1024**3
OF_ONE_GPU = {"gpu": "100", "gpu-core": "100", "gpu-memory": str(MEMORY), "gpu-memory-ratio": "100"}


def gpus(*minors: int) -> Gpus:
    return Gpus("580", tuple(Gpu(f"GPU-{minor}", minor, "NVIDIA H100", MEMORY, Place("")) for minor in minors))


@dataclass
class TestHardware:
    """Hardware that answers what the test says.

    With `hangs` the driver answers only once that is set; where it `blocks`, the wait for an Xid ends with one alone.
    """

    __test__ = False
    found: Gpus | DriverError = field(default_factory=lambda: gpus(0))
    xids: SimpleQueue[Xid | None] = field(default_factory=SimpleQueue)
    hangs: Event | None = None
    blocks: bool = False

    def gpus(self) -> Gpus:
        if self.hangs is not None:
            self.hangs.wait()
        if isinstance(self.found, DriverError):
            raise self.found
        return self.found

    def rdma(self) -> tuple[Device, ...]:
        return ()

    def fpga(self) -> tuple[Device, ...]:
        return ()

    def wait_for_xid(self, _seconds: float) -> Xid | None:
        return self.xids.get() if self.blocks else None


class RecordingServer(ApiServer):
    """An API server that notes the writes to it, and refuses all requests while `refuses` is a status."""

    def __init__(self) -> None:
        super().__init__(now=time.time())
        self.writes: list[tuple[str, str, Json]] = []
        self.refuses = 0
        self.refused = 0

    def handle(self, request: Request, now: float) -> Response | WatchStream:
        if getattr(self, "refuses", 0):
            self.refused += 1
            return Response(
                self.refuses, orjson.dumps({"kind": "Status", "code": self.refuses, "reason": "Unavailable"})
            )
        if request.method != "GET" and hasattr(self, "writes"):
            self.writes.append((request.method, request.path, orjson.loads(request.body)))
        return super().handle(request, now)

    def ask(self, method: str, path: str, body: Json | None = None, media: str = "application/json") -> Json:
        asked = Request(method, path, content_type=media, body=orjson.dumps(body) if body is not None else b"")
        answer = super().handle(asked, time.time())
        assert isinstance(answer, Response)
        assert answer.status < 300, answer.body
        found: Json = orjson.loads(answer.body)
        return found

    def taken_writes(self) -> list[tuple[str, str]]:
        taken = [(method, path) for method, path, _ in self.writes]
        self.writes.clear()
        return taken

    def device(self) -> Json:
        return self.ask("GET", f"{DEVICES}/gpu-0")

    def node(self) -> Json:
        return self.ask("GET", f"{NODES}/gpu-0")


@dataclass
class World:
    """An agent on a node of an API server in this process."""

    agent: Agent
    server: RecordingServer
    hardware: TestHardware
    waits: Waits
    root: Path

    async def report(self) -> list[tuple[str, str]]:
        """Report once and return the writes."""
        await self.agent.write(await self.agent.look())
        return self.server.taken_writes()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.agent.run())
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    server, waits = RecordingServer(), Waits()
    server.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
    server.ask("POST", NODES, {"metadata": {"name": "gpu-0"}, "status": {"capacity": {"cpu": "8"}}})
    write_checkpoint(tmp_path, [])
    hardware = TestHardware()
    async with HttpSandbox(server) as sandbox:
        at = Server(HOST, int(sandbox.url.rpartition(":")[2]), asyncio.get_running_loop().time)
        async with Client(at) as client:
            agent = Agent(
                client,
                hardware,
                "gpu-0",
                root=tmp_path,
                interval_seconds=30.0,
                timing=waits.timing(),
                log=structlog.get_logger(),
                driver_seconds=60.0,
            )
            yield World(agent, server, hardware, waits, tmp_path)


async def test_first_report_creates_the_device_labels_the_node_and_gives_it_capacity(world: World) -> None:
    assert await world.report() == [
        ("POST", DEVICES),
        ("PATCH", f"{NODES}/gpu-0"),
        ("PATCH", f"{NODES}/gpu-0/status"),
    ]
    node, device = world.server.node(), world.server.device()
    amounts = {
        f"{prefix}{name}": OF_ONE_GPU[name] for prefix in ("kubernetes.io/", "koordinator.sh/") for name in OF_ONE_GPU
    }
    assert node["status"]["capacity"] == {"cpu": "8", **amounts}
    assert node["status"]["allocatable"] == {"cpu": "8", **amounts}
    assert node["metadata"]["labels"] == device["metadata"]["labels"]
    assert device["metadata"]["labels"]["node.koordinator.sh/gpu-model"] == "H100"
    (owner,) = device["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Node", node["metadata"]["uid"])


async def test_report_of_what_is_there_already_writes_nothing(world: World) -> None:
    await world.report()
    assert [await world.report() for _ in range(3)] == [[], [], []]


async def test_only_what_differs_is_written(world: World) -> None:
    await world.report()
    world.hardware.found = gpus(0, 1)
    await world.agent.write(await world.agent.look())
    by_path = {path: body for _, path, body in world.server.writes}
    assert set(by_path) == {f"{DEVICES}/gpu-0", f"{NODES}/gpu-0/status"}
    assert list(by_path[f"{DEVICES}/gpu-0"]) == ["spec"]


async def test_kubelet_that_made_its_node_anew_gets_the_capacity_again(world: World) -> None:
    await world.report()
    zeroed = {f"koordinator.sh/{name}": "0" for name in OF_ONE_GPU} | {
        f"kubernetes.io/{name}": None for name in OF_ONE_GPU
    }
    change = {"status": {"capacity": zeroed, "allocatable": zeroed}}
    before = world.server.node()["status"]
    world.server.ask("PATCH", f"{NODES}/gpu-0/status", change, "application/merge-patch+json")
    assert await world.report() == [("PATCH", f"{NODES}/gpu-0/status")]
    assert world.server.node()["status"] == before


async def test_node_of_the_same_name_owns_the_device_anew(world: World) -> None:
    await world.report()
    world.server.ask("DELETE", f"{NODES}/gpu-0")
    world.server.ask("POST", NODES, {"metadata": {"name": "gpu-0"}})
    await until(lambda: world.server.ask("GET", DEVICES)["items"] == [])
    assert ("POST", DEVICES) in await world.report()
    assert world.server.device()["metadata"]["ownerReferences"][0]["uid"] == world.server.node()["metadata"]["uid"]


async def test_field_that_the_definition_does_not_keep_is_not_written_again_and_again(world: World) -> None:
    def without_module(part: Any) -> None:
        if isinstance(part, dict):
            part.pop("moduleID", None)
            for inner in part.values():
                without_module(inner)

    definition = json.loads(json.dumps(DEFINITION))
    for version in definition["spec"]["versions"]:
        without_module(version["schema"])
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition['metadata']['name']}"
    world.server.ask(
        "PATCH", path, {"spec": {"versions": definition["spec"]["versions"]}}, "application/merge-patch+json"
    )
    world.hardware.found = Gpus("580", (Gpu("GPU-0", 0, "NVIDIA H100", MEMORY, Place(""), module=2),))
    await world.report()
    assert await world.report() == [("PATCH", f"{DEVICES}/gpu-0")]
    assert [await world.report() for _ in range(2)] == [[], []]


def pod(name: str, annotations: dict[str, str]) -> Json:
    resources = {"nvidia.com/gpu": "1"}
    containers = [{"name": "main", "image": "a", "resources": {"requests": resources, "limits": resources}}]
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"nodeName": "gpu-0", "containers": containers},
    }


async def test_record_has_the_pods_that_do_not_say_themselves_which_devices_they_have(world: World) -> None:
    allocated = {"gpu": [{"minor": 0, "id": "GPU-0", "resources": {"koordinator.sh/gpu-core": "100"}}]}
    annotations = {
        "ours": {DEVICE_ALLOCATED_KEY: json.dumps(allocated)},
        "forged": {DEVICE_ALLOCATED_KEY: "{}"},
        "theirs": {},
    }
    uids = {
        name: world.server.ask("POST", PODS, pod(name, annotations[name]))["metadata"]["uid"] for name in annotations
    }
    write_checkpoint(world.root, [entry(uids[name], ["GPU-0"]) for name in uids])
    await world.report()
    record = json.loads(world.server.device()["metadata"]["annotations"]["node.koordinator.sh/devices-checkpoints"])
    assert sorted(one["podUID"] for one in record) == sorted([uids["forged"], uids["theirs"]])


async def test_record_stays_while_the_kubelet_says_nothing(world: World) -> None:
    write_checkpoint(world.root, [entry("u1", ["GPU-0"])])
    await world.report()
    write_checkpoint(world.root, [])
    (world.root / "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint").unlink()
    with capture_logs() as lines:
        assert [await world.report(), await world.report()] == [[], []]
    assert [line["event"] for line in lines] == ["devices of pods not read"]


async def test_xid_is_reported_at_once_unless_it_is_a_fault_of_programs(world: World) -> None:
    world.hardware.blocks = True  # no pause of the agent ends before an Xid
    with capture_logs() as lines:
        async with world.running():
            world.hardware.xids.put(Xid(13, "GPU-0"))
            await until(lambda: [line for line in lines if line["event"] == "Xid ignored"])
            assert world.server.device()["spec"]["devices"][0]["health"] is True
            world.hardware.xids.put(Xid(79, "GPU-0"))
            await until(lambda: not world.server.device()["spec"]["devices"][0]["health"])
            world.hardware.xids.put(None)
    (condition,) = world.server.device()["spec"]["devices"][0]["conditions"]
    assert condition["reason"] == "Xid79"
    assert world.server.node()["status"]["capacity"]["koordinator.sh/gpu"] == "100"


async def test_driver_that_goes_and_comes_makes_all_gpus_unhealthy_meanwhile(world: World) -> None:
    await world.report()
    world.hardware.found = DriverError("Driver Not Loaded")
    with capture_logs() as lines:
        assert [await world.report(), await world.report()] == [[("PATCH", f"{DEVICES}/gpu-0")], []]
    assert [line["event"] for line in lines] == ["GPUs not read", "devices reported"]
    (device,) = world.server.device()["spec"]["devices"]
    assert device["conditions"][0] | {"lastTransitionTime": ""} == {
        "type": "Healthy",
        "status": "False",
        "reason": "DriverUnavailable",
        "message": "Driver Not Loaded",
        "lastTransitionTime": "",
    }
    world.hardware.found = gpus(0)
    await world.report()
    assert world.server.device()["spec"]["devices"][0]["health"] is True


async def test_driver_that_hangs_makes_all_gpus_unhealthy_and_the_loop_goes_on(world: World) -> None:
    await world.report()
    world.agent._driver_seconds = 0.05
    world.hardware.hangs = hangs = Event()
    assert await world.report() == [("PATCH", f"{DEVICES}/gpu-0")]
    assert world.server.device()["spec"]["devices"][0]["conditions"][0]["reason"] == "DriverHangs"
    assert await world.report() == []
    world.hardware.hangs = None
    hangs.set()
    world.agent._driver_seconds = 60.0
    await world.report()
    assert world.server.device()["spec"]["devices"][0]["health"] is True


async def test_unhealthy_gpu_is_still_so_after_the_driver_started_again(world: World) -> None:
    world.agent._health.record(Xid(79, "GPU-0"), ())
    await world.report()
    world.hardware.found = DriverError("Driver Not Loaded")
    await world.report()
    world.hardware.found = gpus(0)
    await world.report()
    assert world.server.device()["spec"]["devices"][0]["conditions"][0]["reason"] == "Xid79"


async def test_node_without_devices_or_driver_gets_no_object_and_no_capacity(world: World) -> None:
    world.hardware.found = DriverError("no library")
    assert await world.report() == []
    world.hardware.found = gpus()
    assert await world.report() == []


@pytest.mark.parametrize("status", [503, 403, 409])
async def test_outage_is_waited_for_with_growing_pauses(world: World, status: int) -> None:
    world.server.refuses = status
    with capture_logs() as lines:
        async with world.running():
            await until(lambda: len(world.waits.seconds) >= 4)
            world.server.refuses = 0
            await until(lambda: world.server.writes)
    failed = [line for line in lines if line["event"] == "report failed"]
    assert len(failed) >= 4
    assert [line["again_in_seconds"] for line in failed[:4]] == [1.2, 2.4, 4.8, 9.6]


async def test_definition_of_device_that_comes_later_is_used_then(world: World) -> None:
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    world.server.ask("DELETE", f"{definitions}/{DEFINITION['metadata']['name']}")
    with capture_logs() as lines:
        async with world.running():
            await until(lambda: len(world.waits.seconds) >= 2)
            world.server.ask("POST", definitions, DEFINITION)
            await until(lambda: world.server.ask("GET", DEVICES)["items"])
    failed = {line["reason"].partition(":")[0] for line in lines if line["event"] == "report failed"}
    assert failed == {"the definition of devices.scheduling.koordinator.sh is not installed"}


@pytest.mark.expects_errors("report ended by a bug")
async def test_bug_does_not_end_the_loop(world: World) -> None:
    def fail() -> tuple[Device, ...]:
        raise ValueError("a bug")

    was: Callable[[], tuple[Device, ...]] = world.hardware.rdma
    world.hardware.rdma = fail  # type: ignore[method-assign]
    async with world.running():
        await until(lambda: world.waits.seconds)
        world.hardware.rdma = was  # type: ignore[method-assign]
        await until(lambda: world.server.writes)
