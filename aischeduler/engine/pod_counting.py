"""What the counts of pods by selector read of a cluster."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from aischeduler.model.pod import Pod
from aischeduler.model.topology_spread import PodSelector
from aischeduler.state.records import NOWHERE, PodRecord

if TYPE_CHECKING:
    from aischeduler.engine.cluster import Cluster


def selectors_of(cluster: "Cluster", pod: Pod) -> tuple[PodSelector, ...]:
    """Return the selectors by which pods are counted for a pod of this scheduler."""
    return cluster.runner.counts(pod.spec) if cluster.ours(pod) else ()


def count_again(cluster: "Cluster", before: Pod, record: PodRecord) -> None:
    """Count a pod on a row, or its claim, by its labels as they are now."""
    room = cluster.claims.room_of(record)
    row = room.row if room is not None else record.row
    if row != NOWHERE and cluster.nodes.pod_counts.change(before, record.pod, row, claims=room is not None):
        cluster.nodes.touch(row)


def pods_on_rows(cluster: "Cluster") -> Iterator[tuple[Pod, int, bool]]:
    """Yield the pods that count on rows, with their rows, and whether they own claims there."""
    yield from ((record.pod, record.row, False) for record in cluster.records.values() if record.row != NOWHERE)
    yield from ((room.record.pod, room.row, True) for claim in cluster.claims.all() for room in claim.rooms)
