"""Recovery from an exception in the handling of an event: the object counts as the event shows it.

Invariants:
- The state of the event's own object is applied; the pods that it may help are tried by a check of all pools later.
- Every step may have been done already: repeating it changes nothing.
"""

from contextlib import suppress
from functools import partial

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.event_lines import as_line
from aischeduler.engine.evictions import left, terminates
from aischeduler.engine.freshness import go_on
from aischeduler.engine.gangs import note_end
from aischeduler.engine.object_events import object_changed
from aischeduler.engine.pod_counting import book_again
from aischeduler.engine.pool_events import forget_edits
from aischeduler.engine.recovery import (
    Doing,
    Mark,
    attempt_each,
    doubt,
    drop_claim,
    find_lost,
    internal_error,
    mend,
    put_back,
    stay,
    take_out,
)
from aischeduler.engine.unknown_pools import want_again
from aischeduler.engine.volume_binding import volumes_answered
from aischeduler.model import events
from aischeduler.model.actions import Action, Step
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.events import BindRefusal, Event, Gone, Seen
from aischeduler.model.gang import Gang
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pod_set import PodSet
from aischeduler.model.pool import Namespace, Pool
from aischeduler.state.pod_records import NOWHERE, PodRecord, PodState
from aischeduler.state.transitions import Transition, change_state


def event_failed(cluster: Cluster, event: Event, before: Mark, error: Exception) -> list[Action]:
    """Repair the state after an event whose handling failed; return the actions."""
    name = as_line(event)[0]
    pod = event.object if isinstance(event, Seen) and isinstance(event.object, Pod) else None
    told: list[Action] = [internal_error(cluster, Doing(Step.EVENT, f"handling {name}", pod=pod), error)]
    repairs = (partial(_believe, cluster, event), partial(mend, cluster, before), partial(find_lost, cluster))
    attempt_each(cluster, told, *repairs)
    doubt(cluster, tuple(cluster.queues))
    return told


def refresh_all(cluster: Cluster) -> None:
    """Update every pod on a row: whether it is leaving, and whether it may be evicted."""
    for record in cluster.records.values():
        if record.counted is not None:
            cluster.refresh(record)


def _believe(cluster: Cluster, event: Event) -> None:
    """Apply the object of the event."""
    match event:
        case Seen(Pod() as pod):
            _place_anew(cluster, pod)
        case Gone("Pod", (uid,)):
            _strike(cluster, uid)
        case Seen() | Gone():
            _store(cluster, event)
        case events.BindRefused(uid, _, refusal):
            _unbind(cluster, uid, refusal)
        case events.EvictRefused(uid):
            if uid in cluster.records:
                stay(cluster, cluster.records[uid])
        case events.Refreshed("") | events.RefreshFailed(""):
            want_again(cluster)
            _wake_held(cluster)
        case events.Refreshed(pool) | events.RefreshFailed(pool):
            go_on(cluster, pool, cluster.now)
        case _:
            volumes_answered(cluster, event)


def _store(cluster: Cluster, event: Seen | Gone) -> None:
    match event:
        case Seen(Gang() | PodSet()) | Gone("Gang" | "PodSet"):
            object_changed(cluster, event, cluster.now)
            return
        case Seen(Node() as node):
            cluster.unknown_pools.late.pop(node.name, None)
            cluster.nodes.see(node)
        case Gone("Node", (name,)):
            cluster.unknown_pools.late.pop(name, None)
            cluster.nodes.forget(name)
        case Seen(Pool() as pool) if pool.name in cluster.edits.last:
            cluster.edits.last[pool.name] = pool
        case Seen(Pool() as pool):
            cluster.pools.see(pool)
        case Gone("Pool", (name,)):
            _forget_pool(cluster, name)
        case Seen(DisruptionBudget() as budget):
            cluster.budgets.see(budget, cluster.leaving_pods.asked)
        case Gone("DisruptionBudget", (namespace, name)):
            cluster.budgets.forget(namespace, name)
        case Seen(Namespace(name, labels)):
            cluster.nodes.pod_counts.namespaces[name] = labels
            cluster.nodes.pod_counts.recount()
        case Gone("Namespace", (name,)):
            cluster.nodes.pod_counts.namespaces.pop(name, None)
            cluster.nodes.pod_counts.recount()
        case _:
            object_changed(cluster, event, cluster.now)
    _follow(cluster)


def _forget_pool(cluster: Cluster, name: str) -> None:
    forget_edits(cluster, name)
    if name == DEFAULT_POOL:
        cluster.pools.see(cluster.profile.default_pool)
        return
    if name in cluster.pools.pools:
        cluster.pools.forget(name)
    cluster.queues.pop(name, None)
    cluster.forget_pool(name)


def _follow(cluster: Cluster) -> None:
    """Update the pools of rows, the queues, and all pods after an object changed on which they depend."""
    cluster.pools.assign()
    for name in cluster.pools.names():
        if name not in cluster.queues:
            cluster.add_queue(name)
    for record in tuple(cluster.records.values()):
        if record.counted is not None:
            cluster.refresh(record)
        elif record.home != cluster.pools.home(record.pod.pool) or record.queue not in cluster.queues:
            _take_off(cluster, record)
            cluster.deferred.queue_changes.abroad.drop(record.home, record.pod.uid)
    book_again(cluster)
    _wake_held(cluster)
    cluster.deferred.review.update(cluster.pools.names())


def _wake_held(cluster: Cluster) -> None:
    for queue in cluster.queues.values():
        for held in queue.in_state(PodState.HELD):
            queue.wake_at_once(held, cluster.now)


def _strike(cluster: Cluster, uid: str) -> None:
    """Remove a pod, whatever the failed step has already done."""
    record = cluster.records.get(uid)
    if record is not None:
        with suppress(Exception):  # a policy that cannot tell must not keep the pod
            note_end(cluster, record)
        left(cluster, record)
        _take_off(cluster, record)
        cluster.strike(record)


def _take_off(cluster: Cluster, record: PodRecord) -> None:
    claim = cluster.claims.of(record.pod.uid)
    if claim is not None:
        drop_claim(cluster, claim)
    cluster.withdraw(record)
    record.offered = NOWHERE
    take_out(cluster, record)


def _place_anew(cluster: Cluster, pod: Pod) -> None:
    """Count a pod on the node that the event shows, or queue it at home; an assumed pod stays assumed."""
    record = cluster.records.get(pod.uid)
    if record is not None and record.state is PodState.BOUND and not pod.node_name:
        pod = record.pod  # it was bound since: this event is older
    under_way = record is not None and record.state is PodState.ASSUMED
    waits = not pod.node_name and not pod.terminating and cluster.ours(pod)
    if pod.finished or not (pod.node_name or waits or under_way):
        _strike(cluster, pod.uid)
        return
    if record is None:
        record = PodRecord(pod, cluster.next_arrival(), PodState.NEW, cluster.now)
    assumed = under_way and record.row != NOWHERE
    node = pod.node_name or (cluster.nodes.names[record.row] if assumed else "")
    if not node or record.counted is None:
        left(cluster, record)
    _take_off(cluster, record)
    if cluster.records.get(pod.uid) is record:
        cluster.rename(record, pod)
    else:
        record.pod = pod
        cluster.enroll(record)
    if not node:
        put_back(cluster, record)
        return
    if pod.node_name:
        change_state(record, Transition.SHOWN)
    else:
        cluster.reservations.unsettled[pod.uid] = cluster.now
        cluster.reservations.unsettled.move_to_end(pod.uid, last=False)
    cluster.count(record, node)
    cluster.review_loans(record.row)
    if pod.node_name and pod.terminating:
        terminates(cluster, record, cluster.now)


def _unbind(cluster: Cluster, uid: str, refusal: BindRefusal) -> None:
    """Queue an assumed pod again whose Binding was refused."""
    record = cluster.records.get(uid)
    if record is None or record.state is not PodState.ASSUMED:
        return
    if refusal is BindRefusal.GONE:
        _strike(cluster, uid)
        return
    left(cluster, record)
    _take_off(cluster, record)
