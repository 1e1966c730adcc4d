"""The controllers of elastic jobs in a copy of a cluster: they show sizes that are written, and make and end the pods.

Invariants:
- A size is written only into the object of which the scheduler decided; another version is refused.
- A new instance equals the newest one that the job has, but for its name, its index and its uid.
- The instances that go are those that Kubernetes' controllers end: see `engine.elastic_pods`.
- An elastic job that is new to the cluster begins as an adopted one: with its minimum.
"""

import re
from collections.abc import Iterator
from itertools import count
from typing import Final

from msgspec.structs import replace

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.elastic_pods import INDEX_LABELS, in_end_order
from aischeduler.model.actions import Resize
from aischeduler.model.events import ResizeRefused
from aischeduler.model.pod import PENDING, Pod
from aischeduler.model.workload import Workload
from aischeduler.state.elastic_jobs import ElasticRecord, JobKey
from aischeduler.state.pod_records import PodRecord

RESTS_SECONDS: Final = 60.0
"""So long the scheduler does not try again to write a size that the copy does not carry out any more."""
_NUMBER: Final = re.compile(r"-\d+$", re.ASCII)


def as_adopted(workload: Workload) -> Workload:
    """Return a workload that is new to the cluster as it is once the scheduler has adopted it: with its minimum."""
    job = workload.elastic
    if job is None or job.problem is not None or job.suspended or job.finished:
        return workload
    least = job.terms.min_instances
    return replace(workload, elastic=replace(job, size=least, written_size=least, succeeded=0, version="planned"))


class JobControllers:
    """The elastic workloads of a copy; `made` are the uids of the pods that controllers have made in it."""

    def __init__(self) -> None:
        self.workloads: dict[JobKey, Workload] = {}
        self.made: set[str] = set()
        self._numbers = count()

    def see(self, workload: Workload) -> None:
        """Note an object as it is now."""
        if workload.elastic is not None:
            self.workloads[workload.key] = workload
        else:
            self.workloads.pop(workload.key, None)

    def refuse(self, resize: Resize) -> ResizeRefused:
        """Return the answer to a size that is not carried out, because more of them would have no end."""
        return ResizeRefused(
            resize.kind,
            resize.namespace,
            resize.name,
            resize.uid,
            "the copy of the cluster carries out no more sizes",
            retry_after_seconds=RESTS_SECONDS,
        )

    def resize(self, resize: Resize) -> Workload | ResizeRefused:
        """Write a size; return the object as it is then, or why it is not written."""
        workload = self.workloads.get((resize.kind, resize.namespace, resize.name))
        job = workload.elastic if workload is not None else None
        if workload is None or job is None or job.version != resize.version or workload.uid != resize.uid:
            of = (resize.kind, resize.namespace, resize.name, resize.uid)
            return ResizeRefused(*of, "the object has changed", changed=True)
        written = replace(
            job,
            size=resize.instances,
            written_size=resize.instances,
            version=f"copy-{next(self._numbers)}",
            service=resize.service,
            service_at_seconds=resize.now_seconds,
            resized_at_seconds=resize.now_seconds if resize.starts_window else job.resized_at_seconds,
        )
        return replace(workload, elastic=written)

    def sync(self, cluster: Cluster, resize: Resize) -> tuple[list[Pod], list[Pod]]:
        """Return the pods that the controller of a job makes for a size, and those that it ends."""
        record = cluster.elastic.by_key.get((resize.kind, resize.namespace, resize.name))
        if record is None or resize.instances == resize.before:
            return [], []
        there = [one for one in _instances(cluster, record) if not one.pod.terminating]
        ordered = in_end_order(there, ordered=record.job.ordered)
        ended = [one.pod for one in ordered[: max(len(ordered) - resize.instances, 0)]]
        if not there:
            return [], ended
        like = max(there, key=lambda one: (one.pod.created_seconds, one.pod.uid)).pod
        made = list(self._more(cluster, like, there, resize.instances))
        self.made.update(pod.uid for pod in made)
        return made, ended

    def _more(self, cluster: Cluster, like: Pod, there: list[PodRecord], size: int) -> Iterator[Pod]:
        """Yield the instances that a job of this size lacks."""
        stem, names = _NUMBER.sub("", like.name), {one.pod.name for one in there}
        indexes = (index for index in count() if f"{stem}-{index}" not in names)
        for _ in range(size - len(there)):
            index = next(indexes)
            labels = {key: str(index) if key in INDEX_LABELS else value for key, value in like.labels.items()}
            yield replace(
                like,
                uid=f"made-{next(self._numbers)}",
                name=f"{stem}-{index}",
                node_name="",
                nominated_node="",
                phase=PENDING,
                created_seconds=int(cluster.now),
                started_seconds=0,
                placed_seconds=0,
                said_to_wait=False,
                unready=False,
                devices=None,
                labels=labels,
                gang=replace(like.gang, index=index) if like.gang is not None else None,
            )


def _instances(cluster: Cluster, record: ElasticRecord) -> list[PodRecord]:
    """Return the instances of a job, also those of which the eviction is asked for: a smaller size ends these."""
    part = record.job.part
    found = cluster.tenants.of_workload(record.key)
    return [one for one in found if not part or (one.pod.gang is not None and one.pod.gang.role == part)]
