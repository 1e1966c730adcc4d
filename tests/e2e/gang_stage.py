"""One API server on which two schedulers get the same gangs: each has its own, equal nodes, which its pods select.

Invariants:
- A gang is a PodGroup of the API server itself, which both schedulers read. It is created after its pods, so that no
  scheduler judges a part of the gang.
- No pod preempts: its class has `preemptionPolicy: Never`.
- Pods on nodes stay where they are, unless `level` moves them.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aischeduler.model.names import SCHEDULER_NAME
from tests.controlplane.many import Request, send
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import create_namespace, create_nodes, create_pods, create_priority
from tests.e2e.gang_cases import Cluster, Gang
from tests.gang_objects import native_pod_group_object
from tests.objects import Json, node_object, pod_object
from tests.packing_oracle import Amounts

OURS: Final = "ours"
THEIRS: Final = "theirs"
SIDES: Final = {OURS: SCHEDULER_NAME, THEIRS: "default-scheduler"}
GATES: Final = "--feature-gates=GenericWorkload=true,GangScheduling=true"
SERVER_FLAGS: Final = (GATES, "--runtime-config=scheduling.k8s.io/v1alpha2=true")
"""The flags with which the API server has PodGroups; kube-scheduler needs the gates too."""
PRIORITIES: Final = range(10)
GROUPS: Final = "/apis/scheduling.k8s.io/v1alpha2/namespaces/{}/podgroups"
NOT_JUDGED: Final = ("does not exist", "waits for more pods", "waiting for")
"""Parts of the messages of a scheduler that has not yet tried a gang, because it does not see all of it."""
VERDICT_SECONDS: Final = 60.0
QUIET_SECONDS: Final = 0.7
"""A verdict is final when nothing was bound for this long."""
GRACE_SECONDS: Final = 12.0
"""How long a scheduler that started less than the other may take to do the same."""
POLL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a gang: the nodes of its bound pods by pod number, and whether a scheduler refused a pod of it."""

    gang: Gang
    placed: Mapping[int, int] = field(default_factory=dict)
    refused: bool = False

    @property
    def whole(self) -> bool:
        """Whether at least its minimum is on nodes."""
        return len(self.placed) >= self.gang.minimum

    @property
    def judged(self) -> bool:
        """Whether the scheduler has said what becomes of it."""
        return self.whole or (not self.placed and self.refused)

    @property
    def pods(self) -> list[tuple[int, Amounts]]:
        """The pods on nodes: (node, amounts)."""
        return [(node, self.gang.pods[number]) for number, node in sorted(self.placed.items())]


Outcomes = dict[str, list[Outcome]]
"""Side -> the result of each gang, in the order of the gangs."""


def create_priorities(plane: ControlPlane) -> None:
    """Create the classes of the pods."""
    for value in PRIORITIES:
        create_priority(plane, f"never-{value}", value, preemptionPolicy="Never")


class Stage:
    """A namespace with a cluster for each side."""

    def __init__(self, plane: ControlPlane, namespace: str, cluster: Cluster) -> None:
        self.plane, self.namespace, self.cluster = plane, namespace, cluster
        create_namespace(plane, namespace)
        for side in SIDES:
            create_nodes(plane, [self._node(side, number) for number in range(len(cluster.nodes))])
            self.run_pods(side, "running", cluster.running)

    def run_pods(self, side: str, name: str, pods: Iterable[tuple[int, Amounts]]) -> None:
        """Create pods that are on nodes from the start."""
        bound = []
        for turn, (node, amounts) in enumerate(pods):
            document = self._pod(side, f"{side}-{name}-{turn}", amounts, 0)
            document["spec"]["nodeName"] = self.node_name(side, node)
            bound.append(document)
        create_pods(self.plane, self.namespace, bound)

    def offer(self, gangs: Iterable[Gang]) -> None:
        """Create these gangs for both sides, in this order."""
        for gang in gangs:
            for side in SIDES:
                name = f"{side}-{gang.name}"
                pods = [self._pod(side, f"{name}-{n}", pod, gang.priority) for n, pod in enumerate(gang.pods)]
                for document in pods:
                    document["spec"]["schedulingGroup"] = {"podGroupName": name}
                create_pods(self.plane, self.namespace, pods)
            for side in SIDES:
                group = native_pod_group_object(f"{side}-{gang.name}", namespace=self.namespace, min_count=gang.minimum)
                created = self.plane.api("POST", GROUPS.format(self.namespace), group)
                assert created.status == 201, created.body

    def outcomes(self, gangs: Iterable[Gang]) -> Outcomes:
        """Return what has become of these gangs."""
        items = self.plane.api("GET", f"/api/v1/namespaces/{self.namespace}/pods").body["items"]
        pods = {pod["metadata"]["name"]: pod for pod in items}
        return {side: [_outcome(side, gang, pods) for gang in gangs] for side in SIDES}

    def settled(self, gangs: list[Gang], same: Callable[[Outcomes], bool]) -> Outcomes:
        """Wait until both sides have judged these gangs and nothing more happens; longer if they are not the `same`."""
        deadline = time.monotonic() + VERDICT_SECONDS
        while not _all_judged(found := self.outcomes(gangs)):
            assert time.monotonic() < deadline, f"no verdict: {describe(found)}"
            time.sleep(POLL_SECONDS)
        patience = time.monotonic() + GRACE_SECONDS
        since = time.monotonic()
        while (now := time.monotonic()) < since + QUIET_SECONDS or (now < patience and not same(found)):
            time.sleep(POLL_SECONDS)
            before, found = found, self.outcomes(gangs)
            if _placed(before) != _placed(found):
                since = time.monotonic()
        return found

    def level(self, gang: Gang, outcomes: Outcomes, model: str) -> None:
        """Move the pods of a gang to where they are on the side of the `model`.

        The pods come to their new nodes before they leave the old ones, so that at no moment there is more room.
        """
        (other,) = SIDES.keys() - {model}
        (wanted,), (found,) = (outcomes[side] for side in (model, other))
        if sorted(wanted.pods) != sorted(found.pods):
            self.run_pods(other, f"{gang.name}-moved", wanted.pods)
            self._delete(f"{other}-{gang.name}-{number}" for number in found.placed)

    def clear_waiting(self, outcomes: Outcomes) -> None:
        """Delete the pods that wait, and the PodGroups of gangs that have not started."""
        for side, found in outcomes.items():
            for one in found:
                name = f"{side}-{one.gang.name}"
                self._delete(f"{name}-{number}" for number in range(len(one.gang.pods)) if number not in one.placed)
                if not one.whole:
                    self.plane.api("DELETE", f"{GROUPS.format(self.namespace)}/{name}")

    def node_name(self, side: str, number: int) -> str:
        """Return the name of a node of a side."""
        return f"{side}-{self.namespace}-{number}"

    def _delete(self, pods: Iterable[str]) -> None:
        path, at_once = f"/api/v1/namespaces/{self.namespace}/pods", {"gracePeriodSeconds": 0}
        send(self.plane.connect, [Request("DELETE", f"{path}/{name}", at_once) for name in pods])

    def _node(self, side: str, number: int) -> Json:
        cpu_milli, gpus = self.cluster.nodes[number]
        labels = {"side": side}
        return node_object(self.node_name(side, number), cpu=f"{cpu_milli}m", memory="512Gi", gpu=gpus, labels=labels)

    def _pod(self, side: str, name: str, amounts: Amounts, priority: int) -> Json:
        cpu_milli, gpus = amounts
        return pod_object(
            name,
            namespace=self.namespace,
            cpu=f"{cpu_milli}m",
            memory="64Mi",
            gpu=gpus,
            scheduler_name=SIDES[side],
            node_selector={"side": side},
            priority_class=f"never-{priority}",
        )


def describe(outcomes: Outcomes) -> str:
    """Return what has become of each gang, one line for each gang and side."""
    lines = [f"{side}: {one.gang}: {dict(one.placed)}" for side, found in outcomes.items() for one in found]
    return "\n".join(["", *lines])


def _outcome(side: str, gang: Gang, pods: Mapping[str, Any]) -> Outcome:
    placed, refused = dict[int, int](), False
    for number in range(len(gang.pods)):
        pod = pods[f"{side}-{gang.name}-{number}"]
        if node := pod["spec"].get("nodeName"):
            placed[number] = int(node.rpartition("-")[2])
        refused = refused or _is_refused(pod)
    return Outcome(gang, placed, refused)


def _is_refused(pod: Any) -> bool:
    """Return whether a scheduler has tried the whole gang and said that a pod has no place."""
    for one in pod["status"].get("conditions", ()):
        if one["type"] == "PodScheduled" and one["status"] == "False":
            return not any(part in one.get("message", "") for part in NOT_JUDGED)
    return False


def _all_judged(outcomes: Outcomes) -> bool:
    return all(one.judged for found in outcomes.values() for one in found)


def _placed(outcomes: Outcomes) -> list[Mapping[int, int]]:
    return [one.placed for found in outcomes.values() for one in found]
