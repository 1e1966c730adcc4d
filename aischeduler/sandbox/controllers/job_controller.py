"""The Job controller: keeps as many pods as each Job asks for, counts the ended pods and replaces them.

Invariants:
- A pod is counted once. One that another client deleted before it succeeded has failed; one that the controller ends
  has not.
- A finished Job gets no more pods, nor does one without `completions` of which a pod has succeeded.
- Of an Indexed Job the pods with an index above its completions end, whatever its parallelism is.

Unlike the real controller it puts no finalizer on pods, and waits a constant time before a replacement.
"""

from collections.abc import Iterator
from itertools import islice
from math import inf

import orjson
from msgspec import Struct, field

from aischeduler.model.times import time_text, unix_seconds
from aischeduler.sandbox.api_resources import CollectionName
from aischeduler.sandbox.api_server import ApiServer
from aischeduler.sandbox.controllers.informer import Informer, delete_pod, earliest, send
from aischeduler.sandbox.objects import JsonObject, copy_object, encode, is_true, set_condition, timestamp
from aischeduler.sandbox.store import Entry, is_going
from aischeduler.sandbox.strategies import JOB_NAME

BACKOFF_SECONDS = 1.0
CREATIONS_PER_STEP = 100
COMPONENT = "job-controller"
MANAGER = "kubernetes.io/job-controller"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
COPIED_METADATA = ("labels", "annotations", "finalizers")

COMPLETED = ("Complete", "CompletionsReached", "Reached expected number of succeeded pods")
DEADLINE_EXCEEDED = ("Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
BACKOFF_LIMIT_EXCEEDED = ("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")


class _EndedPods(Struct):
    """The ended pods of a Job by UID: the succeeded with their index, the failed, and those the controller deleted."""

    succeeded: dict[str, str] = field(default_factory=dict)
    failed: dict[str, None] = field(default_factory=dict)
    deleted: dict[str, None] = field(default_factory=dict)
    next_creation: float = 0.0


class JobController:
    """Runs all Jobs."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._jobs = server.cluster.store.collections[CollectionName.JOBS]
        self._pods = server.cluster.store.collections[CollectionName.PODS]
        self._job_informer = Informer(self._jobs)
        self._pod_informer = Informer(self._pods)
        self._ended: dict[str, _EndedPods] = {}
        self._due: dict[str, float] = {}

    def step(self, now: float) -> float | None:
        """Sync every Job that is due; returns when the next one is."""
        for event in self._job_informer.new_events():
            self._due[event.entry.key] = now
            if event.kind == "DELETED":
                self._ended.pop(event.entry.uid, None)
        self._count_ended_pods(now)
        for key in [key for key, due in self._due.items() if due <= now]:
            del self._due[key]
            entry = self._jobs.get(*key.split("/"))
            due_again = self._sync(entry, now) if entry is not None else None
            if due_again is not None:
                self._due[key] = due_again
        return earliest(*self._due.values())

    def _count_ended_pods(self, now: float) -> None:
        for event in self._pod_informer.new_events():
            pod = event.entry
            job = self._jobs.get(pod.namespace, pod.labels.get(JOB_NAME, ""))
            if job is None or job.uid not in pod.owner_uids:
                continue
            self._due[job.key] = now
            ended = self._ended.setdefault(job.uid, _EndedPods())
            phase = pod.fields.get("status.phase")
            if pod.uid in ended.succeeded or pod.uid in ended.failed or pod.uid in ended.deleted:
                continue
            if phase == "Succeeded":
                ended.succeeded[pod.uid] = pod.labels.get(COMPLETION_INDEX, "")
            elif phase == "Failed" or event.kind == "DELETED" or is_going(pod):
                ended.failed[pod.uid] = None
                ended.next_creation = now + BACKOFF_SECONDS

    def _sync(self, entry: Entry, now: float) -> float | None:
        """Create and delete the pods of one Job and write its status; returns when the Job is due again."""
        job = entry.decoded()
        status: JsonObject = dict(job.get("status") or {})
        finished = is_true(status, "Complete") or is_true(status, "Failed")
        if finished or is_going(entry) or job["spec"].get("managedBy", MANAGER) != MANAGER:
            return None
        ended = self._ended.setdefault(entry.uid, _EndedPods())
        due = None
        if job["spec"].get("suspend"):
            status.pop("startTime", None)
            _set_condition(status, ("Suspended", "JobSuspended", "Job suspended"), now)
            self._delete(ended, self._active_pods(entry), now)
        else:
            status["startTime"] = status.get("startTime") or timestamp(now)
            if is_true(status, "Suspended"):
                _set_condition(status, ("Suspended", "JobResumed", "Job resumed"), now, "False")
            due = self._run(entry, job, status, now)
        status = _counted(status, job["spec"], ended, self._active_pods(entry))
        if status != job.get("status"):
            path = f"/apis/batch/v1/namespaces/{entry.namespace}/jobs/{entry.name}/status"
            send(self._server, "PUT", path, {**job, "status": status}, now)
        return due

    def _run(self, entry: Entry, job: JsonObject, status: JsonObject, now: float) -> float | None:
        """Finish the Job, or create and delete pods; returns when the Job is due again."""
        spec, ended, active = job["spec"], self._ended[entry.uid], self._active_pods(entry)
        deadline = None
        if spec.get("activeDeadlineSeconds") is not None:
            deadline = unix_seconds(status["startTime"]) + spec["activeDeadlineSeconds"]
        wanted = _wanted(spec, _succeeded(spec, ended), len(active))
        if deadline is not None and now >= deadline:
            outcome = DEADLINE_EXCEEDED
        elif len(ended.failed) > spec["backoffLimit"]:
            outcome = BACKOFF_LIMIT_EXCEEDED
        elif wanted is not None:
            return earliest(deadline, self._scale(job, active, wanted, now))
        else:
            outcome = COMPLETED
            status["completionTime"] = timestamp(now)
        _set_condition(status, outcome, now)
        self._record(job, "Normal" if outcome is COMPLETED else "Warning", outcome[1:], now)
        self._delete(ended, active, now)
        return None

    def _scale(self, job: JsonObject, active: list[Entry], wanted: int, now: float) -> float | None:
        """Bring a Job to the wanted number of active pods; returns when the Job is due again."""
        ended, spec = self._ended[job["metadata"]["uid"]], job["spec"]
        last = spec["completions"] if _is_indexed(spec) else inf
        there = [pod for pod in active if _index(pod) < last]
        # Waiting pods go before running pods, young pods before old pods: of those that stay no index goes first.
        order = sorted(there, key=lambda pod: (pod.fields.get("status.phase") == "Running", -pod.revision))
        above = [pod for pod in active if _index(pod) >= last]
        self._delete(ended, [*above, *order[: max(len(there) - wanted, 0)]], now)
        missing = wanted - len(there)
        if missing <= 0:
            return None
        if now < ended.next_creation:
            return ended.next_creation
        indexes = _free_indexes(spec, there, ended) if _is_indexed(spec) else iter([None] * missing)
        for index in islice(indexes, min(missing, CREATIONS_PER_STEP)):
            self._create(job, index, now)
        return now if missing > CREATIONS_PER_STEP else None

    def _active_pods(self, job: Entry) -> list[Entry]:
        """Return the pods of a Job that have not ended and are not terminating."""
        return [
            pod
            for collection, pod in self._server.cluster.store.dependents(job.uid)
            if collection is self._pods
            and pod.fields.get("status.phase") not in {"Succeeded", "Failed"}
            and not is_going(pod)
        ]

    def _create(self, job: JsonObject, index: int | None, now: float) -> None:
        path = f"/api/v1/namespaces/{job['metadata']['namespace']}/pods"
        response = send(self._server, "POST", path, _new_pod(job, index), now)
        if response.status == 201:
            name = orjson.loads(response.body)["metadata"]["name"]
            self._record(job, "Normal", ("SuccessfulCreate", f"Created pod: {name}"), now)
        else:
            self._record(job, "Warning", ("FailedCreate", f"Error creating: {response.body.decode()[:200]}"), now)

    def _delete(self, ended: _EndedPods, pods: list[Entry], now: float) -> None:
        for pod in pods:
            ended.deleted[pod.uid] = None
            delete_pod(self._server, pod, now)

    def _record(self, job: JsonObject, kind: str, reason_and_note: tuple[str, str], now: float) -> None:
        """Write an event about a Job."""
        metadata, (reason, note) = job["metadata"], reason_and_note
        about = {key: metadata[key] for key in ("namespace", "name", "uid")}
        event: JsonObject = {
            "metadata": {"generateName": f"{metadata['name'][:50]}."},
            "regarding": {"kind": job["kind"], "apiVersion": job["apiVersion"], **about},
            "eventTime": time_text(now, "microseconds"),
            "type": kind,
            "reason": reason,
            "action": reason,
            "note": note,
            "reportingController": COMPONENT,
            "reportingInstance": COMPONENT,
        }
        path = f"/apis/events.k8s.io/v1/namespaces/{metadata['namespace']}/events"
        send(self._server, "POST", path, event, now)


def _set_condition(status: JsonObject, condition: tuple[str, str, str], now: float, value: str = "True") -> None:
    kind, reason, message = condition
    set_condition(status, {"type": kind, "status": value, "reason": reason, "message": message}, now)


def _is_indexed(spec: JsonObject) -> bool:
    return bool(spec["completionMode"] == "Indexed")


def _wanted(spec: JsonObject, succeeded: int, active: int) -> int | None:
    """Return how many pods are to run at the same time; None where the Job is complete.

    Without `completions` it is complete once a pod has succeeded and none runs: until then what runs goes on.
    """
    parallelism: int = spec["parallelism"]
    if spec.get("completions") is None:
        return parallelism if not succeeded else active or None
    missing: int = spec["completions"] - succeeded
    return min(parallelism, missing) if missing > 0 else None


def _index(pod: Entry) -> int:
    """Return the index of a pod of an Indexed Job; -1 where another client has removed it."""
    text = pod.labels.get(COMPLETION_INDEX, "")
    return int(text) if text.isdecimal() else -1


def _succeeded(spec: JsonObject, ended: _EndedPods) -> int:
    """Return how many pods succeeded; of an Indexed Job how many indexes."""
    if not _is_indexed(spec):
        return len(ended.succeeded)
    indexes = set(ended.succeeded.values())
    return sum(1 for index in indexes if index.isdecimal() and int(index) < spec["completions"])


def _free_indexes(spec: JsonObject, active: list[Entry], ended: _EndedPods) -> Iterator[int]:
    """Give the indexes without an active or succeeded pod, lowest first."""
    taken = {pod.labels.get(COMPLETION_INDEX, "") for pod in active} | set(ended.succeeded.values())
    return (index for index in range(spec["completions"]) if str(index) not in taken)


def _new_pod(job: JsonObject, index: int | None) -> JsonObject:
    """Return a pod from the template of a Job, with its index for an Indexed Job."""
    metadata = job["metadata"]
    template = copy_object(encode(job["spec"]["template"]))
    copied: JsonObject = {
        key: value for key, value in (template.get("metadata") or {}).items() if key in COPIED_METADATA
    }
    name = metadata["name"]
    if index is not None:
        name = f"{name}-{index}"
        for key in ("labels", "annotations"):
            copied[key] = {**(copied.get(key) or {}), COMPLETION_INDEX: str(index)}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": metadata["name"], "uid": metadata["uid"]}
    owner |= {"controller": True, "blockOwnerDeletion": True}
    return {
        "metadata": {**copied, "generateName": f"{name}-", "ownerReferences": [owner]},
        "spec": template["spec"],
    }


def _counted(status: JsonObject, spec: JsonObject, ended: _EndedPods, active: list[Entry]) -> JsonObject:
    """Return a status with the numbers of pods; a number that is 0 is absent, as in Kubernetes."""
    numbers = {"active": len(active), "succeeded": _succeeded(spec, ended), "failed": len(ended.failed)}
    ready = sum(1 for pod in active if pod.fields.get("status.phase") == "Running")
    kept = {key: value for key, value in status.items() if key not in numbers}
    return kept | {key: value for key, value in numbers.items() if value} | {"ready": ready}
