"""The record of all pods from one watch of the API server, for checks of every moment.

Invariants:
- One thread reads the watch. If the server restarts and its history is gone, a list shows the changes.
- Events are in the server's order: the cluster after each event was a moment of the real cluster.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread
from typing import Self

import aiohttp
import msgspec

from tests import independent_requests
from tests.controlplane.plane import ControlPlane
from tests.e2e.documents import Line, Metadata, Pod, Pods, Spec

LINE_BYTES_MAX = 2**22
POLL_SECONDS = 0.02
RETRY_SECONDS = 0.05
CLOSE_SECONDS = 0.01
"""How long a TLS connection takes to leave the event loop."""
PODS_PATH = "/api/v1/pods"


@dataclass(frozen=True, slots=True)
class Sight:
    """A pod as it was at one moment; `at` in seconds of the monotonic clock."""

    at: float
    uid: str
    namespace: str
    name: str
    node: str
    gone: bool
    finished: bool
    spec: Spec


class History:
    """Records while its context is open."""

    def __init__(self, plane: ControlPlane) -> None:
        self.sights: list[Sight] = []
        self._plane = plane
        self._now: dict[str, Sight] = {}
        self._bound: dict[str, dict[str, None]] = {}
        self._version = ""
        self._loop = asyncio.new_event_loop()
        self._record_task: asyncio.Task[None] | None = None
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait_until(lambda: self._version != "", "the first list of pods")
        return self

    def __exit__(self, *_: object) -> None:
        task = self._record_task
        if task is not None:
            self._loop.call_soon_threadsafe(task.cancel)
        self._thread.join()
        self._loop.close()

    def pods(self, namespace: str) -> list[Sight]:
        """Return the pods of a namespace as they are now."""
        return [sight for sight in list(self._now.values()) if sight.namespace == namespace]

    def bound(self, namespace: str) -> dict[str, str]:
        """Return pod -> node of the bound pods of a namespace."""
        return {sight.name: sight.node for sight in self.pods(namespace) if sight.node}

    def wait_until(self, holds: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            assert self._thread.is_alive(), "the history has ended"
            assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s"
            time.sleep(POLL_SECONDS)

    def wait_for_bound(self, namespace: str, count: int, seconds: float = 30.0) -> None:
        """Wait until this many pods of the namespace are bound."""
        what = f"{count} bound pods in {namespace}"
        self.wait_until(lambda: len(self._bound.get(namespace, ())) >= count, what, seconds)

    def nodes_of(self) -> dict[str, list[str]]:
        """Return uid -> every node on which the pod was seen, in order, without repetition."""
        nodes: dict[str, list[str]] = {}
        for sight in self.sights:
            seen = nodes.setdefault(sight.uid, [])
            if sight.node != (seen[-1] if seen else ""):
                seen.append(sight.node)
        return nodes

    def overcommitted(self) -> list[str]:
        """Return each moment at which the pods on a node requested more than the node has."""
        allocatable = {
            node["metadata"]["name"]: independent_requests.amounts(node["status"]["allocatable"])
            for node in self._plane.api("GET", "/api/v1/nodes").body["items"]
        }
        used: dict[str, Counter[str]] = {name: Counter() for name in allocatable}
        counted: dict[str, Sight] = {}
        found = []
        for sight in self.sights:
            before = counted.pop(sight.uid, None)
            if before is not None:
                used[before.node].subtract(_amounts(before))
            if sight.node and not sight.gone and not sight.finished:
                counted[sight.uid] = sight
                on_node = used[sight.node]
                on_node.update(_amounts(sight))
                found += [
                    f"{sight.node} has {allocatable[sight.node].get(resource, 0)} {resource}, {total} are used"
                    f" since {sight.name}"
                    for resource, total in on_node.items()
                    if total > allocatable[sight.node].get(resource, 0)
                ]
        return found

    def _run(self) -> None:
        self._record_task = self._loop.create_task(self._record())
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._record_task)
        self._loop.run_until_complete(asyncio.sleep(CLOSE_SECONDS))

    async def _record(self) -> None:
        connector = aiohttp.TCPConnector(ssl=self._plane.tls)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        async with aiohttp.ClientSession(
            self._plane.url, connector=connector, timeout=timeout, read_bufsize=LINE_BYTES_MAX
        ) as session:
            while True:
                with suppress(aiohttp.ClientError, ConnectionError):
                    if not self._version:
                        await self._list(session)
                    await self._watch(session)
                await asyncio.sleep(RETRY_SECONDS)

    async def _list(self, session: aiohttp.ClientSession) -> None:
        async with session.get(PODS_PATH) as answer:
            if answer.status != 200:
                return
            listed = msgspec.json.decode(await answer.read(), type=Pods)
        uids = {pod.metadata.uid for pod in listed.items}
        for missing in [sight for uid, sight in self._now.items() if uid not in uids]:
            self._see(_pod_of(missing), gone=True)
        for pod in listed.items:
            self._see(pod, gone=False)
        self._version = listed.metadata.resource_version

    async def _watch(self, session: aiohttp.ClientSession) -> None:
        query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": self._version}
        async with session.get(PODS_PATH, params=query) as answer:
            if answer.status != 200:
                return
            try:
                await self._read(answer.content)
            finally:
                if answer.connection is not None and answer.connection.transport is not None:
                    answer.connection.transport.abort()  # closing TLS takes longer than the event loop exists

    async def _read(self, stream: aiohttp.StreamReader) -> None:
        while line := await stream.readline():
            told = msgspec.json.decode(line, type=Line)
            if told.type == "ERROR":
                self._version = ""
                return
            pod = msgspec.json.decode(told.object, type=Pod)
            self._version = pod.metadata.resource_version
            if told.type != "BOOKMARK":
                self._see(pod, gone=told.type == "DELETED")

    def _see(self, pod: Pod, *, gone: bool) -> None:
        finished = pod.status.phase in ("Succeeded", "Failed")
        metadata = pod.metadata
        at, node = time.monotonic(), pod.spec.node_name
        sight = Sight(at, metadata.uid, metadata.namespace, metadata.name, node, gone, finished, pod.spec)
        self.sights.append(sight)
        bound = self._bound.setdefault(sight.namespace, {})
        if gone:
            self._now.pop(sight.uid, None)
            bound.pop(sight.uid, None)
        else:
            self._now[sight.uid] = sight
            if node:
                bound[sight.uid] = None


def _pod_of(sight: Sight) -> Pod:
    return Pod(Metadata(sight.name, sight.namespace, sight.uid), Spec(sight.node))


def _amounts(sight: Sight) -> Counter[str]:
    return independent_requests.requests(msgspec.to_builtins(sight.spec))
