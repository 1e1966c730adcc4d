"""Handling of failed binds.

Invariants:
- Only a definite refusal frees the room of an assumed pod; an assumed pod does not expire.
- A refusal for a pod that is gone, or that the watch already shows bound, changes nothing.
"""

from typing import assert_never

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.evictions import left
from aischeduler.engine.pod_events import free_room, pod_gone
from aischeduler.model.actions import ReportWaiting
from aischeduler.model.events import BindRefusal, BindRefused
from aischeduler.state.records import PodRecord, PodState


def bind_refused(cluster: Cluster, event: BindRefused, now: float) -> None:
    """Free the room of the pod and put the pod back into its queue, as the refusal requires."""
    record = cluster.records.get(event.uid)
    if record is None or record.state is not PodState.ASSUMED or cluster.nodes.names[record.row] != event.node:
        return
    if event.refusal is BindRefusal.GONE:
        pod_gone(cluster, event.uid, now)
        return
    cluster.unsettled.pop(event.uid, None)
    free_room(cluster, record)
    left(cluster, record)
    record.home = cluster.pools.home(record.pod.pool)
    queue = cluster.queues[record.home]
    match event.refusal:
        case BindRefusal.TAKEN | BindRefusal.HELD:
            queue.hold(record, now)
        case BindRefusal.INVALID:
            queue.hold(record, now)
            _report(cluster, record, event)
        case BindRefusal.FORBIDDEN | BindRefusal.UNAVAILABLE:
            queue.retry(record, now)
            _report(cluster, record, event)
        case BindRefusal.STALE:
            record.backoff_until = now
            queue.add(record, now)
        case _:
            assert_never(event.refusal)


def _report(cluster: Cluster, record: PodRecord, event: BindRefused) -> None:
    record.message = f"binding to node {event.node} failed: {event.message}"
    home = record.home
    cluster.say(home, ReportWaiting(record.pod, home, home, record.message, record.decision))
