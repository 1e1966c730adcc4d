"""The progress of the demo's Jobs, and what misses their goals.

Invariant: the API server is the only source; nothing comes from the scheduler's memory.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec import Struct, field

from aischeduler.cli.demo_cluster import NAMESPACE, Goal
from aischeduler.kube.client import Client
from aischeduler.kube.paths import collection_path
from aischeduler.model.names import MARK_POOL
from aischeduler.model.pool_summary import PoolSummary


class _Owner(Struct):
    kind: str
    name: str


class _Metadata(Struct, rename="camel"):
    name: str
    annotations: dict[str, str] = field(default_factory=dict)
    owner_references: list[_Owner] = field(default_factory=list)


class _Condition(Struct):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class _Spec(Struct, rename="camel"):
    node_name: str = ""


class _Status(Struct):
    conditions: list[_Condition] = field(default_factory=list)


class _Pod(Struct):
    metadata: _Metadata
    spec: _Spec
    status: _Status = field(default_factory=_Status)


class _Regarding(Struct):
    name: str = ""


class _Event(Struct):
    reason: str = ""
    note: str = ""
    regarding: _Regarding = field(default_factory=_Regarding)


class _Pods(Struct):
    items: list[_Pod]


class _Events(Struct):
    items: list[_Event]


_PODS: Final = msgspec.json.Decoder(_Pods)
_EVENTS: Final = msgspec.json.Decoder(_Events)


class JobProgress(Struct, frozen=True):
    """One Job: the nodes of its bound pods and the reasons of its waiting pods; `misplaced` pods are on wrong nodes."""

    goal: Goal
    bound: dict[str, str]
    misplaced: tuple[str, ...]
    waiting: dict[str, str]
    events: dict[str, tuple[str, ...]]

    def problems(self) -> list[str]:
        """Return a sentence for everything that misses the goal."""
        goal, problems = self.goal, []
        if len(self.bound) != goal.bound:
            problems.append(f"{len(self.bound)} pods of {goal.job} are bound instead of {goal.bound}")
        if len(self.bound) + len(self.waiting) != goal.pods:
            problems.append(f"{goal.job} has {len(self.bound) + len(self.waiting)} pods instead of {goal.pods}")
        if self.misplaced:
            problems.append(f"{', '.join(self.misplaced)} of {goal.job} are bound outside of {goal.pool}")
        without_reason = [pod for pod, reason in self.waiting.items() if not reason]
        if without_reason:
            problems.append(f"{len(without_reason)} pods of {goal.job} wait without a reason: {without_reason[0]}")
        for pods, reason in ((self.bound, "Scheduled"), (self.waiting, "FailedScheduling")):
            if pods and not any(reason in self.events.get(pod, ()) for pod in pods):
                problems.append(f"no pod of {goal.job} has an event {reason}")
        return problems


async def read_progress(client: Client, goals: Sequence[Goal]) -> list[JobProgress]:
    """Return the progress of each Job; raises ApiError."""
    pods = _PODS.decode(await client.get(collection_path("v1", "pods", NAMESPACE))).items
    events = _EVENTS.decode(await client.get(collection_path("events.k8s.io/v1", "events", NAMESPACE))).items
    reasons: dict[str, tuple[str, ...]] = {}
    for event in events:
        reasons[event.regarding.name] = (*reasons.get(event.regarding.name, ()), event.reason)
    return [_job_progress(goal, pods, reasons) for goal in goals]


def status_problems(reached: Iterable[JobProgress], pools: Iterable[PoolSummary]) -> list[str]:
    """Return a sentence for each Pool whose status does not count the pods of its Job yet."""
    counts = {pool.name: (pool.pods, pool.pending_pods) for pool in pools}
    return [
        f"the status of {job.goal.pool} does not count all pods of {job.goal.job}"
        for job in reached
        if counts.get(job.goal.pool) != (len(job.bound), len(job.waiting))
    ]


def _job_progress(goal: Goal, pods: Iterable[_Pod], events: dict[str, tuple[str, ...]]) -> JobProgress:
    own = sorted(
        (pod for pod in pods if any(o.kind == "Job" and o.name == goal.job for o in pod.metadata.owner_references)),
        key=lambda pod: pod.metadata.name,
    )
    bound = {pod.metadata.name: pod.spec.node_name for pod in own if pod.spec.node_name}
    misplaced = tuple(
        pod.metadata.name
        for pod in own
        if pod.spec.node_name
        and (
            pod.spec.node_name.rpartition("-")[0] != goal.nodes or pod.metadata.annotations.get(MARK_POOL) != goal.pool
        )
    )
    waiting = {pod.metadata.name: _reason(pod.status.conditions) for pod in own if not pod.spec.node_name}
    return JobProgress(goal, bound, misplaced, waiting, events)


def _reason(conditions: Iterable[_Condition]) -> str:
    return next((c.message for c in conditions if c.type == "PodScheduled" and c.status == "False"), "")
