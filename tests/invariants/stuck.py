"""Waiting pods that a new trial would place: each shows a lost wake-up.

Invariants:
- A pod that is about to be tried is not stuck. Neither is a pod of the same class and home pool as a pod that is about
  to be tried: the latter wakes the former. Neither is a pod whose lender is about to be checked, nor a pod that fits on
  a row that is offered to another pod: a row that is not taken is offered again. Nor is a pod that fits, or evicts, on
  a changed row: its pool is about to offer it.
- A pod that would only wait for leaving pods is not stuck: it is woken when they are gone.
- A nominated pod waits for its own room; it is stuck where there is unclaimed room, not where it could take the room of
  an owner behind it.
- Of pods with the same class, priority, preemptionPolicy and namespace, the first in queue order is checked for all.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.propose import propose, propose_on
from aischeduler.model.proposal import Borrow, Hold, Lender, MakeRoom, Place, Wait, WaitFor
from aischeduler.policies.borrowing import choose_lender
from aischeduler.state.label_index import Rows
from aischeduler.state.pod_records import PodRecord, PodState
from aischeduler.state.scheduling_queue import class_key, queue_order


@dataclass(frozen=True, slots=True)
class Stuck:
    """A pod that waits in `state` although it could be placed, preempt or borrow now; `by` says which."""

    uid: str
    state: PodState
    by: str


def stuck(cluster: Cluster) -> tuple[Stuck, ...]:
    """Return the stuck pods; it costs a trial per parked pod: for tests and small clusters."""
    awake = {
        (record.home, record.pod.spec.key, record.pod.preempts)
        for queue in cluster.queues.values()
        for record in queue.records()
        if record.state in (PodState.ACTIVE, PodState.BACKOFF)
    }
    awake |= {
        (record.home, record.pod.spec.key, record.pod.preempts)
        for waiting in cluster.freshness.waiting.values()
        for record in waiting.values()
    }
    awake |= {
        (record.home, record.pod.spec.key, record.pod.preempts)
        for agenda in cluster.deferred.agendas.values()
        for record in agenda.rechecking.values()
    }
    deferred = cluster.deferred
    agendas = deferred.agendas.items()
    seeking = {pool for pool, one in agendas if one.affected or one.waking or one.seeking or one.sought}
    doubted = {pool for pool, one in agendas if one.affected}
    first: dict[tuple[object, ...], PodRecord] = {}
    for name in sorted(cluster.queues):
        for record in sorted(cluster.queues[name].records(), key=queue_order):
            agenda = deferred.look_at(name)
            if class_key(record) in agenda.counted or record.pod.uid in agenda.rechecking:
                continue
            chain = (record.home, record.pod.spec.key, record.pod.preempts)
            if record.leads is not None:
                if (
                    name not in seeking
                    and not (record.unit and cluster.units.outdated(record.unit))
                    and not _awaits(cluster, record)
                ):
                    first[record.pod.uid,] = record
            elif record.state in (PodState.NOMINATED, PodState.HELD) and name not in doubted:
                first[record.pod.uid,] = record
            elif record.state is PodState.PARKED and chain not in awake and name not in seeking:
                first.setdefault((*chain, record.pod.priority, record.pod.namespace), record)
    return tuple(Stuck(record.pod.uid, record.state, by) for record in first.values() for by in _ways(cluster, record))


def _awaits(cluster: Cluster, record: PodRecord) -> bool:
    return any(record.pod.uid in waiting for waiting in cluster.freshness.waiting.values())


def _ways(cluster: Cluster, record: PodRecord) -> Iterator[str]:
    """Yield how an attempt of the pod, or of the unit that it leads, would place it now."""
    if record.state is PodState.HELD:
        held = propose(cluster, record, record.home, cluster.now, known=True)
        if record.message == not_allowed_text(record) and not isinstance(held, Hold):
            yield "its pool, which takes pods of its namespace"
        if record.message.startswith("The pod may not name the machine group") and not isinstance(held, Hold):
            yield "its machine group, which pods of its namespace may name"
    if record.state not in (PodState.PARKED, PodState.NOMINATED):
        return
    pool, parked = record.home, record.state is PodState.PARKED
    if record.leads is None:
        proposal = propose_on(cluster, record, pool, _not_offered(cluster, pool))
    else:
        proposal = propose(cluster, record, pool, cluster.now, known=True)
    match proposal:
        case Place(node, displaced=displaced) if not _is_offered(cluster, pool, proposal):
            if parked or not displaced:
                yield f"taking room on {node}"
        case MakeRoom(node, victims) if parked and victims and not _is_offered(cluster, pool, proposal):
            yield f"preempting on {node} {victims}"
        case Wait(WaitFor.REFRESH) if parked and not _awaits(cluster, record) and _evicts_elsewhere(cluster, record):
            yield "a refresh before it preempts"
        case Wait() | Borrow() if parked and _may_borrow(cluster, record):
            found = propose(cluster, record, pool, cluster.now, known=True)
            if isinstance(found, Borrow) and _is_missed(cluster, found.lender):
                yield f"borrowing from {found.lender}"


def _evicts_elsewhere(cluster: Cluster, record: PodRecord) -> bool:
    """Return whether the pod, or its unit, would request a refresh without the rows that are about to be offered."""
    proposal = propose_on(cluster, record, record.home, _not_offered(cluster, record.home))
    return isinstance(proposal, Wait) and proposal.waits_for is WaitFor.REFRESH


def _may_borrow(cluster: Cluster, record: PodRecord) -> bool:
    """Return whether a lender would take the pod: a quick check, because `propose` also words why none does."""
    request = cluster.request_of(record, record.home)
    return isinstance(choose_lender(cluster.borrowing, record.home, request, (record.home,)), Lender)


def _is_offered(cluster: Cluster, pool: str, proposal: Place | MakeRoom) -> bool:
    nodes, names = cluster.nodes, (proposal.node, *(one.node for one in proposal.others))
    pools = {cluster.pool_of(nodes.rows[name]) for name in names}
    offered = {nodes.names[row] for one in (pool, *pools) for row in cluster.deferred.look_at(one).rows}
    offered.update(nodes.names[row] for row in cluster.deferred.offers)
    offered.update(nodes.names[row] for promise in cluster.deferred.promised.values() for row in promise.rows)
    return not offered.isdisjoint(names) or not all(_is_missed(cluster, one) for one in pools - {pool})


def not_allowed_text(record: PodRecord) -> str:
    """Return the message of a pod whose pool takes no pods from its namespace."""
    return (
        f"The pool {record.home} takes no pods from the namespace {record.pod.namespace}: "
        "its allowedNamespaces do not match."
    )


def _is_missed(cluster: Cluster, lender: str) -> bool:
    """Return whether nothing is about to offer the lender's room to other pools."""
    queue, deferred = cluster.queues[lender], cluster.deferred
    agenda, counts = deferred.look_at(lender), queue.counts()
    noted = agenda.relook
    tried = counts[PodState.ACTIVE] + counts[PodState.BACKOFF]
    awaited = agenda.lending is not None or agenda.affected is not None
    looked_at_again = awaited or (noted is not None and (noted != queue.version or tried or bool(agenda.counted)))
    offered = bool(agenda.rows) or any(cluster.pool_of(row) == lender for row in cluster.deferred.offers)
    return not looked_at_again and not offered


def _not_offered(cluster: Cluster, pool: str) -> Rows:
    rows = cluster.nodes.rows_of_pool(cluster.pools.id(pool))
    return rows[~np.isin(rows, [*cluster.deferred.offers, *cluster.deferred.look_at(pool).rows])]
