"""The kubelets of all nodes as a program: they start bound pods and remove deleted pods.

Run as `-m tests.e2e.kubelets URL AUTHORITY CERTIFICATE KEY`; it prints `watching` after it has listed all pods.

Invariants:
- It keeps up with thousands of pods: its own process, many requests at a time, and a new watch after each that ends.
- A write that is refused because its pod is gone or changed is no failure: the watch reports the new state. It sends a
  request again if the API server is unreachable or has an internal error; any other refusal ends the program.
"""

import asyncio
import ssl
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import aiohttp
import msgspec

from tests.e2e.documents import Line, Metadata, Pod, Pods

IN_FLIGHT = 16
START_SECONDS = 0.01
STOP_SECONDS = 0.05
AGAIN_SECONDS = 0.05
LINE_BYTES_MAX = 2**22
PODS = "/api/v1/pods"
PATCH = {"Content-Type": "application/strategic-merge-patch+json"}
EXPECTED = (200, 404, 409)


class Kubelets:
    """Follows all pods over one session."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._in_flight = asyncio.Semaphore(IN_FLIGHT)
        self._planned: dict[tuple[str, str], None] = {}
        self._acts = asyncio.TaskGroup()
        self._version = ""

    async def run(self) -> None:
        """Follow the pods until an error occurs."""
        async with self._acts:
            while True:
                with suppress(aiohttp.ClientError, ConnectionError):
                    if not self._version:
                        await self._list()
                    await self._watch()
                await asyncio.sleep(AGAIN_SECONDS)

    async def _list(self) -> None:
        async with self._session.get(PODS) as answer:
            listed = msgspec.json.decode(await answer.read(), type=Pods)
        for pod in listed.items:
            self._plan(pod)
        self._version = listed.metadata.resource_version
        print("watching", flush=True)

    async def _watch(self) -> None:
        query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": self._version}
        self._version = ""
        async with self._session.get(PODS, params=query) as answer:
            while answer.status == 200 and (line := await answer.content.readline()):
                told = msgspec.json.decode(line, type=Line)
                if told.type == "ERROR":
                    return
                pod = msgspec.json.decode(told.object, type=Pod)
                if told.type in ("ADDED", "MODIFIED"):
                    self._plan(pod)

    def _plan(self, pod: Pod) -> None:
        """Plan the kubelet's action for this pod, once."""
        action, seconds = "", 0.0
        if pod.metadata.deletion_timestamp:
            action, seconds = "stop", STOP_SECONDS
        elif pod.status.phase == "Pending":
            action, seconds = "start", START_SECONDS
        key = pod.metadata.uid, action
        if pod.spec.node_name and action and key not in self._planned:
            self._planned[key] = None
            self._acts.create_task(self._act(pod.metadata, action, seconds))

    async def _act(self, metadata: Metadata, action: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        path = f"/api/v1/namespaces/{metadata.namespace}/pods/{metadata.name}"
        method, body = "DELETE", {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata.uid}}
        if action == "start":
            method, body, path = "PATCH", _running(metadata.uid), f"{path}/status"
        while not await self._written(method, path, msgspec.json.encode(body)):
            await asyncio.sleep(AGAIN_SECONDS)

    async def _written(self, method: str, path: str, body: bytes) -> bool:
        """Write once; return False if the API server is unreachable or has an internal error."""
        headers = PATCH if method == "PATCH" else None
        try:
            async with self._in_flight, self._session.request(method, path, data=body, headers=headers) as answer:
                said = await answer.read()
        except (aiohttp.ClientError, ConnectionError):
            return False
        assert answer.status in EXPECTED or answer.status >= 500, said
        return answer.status in EXPECTED


def _running(uid: str) -> dict[str, Any]:
    """Return the status that a kubelet writes for a pod that it has started, for this uid only."""
    now = datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
    return {"metadata": {"uid": uid}, "status": {"phase": "Running", "startTime": now, "conditions": [ready]}}


async def main(url: str, authority: str, certificate: str, key: str) -> None:
    tls = ssl.create_default_context(cafile=authority)
    tls.load_cert_chain(certificate, key)
    connector = aiohttp.TCPConnector(ssl=tls, limit=IN_FLIGHT + 2)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(
        url, connector=connector, timeout=timeout, headers=headers, read_bufsize=LINE_BYTES_MAX
    ) as session:
        await Kubelets(session).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5]))
