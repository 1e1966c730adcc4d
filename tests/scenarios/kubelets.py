"""Kubelets for the nodes of the real control plane, which has none: they start bound pods and remove deleted pods.

Invariants: one thread, one watch, one connection. A pod with the annotation ends by itself. A write that is refused
because its pod is gone or changed is no failure: the watch reports the new state.
"""

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Event, Thread

from aischeduler.sandbox.controllers.kubelet import RUN_SECONDS
from tests.api_contract.over_http import HttpTransport
from tests.api_contract.world import STRATEGIC_PATCH, Call, Json, Stream, encode
from tests.build import replace
from tests.scenarios.resumed import Resumed

START_SECONDS = 0.01
STOP_SECONDS = 0.05
POLL_SECONDS = 0.02
PODS = "/api/v1/pods"
HOLD = "stage.example/hold"
"""The finalizer of a held pod: the pod keeps running after its deletion until the finalizer is removed."""


@dataclass(frozen=True, slots=True, order=True)
class _Due:
    at: float
    uid: str
    path: str
    action: str
    containers: tuple[tuple[str, str], ...]
    """Name and image."""


class Kubelets:
    """Runs from construction to `close`."""

    def __init__(self, watch: Callable[[str], Stream], transport: HttpTransport) -> None:
        self._transport = transport
        self._stream = Resumed(watch, PODS)
        self._due: list[_Due] = []
        self._planned: set[tuple[str, str]] = set()
        self._stopped = False
        self.ending = Event()
        """While it is cleared, deleted pods keep running."""
        self.ending.set()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise AssertionError when the kubelets have failed."""
        assert self._thread.is_alive(), "the kubelets have ended"

    def close(self) -> None:
        self._stopped = True
        self._thread.join()
        self._stream.close()
        self._transport.close()

    def _run(self) -> None:
        while not self._stopped:
            event = self._stream.next(POLL_SECONDS)
            if event is not None:
                self._plan(event["type"], event["object"])
            while self._due and self._due[0].at <= time.monotonic():
                self._act(heapq.heappop(self._due))

    def _act(self, due: _Due) -> None:
        if due.action == "stop" and not self.ending.is_set():
            heapq.heappush(self._due, replace(due, at=time.monotonic() + POLL_SECONDS))
        else:
            self._write(due)

    def _plan(self, kind: str, pod: Json) -> None:
        metadata, phase = pod["metadata"], pod["status"].get("phase")
        if kind == "DELETED" or not pod["spec"].get("nodeName"):
            return
        if metadata.get("deletionTimestamp"):
            if HOLD not in metadata.get("finalizers", ()):
                self._later(pod, "stop", STOP_SECONDS)
        elif phase == "Pending":
            self._later(pod, "start", START_SECONDS)
        elif phase == "Running" and RUN_SECONDS in metadata.get("annotations", {}):
            self._later(pod, "finish", float(metadata["annotations"][RUN_SECONDS]))

    def _later(self, pod: Json, action: str, seconds: float) -> None:
        metadata = pod["metadata"]
        if (metadata["uid"], action) not in self._planned:
            self._planned.add((metadata["uid"], action))
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
            containers = tuple((one["name"], one["image"]) for one in pod["spec"]["containers"])
            due = _Due(time.monotonic() + seconds, metadata["uid"], path, action, containers)
            heapq.heappush(self._due, due)

    def _write(self, due: _Due) -> None:
        now = datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
        run = [
            {"name": name, "image": image, "imageID": "", "ready": True, "restartCount": 0}
            | {"state": {"running": {"startedAt": now}}}
            for name, image in due.containers
        ]
        status: Json = {"phase": "Running", "startTime": now, "conditions": [ready], "containerStatuses": run}
        ended = ready | {"status": "False", "reason": "PodCompleted"}
        if due.action != "start":
            status = {"phase": "Succeeded" if due.action == "finish" else "Failed", "conditions": [ended]}
        change = {"metadata": {"uid": due.uid}, "status": status}
        self._send(Call("PATCH", f"{due.path}/status", encode(change), STRATEGIC_PATCH))
        if due.action == "stop":
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": due.uid}}
            self._send(Call("DELETE", due.path, encode(options)))

    def _send(self, call: Call) -> None:
        answer = self._transport.request(call)
        assert answer.status in {200, 404, 409}, answer
