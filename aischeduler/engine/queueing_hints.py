"""Wake-ups: which parked pods an event may help.

Invariants:
- A parked pod fits on no row of its pool, even without the pods that it may evict, and no pool lends to it. So an event
  that changes one row is checked on that row alone, and exactly: with all filters, claims, victims and loans.
- No more pods are woken than the room can hold, in queue order. A row that a woken pod does not take is offered again.
- Home pods come first. Borrowers are sent into the lender's queue, where the queue order decides between pools; while a
  home pod of the lender can use the room, they wait.
- One comparison excludes all classes that do not fit into the room.
- The five-minute flush shows lost wake-ups: a pod counts as saved by it only where no event was about to help the pod
  when it was flushed, none announced the room that it gets until its attempt, and no pod was about to leave that room.

Source: kube-scheduler's QueueingHints, which check by plugin; here the filters check by row. The flush is that of
kube-scheduler's unschedulable pods.
"""

from collections import deque
from functools import partial
from itertools import islice
from typing import Final

import numpy as np

from aischeduler.engine.agenda import BOUNDS_PER_CHECK, Checks
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.freshness import awaits_view
from aischeduler.engine.holds import recheck_affected
from aischeduler.engine.internal_errors import judging_failed
from aischeduler.engine.lending import (
    NEVER_LOOKED,
    Use,
    borrowers,
    holds_beside_promised,
    may_borrow_whole,
    note_blocked,
    note_offered_beside,
    parked_in,
    propose_at_home,
    queue_for,
    takes_room,
    try_in,
    walk,
)
from aischeduler.engine.propose import propose_on
from aischeduler.engine.quotas import is_held_from_now
from aischeduler.model.node import Node
from aischeduler.model.proposal import Hold, Place, Proposal, Wait, WaitFor
from aischeduler.policies.borrowing import wanted_by_home_pods
from aischeduler.policies.eviction_order import PRIORITY_MIN, Preemptor, gone_for, may_go, standing_of
from aischeduler.state.label_index import Rows
from aischeduler.state.pod_records import NOWHERE, AssignedPod, PodRecord, PodState
from aischeduler.state.requests import Amounts
from aischeduler.state.scheduling_queue import OrderKey, PoolQueue, QueuedClass, class_key, queue_order
from aischeduler.state.units import Shape, shape_of_unit


class RowRoom:
    """The room of a row. The request of a pod that is woken for it is subtracted from all of it.

    `free` is free room, without offers to woken pods; `lent` adds claimed room. After `evict`, `lent` adds the room of
    leaving pods and of loans, and a home pod may also count on that of home pods of lower priority; `most` is what a
    pod of the highest priority may count on.
    """

    def __init__(self, cluster: Cluster, row: int) -> None:
        nodes = cluster.nodes
        self.row = row
        self.pool = cluster.pool_of(row)
        self.rows = np.array([row], dtype=np.intp)
        self.free = nodes.room(row)
        for spec in cluster.deferred.offers.get(row, {}).values():
            self.free -= nodes.request(spec)
        self.lent = self.free.copy()
        for claim in cluster.claims.on_row(row):
            for room in claim.on(row):
                self.lent += nodes.request(room.spec)
        self.most = self.lent.copy()
        self._standings = np.zeros(0, dtype=np.int64)
        self._below = np.zeros((1, len(self.lent)), dtype=np.int64)
        """[n, column]: the sum of what the n home pods of lowest priority use."""

    def evict(self, cluster: Cluster, highest: int) -> None:
        """Add the room of leaving and evictable pods, for home pods of at most the `highest` priority."""
        running = cluster.running
        pods = running.pods_in(running.slots_on(self.rows))
        first = gone_for(Preemptor(PRIORITY_MIN), pods)
        lower = pods.compress(may_go(pods) & ~first)
        columns = [cluster.nodes.column(resource) for resource in running.specs.resources]
        self.lent[columns] += running.specs.amounts[pods["spec"][first]].sum(axis=0)
        standings = standing_of(lower)
        lower = lower.take(np.argsort(standings, kind="stable"))
        self._standings = np.sort(standings)
        self._below = np.zeros((len(lower) + 1, len(self.lent)), dtype=np.int64)
        self._below[1:, columns] = np.cumsum(running.specs.amounts[lower["spec"]], axis=0)
        self.most = self.lent + self._below[np.searchsorted(self._standings, Preemptor(highest).standing)]

    def may_hold(self, request: Amounts, priority: int) -> bool:
        """Return whether, by amounts, the row may have room for a home pod of this priority."""
        lower = int(np.searchsorted(self._standings, Preemptor(priority).standing))
        return bool((request <= np.maximum(self.lent + self._below[lower], 0)).all())

    def take(self, request: Amounts) -> None:
        """Subtract the request of a woken pod."""
        self.free -= request
        self.lent -= request
        self.most -= request


FEW_ROWS: Final = 8
"""Up to this many rows that a pool gains are checked one by one; of more, only the largest free room."""
WOKEN_MAX: Final = 1000
"""The most pods that are tried, whatever they request, because their pool gets its first rows."""
OFFERED_MAX: Final = 256
"""The most classes that may come before the nominated pods to which a row is offered."""
VICTIMS_COST: Final = 4
"""The cost of a check whether a pod can use a row by eviction, in checks without one."""

WANTED_COST: Final = 4
"""The cost of a check whether home pods want a row."""

Placed = tuple[tuple[PodRecord, AssignedPod], ...]
"""Pods, each with itself on its row."""


def offer_ends(cluster: Cluster, record: PodRecord) -> None:
    """Have the room for which a pod was woken offered to others, as far as the pod did not take it."""
    cluster.withdraw(record)
    row, record.offered = record.offered, NOWHERE
    if row != NOWHERE:
        cluster.row_changed(row)


def rows_changed(cluster: Cluster, rows: list[int]) -> None:
    """Have the pods woken that can use these rows, which are new in their pools.

    Where a pool gains many rows, or its first, its next decisions try the pods that may use them.
    """
    by_pool: dict[str, list[int]] = {}
    for row in rows:
        by_pool.setdefault(cluster.pool_of(row), []).append(row)
    for pool in sorted(name for name in by_pool if name):
        found = by_pool[pool]
        first_rows = len(found) == len(cluster.nodes.rows_of_pool(cluster.pools.id(pool)))
        if first_rows or len(found) > FEW_ROWS:
            affected = cluster.deferred.affect(pool)
            affected.rows |= dict.fromkeys(found)
            affected.first_rows |= first_rows
        else:
            for row in found:
                cluster.row_changed(row)


def wake_some(cluster: Cluster, pool: str, checks: Checks) -> None:
    """Wake the next pods that are to be tried because their pool changed.

    Where a pod has left or was woken since, the next pod of its class is woken.
    """
    waking, queue = cluster.deferred.agenda(pool).waking, cluster.queues[pool]
    while waking and checks.left > 0:
        checks.spend(1)
        _, record = waking.popitem(last=False)
        if record.queue == pool and record.state is PodState.NOMINATED:
            queue.wake_at_once(record, cluster.now)
        else:
            queue.wake_next(record, cluster.now, at_once=True)


def find_affected(cluster: Cluster, pool: str) -> None:
    """Have the pods tried, by this and the next decisions, for which something changed in their pool.

    Then other pools may borrow what they leave.
    """
    agenda, queue = cluster.deferred.agenda(pool), cluster.queues[pool]
    affected, agenda.affected = agenda.affected, None
    assert affected is not None, "the task is on the agenda"
    recheck_affected(cluster, pool, affected)
    tried = queue.parked_first(WOKEN_MAX) if affected.first_rows else []
    if affected.rows:
        tried += _heads_for(cluster, pool, np.array(list(affected.rows), dtype=np.intp))
    if affected.nominated:
        tried += queue.in_state(PodState.NOMINATED)
    if affected.parked:
        tried += (alike.head for alike in queue.parked())
    agenda.waking.update((record.pod.uid, record) for record in tried)
    cluster.said.announcements.of_pool(pool)
    agenda.relook = NEVER_LOOKED


def _heads_for(cluster: Cluster, pool: str, rows: Rows) -> list[PodRecord]:
    """Return the first pod of each class that may fit on one of these rows, and all nominated pods."""
    queue, nodes = cluster.queues[pool], cluster.nodes
    evicts = cluster.borrowing.may_evict(cluster.pools.pools[pool])
    room = nodes.allocatable[:, rows] if evicts else nodes.allocatable[:, rows] - nodes.used[:, rows]
    parked = [*queue.parked_within(room.max(axis=1), None, partial(may_start_at_home, cluster, pool))]
    note_offered_beside(cluster, pool, rows.tolist())
    return [*queue.in_state(PodState.NOMINATED), *(alike.head for alike in parked)]


def would_be_helped(cluster: Cluster, record: PodRecord) -> bool:
    """Return whether an attempt at home would do more than wait for room, or for a refresh.

    Lenders whose own pods may take the room first are noted, as after an attempt.
    """
    return _helped(cluster, record, propose_at_home(cluster, record))


def could_use(cluster: Cluster, record: PodRecord, rows: Rows) -> bool:
    """Return whether an attempt of the home pod would use one of these rows: free, claimed behind it, or by eviction.

    A unit may need other rows too, so that all of its pool are tried; those of lenders only where it may span them.
    """
    unit = record.leads
    if unit is None:
        return _helped(cluster, record, propose_on(cluster, record, record.home, rows))
    return _helped(cluster, record, propose_at_home(cluster, record, borrows=unit.spans))


def may_start_at_home(cluster: Cluster, pool: str, shape: Shape, priority: int | None) -> bool:
    """Return whether, by amounts, a unit of this shape may start on rows of its pool, or on lenders' rows too.

    With a priority, also by evictions. Units that were woken for room of the pool and not tried yet take theirs first:
    it is offered again afterwards.
    """
    priority = priority if cluster.borrowing.may_evict(cluster.pools.pools[pool]) else None
    if holds_beside_promised(cluster, pool, shape, cluster.pools.id(pool), priority):
        return True
    return shape.spans and holds_beside_promised(cluster, pool, shape, None)


def _may_start(cluster: Cluster, record: PodRecord, shape: Shape) -> bool:
    """Return whether, by amounts, the unit that the pod leads may start; one that awaits a refresh evicts nobody."""
    return may_start_at_home(cluster, record.home, shape, None if awaits_view(cluster, record) else record.reach)


def _helped(cluster: Cluster, record: PodRecord, proposal: Proposal) -> bool:
    if is_held_from_now(cluster, record, proposal):
        return True
    if isinstance(proposal, Wait):
        awaited = proposal.waits_for is WaitFor.REFRESH and awaits_view(cluster, record)
        return proposal.waits_for is not WaitFor.ROOM and not awaited
    return not isinstance(proposal, Hold)


def offer_to_owners(cluster: Cluster, room: RowRoom, after: OrderKey | None, checks: Checks) -> OrderKey | None:
    """Wake nominated units that claim room of the row and fit now: its pods may change places before all victims go.

    Return the turn after which to continue; None at the end.
    """
    for claim in cluster.claims.on_row(room.row):
        owner = claim.owner
        if owner.leads is None or owner.state is not PodState.NOMINATED or (after is not None and claim.turn <= after):
            continue
        if checks.left <= 0:
            return after
        after = claim.turn
        if _starts_now(cluster, owner, "checking whether it fits in another way than that of its claim", checks):
            cluster.queues[room.pool].wake_at_once(owner, cluster.now)
    return None


def _starts_now(cluster: Cluster, record: PodRecord, doing: str, checks: Checks) -> bool:
    """Return whether an attempt would place the pod, or the unit that it leads, now."""
    if record.leads is not None and not _may_start(cluster, record, shape_of_unit(record.leads)):
        return False
    checks.spend(len(record.together), unit=record.leads is not None)
    try:
        return isinstance(propose_at_home(cluster, record), Place)
    except Exception as error:  # noqa: BLE001 - a bug costs one unit its turn, not those behind it
        judging_failed(cluster, record, doing, error)
        return False


def offer_to_nominated(cluster: Cluster, room: RowRoom, after: OrderKey | None, checks: Checks) -> OrderKey | None:
    """Wake nominated pods with claims on other rows that fit into the free room, unless a parked pod comes first.

    Return the turn after which to continue; None at the end.
    """
    queue = cluster.queues[room.pool]
    offered = [
        (queue_order(cluster.records[uid]), cluster.nodes.request(spec))
        for uid, spec in cluster.deferred.offers.get(room.row, {}).items()
    ]
    whole = sum((request for _, request in offered), room.free)
    nominated = [
        nominated_record
        for nominated_record in queue.nominated_within(whole)
        if after is None or after < queue_order(nominated_record)
    ]
    holds = partial(may_start_at_home, cluster, room.pool)
    parked = deque(islice(queue.parked_within(whole, after, holds), OFFERED_MAX) if nominated else ())
    refused: set[bytes] = set()
    for record in nominated:
        turn = queue_order(record)
        # A pod behind this one that was woken for less room of the row finds it taken.
        free = np.maximum(sum((behind for order, behind in offered if order > turn), room.free), 0)
        while parked and parked[0].turn < turn:  # a class that is refused here is refused with less room too
            if checks.left <= 0:
                return after
            after = parked[0].turn
            if _fits_now(cluster, parked.popleft(), room, free, checks):
                return None
        if checks.left <= 0:
            return after
        after = turn
        key = class_key(record)
        if key not in refused and _is_refused(cluster, record, room, free, checks):
            refused.add(key)
    return None


def _is_refused(cluster: Cluster, record: PodRecord, room: RowRoom, free: Amounts, checks: Checks) -> bool:
    """Wake a nominated pod with a claim elsewhere if it fits into this free room; return whether the row refuses it."""
    claim = cluster.claims.of(record.pod.uid)
    if claim is None or room.row in claim.rows:
        return False
    request = cluster.nodes.request(record.pod.spec)
    doing = "checking whether it fits on another row than that of its claim"
    if record.leads is not None:
        fits = _starts_now(cluster, record, doing, checks)
    else:
        checks.spend(1)
        try:
            fits = not (request > free).any() and _fits_beside_claims(cluster, record, room)
        except Exception as error:  # noqa: BLE001 - a bug costs one pod its turn, not those behind it
            judging_failed(cluster, record, doing, error)
            return False
    if fits:
        room.take(request)
        cluster.offer(record, room.row)
        cluster.queues[room.pool].wake_at_once(record, cluster.now)
    return not fits


def _fits_beside_claims(cluster: Cluster, record: PodRecord, room: RowRoom) -> bool:
    """Return whether a nominated pod fits on the row now; where pods elsewhere matter, its own claim does not."""
    if cluster.runner.crosses_rows(record.pod.spec):
        return isinstance(propose_on(cluster, record, room.pool, room.rows), Place)
    return bool(cluster.runner.passes(record.pod.spec, room.rows)[0])


def _fits_now(cluster: Cluster, alike: QueuedClass, room: RowRoom, free: Amounts, checks: Checks) -> bool:
    """Return whether the first pod of a parked class fits into this free room of the row, in backoff or not."""
    head, doing = alike.head, "checking whether room that became free is its turn"
    if (cluster.queues[room.pool].request(alike) > free).any():
        return False
    if alike.unit is not None:
        return _starts_now(cluster, head, doing, checks)
    checks.spend(1)
    try:
        return bool(cluster.runner.passes(alike.spec, room.rows)[0])
    except Exception as error:  # noqa: BLE001 - a bug costs one pod its turn, not those behind it
        judging_failed(cluster, head, doing, error)
        return False


def _helps(cluster: Cluster, alike: QueuedClass, node: Node) -> bool:
    """Return whether every filter's `helps` is True on the node for a pod of the class, or for one of the unit."""
    if alike.unit is None:
        return cluster.runner.helps(alike.spec, node)
    return any(cluster.runner.helps(record.pod.spec, node) for record in alike.unit.together)


def offer_at_home(cluster: Cluster, room: RowRoom, after: OrderKey | None, checks: Checks) -> OrderKey | None:
    """Wake parked pods of the row's pool that can use the row; return the turn after which to continue."""
    queue, node = cluster.queues[room.pool], cluster.nodes.nodes[room.row]
    if not queue.has_parked or node is None:
        return None
    evicts = cluster.borrowing.may_evict(cluster.pools.pools[room.pool])
    if evicts:
        room.evict(cluster, queue.highest_parked)
    cost = VICTIMS_COST if evicts else 1

    def check(alike: QueuedClass) -> Use | bool | None:
        head, request = alike.head, queue.request(alike)
        if not room.may_hold(request, head.reach) or (alike.shape and not _may_start(cluster, head, alike.shape)):
            return None
        if not _helps(cluster, alike, node):
            return None
        checks.spend(cost * len(head.together), unit=alike.unit is not None)
        if not could_use(cluster, head, room.rows):
            return False

        def use() -> None:
            room.take(request)
            cluster.offer(head, room.row)
            queue.wake_next(head, cluster.now, at_once=True)  # a newcomer behind it must not take the room

        return use

    def holds(shape: Shape, priority: int) -> bool:
        checks.spend_part(BOUNDS_PER_CHECK)
        return may_start_at_home(cluster, room.pool, shape, priority)

    return walk(cluster, parked_in([queue], room.most, holds), check, after, checks)


def offer_abroad(cluster: Cluster, room: RowRoom, after: OrderKey | None, checks: Checks) -> OrderKey | None:
    """Send parked pods of other pools to the row's pool, unless its own pods can use the row.

    Return the turn after which to continue.
    """
    queues, node = borrowers(cluster, room.pool), cluster.nodes.nodes[room.row]
    if not queues or node is None:
        return None
    checks.spend(WANTED_COST)
    if wanted_by_home_pods(cluster.borrowing, room.pool, room.rows)[0]:
        note_blocked(cluster, (room.pool,))
        return None

    def check(alike: QueuedClass) -> Use | bool | None:
        head = alike.head
        if not _helps(cluster, alike, node):
            return None
        checks.spend(len(head.together), unit=alike.unit is not None)
        request = cluster.queues[head.home].request(alike)
        pool = queue_for(cluster, head, room.pool, room.rows)
        if not pool:
            return False

        def use() -> None:
            if takes_room(head, pool):
                cluster.offer(head, room.row)
                room.take(request)
            try_in(cluster, head, pool, cluster.now)

        return use

    def holds(shape: Shape, _: int) -> bool:
        checks.spend_part(BOUNDS_PER_CHECK)
        return may_borrow_whole(cluster, shape, room.pool)

    return walk(cluster, parked_in(queues, room.free, holds), check, after, checks)


def flush_queue(cluster: Cluster, queue: PoolQueue, now: float) -> None:
    """Flush a queue; set `caught` of the pods that waited for five minutes."""
    for record in queue.flush(now):
        record.caught = cluster.said.announcements.count


def count_saved(cluster: Cluster, queue: PoolQueue, record: PodRecord, placed: Placed, *, free: bool) -> None:
    """Count the pod, or the unit that it leads, as saved if it gets these rows only because of the flush.

    It may claim a row that is not `free` where a requested eviction is not shown yet: that wakes it once it is shown.
    """
    if record.caught is None:
        return
    rows = [assigned.row for _, assigned in placed]
    pools = (record.home, queue.pool, *map(cluster.pool_of, rows))
    leaves = not free and any(
        neighbor.pod.uid in cluster.leaving_pods.asked for row in rows for neighbor in cluster.on_row(row)
    )
    announced = cluster.said.announcements.since(record.caught, rows, pools)
    if not cluster.deferred.concern(pools) and not announced and not leaves:
        cluster.counters.net_saves[queue.pool] += 1
