"""What a change of a pod means.

Laws:
- Every unfinished pod on a node counts there, whoever scheduled it.
- A pod of ours without a node waits in the queue of its home pool until it is placed, finished or gone.
- An event that is older than what we know (a pod that we bound, still shown without its node) changes nothing.
"""

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.wakeups import row_changed
from aischeduler.model.pod import Pod
from aischeduler.state.nodes import Change
from aischeduler.state.records import WAITING, Place, PodRecord


def pod_seen(cluster: Cluster, pod: Pod, now: float) -> None:
    """Take a pod as it now is."""
    if pod.finished:
        pod_gone(cluster, pod.uid, now)
    elif pod.node_name:
        _bound(cluster, pod, now)
    elif pod.scheduler_name == cluster.profile.scheduler_name:
        _unbound(cluster, pod, now)


def pod_gone(cluster: Cluster, uid: str, now: float) -> None:
    """Forget a pod: it waits no more, and its room is free."""
    record = cluster.records.pop(uid, None)
    if record is None:
        return
    cluster.unsettled.pop(uid, None)
    if record.place in WAITING:
        cluster.leave_queue(record, now)
    else:
        free_room(cluster, record, now)


def free_room(cluster: Cluster, record: PodRecord, now: float) -> None:
    """Count a pod on its node no more and wake whom that helps."""
    row = cluster.uncount(record)
    cluster.nodes.release_stub(row)
    row_changed(cluster, row, Change.ROOM, now)


def _bound(cluster: Cluster, pod: Pod, now: float) -> None:
    record = cluster.records.get(pod.uid)
    if record is None:
        record = cluster.records[pod.uid] = PodRecord(pod, cluster.next_arrival(), Place.BOUND)
        cluster.count(record, pod.node_name)
        return
    cluster.unsettled.pop(pod.uid, None)
    if record.place in WAITING:
        cluster.leave_queue(record, now)
        record.pod = pod
        cluster.count(record, pod.node_name)
    elif record.row != cluster.nodes.rows.get(pod.node_name) or record.pod.spec.key != pod.spec.key:
        free_room(cluster, record, now)
        record.pod = pod
        cluster.count(record, pod.node_name)
    record.pod = pod
    record.place = Place.BOUND


def _unbound(cluster: Cluster, pod: Pod, now: float) -> None:
    record = cluster.records.get(pod.uid)
    if record is None:
        if not pod.terminating:
            _arrived(cluster, pod, now)
    elif record.place not in WAITING:
        return
    elif pod.terminating:
        pod_gone(cluster, pod.uid, now)
    elif _same_to_us(record.pod, pod):
        record.pod = pod
    else:
        cluster.leave_queue(record, now)
        record.pod = pod
        admit(cluster, record, now)


def _arrived(cluster: Cluster, pod: Pod, now: float) -> None:
    record = cluster.records[pod.uid] = PodRecord(pod, cluster.next_arrival(), Place.ACTIVE)
    admit(cluster, record, now)


def admit(cluster: Cluster, record: PodRecord, now: float) -> None:
    """Put a pod into the queue of its home pool, with its age and its backoff."""
    record.home = cluster.pools.home(record.pod.pool)
    queue = cluster.queues[record.home]
    gate = next((reason for gate in cluster.profile.plugins.gates if (reason := gate.holds(record.pod))), "")
    if gate:
        record.message = gate
        queue.gate(record)
    else:
        queue.add(record, now)


def _same_to_us(old: Pod, new: Pod) -> bool:
    """Say whether nothing changed that decides where the pod waits or may run; status never does."""
    return (old.spec.key, old.pool, old.priority, old.gates) == (new.spec.key, new.pool, new.priority, new.gates)
