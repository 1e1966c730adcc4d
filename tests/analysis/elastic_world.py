"""Snapshots with elastic jobs: instances on nodes and waiting ones, and what the scheduler wrote into the objects."""

from typing import Any

from aischeduler.analysis.cluster_snapshot import ClusterSnapshot
from aischeduler.model.elastic import WEIGHTS, PriorityLevel
from aischeduler.model.events import Seen
from aischeduler.model.gang import GangSource
from aischeduler.model.pod import RUNNING
from aischeduler.model.workload import Workload
from tests.build import replace
from tests.elastic import AJob
from tests.gangs import a_gang
from tests.tenants import in_queue

NOW = 1_767_225_600
HOUR = 3600
CORE_SECOND = 1000 * 1000 * 10
"""The service of a second of one core for a job of the level Normal."""


class AJobSeen(AJob):
    """An elastic Job that the scheduler adopted an hour ago, with an instance on each of `on`, and some that wait."""

    def __init__(
        self,
        name: str,
        least: int,
        most: int,
        on: list[str],
        *,
        waits: int = 0,
        service: int = 0,
        level: PriorityLevel = PriorityLevel.NORMAL,
        resized_before: int = HOUR,
        queue: str = "",
        labels: dict[str, str] | None = None,
        **given: Any,
    ) -> None:
        super().__init__(name, least, most, size=len(on) + waits, weight=WEIGHTS[level], **given)
        self.written, self.resized_at = self.size, float(NOW - resized_before)
        self.noted = {"service": service, "service_at_seconds": float(NOW)}
        for index in range(self.size):
            pod = replace(self.new_pod(index, float(NOW - HOUR)), labels=labels or {"job-name": name})
            if queue:
                pod = in_queue(pod, queue, owner=pod.owner)
            if index < len(on):
                pod = replace(pod, node_name=on[index], phase=RUNNING, started_seconds=NOW - HOUR)
            self.pods[index] = pod

    def seen(self, **change: Any) -> list[Any]:
        """Return its gang, its workload with these changes of what its object says, and its pods."""
        workload = self.workload
        assert workload.elastic is not None
        elastic = replace(workload.elastic, **self.noted, **change)
        gang = a_gang(self.name, self.terms.min_instances, GangSource.JOB)
        return [gang, replace(workload, elastic=elastic), *self.pods.values()]


def a_snapshot(*things: Any) -> ClusterSnapshot:
    """Return a snapshot of these objects and jobs, workloads before gangs and pods."""
    objects = [one for thing in things for one in (thing.seen() if isinstance(thing, AJobSeen) else [thing])]
    workloads = [one for one in objects if isinstance(one, Workload)]
    others = [one for one in objects if not isinstance(one, Workload)]
    return ClusterSnapshot(NOW, tuple(map(Seen, (*workloads, *others))))
