"""Wake-ups: which parked pods an event may help.

Invariants:
- A parked pod fits on no row of its pool, even without the pods that it may evict, and no pool lends to it. So an event
  that changes one row is checked on that row alone, and exactly: with all filters, claims, victims and loans.
- No more pods are woken than the room can hold, in queue order. A row that a woken pod does not take is offered again.
- Home pods come first. Borrowers are sent into the lender's queue, where the queue order decides between pools; while a
  home pod of the lender can use the room, they wait.
- One comparison excludes all classes that do not fit into the room.

Source: kube-scheduler's QueueingHints, which check by plugin; here the filters check by row.
"""

from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice
from typing import Final

import numpy as np

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.freshness import awaits_view
from aischeduler.engine.lending import NEVER_LOOKED, borrowers, guarded, note_blocked, send, walk
from aischeduler.engine.recovery import judging_failed
from aischeduler.engine.row_room import RowRoom
from aischeduler.model.node import Node
from aischeduler.policies.borrowing import may_borrow, wanted_by_home_pods
from aischeduler.policies.preemption import Candidate, Preemptor, choose_victims
from aischeduler.state.demand import Amounts
from aischeduler.state.index import Rows
from aischeduler.state.records import NOWHERE, PodRecord, PodState
from aischeduler.state.trial import Trial
from aischeduler.state.waiting_class import WaitingClass

FEW_ROWS: Final = 8
"""Up to this many rows that a pool gains are checked one by one; of more, only the largest free room."""
WOKEN_MAX: Final = 1000
"""The most pods that are tried, whatever they request, because their pool gets its first rows."""
WOKEN_AT_ONCE: Final = 64
"""The most pods that one decision wakes after a change of their pool."""
OFFERED_MAX: Final = 256
"""The most classes that are checked at once for one row; the next decisions try the others."""


def row_changed(cluster: Cluster, row: int, now: float) -> None:
    """Wake the pods that can use the room of this row: the pool's own pods first, then borrowers."""
    pool, node = cluster.pool_of(row), cluster.nodes.nodes[row]
    if not pool or node is None:
        return
    cluster.news.of_row(row)
    room = RowRoom(cluster, row)
    _offer_to_nominated(cluster, room, now)
    if cluster.queues[pool].has_parked:
        _offer_at_home(cluster, room, node, now)
    _offer_abroad(cluster, room, node, now)


def offer_ends(cluster: Cluster, record: PodRecord, now: float) -> None:
    """Offer the room for which a pod was woken to others, as far as the pod did not take it."""
    cluster.withdraw(record)
    row, record.offered = record.offered, NOWHERE
    if row != NOWHERE:
        row_changed(cluster, row, now)


def rows_changed(cluster: Cluster, rows: list[int], now: float) -> None:
    """Wake the pods that can use these rows, which are new in their pools.

    Where a pool gains many rows, or its first, its next decisions try the pods that may use them.
    """
    by_pool: dict[str, list[int]] = {}
    for row in rows:
        by_pool.setdefault(cluster.pool_of(row), []).append(row)
    for pool in sorted(name for name in by_pool if name):
        found = by_pool[pool]
        first_rows = len(found) == len(cluster.nodes.rows_of_pool(cluster.pools.id(pool)))
        if first_rows or len(found) > FEW_ROWS:
            tried = cluster.queues[pool].parked_first(WOKEN_MAX) if first_rows else []
            wake_later(cluster, pool, tried + _heads_for(cluster, pool, np.array(found, dtype=np.intp)))
        else:
            for row in found:
                row_changed(cluster, row, now)


def wake_some(cluster: Cluster, pool: str, now: float) -> None:
    """Wake the next pods that are to be tried because their pool changed.

    Where a pod has left or was woken since, the next pod of its class is woken.
    """
    waking, queue = cluster.errands.waking[pool], cluster.queues[pool]
    for _ in range(min(WOKEN_AT_ONCE, len(waking))):
        _, record = waking.popitem(last=False)
        if record.queue == pool and record.state is PodState.NOMINATED:
            queue.wake_at_once(record, now)
        else:
            queue.wake_next(record.pod, now, at_once=True)
    if not waking:
        del cluster.errands.waking[pool]


def wake_later(cluster: Cluster, pool: str, records: Iterable[PodRecord]) -> None:
    """Have these pods tried by the next decisions of the pool; then other pools may borrow what they leave."""
    waking = {record.pod.uid: record for record in records}
    cluster.news.of_pool(pool)
    if waking:
        cluster.errands.waking.setdefault(pool, OrderedDict()).update(waking)
    cluster.errands.relook[pool] = NEVER_LOOKED


def look_anew(cluster: Cluster, now: float) -> None:
    """Check the pools in which a pod may have missed a wake-up because of an exception."""
    for pool in cluster.errands.doubts.due.pop_due(now):
        queue = cluster.queues[pool]
        cluster.errands.review.add(pool)
        cluster.errands.seeking.setdefault(pool, None)
        wake_later(cluster, pool, [*queue.in_state(PodState.NOMINATED), *(alike.head for alike in queue.parked())])


def _heads_for(cluster: Cluster, pool: str, rows: Rows) -> list[PodRecord]:
    """Return the first pod of each class that may fit on one of these rows, and all nominated pods."""
    queue, nodes = cluster.queues[pool], cluster.nodes
    evicts = cluster.borrowing.may_evict(cluster.pools.pools[pool])
    room = nodes.allocatable[:, rows] if evicts else nodes.allocatable[:, rows] - nodes.used[:, rows]
    return [*queue.in_state(PodState.NOMINATED), *(alike.head for alike in queue.parked_within(room.max(axis=1)))]


def could_use(cluster: Cluster, record: PodRecord, rows: Rows) -> bool:
    """Return whether an attempt of the home pod would use one of these rows: free, claimed behind it, or by eviction.

    A pod that waits for a refresh evicts no pod before it.
    """
    pool = cluster.pools.pools[record.home]
    spec = record.pod.spec
    if cluster.runner.passes(spec, rows).any():
        return True
    evicts = cluster.borrowing.may_evict(pool) and record.pod.preempts and not awaits_view(cluster, record)
    behind = [claim for row in rows.tolist() for claim in cluster.claims.on_row(row) if record.order < claim.turn]
    if not behind and not evicts:
        return False
    with Trial(cluster.nodes) as trial:
        trial.remove(claim.assigned for claim in behind)
        if behind and cluster.runner.passes(spec, rows).any():
            return True
        preemptor = Preemptor(spec, record.pod.priority)
        return evicts and isinstance(
            choose_victims(preemptor, cluster.runner, cluster.running, rows, cluster.budgets), Candidate
        )


def _offer_at_home(cluster: Cluster, room: RowRoom, node: Node, now: float) -> None:
    queue = cluster.queues[room.pool]
    if cluster.borrowing.may_evict(cluster.pools.pools[room.pool]):
        room.evict(cluster, queue.first_parked.pod.priority)

    def wake(alike: WaitingClass) -> bool | None:
        head, request = alike.head, queue.request(alike)
        if not room.may_hold(request, head.pod.priority) or not cluster.runner.helps(alike.spec, node):
            return None
        if not could_use(cluster, head, room.rows):
            return False
        room.take(request)
        cluster.offer(head, room.row)
        queue.wake_next(head.pod, now, at_once=True)  # a newcomer behind it must not take the room
        return True

    rest = walk([queue], room.most, guarded(cluster, wake), most=OFFERED_MAX)
    if rest is not None:
        wake_later(cluster, room.pool, (alike.head for alike in queue.parked_within(room.most, rest)))


def _offer_to_nominated(cluster: Cluster, room: RowRoom, now: float) -> None:
    """Wake nominated pods with claims on other rows that fit into the free room, unless a parked pod comes first."""
    queue = cluster.queues[room.pool]
    offered = [
        (cluster.records[uid].order, cluster.nodes.request(spec))
        for uid, spec in cluster.offers.get(room.row, {}).items()
    ]
    too_large: set[bytes] = set()
    for record in queue.nominated_within(sum((request for _, request in offered), room.free)):
        # A pod behind this one that was woken for less room of the row finds it taken.
        free = np.maximum(sum((behind for order, behind in offered if order > record.order), room.free), 0)
        if _is_behind(cluster, record, room, free, now):
            return
        spec = record.pod.spec
        claim = None if spec.key in too_large else cluster.claims.of(record.pod.uid)
        if claim is None or claim.row == room.row:
            continue
        request = cluster.nodes.request(spec)
        if (request > free).any():
            too_large.add(spec.key)
            continue
        try:
            fits = cluster.runner.passes(spec, room.rows)[0]
        except Exception as error:  # noqa: BLE001 - a bug costs one pod its turn, not those behind it
            judging_failed(cluster, record, "checking whether it fits on another row than that of its claim", error)
            continue
        if fits:
            room.take(request)
            cluster.offer(record, room.row)
            queue.wake_at_once(record, now)


def _is_behind(cluster: Cluster, record: PodRecord, room: RowRoom, free: Amounts, now: float) -> bool:
    """Return whether a parked pod ahead of this one, outside its backoff, fits into this free room of the row."""
    for alike in islice(cluster.queues[room.pool].parked_within(free), OFFERED_MAX):
        if record.order < alike.turn:
            return False
        head = alike.head
        try:
            if head.backoff_until <= now and cluster.runner.passes(head.pod.spec, room.rows)[0]:
                return True
        except Exception as error:  # noqa: BLE001 - a bug costs one pod its turn, not those behind it
            judging_failed(cluster, head, "checking whether room that became free is its turn", error)
            return False
    return False


def _offer_abroad(cluster: Cluster, room: RowRoom, node: Node, now: float) -> None:
    """Send parked pods of other pools to the row's pool, unless its own pods can use the row."""
    queues = borrowers(cluster, room.pool)
    if not queues:
        return
    if wanted_by_home_pods(cluster.borrowing, room.pool, room.rows)[0]:
        note_blocked(cluster, (room.pool,))
        return

    def wake(alike: WaitingClass) -> bool | None:
        head = alike.head
        if not cluster.runner.helps(alike.spec, node):
            return None
        if not cluster.runner.passes(alike.spec, room.rows)[0]:
            return False
        if not may_borrow(cluster.borrowing, head.home, room.pool, alike.spec):
            return False
        room.take(cluster.queues[head.home].request(alike))
        cluster.offer(head, room.row)
        send(cluster, head, room.pool, now)
        return True

    if walk(queues, room.free, guarded(cluster, wake), most=OFFERED_MAX) is not None:
        cluster.errands.relook[room.pool] = NEVER_LOOKED
