"""The kubelets of all nodes: they start bound pods, end them after their run time, and remove deleted pods.

Invariants:
- A pod on a node that does not exist has no kubelet and stays as it is.
- Options and two annotations of the pod say how long each change takes.
- A deleted pod is gone after its stop time, at the latest at the end of its grace period.
"""

import heapq

from msgspec import Struct

from aischeduler.sandbox.api_resources import CollectionName
from aischeduler.sandbox.api_server import ApiServer
from aischeduler.sandbox.controllers.informer import Informer, delete_pod
from aischeduler.sandbox.objects import JsonObject, set_condition, timestamp
from aischeduler.sandbox.store import Entry, is_going

RUN_SECONDS = "sandbox.resource.aibee.cn/run-seconds"
STOP_SECONDS = "sandbox.resource.aibee.cn/stop-seconds"
CHANGES_PER_STEP = 500
STARTED_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")


class KubeletOptions(Struct, frozen=True):
    """How long a bound pod takes to start, and how long a deleted pod takes to stop."""

    start_seconds: float = 0.5
    stop_seconds: float = 1.0


class _Change(Struct, frozen=True, order=True):
    """A planned change of a pod: start, end or stop."""

    due: float
    number: int
    kind: str
    key: str
    uid: str


class Kubelet:
    """The kubelets of all nodes."""

    def __init__(self, server: ApiServer, options: KubeletOptions) -> None:
        self._server = server
        self._options = options
        self._pods = server.cluster.store.collections[CollectionName.PODS]
        self._nodes = server.cluster.store.collections[CollectionName.NODES]
        self._pod_informer = Informer(self._pods)
        self._node_informer = Informer(self._nodes)
        self._changes: list[_Change] = []
        self._planned: dict[str, _Change] = {}
        self._planned_count = 0

    def step(self, now: float) -> float | None:
        """Make the changes that are due; returns when the next one is."""
        for event in self._pod_informer.new_events():
            if event.kind == "DELETED":
                self._planned.pop(event.entry.uid, None)
            else:
                self._plan(event.entry, now)
        for event in self._node_informer.new_events():
            if event.kind == "ADDED":
                for pod in self._pods.with_field(event.entry.name):
                    self._plan(pod, now)
        for _ in range(CHANGES_PER_STEP):
            if not self._changes or self._changes[0].due > now:
                break
            self._make(heapq.heappop(self._changes), now)
        return self._changes[0].due if self._changes else None

    def _plan(self, pod: Entry, now: float) -> None:
        node = pod.fields.get("spec.nodeName")
        if not node or self._nodes.get("", node) is None:
            return
        phase = pod.fields.get("status.phase")
        if is_going(pod):
            grace = pod.decoded()["metadata"].get("deletionGracePeriodSeconds", 0)
            stop = _annotated_seconds(pod, STOP_SECONDS)
            self._put(pod, "stop", now + min(grace, self._options.stop_seconds if stop is None else stop))
        elif phase == "Pending":
            self._put(pod, "start", now + self._options.start_seconds)
        elif phase == "Running":
            run = _annotated_seconds(pod, RUN_SECONDS)
            if run is not None:
                self._put(pod, "end", now + run)

    def _put(self, pod: Entry, kind: str, due: float) -> None:
        """Plan a change; a second plan can only move it to an earlier time."""
        planned = self._planned.get(pod.uid)
        if planned is not None and planned.kind == kind and planned.due <= due:
            return
        self._planned_count += 1
        change = self._planned[pod.uid] = _Change(due, self._planned_count, kind, pod.key, pod.uid)
        heapq.heappush(self._changes, change)

    def _make(self, change: _Change, now: float) -> None:
        pod = self._pods.get(*change.key.split("/"))
        if pod is None or pod.uid != change.uid or self._planned.get(change.uid) != change:
            return
        if change.kind == "stop":
            delete_pod(self._server, pod, now, 0)
        else:
            changed = pod.decoded()
            changed["status"] = (_running if change.kind == "start" else _succeeded)(changed, now)
            self._pods.put(changed)


def _annotated_seconds(pod: Entry, annotation: str) -> float | None:
    """Return the number in an annotation; None without the annotation or with another text."""
    try:
        return float((pod.decoded()["metadata"].get("annotations") or {})[annotation])
    except (KeyError, ValueError):
        return None


def _running(pod: JsonObject, now: float) -> JsonObject:
    """Return the status of a pod that starts."""
    status: JsonObject = {**pod["status"], "phase": "Running", "startTime": timestamp(now)}
    for kind in STARTED_CONDITIONS:
        set_condition(status, {"type": kind, "status": "True", "lastProbeTime": None}, now)
    state = {"running": {"startedAt": timestamp(now)}}
    status["containerStatuses"] = [
        _container_status(container, state, started=True) for container in pod["spec"]["containers"]
    ]
    return status


def _succeeded(pod: JsonObject, now: float) -> JsonObject:
    """Return the status of a pod that ends."""
    status: JsonObject = {**pod["status"], "phase": "Succeeded"}
    for kind in ("Ready", "ContainersReady"):
        condition = {"type": kind, "status": "False", "lastProbeTime": None, "reason": "PodCompleted"}
        set_condition(status, condition, now)
    started = status.get("startTime", timestamp(now))
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": started, "finishedAt": timestamp(now)}
    state = {"terminated": ended}
    status["containerStatuses"] = [
        _container_status(container, state, started=False) for container in pod["spec"]["containers"]
    ]
    return status


def _container_status(container: JsonObject, state: JsonObject, *, started: bool) -> JsonObject:
    described = {"name": container["name"], "image": container.get("image", ""), "imageID": "", "restartCount": 0}
    return {**described, "lastState": {}, "state": state, "ready": started, "started": started}
