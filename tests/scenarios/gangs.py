"""Gangs in scenarios: the objects and the pods that declare them, and what can be seen of them."""

from collections.abc import Mapping
from typing import Any

from aischeduler.model.gang import GANG_TOPOLOGY_KEY
from tests.api_contract.world import Json, condition
from tests.gang_objects import POD_GROUP_LABEL, VOLCANO_GROUP, gang_labels, pod_group_object, volcano_pod_group_object
from tests.scenarios.stage import Stage

GROUP = "PodGroup.scheduling.x-k8s.io"
VOLCANO = "PodGroup.scheduling.volcano.sh"
RACK, ZONE = "stage.example/rack", "stage.example/zone"
ROLE = "volcano.sh/task-spec"
NOTHING: Mapping[str, str] = {}


def members(name: str, count: int) -> list[str]:
    """Return the names of the first pods of a gang: NAME-0, NAME-1, …"""
    return [f"{name}-{turn}" for turn in range(count)]


def nodes(stage: Stage, *names: str, pool: str = "", **more: Any) -> None:
    """Create nodes on which one pod of one CPU has room."""
    for name in names:
        stage.node(name, pool=pool, **({"cpu": "1"} | more))


def racks(stage: Stage, *counts: int, cpu: str = "1") -> None:
    """Create racks r0, r1, … with these numbers of nodes r0-0, r0-1, …; two racks are a zone."""
    for rack, count in enumerate(counts):
        for number in range(count):
            labels = {RACK: f"r{rack}", ZONE: f"z{rack // 2}"}
            stage.node(f"r{rack}-{number}", cpu=cpu, labels=labels)


def labelled(stage: Stage, name: str, count: int, *, minimum: str = "", role: str = "", **pod: Any) -> None:
    """Create the pods of a gang of labels; the minimum is their number unless another is given."""
    labels = gang_labels(name, minimum or str(count), role=role)
    stage.pods(*members(name, count), labels=labels, **pod)


def group(stage: Stage, name: str = "g", minimum: Any = 2, **more: Any) -> None:
    """Create a PodGroup of Coscheduling."""
    stage.create(pod_group_object(name, namespace=stage.own("ns"), min_member=minimum, **more))


def grouped(stage: Stage, *names: str, group: str = "g", **pod: Any) -> None:
    """Create pods that name a PodGroup of Coscheduling."""
    stage.pods(*names, labels={POD_GROUP_LABEL: group}, **pod)


def volcano_group(stage: Stage, name: str = "g", minimum: Any = 2, **more: Any) -> None:
    """Create a PodGroup of Volcano."""
    stage.create(volcano_pod_group_object(name, namespace=stage.own("ns"), min_member=minimum, **more))


def volcano_pods(stage: Stage, *names: str, group: str = "g", role: str = "", **pod: Any) -> None:
    """Create pods that name a PodGroup of Volcano, with their task in it."""
    stage.pods(*names, annotations={VOLCANO_GROUP: group} | ({ROLE: role} if role else {}), **pod)


def job(stage: Stage, document: Json) -> None:
    """Create a Job once the scheduler has seen the nodes."""
    stage.settle()
    stage.create(document)


def pods_of_jobs(stage: Stage, count: int) -> list[str]:
    """Wait until there are so many pods; return their names, sorted."""
    stage.until(lambda: len(stage.all("Pod")) == count)
    return sorted(pod["metadata"]["name"] for pod in stage.all("Pod"))


def topology(text: str) -> Mapping[str, str]:
    """Return the annotation with these topology levels."""
    return {GANG_TOPOLOGY_KEY: text}


def places(stage: Stage, *pods: str) -> list[str]:
    """Wait until these pods are on nodes; return the nodes in the order of the pods."""
    stage.until_each(pods, lambda pod: stage.node_of(pod) != "")
    return [stage.node_of(pod) for pod in pods]


def says(stage: Stage, pod: str, *parts: str) -> None:
    """Wait until the reason of a waiting pod has these parts; what follows shows that it keeps waiting."""
    stage.until(lambda: stage.why(pod) != "" and all(part in stage.why(pod) for part in parts))


def waiting(stage: Stage, *pods: str) -> bool:
    """Say whether none of these pods is on a node."""
    return not any(stage.node_of(pod) for pod in pods)


def start_together(stage: Stage, *pods: str) -> None:
    """Wait until these pods are on nodes, and check that one decision has placed them."""
    places(stage, *pods)
    assert len({stage.decision(pod) for pod in pods}) == 1, stage.report()


def phase(stage: Stage, name: str = "g", kind: str = GROUP) -> str:
    """Return the phase of a PodGroup; empty if it has none."""
    found: str = stage.get(kind, name).get("status", {}).get("phase", "")
    return found


def volcano_condition(stage: Stage, kind: str, name: str = "g") -> Json:
    """Return a condition of a PodGroup of Volcano; empty if it has none of that type."""
    return condition(stage.get(VOLCANO, name), kind)


def until_phase(stage: Stage, wanted: str, name: str = "g", kind: str = GROUP) -> None:
    """Wait until a PodGroup has this phase."""
    stage.until(lambda: phase(stage, name, kind) == wanted)
