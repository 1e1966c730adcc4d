"""Recovery from an exception in the handling of an event: the object counts as the event shows it.

Invariants:
- The state of the event's own object is applied; the pods that it may help are tried by a check of all pools later.
- Every step may have been done already: repeating it changes nothing.
"""

from functools import partial
from typing import assert_never

import numpy as np

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.constraints import storage_changed
from aischeduler.engine.evictions import LEAVING_SLACK_SECONDS
from aischeduler.engine.freshness import go_on
from aischeduler.engine.pod_counting import recount_loans
from aischeduler.engine.pool_events import forget_edits
from aischeduler.engine.recovery import (
    Doing,
    Mark,
    attempt_each,
    doubt,
    drop_claim,
    end_quietly,
    find_lost,
    internal_error,
    mend,
    take_out,
    wait_again,
)
from aischeduler.engine.unknown_pools import forget_late, want_again
from aischeduler.model.actions import Action, Step
from aischeduler.model.events import (
    BindRefusal,
    BindRefused,
    BudgetGone,
    BudgetSeen,
    Event,
    EvictRefused,
    NamespaceGone,
    NamespaceSeen,
    NodeGone,
    NodeSeen,
    PodGone,
    PodSeen,
    PoolGone,
    PoolRead,
    PoolSeen,
    PoolsListed,
    PoolUnread,
    Refreshed,
    RefreshFailed,
    VolumeClaimGone,
    VolumeClaimSeen,
    VolumeGone,
    VolumeSeen,
)
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.pod import Pod
from aischeduler.state.records import NOWHERE, WAITING, PodRecord, PodState
from aischeduler.state.transitions import Transition, change_state


def event_failed(cluster: Cluster, event: Event, before: Mark, error: Exception) -> list[Action]:
    """Repair the state after an event whose handling failed; return the actions."""
    name = type(event).__name__
    pod = event.pod if isinstance(event, PodSeen) else None
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
        case PodSeen(pod):
            _place_anew(cluster, pod)
        case PodGone(uid):
            _strike(cluster, uid)
        case BindRefused(uid, _, refusal):
            _unbind(cluster, uid, refusal)
        case EvictRefused(uid):
            _keep(cluster, uid)
        case NodeSeen() | NodeGone():
            _believe_node(cluster, event)
        case PoolSeen() | PoolGone():
            _believe_pool(cluster, event)
        case BudgetSeen() | BudgetGone() | NamespaceSeen() | NamespaceGone():
            _believe_rules(cluster, event)
        case VolumeClaimSeen() | VolumeClaimGone() | VolumeSeen() | VolumeGone():
            storage_changed(cluster, event)
            _wake_held(cluster)
        case PoolRead() | PoolUnread() | PoolsListed():
            want_again(cluster)
            _wake_held(cluster)
        case Refreshed(pool) | RefreshFailed(pool):
            go_on(cluster, pool, cluster.now)
        case _:
            assert_never(event)


def _believe_rules(cluster: Cluster, event: BudgetSeen | BudgetGone | NamespaceSeen | NamespaceGone) -> None:
    match event:
        case BudgetSeen(budget):
            cluster.budgets.see(budget, cluster.victims)
        case BudgetGone(namespace, name):
            cluster.budgets.forget(namespace, name)
        case NamespaceSeen(name, labels):
            cluster.namespaces[name] = labels
        case NamespaceGone(name):
            cluster.namespaces.pop(name, None)
    refresh_all(cluster)
    _wake_held(cluster)


def _believe_node(cluster: Cluster, event: NodeSeen | NodeGone) -> None:
    forget_late(cluster, event.node.name if isinstance(event, NodeSeen) else event.name)
    if isinstance(event, NodeSeen):
        row, _ = cluster.nodes.see(event.node)
        cluster.pools.assign_row(row, event.node)
        _follow_rows(cluster, [row])
        return
    gone = cluster.nodes.rows.get(event.name)
    if gone is not None:
        cluster.pools.assign_row(gone, None)
        _follow_rows(cluster, [gone])
        cluster.nodes.forget(event.name)


def _believe_pool(cluster: Cluster, event: PoolSeen | PoolGone) -> None:
    if isinstance(event, PoolSeen):
        if event.pool.name in cluster.edits:
            cluster.edits[event.pool.name] = event.pool
        else:
            cluster.pools.see(event.pool)
    elif event.name == DEFAULT_POOL:
        forget_edits(cluster, event.name)
        cluster.pools.see(cluster.profile.default_pool)
    else:
        forget_edits(cluster, event.name)
        if event.name in cluster.pools.pools:
            cluster.pools.forget(event.name)
        cluster.forget_pool(event.name)
    _follow_pools(cluster)


def _keep(cluster: Cluster, uid: str) -> None:
    """End the claims on the room of a pod that was not evicted."""
    record = cluster.records.get(uid)
    if record is not None and record.counted is not None:
        cluster.refresh(record)
        for claim in cluster.claims.on_row(record.row):
            end_quietly(cluster, claim)


def _wake_held(cluster: Cluster) -> None:
    for queue in cluster.queues.values():
        for held in queue.in_state(PodState.HELD):
            queue.wake_at_once(held, cluster.now)


def _strike(cluster: Cluster, uid: str) -> None:
    """Remove a pod, whatever the failed step has already done."""
    record = cluster.records.get(uid)
    if record is None:
        return
    _forget_leaving(cluster, record)
    _take_off(cluster, record)
    cluster.strike(record)


def _take_off(cluster: Cluster, record: PodRecord) -> None:
    claim = cluster.claims.of(record.pod.uid)
    if claim is not None:
        drop_claim(cluster, claim)
    cluster.withdraw(record)
    record.offered = NOWHERE
    take_out(cluster, record)


def _forget_leaving(cluster: Cluster, record: PodRecord) -> None:
    uid = record.pod.uid
    cluster.forget_eviction(uid)
    cluster.departures.drop(uid)
    cluster.overstayed.discard(uid)
    cluster.spared.drop(uid)
    cluster.budgets.forget_pod(record.pod)


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
    assumed = record.state is PodState.ASSUMED and record.row != NOWHERE
    node = pod.node_name or (cluster.nodes.names[record.row] if assumed else "")
    overstayed = pod.uid in cluster.overstayed
    if not node or record.counted is None:
        _forget_leaving(cluster, record)
    _take_off(cluster, record)
    if cluster.records.get(pod.uid) is record:
        cluster.rename(record, pod)
    else:
        record.pod = pod
        cluster.enroll(record)
    if not node:
        wait_again(cluster, record)
        return
    if pod.terminating and pod.node_name:
        cluster.forget_eviction(pod.uid)
        if not overstayed and pod.uid not in cluster.departures:
            cluster.departures.set(pod.uid, cluster.now + pod.grace_seconds + LEAVING_SLACK_SECONDS)
    if pod.node_name:
        change_state(record, Transition.SHOWN)
    if record.state is PodState.ASSUMED:
        cluster.unsettled[pod.uid] = cluster.now
        cluster.unsettled.move_to_end(pod.uid, last=False)
    cluster.count(record, node)
    cluster.review_loans(record.row)


def _unbind(cluster: Cluster, uid: str, refusal: BindRefusal) -> None:
    """Queue a pod again whose Binding was refused and that is in no queue."""
    record = cluster.records.get(uid)
    if record is None or record.queue or (record.state is not PodState.ASSUMED and record.state not in WAITING):
        return
    if refusal is BindRefusal.GONE:
        _strike(cluster, uid)
        return
    _forget_leaving(cluster, record)
    _take_off(cluster, record)
    wait_again(cluster, record)


def _follow_rows(cluster: Cluster, rows: list[int]) -> None:
    """Update loans and claims of rows that may have changed their pool."""
    cluster.running.follow_pools(np.array(rows, dtype=np.intp), cluster.nodes.pool)
    recount_loans(cluster)
    for row in rows:
        for claim in cluster.claims.on_row(row):
            if cluster.pool_of(row) != claim.pool:
                end_quietly(cluster, claim)


def _follow_pools(cluster: Cluster) -> None:
    """Update rows, queues and home pools after a change of the pools."""
    cluster.pools.assign()
    for name in cluster.pools.names():
        if name not in cluster.queues:
            cluster.add_queue(name)
    for name in [name for name in cluster.queues if name not in cluster.pools.pools]:
        del cluster.queues[name]
        cluster.forget_pool(name)
    for record in tuple(cluster.records.values()):
        home = cluster.pools.home(record.pod.pool)
        if record.counted is not None:
            cluster.refresh(record)
        elif record.home != home or record.queue not in cluster.queues:
            _take_off(cluster, record)
            cluster.stir.abroad.drop(record.home, record.pod.uid)
            wait_again(cluster, record)
    _follow_rows(cluster, sorted(cluster.nodes.rows.values()))
    _wake_held(cluster)
    cluster.errands.review.update(cluster.pools.names())
