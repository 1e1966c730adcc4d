"""Bindings without success: the API server refused one, or the watch has not shown it for long.

Invariants:
- Only a definite refusal frees the room of an assumed pod; an assumed pod does not expire, it is read.
- A refusal is told once for each reason.
"""

from typing import Final, assert_never

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.evictions import left
from aischeduler.engine.nominator import clear_nomination
from aischeduler.engine.pod_classes import take_profile
from aischeduler.engine.pod_events import free_room, pod_gone
from aischeduler.model.actions import Action, ReadPod, ReportWaiting
from aischeduler.model.events import BindRefusal, BindRefused
from aischeduler.state.pod_records import PodState

SETTLE_SECONDS: Final = 30.0
"""An assumed pod that the watch has not shown bound for this long is read."""
READS_MAX: Final = 16
"""The most assumed pods that one decision has read."""
REPORTED: Final = (BindRefusal.INVALID, BindRefusal.FORBIDDEN, BindRefusal.UNAVAILABLE)
"""The refusals of a Binding of which the pod is told."""
BINDING: Final = "binding to node "
"""How such a message begins."""


def bind_refused(cluster: Cluster, event: BindRefused, now: float) -> None:
    """Free the room of the pod and put the pod back into its queue, as the refusal requires."""
    record = cluster.records.get(event.uid)
    if record is None or record.state is not PodState.ASSUMED or cluster.nodes.names[record.row] != event.node:
        return
    if event.refusal is BindRefusal.GONE:
        pod_gone(cluster, event.uid, now, ran=False)
        return
    cluster.reservations.unsettled.pop(event.uid, None)
    free_room(cluster, record)
    left(cluster, record)
    record.home = cluster.pools.home(record.pod.pool)
    take_profile(cluster, record)
    queue = cluster.queues[record.home]
    match event.refusal:
        case BindRefusal.TAKEN | BindRefusal.HELD:
            queue.hold(record, now)
        case BindRefusal.INVALID | BindRefusal.FORBIDDEN | BindRefusal.UNAVAILABLE:
            record.broken = event.refusal is not BindRefusal.UNAVAILABLE
            queue.retry(record, now, event.retry_after_seconds)
        case BindRefusal.STALE:
            record.backoff_until = now
            queue.add(record, now)
        case _:
            assert_never(event.refusal)
    clear_nomination(cluster, record)
    if event.refusal in REPORTED:
        reason = f" failed: {event.message}"
        if not (record.message.startswith(BINDING) and record.message.endswith(reason)):
            record.message = f"{BINDING}{event.node}{reason}"  # the same reason for another node is no news
        told = ReportWaiting(record.pod, record.home, record.home, record.message, record.decision)
        cluster.say(record.home, told)


def read_assumed(cluster: Cluster, actions: list[Action]) -> None:
    """Request reads of the assumed pods that the watch has not shown bound for long."""
    unsettled = cluster.reservations.unsettled
    for _ in range(READS_MAX):
        uid, due = next(iter(unsettled.items()), ("", cluster.now + 1))
        if due > cluster.now:
            break
        unsettled[uid] = cluster.now + SETTLE_SECONDS
        unsettled.move_to_end(uid)
        record = cluster.records[uid]
        actions.append(ReadPod(record.pod, cluster.nodes.names[record.row], record.decision))
