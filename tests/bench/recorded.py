"""An API server of a large cluster for benchmarks: it serves generated lists in pages at little cost.

It accepts Bindings, sends them to the watches of pods, and accepts every other write without effect.

Run as `python -m tests.bench.recorded NODES RUNNING WAITING GPUS`; it prints its port. GPUS is what running pods have:
none, one by count (`counted`), or one that is `allocated` to them, of the Device object of their node. After a line on
standard input it prints each Binding (uid, node and time in seconds of the monotonic clock) and stops.
"""

import asyncio
import sys
import time
from collections.abc import Iterator
from itertools import islice

import msgspec
from aiohttp import web

from aischeduler.model.device_request import DEVICE_ALLOCATED_KEY
from aischeduler.model.names import DEFAULT_POOL, GROUP, VERSION
from aischeduler.state.devices import DELIVERY_LABEL
from tests.bench.documents import (
    CLASSES_MAX,
    GPUS,
    PODS_OF_A_JOB,
    compact,
    device_object,
    real_job,
    real_node,
    real_pod,
)
from tests.objects import Json, pool_object

PODS = "/api/v1/pods"
JOBS = "/apis/batch/v1/jobs"
DEVICES = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
NO_GPUS, COUNTED, ALLOCATED = "none", "counted", "allocated"
HELD = (
    '{"gpu":[{"minor":@MINOR@,"id":"GPU-@NODE@-@MINOR@",'
    '"resources":{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory":"80Gi",'
    '"koordinator.sh/gpu-memory-ratio":"100"}}]}'
)
"""The annotation of a pod that has a whole GPU."""
GPU_POOL = "gpu-pool"
WRITABLE_BYTES_MAX = 2**20


class Templates:
    """Pods as JSON, from one template per class, so that a page costs little."""

    def __init__(self, *, bound: bool, gpus: str = NO_GPUS) -> None:
        self._bound, self._gpus = bound, gpus
        self._shapes = [self._template(shape) for shape in range(CLASSES_MAX)]

    def pod(self, number: int, nodes: int) -> bytes:
        """Return a pod; a bound pod runs on the node of its number."""
        name, node = (pod_name(number, bound=self._bound), node_of(number, nodes))
        made = self._shapes[number % CLASSES_MAX].replace(b"@NAME@", name.encode())
        made = made.replace(b"@MINOR@", b"%d" % (number // nodes % GPUS))
        return made.replace(b"@NODE@", node.encode())

    def _template(self, shape: int) -> bytes:
        document = real_pod(shape, version=1, node="@NODE@" if self._bound else "")
        document["metadata"] |= {"name": "@NAME@", "uid": "@NAME@"}
        resources = document["spec"]["containers"][0]["resources"]
        resources["requests"].pop("nvidia.com/gpu")
        resources.pop("limits")
        if self._gpus != NO_GPUS:
            name, amount = ("nvidia.com/gpu", "1") if self._gpus == COUNTED else ("koordinator.sh/gpu", "100")
            resources["requests"][name] = amount
            resources["limits"] = {name: amount}
        if self._gpus == ALLOCATED:
            document["metadata"].setdefault("annotations", {})[DEVICE_ALLOCATED_KEY] = HELD
        return compact(document)


def pod_name(number: int, *, bound: bool) -> str:
    """Return the name of a pod, which is also its UID."""
    return f"{'running' if bound else 'waiting'}-{number:06d}"


def node_of(number: int, nodes: int) -> str:
    """Return the node of a running pod."""
    return f"gpu-{number % nodes:05d}"


class Recorded:
    """The lists and the accepted Bindings."""

    def __init__(self, nodes: int, running: int, waiting: int, gpus: str) -> None:
        self.bindings: list[tuple[str, str, float]] = []
        self._nodes, self._gpus = nodes, gpus
        self._counts = {True: running, False: waiting}
        self._templates = {True: Templates(bound=True, gpus=gpus), False: Templates(bound=False)}
        self._watchers: list[web.StreamResponse] = []
        self._pages: dict[str, Iterator[bytes]] = {}

    def application(self) -> web.Application:
        """Return the HTTP application."""
        found = web.Application(client_max_size=WRITABLE_BYTES_MAX)
        found.router.add_get("/{path:.*}", self._get)
        found.router.add_post("/api/v1/namespaces/{namespace}/pods/{name}/binding", self._bind)
        found.router.add_route("*", "/{path:.*}", self._agree)
        return found

    def _items(self, path: str) -> Iterator[bytes]:
        if path == PODS:
            for bound, templates in self._templates.items():
                for number in range(self._counts[bound]):
                    yield templates.pod(number, self._nodes)
        elif path == "/api/v1/nodes":
            for number in range(self._nodes):
                yield compact(self._node(number))
        elif path == DEVICES and self._gpus == ALLOCATED:
            yield from self._devices()
        elif path == f"/apis/{GROUP}/{VERSION}/pools":
            for document in (pool_object(GPU_POOL, labels={"gpu": "true"}), pool_object(DEFAULT_POOL)):
                document["metadata"] |= {"uid": document["metadata"]["name"], "resourceVersion": "1", "generation": 1}
                yield compact(document)
        elif path == JOBS:
            for number in range(sum(self._counts.values()) // PODS_OF_A_JOB + 1):
                yield compact(real_job(number))
        elif path == "/api/v1/namespaces":
            yield compact({"metadata": {"name": "default", "uid": "default", "resourceVersion": "1"}})

    def _devices(self) -> Iterator[bytes]:
        for number in range(self._nodes):
            document = device_object(node_of(number, self._nodes))
            document["metadata"] |= {"uid": f"device-{number}", "resourceVersion": "1", "generation": 1}
            yield compact(document)

    def _node(self, number: int) -> Json:
        document = real_node(number, version=1)
        if self._gpus == ALLOCATED:
            document["metadata"]["labels"][DELIVERY_LABEL] = "koordlet"
            for amounts in (document["status"]["allocatable"], document["status"]["capacity"]):
                del amounts["nvidia.com/gpu"]
                amounts["koordinator.sh/gpu"] = str(GPUS * 100)
        return document

    async def _get(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") == "true":
            return await self._watch(request)
        token = request.query.get("continue", "")
        items = self._pages.pop(token) if token else self._items(request.path)
        page = list(islice(items, int(request.query.get("limit", "500"))))
        metadata: Json = {"resourceVersion": "1"}
        if len(page) == int(request.query.get("limit", "500")):
            metadata["continue"] = f"{request.path}-{time.monotonic_ns()}"
            self._pages[metadata["continue"]] = items
        body = b'{"kind":"List","apiVersion":"v1","metadata":%b,"items":[%b]}' % (compact(metadata), b",".join(page))
        return web.Response(body=body, content_type="application/json")

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        if request.path == PODS:
            self._watchers.append(answer)
        await asyncio.Event().wait()
        return answer

    async def _bind(self, request: web.Request) -> web.Response:
        asked = msgspec.json.decode(await request.read())
        name, node = request.match_info["name"], asked["target"]["name"]
        self.bindings.append((name, node, time.monotonic()))
        document = msgspec.json.decode(self._templates[False].pod(int(name.rpartition("-")[2]), self._nodes))
        document["metadata"]["resourceVersion"] = str(len(self.bindings) + 1)
        document["spec"]["nodeName"] = node
        line = compact({"type": "MODIFIED", "object": document}) + b"\n"
        for watcher in self._watchers:
            await watcher.write(line)
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)

    async def _agree(self, request: web.Request) -> web.Response:
        await request.read()
        return web.json_response({}, status=201 if request.method == "POST" else 200)


async def serve(nodes: int, running: int, waiting: int, gpus: str) -> None:
    """Serve until a line arrives on standard input."""
    recorded = Recorded(nodes, running, waiting, gpus)
    runner = web.AppRunner(recorded.application(), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    for uid, node, at in recorded.bindings:
        print(uid, node, at)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
