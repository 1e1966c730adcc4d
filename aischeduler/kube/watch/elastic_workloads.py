"""The elastic workloads that other objects say something of, which are told again when those change.

Invariants:
- Only workloads that ask to be elastic are remembered, and of Jobs only those of a JobSet of which a pod has ended.
- A workload is told as its own object says it, with what the others add at that time.

Source: JobSet of jobset.x-k8s.io/v1alpha2, which names the Job of a ReplicatedJob SET-PART-INDEX.
"""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from aischeduler.kube.decode.job_documents import JobDocument, JobStatus, ended
from aischeduler.kube.decode.workloads import JOB_SET
from aischeduler.model.elastic import ElasticJob
from aischeduler.model.events import Seen
from aischeduler.model.workload import Workload

WorkloadKey = tuple[str, str, str]
"""See `Workload.key`."""


class ElasticWorkloads:
    """The elastic workloads as their objects are; `judge` returns one with what other objects add."""

    def __init__(self, judge: Callable[[Workload, ElasticJob], ElasticJob]) -> None:
        self._judge = judge
        self._known: dict[WorkloadKey, Workload] = {}

    def now(self, found: Workload) -> Workload:
        """Record a workload as its object is now; return it with what others add."""
        if found.elastic is None:
            self._known.pop(found.key, None)
            return found
        self._known[found.key] = found
        return replace(found, elastic=self._judge(found, found.elastic))

    def forget(self, kind: str) -> Callable[[str, str], None]:
        """Return what forgets a workload of this kind, given its namespace and name."""

        def end(namespace: str, name: str) -> None:
            self._known.pop((kind, namespace, name), None)

        return end

    def again(self, key: WorkloadKey) -> Seen | None:
        """Return a workload as it is with what others add now; None for one that is not elastic."""
        found = self._known.get(key)
        return Seen(self.now(found)) if found is not None else None


class _Ended(Struct, frozen=True):
    """How many pods of the Job of a ReplicatedJob have succeeded, and how many get no successor."""

    succeeded: int
    ended: int


class JobSetParts:
    """The Jobs that JobSets control, by how many of their pods have ended; `workloads` are the elastic JobSets."""

    def __init__(self) -> None:
        self.workloads = ElasticWorkloads(self._judged)
        self._ended: dict[tuple[str, str], _Ended] = {}
        """Namespace and name of a Job -> what has ended of it; none where nothing has."""

    def job_seen(self, document: JobDocument) -> tuple[Seen, ...]:
        """Record a Job as it is now; return its JobSet if that is elastic, and more pods or fewer have ended."""
        metadata, status = document.metadata, document.status or JobStatus()
        key = metadata.namespace, metadata.name
        done = ended(status)
        if not done and key not in self._ended:
            return ()
        owner = next((owner for owner in metadata.owner_references or () if owner.controller), None)
        if owner is None or owner.kind != JOB_SET:
            return ()
        before, now = self._ended.pop(key, None), _Ended(max(status.succeeded or 0, 0), done) if done else None
        if now is not None:
            self._ended[key] = now
        told = self.workloads.again((JOB_SET, metadata.namespace, owner.name)) if now != before else None
        return (told,) if told is not None else ()

    def job_gone(self, namespace: str, name: str) -> None:
        """Forget a Job; its JobSet changes too, where it makes another one."""
        self._ended.pop((namespace, name), None)

    def _judged(self, found: Workload, elastic: ElasticJob) -> ElasticJob:
        done = self._ended.get((found.namespace, f"{found.name}-{elastic.part}-0"))
        if done is None:
            return elastic
        left = max(elastic.left - done.ended, 0) if elastic.left is not None else None
        return replace(elastic, succeeded=done.succeeded, left=left)
