"""An API server of a large cluster for benchmarks: it serves generated lists in pages at little cost.

It accepts Bindings, sends them to the watches of pods, and accepts every other write without effect.

Run as `python -m tests.bench.recorded NODES RUNNING WAITING`; it prints its port. After a line on standard input it
prints each Binding (uid, node and time in seconds of the monotonic clock) and stops.
"""

import asyncio
import sys
import time
from collections.abc import Iterator
from itertools import islice

import msgspec
from aiohttp import web

from aischeduler.model.names import DEFAULT_POOL, GROUP, VERSION
from tests.bench.documents import CLASSES_MAX, PODS_OF_A_JOB, compact, real_job, real_node, real_pod
from tests.objects import Json, pool_object

PODS = "/api/v1/pods"
JOBS = "/apis/batch/v1/jobs"
GPU_POOL = "gpu-pool"
WRITABLE_BYTES_MAX = 2**20


class Templates:
    """Pods as JSON, from one template per class, so that a page costs little."""

    def __init__(self, *, bound: bool) -> None:
        self._bound = bound
        self._shapes = [self._template(shape) for shape in range(CLASSES_MAX)]

    def pod(self, number: int, nodes: int) -> bytes:
        """Return a pod; a bound pod runs on the node of its number."""
        name, node = (pod_name(number, bound=self._bound), node_of(number, nodes))
        made = self._shapes[number % CLASSES_MAX].replace(b"@NAME@", name.encode())
        return made.replace(b"@NODE@", node.encode())

    def _template(self, shape: int) -> bytes:
        document = real_pod(shape, version=1, node="@NODE@" if self._bound else "")
        document["metadata"] |= {"name": "@NAME@", "uid": "@NAME@"}
        resources = document["spec"]["containers"][0]["resources"]
        resources["requests"].pop("nvidia.com/gpu")
        resources.pop("limits")
        return compact(document)


def pod_name(number: int, *, bound: bool) -> str:
    """Return the name of a pod, which is also its UID."""
    return f"{'running' if bound else 'waiting'}-{number:06d}"


def node_of(number: int, nodes: int) -> str:
    """Return the node of a running pod."""
    return f"gpu-{number % nodes:05d}"


class Recorded:
    """The lists and the accepted Bindings."""

    def __init__(self, nodes: int, running: int, waiting: int) -> None:
        self.bindings: list[tuple[str, str, float]] = []
        self._nodes = nodes
        self._counts = {True: running, False: waiting}
        self._templates = {bound: Templates(bound=bound) for bound in (True, False)}
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
                yield compact(real_node(number, version=1))
        elif path == f"/apis/{GROUP}/{VERSION}/pools":
            for document in (pool_object(GPU_POOL, labels={"gpu": "true"}), pool_object(DEFAULT_POOL)):
                document["metadata"] |= {"uid": document["metadata"]["name"], "resourceVersion": "1", "generation": 1}
                yield compact(document)
        elif path == JOBS:
            for number in range(sum(self._counts.values()) // PODS_OF_A_JOB + 1):
                yield compact(real_job(number))
        elif path == "/api/v1/namespaces":
            yield compact({"metadata": {"name": "default", "uid": "default", "resourceVersion": "1"}})

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


async def serve(nodes: int, running: int, waiting: int) -> None:
    """Serve until a line arrives on standard input."""
    recorded = Recorded(nodes, running, waiting)
    runner = web.AppRunner(recorded.application(), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    for uid, node, at in recorded.bindings:
        print(uid, node, at)


if __name__ == "__main__":
    asyncio.run(serve(*map(int, sys.argv[1:4])))
