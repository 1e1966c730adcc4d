"""The cluster of docs/cli.md on plan: research owns a free and a full node, vision lends, one pod is unimportant."""

from aischeduler.analysis.cluster_snapshot import ClusterSnapshot, PriorityClass
from aischeduler.model.events import Event, Seen
from tests.build import a_node, a_pod, a_pool

TAKEN_SECONDS = 1_767_225_600
CLASSES = (PriorityClass("high", 100),)


def plan_cluster() -> ClusterSnapshot:
    """Return the cluster as a snapshot has it."""
    nodes = {"research-0": "research", "research-1": "research", "vision-0": "vision"}
    events: list[Event] = [Seen(a_pool(name, labels={"team": name})) for name in ("research", "vision")]
    events += [
        Seen(a_node(name, cpu="64", memory="512Gi", gpu=8, labels={"team": team})) for name, team in nodes.items()
    ]
    events += [
        Seen(a_pod("tune-0", namespace="lab", cpu="8", gpu=8, pool="research", node="research-1", started=1)),
        Seen(a_pod("detect-0", namespace="lab", cpu="8", gpu=4, pool="vision", node="vision-0", started=2)),
    ]
    return ClusterSnapshot(TAKEN_SECONDS, tuple(events), CLASSES)
