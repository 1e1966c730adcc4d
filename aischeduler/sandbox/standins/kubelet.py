"""The kubelets of all nodes: bound pods start, run, end, and go when they are deleted.

Laws:
- A pod on a node that does not exist has no kubelet and stays as it is.
- How long things take is in the options and in three annotations of the pod.
- A pod that is to go does so after its stop time, and when its grace is over in any case. One whose stop time is
  beyond its grace is a pod that ignores the request to end.
"""

import heapq
from dataclasses import dataclass
from typing import TypeVar

from aischeduler.sandbox.api_resources import CollectionName
from aischeduler.sandbox.api_server import ApiServer
from aischeduler.sandbox.objects import JsonObject, set_condition, timestamp
from aischeduler.sandbox.standins.following import Follower, delete_pod
from aischeduler.sandbox.store import Entry, is_going

RUN_SECONDS = "sandbox.resource.aibee.cn/run-seconds"
EXIT_CODE = "sandbox.resource.aibee.cn/exit-code"
STOP_SECONDS = "sandbox.resource.aibee.cn/stop-seconds"
ACTIONS_PER_STEP = 500
STARTED_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")


@dataclass(frozen=True, slots=True)
class KubeletOptions:
    """How long things take. `run_seconds`: how long a pod that may end runs; None: until it is deleted.

    `stop_seconds`: how long a pod takes to end when it is deleted; never more than its grace.
    """

    start_seconds: float = 0.5
    run_seconds: float | None = None
    stop_seconds: float = 1.0


@dataclass(frozen=True, slots=True, order=True)
class _Due:
    at: float
    order: int
    action: str
    key: str
    uid: str


class Kubelet:
    """All kubelets."""

    def __init__(self, server: ApiServer, options: KubeletOptions | None = None) -> None:
        self._server = server
        self._options = options or KubeletOptions()
        self._pods = server.cluster.store.collections[CollectionName.PODS]
        self._nodes = server.cluster.store.collections[CollectionName.NODES]
        self._follower = Follower(self._pods)
        self._node_follower = Follower(self._nodes)
        self._due: list[_Due] = []
        self._planned: dict[str, _Due] = {}
        self._count = 0
        self._addresses = 0

    def step(self, now: float) -> float | None:
        """Do what is due; returns when the next thing is."""
        for event in self._follower.take():
            if event.kind == "DELETED":
                self._planned.pop(event.entry.uid, None)
            else:
                self._plan(event.entry, now)
        for event in self._node_follower.take():
            if event.kind == "ADDED":
                for pod in self._pods.with_field(event.entry.name):
                    self._plan(pod, now)
        for _ in range(ACTIONS_PER_STEP):
            if not self._due or self._due[0].at > now:
                break
            self._act(heapq.heappop(self._due), now)
        return self._due[0].at if self._due else None

    def _plan(self, entry: Entry, now: float) -> None:
        node = entry.fields.get("spec.nodeName")
        if not node or self._nodes.get("", node) is None:
            return
        phase = entry.fields.get("status.phase")
        if is_going(entry):
            metadata = entry.decoded()["metadata"]
            stop = _seconds(metadata, STOP_SECONDS, self._options.stop_seconds)
            self._later(entry, "stop", now + min(metadata.get("deletionGracePeriodSeconds", 0), stop))
        elif phase == "Pending":
            self._later(entry, "start", now + self._options.start_seconds)
        elif phase == "Running":
            seconds = self._run_seconds(entry)
            if seconds is not None:
                self._later(entry, "end", now + seconds)

    def _run_seconds(self, entry: Entry) -> float | None:
        pod = entry.decoded()
        for_ever = pod["spec"].get("restartPolicy") == "Always"
        return _seconds(pod["metadata"], RUN_SECONDS, None if for_ever else self._options.run_seconds)

    def _later(self, entry: Entry, action: str, at: float) -> None:
        """Plan an action; the same one again can only come earlier."""
        planned = self._planned.get(entry.uid)
        if planned is not None and planned.action == action and planned.at <= at:
            return
        self._count += 1
        due = self._planned[entry.uid] = _Due(at, self._count, action, entry.key, entry.uid)
        heapq.heappush(self._due, due)

    def _act(self, due: _Due, now: float) -> None:
        namespace, _, name = due.key.partition("/")
        entry = self._pods.get(namespace, name)
        if entry is None or entry.uid != due.uid or self._planned.get(due.uid) != due:
            return
        match due.action:
            case "start":
                self._pods.put(self._started(entry.decoded(), now))
            case "end":
                self._pods.put(_ended(entry.decoded(), now))
            case _:
                delete_pod(self._server, entry, now, 0)

    def _started(self, pod: JsonObject, now: float) -> JsonObject:
        self._addresses += 1
        status: JsonObject = dict(pod["status"])
        high, low = divmod(self._addresses, 250)
        address = f"10.{64 + high // 250 % 64}.{high % 250}.{low + 1}"
        status |= {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "startTime": timestamp(now)}
        for kind in STARTED_CONDITIONS:
            set_condition(status, {"type": kind, "status": "True", "lastProbeTime": None}, now)
        status["containerStatuses"] = [
            {
                **_container(one),
                "state": {"running": {"startedAt": timestamp(now)}},
                "ready": True,
                "started": True,
            }
            for one in pod["spec"]["containers"]
        ]
        return {**pod, "status": status}


T = TypeVar("T", float, float | None)


def _seconds(metadata: JsonObject, annotation: str, otherwise: T) -> float | T:
    """Return what an annotation says, where it says a number."""
    try:
        return float((metadata.get("annotations") or {})[annotation])
    except (KeyError, ValueError):
        return otherwise


def _container(container: JsonObject) -> JsonObject:
    image = container.get("image", "")
    return {"name": container["name"], "image": image, "imageID": "", "restartCount": 0, "lastState": {}}


def _ended(pod: JsonObject, now: float) -> JsonObject:
    text = (pod["metadata"].get("annotations") or {}).get(EXIT_CODE, "0")
    code = int(text) if text.isdigit() else 0
    status: JsonObject = dict(pod["status"])
    status["phase"] = "Failed" if code else "Succeeded"
    for kind in ("Ready", "ContainersReady"):
        reason = "PodFailed" if code else "PodCompleted"
        set_condition(status, {"type": kind, "status": "False", "lastProbeTime": None, "reason": reason}, now)
    ended = {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": timestamp(now)}
    status["containerStatuses"] = [
        {
            **_container(one),
            "state": {"terminated": {**ended, "startedAt": status.get("startTime", timestamp(now))}},
            "ready": False,
            "started": False,
        }
        for one in pod["spec"]["containers"]
    ]
    return {**pod, "status": status}
