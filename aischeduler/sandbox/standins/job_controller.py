"""The Job controller: as many pods as a Job asks for, counted when they end, replaced when they are lost.

Laws: a pod is counted once; a deleted pod that had not succeeded counts as failed, as in the real controller; a
finished Job makes no more pods. Unlike the real one it puts no finalizer on pods, and waits a constant time before a
replacement.
"""

from dataclasses import dataclass, field

import orjson

from aischeduler.sandbox.api_resources import CollectionName
from aischeduler.sandbox.api_server import ApiServer
from aischeduler.sandbox.objects import JsonObject, is_true, seconds, set_condition, timestamp
from aischeduler.sandbox.standins.following import Follower, delete_pod, earliest, send
from aischeduler.sandbox.standins.job_pods import COMPLETION_INDEX, free_indexes, pod_of, shown_indexes
from aischeduler.sandbox.standins.recording import record_event
from aischeduler.sandbox.store import Entry, is_going
from aischeduler.sandbox.strategies import JOB_NAME

CREATIONS_PER_STEP = 100
COMPONENT = "job-controller"
MANAGER = "kubernetes.io/job-controller"


@dataclass(slots=True)
class _Counts:
    """What became of a Job's pods, by UID; `succeeded` with their index. `dropped` are those it took away itself."""

    succeeded: dict[str, str] = field(default_factory=dict)
    failed: dict[str, None] = field(default_factory=dict)
    dropped: dict[str, None] = field(default_factory=dict)
    next_creation: float = 0.0


@dataclass(frozen=True, slots=True)
class _Pods:
    """A Job's pods as they are now."""

    active: list[Entry]
    terminating: int
    ready: int


@dataclass(frozen=True, slots=True)
class _Verdict:
    """How a Job has ended: its conditions, why, and the event that says so."""

    conditions: tuple[str, str]
    reason: str
    message: str
    event: tuple[str, str, str]


def _failure(reason: str, message: str) -> _Verdict:
    return _Verdict(("FailureTarget", "Failed"), reason, message, ("Warning", reason, message))


COMPLETED = _Verdict(
    ("SuccessCriteriaMet", "Complete"),
    "CompletionsReached",
    "Reached expected number of succeeded pods",
    ("Normal", "Completed", "Job completed"),
)
DEADLINE_EXCEEDED = _failure("DeadlineExceeded", "Job was active longer than specified deadline")
BACKOFF_LIMIT_EXCEEDED = _failure("BackoffLimitExceeded", "Job has reached the specified backoff limit")


class JobController:
    """Looks after all Jobs. `retry_seconds` is the wait before a lost pod is replaced."""

    def __init__(self, server: ApiServer, retry_seconds: float = 1.0) -> None:
        self._server = server
        self._retry_seconds = retry_seconds
        self._jobs = server.cluster.store.collections[CollectionName.JOBS]
        self._pods = server.cluster.store.collections[CollectionName.PODS]
        self._job_follower = Follower(self._jobs)
        self._pod_follower = Follower(self._pods)
        self._counts: dict[str, _Counts] = {}
        self._dirty: dict[str, None] = {}
        self._alarms: dict[str, float] = {}

    def step(self, now: float) -> float | None:
        """Bring every Job that something happened to in line; returns when a Job has to be looked at again."""
        self._take_jobs()
        self._take_pods(now)
        for key in [key for key, at in self._alarms.items() if at <= now]:
            self._dirty[key] = None
        dirty, self._dirty = list(self._dirty), {}
        for key in dirty:
            self._alarms.pop(key, None)
            namespace, _, name = key.partition("/")
            entry = self._jobs.get(namespace, name)
            if entry is not None:
                again = self._sync(entry, now)
                if again is not None:
                    self._alarms[key] = again
        return earliest(*self._alarms.values())

    def _take_jobs(self) -> None:
        for event in self._job_follower.take():
            if event.kind == "DELETED":
                self._counts.pop(event.entry.uid, None)
                self._dirty.pop(event.entry.key, None)
                self._alarms.pop(event.entry.key, None)
            else:
                self._dirty[event.entry.key] = None

    def _take_pods(self, now: float) -> None:
        for event in self._pod_follower.take():
            job = event.entry.labels.get(JOB_NAME)
            if job is None:
                continue
            self._dirty[f"{event.entry.namespace}/{job}"] = None
            entry = self._jobs.get(event.entry.namespace, job)
            if entry is None or entry.uid not in event.entry.owner_uids:
                continue
            self._count(self._counts.setdefault(entry.uid, _Counts()), event.entry, event.kind, now)

    def _count(self, counts: _Counts, pod: Entry, kind: str, now: float) -> None:
        if pod.uid in counts.succeeded or pod.uid in counts.failed or pod.uid in counts.dropped:
            return
        phase = pod.fields.get("status.phase")
        if phase == "Succeeded":
            index = (pod.decoded()["metadata"].get("annotations") or {}).get(COMPLETION_INDEX, "")
            counts.succeeded[pod.uid] = index
        elif phase == "Failed" or kind == "DELETED" or is_going(pod):
            counts.failed[pod.uid] = None
            counts.next_creation = now + self._retry_seconds

    def _sync(self, entry: Entry, now: float) -> float | None:
        job = entry.decoded()
        spec, status = job["spec"], dict(job.get("status") or {})
        counts = self._counts.setdefault(entry.uid, _Counts())
        if spec.get("managedBy", MANAGER) != MANAGER:
            return None
        if _is_finished(status) or job["metadata"].get("deletionTimestamp"):
            return self._expire(entry, job, now)
        pods = self._pods_of(entry)
        if spec.get("suspend"):
            self._suspend(counts, pods, status, now)
            again = None
        else:
            if not status.get("startTime"):
                status["startTime"] = timestamp(now)
            self._resume(status, now)
            again = self._drive(job, counts, pods, status, now)
        pods = self._pods_of(entry)
        self._write(entry, job, _counted(status, counts, pods, spec), now)
        return again

    def _drive(self, job: JsonObject, counts: _Counts, pods: _Pods, status: JsonObject, now: float) -> float | None:
        """Finish the Job, or make and remove pods; returns when to look again."""
        spec = job["spec"]
        ends_at = None
        if spec.get("activeDeadlineSeconds") is not None:
            ends_at = seconds(status["startTime"]) + spec["activeDeadlineSeconds"]
        verdict = None
        if ends_at is not None and now >= ends_at:
            verdict = DEADLINE_EXCEEDED
        elif len(counts.failed) > spec["backoffLimit"]:
            verdict = BACKOFF_LIMIT_EXCEEDED
        elif _is_done(spec, counts, pods):
            verdict = COMPLETED
        if verdict is None:
            return earliest(ends_at, self._balance(job, counts, pods, now))
        self._finish(job, status, verdict, now)
        self._drop(counts, pods.active, now)
        return None

    def _balance(self, job: JsonObject, counts: _Counts, pods: _Pods, now: float) -> float | None:
        missing = _wanted(job["spec"], counts, pods) - len(pods.active)
        if missing < 0:
            self._drop(counts, _first_to_go(pods.active)[:-missing], now)
            return None
        if missing == 0:
            return None
        if now < counts.next_creation:
            return counts.next_creation
        indexes = free_indexes(job["spec"], pods.active, counts.succeeded.values())
        for number in range(min(missing, CREATIONS_PER_STEP)):
            index = indexes[number] if number < len(indexes) else None
            if job["spec"]["completionMode"] == "Indexed" and index is None:
                break
            self._create(job, index, now)
        return now if missing > CREATIONS_PER_STEP else None

    def _create(self, job: JsonObject, index: int | None, now: float) -> None:
        namespace = job["metadata"]["namespace"]
        answer = send(self._server, "POST", f"/api/v1/namespaces/{namespace}/pods", pod_of(job, index), now)
        if answer.status == 201:
            name = orjson.loads(answer.body)["metadata"]["name"]
            record_event(self._server, job, ("Normal", "SuccessfulCreate", f"Created pod: {name}"), COMPONENT, now)
        else:
            text = answer.body.decode()[:200]
            record_event(self._server, job, ("Warning", "FailedCreate", f"Error creating: {text}"), COMPONENT, now)

    def _drop(self, counts: _Counts, pods: list[Entry], now: float) -> None:
        """Take pods away that are not wanted any more; they count neither as succeeded nor as failed."""
        for pod in pods:
            counts.dropped[pod.uid] = None
            delete_pod(self._server, pod, now)

    def _finish(self, job: JsonObject, status: JsonObject, verdict: _Verdict, now: float) -> None:
        why = {"status": "True", "reason": verdict.reason, "message": verdict.message}
        for condition in verdict.conditions:
            set_condition(status, {"type": condition, **why}, now)
        if verdict is COMPLETED:
            status["completionTime"] = timestamp(now)
        record_event(self._server, job, verdict.event, COMPONENT, now)

    def _suspend(self, counts: _Counts, pods: _Pods, status: JsonObject, now: float) -> None:
        status.pop("startTime", None)
        suspended = {"type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "Job suspended"}
        set_condition(status, suspended, now)
        self._drop(counts, pods.active, now)

    @staticmethod
    def _resume(status: JsonObject, now: float) -> None:
        if is_true(status, "Suspended"):
            resumed = {"type": "Suspended", "status": "False", "reason": "JobResumed", "message": "Job resumed"}
            set_condition(status, resumed, now)

    def _expire(self, entry: Entry, job: JsonObject, now: float) -> float | None:
        ttl = job["spec"].get("ttlSecondsAfterFinished")
        if ttl is None or job["metadata"].get("deletionTimestamp"):
            return None
        status = job["status"]
        times = [one.get("lastTransitionTime") for one in status["conditions"]]
        last = max((seconds(one) for one in times if one), default=now)
        if now < last + ttl:
            return float(last + ttl)
        path = f"/apis/batch/v1/namespaces/{entry.namespace}/jobs/{entry.name}"
        send(self._server, "DELETE", path, {"propagationPolicy": "Background"}, now)
        return None

    def _pods_of(self, entry: Entry) -> _Pods:
        mine = [pod for collection, pod in self._server.cluster.store.dependents(entry.uid) if collection is self._pods]
        living = [pod for pod in mine if pod.fields.get("status.phase") not in {"Succeeded", "Failed"}]
        active = [pod for pod in living if not is_going(pod)]
        ready = sum(1 for pod in active if pod.fields.get("status.phase") == "Running")
        return _Pods(active, len(living) - len(active), ready)

    def _write(self, entry: Entry, job: JsonObject, status: JsonObject, now: float) -> None:
        if status != job.get("status"):
            path = f"/apis/batch/v1/namespaces/{entry.namespace}/jobs/{entry.name}/status"
            metadata = {**job["metadata"], "resourceVersion": str(entry.revision)}
            send(self._server, "PUT", path, {**job, "metadata": metadata, "status": status}, now)


def _is_finished(status: JsonObject) -> bool:
    return any(is_true(status, kind) for kind in ("Complete", "Failed"))


def _is_done(spec: JsonObject, counts: _Counts, pods: _Pods) -> bool:
    if spec.get("completions") is None:
        return bool(counts.succeeded) and not pods.active and not pods.terminating
    wanted: int = spec["completions"]
    return _completions(spec, counts) >= wanted


def _completions(spec: JsonObject, counts: _Counts) -> int:
    if spec["completionMode"] == "Indexed":
        return len({index for index in counts.succeeded.values() if index and int(index) < spec["completions"]})
    return len(counts.succeeded)


def _wanted(spec: JsonObject, counts: _Counts, pods: _Pods) -> int:
    parallelism: int = spec["parallelism"]
    if spec.get("completions") is None:
        return parallelism if not counts.succeeded else min(parallelism, len(pods.active))
    wanted: int = spec["completions"]
    return min(parallelism, wanted - _completions(spec, counts))


def _first_to_go(active: list[Entry]) -> list[Entry]:
    """Order pods by how little is lost with them: waiting before running, youngest first."""
    return sorted(active, key=lambda pod: (pod.fields.get("status.phase") == "Running", -pod.revision, pod.name))


def _counted(status: JsonObject, counts: _Counts, pods: _Pods, spec: JsonObject) -> JsonObject:
    numbers = {
        "active": len(pods.active),
        "succeeded": _completions(spec, counts) if spec.get("completions") is not None else len(counts.succeeded),
        "failed": len(counts.failed),
    }
    kept = {key: value for key, value in status.items() if key not in numbers}
    kept |= {key: value for key, value in numbers.items() if value}
    kept |= {"ready": pods.ready, "terminating": pods.terminating, "uncountedTerminatedPods": {}}
    if spec["completionMode"] == "Indexed":
        shown = shown_indexes(int(index) for index in counts.succeeded.values() if index)
        if shown:
            kept["completedIndexes"] = shown
    return kept
