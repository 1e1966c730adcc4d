"""Handling of pod events, and of refused Bindings.

Invariants:
- Every unfinished pod on a node counts there, whichever scheduler placed it.
- A pod of this scheduler without a node waits in the queue of its home pool until it is placed, finished or gone.
- An event older than the state (an assumed pod that is still shown without its node) changes nothing.
- Only a definite refusal frees the room of an assumed pod; an assumed pod does not expire.
- A pod whose Binding is refused is tried again after its backoff, unless a read shows it gone, bound or terminating, or
  gated.
- A refusal for a pod that is gone, or that the watch already shows bound, changes nothing.
"""

from aischeduler.engine.admission import admit
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.device_events import said_anew
from aischeduler.engine.elastic_pods import claimed
from aischeduler.engine.evictions import left, on_its_way, recheck_minimum, reconsider, terminates
from aischeduler.engine.gang_lifecycle import note_end
from aischeduler.engine.holds import recheck_later
from aischeduler.engine.pod_classes import classed, ruled
from aischeduler.engine.pod_counting import count, refresh, uncount
from aischeduler.engine.units import gang_touched, stop_waiting
from aischeduler.model.pod import Pod
from aischeduler.state.pod_records import WAITING, PodRecord, PodState
from aischeduler.state.transitions import Transition, change_state


def pod_seen(cluster: Cluster, pod: Pod, now: float) -> None:
    """Handle a pod as it is now."""
    pod = classed(cluster, pod)
    if cluster.elastic.by_key and cluster.ours(pod):
        pod = claimed(cluster, pod)
    if pod.gang is not None and not pod.finished and not cluster.ours(pod):
        cluster.units.gangs.note_stranger(pod)
        gang_touched(cluster, pod.gang.key)
    if pod.finished:
        pod_gone(cluster, pod.uid, now, ran=bool(pod.node_name))
    elif pod.node_name:
        _bound(cluster, pod, now)
    elif cluster.ours(pod):
        _unbound(cluster, pod, now)


def pod_gone(cluster: Cluster, uid: str, now: float, *, ran: bool = True) -> None:
    """Remove a pod, and free its room; `ran` is False where the pod has been on no node.

    An assumed pod may have been on its node although the watch has not shown it there.
    """
    stranger_of = cluster.units.gangs.drop_stranger(uid)
    if stranger_of is not None:
        gang_touched(cluster, stranger_of)
    record = cluster.records.get(uid)
    if record is None:
        return
    cluster.reservations.unsettled.pop(uid, None)
    if record.state in WAITING:
        stop_waiting(cluster, record, now)
    else:
        if ran:
            note_end(cluster, record)
        free_room(cluster, record)
    left(cluster, record)
    cluster.strike(record)


def free_room(cluster: Cluster, record: PodRecord) -> None:
    """Stop counting a pod on its node, and wake the pods that its room, or its volumes, may help."""
    allocation = record.allocation
    on_its_way(cluster, record, cluster.now)
    row = uncount(cluster, record)
    recheck_minimum(cluster, record)
    if allocation.volumes is not None:
        recheck_later(cluster, cluster.nodes.storage.released(allocation))
    cluster.nodes.release_stub(row)
    cluster.row_changed(row)


def _bound(cluster: Cluster, pod: Pod, now: float) -> None:
    record = cluster.records.get(pod.uid)
    if record is None:
        record = PodRecord(pod, cluster.next_arrival(), PodState.NEW, now)
        cluster.enroll(record)
        _count(cluster, record)
    elif record.state in WAITING:
        stop_waiting(cluster, record, now)
        cluster.rename(record, pod)
        _count(cluster, record)
    elif record.row != cluster.nodes.rows.get(pod.node_name) or (
        record.counted is not pod.spec and record.assigned.spec.own_key != pod.spec.own_key
    ):
        free_room(cluster, record)
        cluster.rename(record, pod)
        _count(cluster, record)
    else:
        _changed(cluster, record, pod)
    cluster.reservations.unsettled.pop(pod.uid, None)
    cluster.reservations.end_delay(pod.uid)
    change_state(record, Transition.SHOWN)
    if record.unit is not None:
        cluster.units.shown(record.unit)
    if pod.terminating:
        terminates(cluster, record, now)


def _count(cluster: Cluster, record: PodRecord) -> None:
    """Count a pod on the node that the watch shows; claims there may lose their room."""
    count(cluster, record, record.pod.node_name)
    cluster.row_changed(record.row, offers=False, loans=True)


def _changed(cluster: Cluster, record: PodRecord, pod: Pod) -> None:
    """Update a pod that stays on its row."""
    old, unit, tenancy = record.pod, record.unit, record.tenancy
    cluster.rename(record, pod)
    facts = ((p.pool, p.priority, p.guarded, p.started_seconds, p.terms, p.owner) for p in (old, pod))
    if record.unit is not unit:
        refresh(cluster, record)
        cluster.row_changed(record.row)  # it may be evicted alone now, or only with others
    elif next(facts) != next(facts):
        refresh(cluster, record)
        if record.tenancy != tenancy:
            cluster.row_changed(record.row)  # others may evict it now
    reconsider(cluster, (pod.uid,))
    if pod.devices != old.devices and old.node_name:
        said_anew(cluster, record, pod.devices)
    if old.pool != pod.pool:
        cluster.row_changed(record.row, loans=True)  # own and lent room may have changed


def _unbound(cluster: Cluster, pod: Pod, now: float) -> None:
    record = cluster.records.get(pod.uid)
    if record is None:
        if not pod.terminating:
            record = PodRecord(pod, cluster.next_arrival(), PodState.NEW, now)
            cluster.enroll(record)
            admit(cluster, record, now)
    elif record.state is PodState.ASSUMED:
        _changed(cluster, record, pod)  # its node is decided; the other changes count if the bind fails
    elif record.state not in WAITING:
        return
    elif pod.terminating:
        pod_gone(cluster, pod.uid, now)
    elif _fate(cluster, record.pod) == _fate(cluster, pod):
        cluster.rename(record, pod)
    else:
        stop_waiting(cluster, record, now)
        cluster.rename(record, pod)
        admit(cluster, record, now)


def _fate(cluster: Cluster, pod: Pod) -> tuple[object, ...]:
    """Return what decides where a pod waits or may run."""
    unit = cluster.unit_name(pod)
    tenant = (pod.terms, pod.owner)
    return (pod.spec.key, pod.pool, pod.priority, pod.preempts, pod.gates, unit, *tenant, *ruled(cluster, pod))
