"""The requests that suspend and resume a Job or a JobSet as a whole, and how a write to the Job of victims is shared.

Invariants:
- Pure functions and plain state: the daemon's evictor and the simulator use the same ones.
- Every request carries the uid of its object, so it never changes a later one of the same name.
- An annotation marks what this scheduler has suspended, written and removed with `spec.suspend` in one request. Only
  what has it is resumed, so nothing that a user has suspended.
- All evictions of one decision send one write to an object: one of them sends it, and the others wait for the end.
- Of several sizes of one job that are not sent yet, all from one version of its object, the smallest is sent.

Source: `spec.suspend` of batch/v1 and of jobset.x-k8s.io/v1alpha2; `test` of RFC 6902.
"""

from typing import Final
from weakref import WeakValueDictionary

import msgspec

from aischeduler.kube.elastic_kinds import COLLECTIONS, Collections
from aischeduler.kube.http.paths import object_path
from aischeduler.kube.write.elastic_writes import content_type, resize_patch, resize_path
from aischeduler.kube.write.pod_writes import MERGE_PATCH
from aischeduler.model.actions import Evict, Resize
from aischeduler.model.workload import SUSPENDED_ABORT, SUSPENDED_KEY, SUSPENDED_RESTART, JobRef

_ANNOTATION: Final = "/metadata/annotations/" + SUSPENDED_KEY.replace("~", "~0").replace("/", "~1")


class JobWrite:
    """One write to the object of the victims' Job, by which its controller ends them.

    It is suspended, or it gets a smaller size. The write has no end while all three of `accepted`, `refused` and
    `failed` are empty. `sender` is the eviction that sends it, None for none. `refused` says why a Job cannot be
    suspended, so that its pods go as any others. `failed` says why nothing goes: it is not known to be suspended, or
    its size was not written; with `changed`, because the object is not what it was.
    """

    def __init__(self, change: JobRef | Resize, collections: Collections = COLLECTIONS) -> None:
        self.change = change
        self._collections = collections
        self.sender: object = None
        self.accepted = False
        self.refused = ""
        self.failed = ""
        self.changed = False
        self._is_told = False

    @property
    def has_ended(self) -> bool:
        """Return whether it is known what became of it."""
        return self.accepted or bool(self.refused or self.failed)

    def request(self) -> tuple[str, bytes, str]:
        """Return path, body and content type of the patch that suspends the Job, or gives it a smaller size."""
        change = self.change
        if isinstance(change, Resize):
            return resize_path(change, self._collections), resize_patch(change), content_type(change)
        return job_path(change), suspend_patch(change), MERGE_PATCH

    def take_news(self) -> bool:
        """Return whether it has ended since this was asked last: True once."""
        if self._is_told or not self.has_ended:
            return False
        self._is_told = True
        return True


class JobWrites:
    """The writes to Jobs of which evictions are under way, by decision and object."""

    def __init__(self, collections: Collections = COLLECTIONS) -> None:
        self._collections = collections
        self._under_way: WeakValueDictionary[tuple[str, str], JobWrite] = WeakValueDictionary()

    def of(self, action: Evict) -> JobWrite | None:
        """Return the write by which the pod is evicted; None where it goes alone."""
        change = action.suspends or action.resizes
        if change is None:
            return None
        key = (change.version if isinstance(change, Resize) else action.decision), change.uid
        found = self._under_way.get(key)
        if found is None or (isinstance(change, Resize) and (found.sender is not None or found.has_ended)):
            found = self._under_way[key] = JobWrite(change, self._collections)
        elif isinstance(change, Resize) and isinstance(found.change, Resize):
            found.change = min(found.change, change, key=lambda resize: resize.instances)
        return found


def job_path(job: JobRef) -> str:
    """Return the path of a Job or a JobSet."""
    version, plural = COLLECTIONS[job.kind]
    return object_path(version, plural, job.name, job.namespace)


def suspend_patch(job: JobRef) -> bytes:
    """Return the merge patch that suspends it."""
    mark = SUSPENDED_ABORT if job.aborts else SUSPENDED_RESTART
    return msgspec.json.encode(
        {"metadata": {"uid": job.uid, "annotations": {SUSPENDED_KEY: mark}}, "spec": {"suspend": True}}
    )


def resume_patch(job: JobRef) -> bytes:
    """Return the JSON patch that resumes it; the API server answers 422 where this scheduler has not suspended it."""
    return msgspec.json.encode(
        [
            {"op": "test", "path": "/metadata/uid", "value": job.uid},
            {"op": "test", "path": _ANNOTATION, "value": SUSPENDED_RESTART},
            {"op": "remove", "path": _ANNOTATION},
            {"op": "replace", "path": "/spec/suspend", "value": False},
        ]
    )
