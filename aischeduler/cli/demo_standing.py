"""How the demo's Jobs stand, read from the API server as any user would read it.

Laws:
- Nothing is taken from the scheduler's own memory: what is shown and checked is what the API server says.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Struct, field

from aischeduler.cli.demo_cluster import NAMESPACE, Goal
from aischeduler.kube.client import Client
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


@dataclass(frozen=True, slots=True)
class Standing:
    """One Job: its pods' nodes by pod name, and why the others wait; both sorted by pod name."""

    goal: Goal
    bound: dict[str, str]
    strays: tuple[str, ...]
    waiting: dict[str, str]
    events: dict[str, tuple[str, ...]]

    def problems(self) -> list[str]:
        """Return what is not as the goal says, in words; nothing when all is."""
        goal, problems = self.goal, []
        if len(self.bound) != goal.bound:
            problems.append(f"{len(self.bound)} pods of {goal.job} are bound instead of {goal.bound}")
        if len(self.bound) + len(self.waiting) != goal.pods:
            problems.append(f"{goal.job} has {len(self.bound) + len(self.waiting)} pods instead of {goal.pods}")
        if self.strays:
            problems.append(f"{', '.join(self.strays)} of {goal.job} run outside of {goal.pool}")
        silent = [pod for pod, reason in self.waiting.items() if not reason]
        if silent:
            problems.append(f"{len(silent)} waiting pods of {goal.job} do not say why, {silent[0]} is one")
        for pods, reason in ((self.bound, "Scheduled"), (self.waiting, "FailedScheduling")):
            if pods and not any(reason in self.events.get(pod, ()) for pod in pods):
                problems.append(f"no event {reason} tells of a pod of {goal.job}")
        return problems


async def standings(client: Client, goals: Sequence[Goal]) -> list[Standing]:
    """Read pods and events; raises ApiError."""
    pods = _PODS.decode(await client.get(f"/api/v1/namespaces/{NAMESPACE}/pods")).items
    events = _EVENTS.decode(await client.get(f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events")).items
    told: dict[str, tuple[str, ...]] = {}
    for event in events:
        told[event.regarding.name] = (*told.get(event.regarding.name, ()), event.reason)
    return [_standing(goal, pods, told) for goal in goals]


def untold(reached: Iterable[Standing], pools: Iterable[PoolSummary]) -> list[str]:
    """Return what the statuses of Pools do not tell yet, in words."""
    told = {pool.name: (pool.pods, pool.pending_pods) for pool in pools}
    return [
        f"the status of {standing.goal.pool} does not tell of all pods of {standing.goal.job}"
        for standing in reached
        if told.get(standing.goal.pool) != (len(standing.bound), len(standing.waiting))
    ]


def _standing(goal: Goal, pods: Iterable[_Pod], events: dict[str, tuple[str, ...]]) -> Standing:
    ours = sorted(
        (pod for pod in pods if any(o.kind == "Job" and o.name == goal.job for o in pod.metadata.owner_references)),
        key=lambda pod: pod.metadata.name,
    )
    bound = {pod.metadata.name: pod.spec.node_name for pod in ours if pod.spec.node_name}
    strays = tuple(
        pod.metadata.name
        for pod in ours
        if pod.spec.node_name
        and (
            pod.spec.node_name.rpartition("-")[0] != goal.nodes or pod.metadata.annotations.get(MARK_POOL) != goal.pool
        )
    )
    waiting = {pod.metadata.name: _reason(pod.status.conditions) for pod in ours if not pod.spec.node_name}
    return Standing(goal, bound, strays, waiting, events)


def _reason(conditions: Iterable[_Condition]) -> str:
    return next((c.message for c in conditions if c.type == "PodScheduled" and c.status == "False"), "")
