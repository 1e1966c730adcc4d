"""The stage of the differential test: puts a cluster on an API server, and asks one scheduler after the other.

Invariants:
- Each pod is created for one scheduler, judged and deleted before its twin for the other is created. Each scheduler
  sees the pods in the order of one watch, so that neither sees the twin of the other on a node.
- The victims of a preemption terminate, because there is no kubelet. They are replaced by equal pods before the twin is
  created.
- Both schedulers see all nodes of a state before its first probe, because a pod for the last one was judged there.
- Both see its claims and volumes before each probe, because a pod with a later claim and volume was judged.
- A verdict of kube-scheduler is that of its last attempt, after which only an event would have it try the pod again; of
  a preemption it is that of the attempt that chose the victims.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Final

from aischeduler.model.names import SCHEDULER_NAME
from tests.controlplane.many import Request, Sender
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import create_namespace, create_priority
from tests.e2e.peer_claims import UNPROTECTED, undo_late_claims, volumes_first, wait_for_claims
from tests.e2e.peer_log import NO_SCORES, PeerLog, Scores
from tests.e2e.peer_scores import OurScores
from tests.e2e.peer_states import NAMESPACES, NEVER, PRIORITIES, RUNTIMES, State, pod_document
from tests.e2e.peer_verdicts import Verdict, our_victims
from tests.e2e.peer_volumes import a_free_claim, use_claim
from tests.objects import Json, present

OURS: Final = "ours"
THEIRS: Final = "theirs"
SIDES: Final = {OURS: SCHEDULER_NAME, THEIRS: "default-scheduler"}
AT_ONCE: Final = {"gracePeriodSeconds": 0}
ANSWER_SECONDS: Final = 120.0
BUDGET_SECONDS: Final = 60.0
BUDGET_PATIENCE_SECONDS: Final = 3.0
POLL_SECONDS: Final = 0.01
QUIET_SECONDS: Final = 1.2
"""A sequence is over when no pod was bound for this long."""
PATHS: Final = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Service": "/api/v1/namespaces/{}/services",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
}
SENTINELS: Final = "peer-sentinels"
"""The namespace of the pods that show that a scheduler sees a state."""
PROTECTED: Final = ("PersistentVolume", "PersistentVolumeClaim")
"""Kinds that a controller protects with finalizers from deletion while they are in use."""

Key = tuple[str, str]


class Stage:
    """A clean API server with the namespaces, classes and runtimes of the probes; `peer_log` is kube-scheduler's."""

    def __init__(self, plane: ControlPlane, peer_log: Path) -> None:
        self._plane, self._log = plane, PeerLog(peer_log)
        for name, labels in {**NAMESPACES, SENTINELS: {}}.items():
            create_namespace(plane, name)
            plane.api("PATCH", f"/api/v1/namespaces/{name}", {"metadata": {"labels": labels}})
        for name, value in PRIORITIES.items():
            create_priority(plane, name, value, **present(preemptionPolicy="Never" * (name == NEVER)))
        for name, (cpu, memory) in RUNTIMES.items():
            runtime = {"kind": "RuntimeClass", "metadata": {"name": name}, "handler": "runc"}
            overhead = {"overhead": {"podFixed": {"cpu": cpu, "memory": memory}}}
            self._post("/apis/node.k8s.io/v1/runtimeclasses", runtime | overhead)
        self._pods: dict[Key, Json] = {}
        self._gone_anyway: set[Key] = set()
        self._scores: OurScores | None = None
        self._numbers = count()
        self._markers: list[Json] = []
        """The claims and volumes by which both schedulers have shown what they see."""
        self._sender = Sender(plane.connect)
        self._watch()

    def close(self) -> None:
        """Close the connections."""
        self._sender.close()
        self._unwatch()

    def _watch(self) -> None:
        """Read all pods, and watch them from there."""
        listed = self._plane.api("GET", "/api/v1/pods").body
        self._pods = {_key(pod): pod for pod in listed["items"]}
        self._server = self._plane.connect()
        since = listed["metadata"]["resourceVersion"]
        self._server.request("GET", f"/api/v1/pods?watch=true&resourceVersion={since}")
        self._stream = self._server.getresponse()

    def _unwatch(self) -> None:
        self._stream.close()
        self._server.close()

    @contextmanager
    def holding(self, state: State) -> Iterator[None]:
        """Create the objects of a state and wait until both schedulers see the nodes; at the end delete them."""
        try:
            self._put(state)
            self._scores = OurScores(self._plane)
            yield
        finally:
            self._clear(state)

    def _put(self, state: State) -> None:
        """Create the objects of a state, and wait until both schedulers see the nodes."""
        for objects in volumes_first(state.others):
            self._create(objects)
        wait_for_claims(self._plane, state)
        for node in state.nodes[::-1]:  # one by one: the size of an image is that of the first node that has it
            self._post(_collection(node), node)
        self._run(state.running)
        going = [(_key(pod), _path(pod)) for pod in state.terminating]
        self._sender.send([Request("DELETE", path, {}) for _, path in going])
        self._until(lambda: len(self._leaving()) == len(going), f"{len(going)} terminating pods")
        self._gone_anyway = {key for key, _ in going}
        self._wait_for_budgets(state)
        self._wait_until_seen(state)

    def _wait_until_seen(self, state: State) -> None:
        """Wait until both schedulers see the nodes of a state, and its claims and volumes as they are now."""
        field = {"key": "metadata.name", "operator": "In", "values": [state.machines[0].name]}
        required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        spec = {"containers": [{"name": "main", "image": "i"}], "tolerations": [{"operator": "Exists"}]}
        name = f"{state.name}-seen-{next(self._numbers)}"
        pod = pod_document(name, SENTINELS, {}, spec | {"affinity": affinity})
        if any(one["kind"] == "PersistentVolume" for one in state.others):
            last = a_free_claim(name, SENTINELS)
            self._markers += last
            for one in last:
                self._create([one])
            use_claim(pod, name)
        for side in SIDES:
            deadline = time.monotonic() + ANSWER_SECONDS
            while not _sees(state, found := self._ask(state, side, pod)):
                assert time.monotonic() < deadline, f"{side} does not see the state: {found}"

    def _clear(self, state: State) -> None:
        """Delete the objects of a state."""
        self._gone_anyway, self._scores = set(), None
        all_pods = [Request("DELETE", PATHS["Pod"].format(namespace), AT_ONCE) for namespace in NAMESPACES]
        self._sender.send([*all_pods, Request("DELETE", PATHS["Node"], AT_ONCE)])
        others, self._markers = [*state.others, *self._markers], []
        self._sender.send([Request("DELETE", _path(one), AT_ONCE) for one in others])
        kept = [Request("PATCH", _path(one), UNPROTECTED) for one in others if one["kind"] in PROTECTED]
        self._sender.send(kept)

    def verdicts(self, state: State, pod: Json) -> tuple[Verdict, Verdict]:
        """Return the verdicts of this scheduler and of kube-scheduler on the pod, and leave the state as it was."""
        return self._verdict(state, OURS, pod), self._verdict(state, THEIRS, pod)

    def _verdict(self, state: State, side: str, pod: Json) -> Verdict:
        """Create the pod for a scheduler, wait for its verdict, and put the state back."""
        found = self._ask(state, side, pod)
        if found.victims:
            self._replace(state, found.victims)
        if undone := undo_late_claims(self._plane, state, pod, _path):
            for objects in volumes_first(undone):
                self._create(objects)
            wait_for_claims(self._plane, state)
            self._wait_until_seen(state)
        return found

    def _ask(self, state: State, side: str, pod: Json) -> Verdict:
        """Create the pod for a scheduler, wait for its verdict, and delete the pod."""
        twin = _twin(pod, side)
        key = _key(twin)
        created = self._post(PATHS["Pod"].format(key[0]), twin)
        uid = created["metadata"]["uid"]
        if "schedulingGates" in twin["spec"]:
            self._plane.api("PATCH", _path(twin), {"spec": {"schedulingGates": None}})
        self._until(lambda: self._judged(key, uid), f"a verdict of {side} on {key[1]}")
        if side == THEIRS:
            self._wait_until_settled(key)
        found = self._read(side, key)
        self._plane.api("DELETE", _path(twin), AT_ONCE)
        self._until(lambda: key not in self._pods, f"the end of {key[1]}")
        if side == OURS and found.node and self._scores is not None:
            return replace(found, scores=Scores(self._scores.of(created)))
        return found

    def _wait_until_settled(self, key: Key) -> None:
        """Wait until kube-scheduler will not try the pod again, or preempts, and the API server has its last result."""
        pod, deadline = "/".join(key), time.monotonic() + ANSWER_SECONDS
        while not (self._log.settled(pod) or self._log.victims(pod)):
            assert time.monotonic() < deadline, f"kube-scheduler tries {pod} again and again"
            time.sleep(POLL_SECONDS)
        if not self._log.victims(pod):
            message = self._log.message(pod)
            self._until(lambda: _result(self._pods[key]) == (not message, message), f"what the log says of {pod}")

    def sequence(self, side: str, pods: Sequence[Json]) -> dict[str, str]:
        """Create pods in order for a scheduler; return pod -> node of those that it binds, and delete all."""
        twins = [_twin(pod, side) for pod in pods]
        keys = [_key(twin) for twin in twins]
        for twin in twins:
            self._post(_collection(twin), twin)
        self._until(lambda: all(key in self._pods and _has_verdict(self._pods[key]) for key in keys), f"50 of {side}")
        placed, since = self._nodes(keys), time.monotonic()
        while time.monotonic() < since + QUIET_SECONDS:  # a pod that waits fits when others are on nodes
            time.sleep(POLL_SECONDS)
            if (now := self._nodes(keys)) != placed:
                placed, since = now, time.monotonic()
        self._sender.send([Request("DELETE", _path(twin), AT_ONCE) for twin in twins])
        self._until(lambda: not any(key in self._pods for key in keys), "the end of the sequence")
        return {name: node for name, node in placed.items() if node}

    def _nodes(self, keys: Sequence[Key]) -> dict[str, str]:
        """Return pod -> node, as the API server has it now."""
        items = self._plane.api("GET", PATHS["Pod"].format(keys[0][0])).body["items"]
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in items if _key(pod) in keys}

    def _judged(self, key: Key, uid: str) -> bool:
        pod = self._pods.get(key)
        if pod is None or pod["metadata"]["uid"] != uid:
            return False
        if "nodeName" in pod["spec"]:
            return True
        message = _refused(pod)
        return bool(message) and (our_victims(message) is None or "nominatedNodeName" in pod["status"])

    def _read(self, side: str, key: Key) -> Verdict:
        """Return the verdict on a judged pod; wait for its victims."""
        pod, name = self._pods[key], "/".join(key)
        tries = self._log.tries(name) if side == THEIRS else 1
        if node := pod["spec"].get("nodeName"):
            if leaving := self._leaving():  # it fits beside victims that terminate, and was bound before anyone looked
                return Verdict(nominated=node, victims=tuple(leaving))
            scores = self._log.scores(name) if side == THEIRS else NO_SCORES
            return Verdict(node=node, scores=scores, tries=tries)
        nominated = pod["status"].get("nominatedNodeName", "")
        count = self._count_victims(side, key) if nominated else 0
        self._until(lambda: len(self._leaving()) >= count, f"{count} victims of {key[1]}")
        leaving = self._leaving()
        assert len(leaving) == count, f"{side} evicts {leaving}, not {count}, for {key[1]}"
        message = self._log.preempting(name) if count and side == THEIRS else _refused(pod)
        return Verdict(message=message, nominated=nominated, victims=tuple(leaving), tries=tries)

    def _count_victims(self, side: str, key: Key) -> int:
        """Return how many victims a scheduler has chosen: ours says it in the message, kube-scheduler in its log."""
        if side == OURS:
            return our_victims(_refused(self._pods[key])) or 0
        found: list[int] = []
        deadline = time.monotonic() + ANSWER_SECONDS
        while not found:
            assert time.monotonic() < deadline, f"kube-scheduler does not say how many victims {key[1]} has"
            count = self._log.victims("/".join(key))
            found = [] if count is None else [count]
        return found[0]

    def _leaving(self) -> list[str]:
        """Return the names of the pods that terminate and did not when the state was put."""
        leaving = {key for key, pod in self._pods.items() if "deletionTimestamp" in pod["metadata"]}
        return sorted(name for _, name in leaving - self._gone_anyway)

    def _replace(self, state: State, names: tuple[str, ...]) -> None:
        """Replace terminating pods by new ones."""
        victims = [pod for pod in state.running if pod["metadata"]["name"] in names]
        self._sender.send([Request("DELETE", _path(pod), AT_ONCE) for pod in victims])
        self._until(lambda: not any(_key(pod) in self._pods for pod in victims), "the end of the victims")
        self._run(victims)
        self._wait_for_budgets(state)

    def _run(self, pods: Sequence[Json]) -> None:
        """Create running pods, with their status."""
        self._create(pods)
        started = [
            Request("PATCH", f"{_path(pod)}/status", {"status": pod["status"]}) for pod in pods if "status" in pod
        ]
        self._sender.send(started)

    def _wait_for_budgets(self, state: State) -> None:
        """Wait until the controller has counted the pods of each budget.

        After a conflict it counts again only later, or when the budget changes: a budget that is behind is changed.
        """
        for budget in state.others:
            if budget["kind"] == "PodDisruptionBudget":
                healthy = sum(_covers(budget, pod) for pod in state.running)
                began = changed = time.monotonic()
                while (found := self._plane.api("GET", _path(budget)).body["status"]).get("currentHealthy") != healthy:
                    now = time.monotonic()
                    assert now < began + BUDGET_SECONDS, f"{budget['metadata']} counts {healthy} pods: {found}"
                    if now > changed + BUDGET_PATIENCE_SECONDS:
                        again = {"metadata": {"annotations": {"example.com/count-again": str(now)}}}
                        self._sender.send([Request("PATCH", _path(budget), again)])
                        changed = now
                    time.sleep(POLL_SECONDS)

    def _create(self, documents: Sequence[Json]) -> None:
        self._sender.send([Request("POST", _collection(one), one) for one in documents])

    def _post(self, path: str, document: Json) -> Json:
        answer = self._plane.api("POST", path, document)
        assert answer.status == 201, f"{answer.body}\n{document}"
        body: Json = answer.body
        return body

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        """Read the watch until this holds."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while not holds():
            assert time.monotonic() < deadline, f"not within {ANSWER_SECONDS:.0f} s: {what}"
            if line := self._stream.readline():
                self._see(line)
            else:  # an API server may end a watch at any time
                self._unwatch()
                self._watch()

    def _see(self, line: bytes) -> None:
        told = json.loads(line)
        pod = told["object"]
        if told["type"] == "DELETED":
            self._pods.pop(_key(pod), None)
        else:
            assert told["type"] in ("ADDED", "MODIFIED"), told
            self._pods[_key(pod)] = pod


def _sees(state: State, found: Verdict) -> bool:
    """Return whether a scheduler that gives a pod for the first node this verdict sees the nodes of a state."""
    excluded = "node(s) didn't satisfy existing pods anti-affinity rules" in found.message
    return bool(found.node) or (excluded and f"0/{len(state.machines)} nodes" in found.message)


def _twin(pod: Json, side: str) -> Json:
    """Return the pod for a scheduler."""
    twin: Json = json.loads(json.dumps(pod))
    twin["metadata"]["name"] += f"-{side}"
    twin["spec"]["schedulerName"] = SIDES[side]
    return twin


def _has_verdict(pod: Json) -> bool:
    """Return whether a scheduler has bound the pod, or said why it waits."""
    return "nodeName" in pod["spec"] or bool(_refused(pod))


def _result(pod: Json) -> tuple[bool, str]:
    """Return whether a scheduler has bound the pod, and else why it says that the pod waits."""
    bound = "nodeName" in pod["spec"]
    return bound, "" if bound else _refused(pod)


def _refused(pod: Json) -> str:
    """Return why a scheduler says that the pod waits; empty before it has tried."""
    for one in pod["status"].get("conditions", ()):
        if one["type"] == "PodScheduled" and one["status"] == "False" and one.get("reason") != "SchedulingGated":
            message: str = one.get("message", "")
            return message
    return ""


def _key(pod: Json) -> Key:
    """Return namespace and name."""
    return pod["metadata"]["namespace"], pod["metadata"]["name"]


def _collection(document: Json) -> str:
    return PATHS[document["kind"]].format(document["metadata"].get("namespace", ""))


def _path(document: Json) -> str:
    return f"{_collection(document)}/{document['metadata']['name']}"


def _covers(budget: Json, pod: Json) -> bool:
    """Return whether a budget counts the pod as healthy."""
    selected = budget["spec"]["selector"]["matchLabels"].items() <= pod["metadata"].get("labels", {}).items()
    ready = any(
        one["type"] == "Ready" and one["status"] == "True" for one in pod.get("status", {}).get("conditions", ())
    )
    return selected and ready and budget["metadata"]["namespace"] == pod["metadata"]["namespace"]
