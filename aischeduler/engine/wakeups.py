"""Which parked pods an event may help.

Laws:
- A parked pod is refused by every row of its pool, even with all whom it may evict gone, and by every lender. So an
  event that changes one row is judged on that row alone, and exactly: with all filters, claims, victims and loans.
- No more pods are woken than the room can hold, by whose turn it is. Who was woken for a row and does not take it
  leaves it to the next.
- Home pods come first. Borrowers are sent straight into the lender's queue, where their order decides between pools;
  while a home pod of the lender could use the room, they wait until it has gone.
- What cannot fit into the room is sorted out for all classes at once.

Source: kube-scheduler's QueueingHints, which judge by plugin; here the filters themselves judge by row.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from heapq import merge
from operator import attrgetter
from typing import Final

import numpy as np

from aischeduler.engine.cluster import Cluster
from aischeduler.model.node import Node
from aischeduler.policies.borrowing import Lender, choose_lender, may_borrow, wanted_at_home
from aischeduler.policies.preemption import Chosen, Demand, choose_victims
from aischeduler.state.demand import Amounts
from aischeduler.state.index import Rows
from aischeduler.state.queue import PoolQueue, WaitingClass
from aischeduler.state.records import NOWHERE, OrderKey, Place, PodRecord
from aischeduler.state.trial import Trial

PRIORITY_MAX: Final = 2**31 - 1
FEW_ROWS: Final = 8
"""So many rows that a pool gains are judged one by one; of more, only what they may hold at most."""
WOKEN_MAX: Final = 1000
"""Pods that are tried because their pool gets its first rows; the others as the room allows."""
WOKEN_AT_ONCE: Final = 64
"""Of them, pods woken in one decision."""
NEVER_LOOKED: Final = -1
"""No version of a queue: it is looked at again whatever happens to it."""


def row_changed(cluster: Cluster, row: int, now: float) -> None:
    """Wake those who can use what this row now offers: the pool's own pods first, then borrowers."""
    pool, node = cluster.pool_of(row), cluster.nodes.nodes[row]
    if not pool or node is None:
        return
    room = RowRoom(cluster, row)
    _offer_to_nominated(cluster, room, now)
    if cluster.queues[pool].has_parked:
        _offer_at_home(cluster, room, node, now)
    _offer_abroad(cluster, room, node, now)


def offer_ends(cluster: Cluster, record: PodRecord, now: float) -> None:
    """Let others have the room for which a pod was woken, as far as it did not take it."""
    cluster.withdraw(record)
    row, record.offered = record.offered, NOWHERE
    if row != NOWHERE:
        row_changed(cluster, row, now)


def rows_changed(cluster: Cluster, rows: list[int], now: float) -> None:
    """Wake those who can use what these rows, new to their pools, now offer.

    Where a pool gains many rows, or its first, who may use them is tried bit by bit as the pool decides.
    """
    by_pool: dict[str, list[int]] = {}
    for row in rows:
        by_pool.setdefault(cluster.pool_of(row), []).append(row)
    for pool in sorted(name for name in by_pool if name):
        found = by_pool[pool]
        if len(found) == len(cluster.nodes.rows_of_pool(cluster.pools.id(pool))):
            wake_later(cluster, pool, cluster.queues[pool].parked_first(WOKEN_MAX))
        elif len(found) > FEW_ROWS:
            wake_later(cluster, pool, _heads_for(cluster, pool, np.array(found, dtype=np.intp)))
        else:
            for row in found:
                row_changed(cluster, row, now)


def wake_some(cluster: Cluster, pool: str, now: float) -> None:
    """Wake the next few of those who are to be tried because their pool gained rows."""
    waking, queue = cluster.errands.waking[pool], cluster.queues[pool]
    for _ in range(min(WOKEN_AT_ONCE, len(waking))):
        _, record = waking.popitem(last=False)
        if record.queue == pool and record.place in (Place.PARKED, Place.NOMINATED):
            queue.wake_at_once(record, now)
    if not waking:
        del cluster.errands.waking[pool]


def wake_later(cluster: Cluster, pool: str, records: Iterable[PodRecord]) -> None:
    """Leave these pods to be tried bit by bit as the pool decides; then others may borrow what they leave."""
    waking = {record.pod.uid: record for record in records}
    if waking:
        cluster.errands.waking.setdefault(pool, OrderedDict()).update(waking)
    cluster.errands.relook[pool] = NEVER_LOOKED


def _heads_for(cluster: Cluster, pool: str, rows: Rows) -> list[PodRecord]:
    """Return the pods that may fit on some of these rows, one of each class, and all owners of claims elsewhere."""
    queue, nodes = cluster.queues[pool], cluster.nodes
    evicts = cluster.market.may_evict(cluster.pools.pools[pool])
    room = nodes.allocatable[:, rows] if evicts else nodes.allocatable[:, rows] - nodes.used[:, rows]
    return [*queue.in_place(Place.NOMINATED), *(alike.head for alike in queue.parked_within(room.max(axis=1)))]


def could_use(cluster: Cluster, record: PodRecord, rows: Rows) -> bool:
    """Say whether the home pod would get one of these rows if it were tried: free, claimed behind it, or evicted."""
    pool = cluster.pools.pools[record.home]
    spec = record.pod.spec
    if cluster.runner.passes(spec, rows).any():
        return True
    evicts = cluster.market.may_evict(pool) and record.pod.preempts
    behind = [claim for row in rows.tolist() for claim in cluster.claims.on_row(row) if record.order < claim.turn]
    if not behind and not evicts:
        return False
    with Trial(cluster.nodes) as trial:
        trial.evict_all((claim.spec, claim.row) for claim in behind)
        if behind and cluster.runner.passes(spec, rows).any():
            return True
        demand = Demand(spec, record.pod.priority)
        return evicts and isinstance(
            choose_victims(demand, cluster.runner, cluster.running, rows, cluster.budgets), Chosen
        )


def lend(cluster: Cluster, lender: str, now: float) -> None:
    """Send those to this lender who wait at home and could borrow some room of it, as far as all its room goes."""
    nodes, market = cluster.nodes, cluster.market
    rows = nodes.rows_of_pool(cluster.pools.id(lender))
    if not len(rows):
        return
    left = np.maximum(nodes.allocatable[:, rows] - nodes.used[:, rows], 0)
    room = left.sum(axis=1)

    def wake(alike: WaitingClass) -> bool:
        home = alike.head.home
        if not (cluster.queues[home].request(alike) <= left.max(axis=1)).all():
            return False
        if not may_borrow(market, home, lender, alike.spec):
            return False
        fitting = rows[cluster.runner.feasible(cluster.ask(alike.spec, home))[rows]]
        if not len(fitting):
            return False
        if wanted_at_home(market, lender, fitting).all():
            cluster.errands.relook[lender] = cluster.queues[lender].version
            return False
        np.subtract(room, cluster.queues[home].request(alike), out=room)
        send(cluster, alike.head, lender, now)
        return True

    _walk(_borrowers(cluster, lender), room, wake)
    if len(cluster.queues[lender]):
        note_blocked(cluster, (lender,))  # whoever was sent and takes nothing leaves the room to others


def seek_lenders(cluster: Cluster, home: str, now: float) -> None:
    """Send those who wait in this pool to whoever lends to them now: their pool may borrow more than before."""
    for alike in cluster.queues[home].parked():
        found = choose_lender(cluster.market, home, cluster.ask(alike.spec, home), (home,))
        if isinstance(found, Lender):
            send(cluster, alike.head, found.name, now)
        note_blocked(cluster, found.blocked)


def limits_freed(cluster: Cluster, now: float) -> None:
    """Let those try again whom a limit refused, now that loans have ended."""
    ended, cluster.ended_loans = sorted(cluster.ended_loans), set()
    pools = cluster.pools.pools
    for lender in sorted({lender for lender, _ in ended}):
        if lender in pools and pools[lender].lending_limit:
            lend(cluster, lender, now)
    for home in sorted({home for _, home in ended}):
        if home in pools and pools[home].borrowing_limit:
            seek_lenders(cluster, home, now)


def send(cluster: Cluster, record: PodRecord, lender: str, now: float) -> None:
    """Send a pod that waits at home into the lender's queue."""
    cluster.queues[record.queue].remove(record)
    travel(cluster, record, lender, now)


def travel(cluster: Cluster, record: PodRecord, lender: str, now: float) -> None:
    """Let a pod that is in no queue join the lender's as a borrower; the trip remembers where it has been."""
    record.visited = (*(record.visited or (record.home,)), lender)
    cluster.queues[lender].add(record, now)


def note_blocked(cluster: Cluster, lenders: tuple[str, ...]) -> None:
    """Remember lenders whose own pods wait for the room that somebody would borrow."""
    for lender in lenders:
        cluster.errands.relook[lender] = cluster.queues[lender].version


class RowRoom:
    """What a row offers to whom, by column; who is woken for it takes what he asks for off all of it.

    `free` is what nobody has, `unclaimed` also what is only claimed. With `evict`, home pods may count on more:
    `lent` what those have as well who leave or are on loan, `lower` what home pods of priority `lowest` or more have.
    """

    def __init__(self, cluster: Cluster, row: int) -> None:
        nodes = cluster.nodes
        self.row = row
        self.pool = cluster.pool_of(row)
        self.rows = np.array([row], dtype=np.intp)
        self.free = nodes.room(row)
        for spec in cluster.offers.get(row, {}).values():
            self.free -= nodes.request(spec)
        self.lent = self.free.copy()
        for claim in cluster.claims.on_row(row):
            self.lent += nodes.request(claim.spec)
        self.lower = self.lent.copy()
        self.lowest = PRIORITY_MAX

    def evict(self, cluster: Cluster) -> None:
        """Count on the room of those who leave or can be evicted."""
        running = cluster.running
        pods = running.table[running.slots_on(self.rows)]
        first = pods["leaving"] | (pods["evictable"] & pods["borrower"])
        lower = pods["evictable"] & ~first
        columns = [cluster.nodes.column(resource) for resource in running.kinds.resources]
        self.lent[columns] += running.kinds.amounts[pods["kind"][first]].sum(axis=0)
        self.lower = self.lent.copy()
        if lower.any():
            self.lower[columns] += running.kinds.amounts[pods["kind"][lower]].sum(axis=0)
            self.lowest = int(pods["priority"][lower].min())

    def may_hold(self, request: Amounts, priority: int) -> bool:
        """Say whether a home pod could find room here, as far as amounts tell."""
        return priority > self.lowest or bool((request <= np.maximum(self.lent, 0)).all())

    def take(self, request: Amounts) -> None:
        """Count on this room less by what a woken pod asks for."""
        self.free -= request
        self.lent -= request
        self.lower -= request


def _walk(queues: Sequence[PoolQueue], room: Amounts, wake: Callable[[WaitingClass], bool]) -> None:
    """Go through the parked classes that fit into `room`, by whose turn it is, as long as some do.

    `wake` says whether it woke the head of a class; it lowers `room` when it does.
    """
    after: OrderKey | None = None
    going = True
    while going:
        going = False
        for alike in merge(*(queue.parked_within(room, after) for queue in queues), key=attrgetter("turn")):
            turn = alike.turn
            if wake(alike):
                after, going = turn, True
                break


def _offer_at_home(cluster: Cluster, room: RowRoom, node: Node, now: float) -> None:
    queue = cluster.queues[room.pool]
    if cluster.market.may_evict(cluster.pools.pools[room.pool]):
        room.evict(cluster)

    def wake(alike: WaitingClass) -> bool:
        head, request = alike.head, queue.request(alike)
        if not room.may_hold(request, head.pod.priority) or not cluster.runner.helps(alike.spec, node):
            return False
        if not could_use(cluster, head, room.rows):
            return False
        room.take(request)
        cluster.offer(head, room.row)
        queue.wake_next(head.pod, now)
        return True

    _walk([queue], room.lower, wake)


def _offer_to_nominated(cluster: Cluster, room: RowRoom, now: float) -> None:
    """Let owners of claims elsewhere in the pool take room that is there already."""
    queue = cluster.queues[room.pool]
    too_large: set[bytes] = set()
    for record in queue.in_place(Place.NOMINATED):
        spec = record.pod.spec
        claim = None if spec.key in too_large else cluster.claims.of(record.pod.uid)
        if claim is None or claim.row == room.row:
            continue
        request = cluster.nodes.request(spec)
        if (request > np.maximum(room.free, 0)).any():
            too_large.add(spec.key)
            continue
        if cluster.runner.passes(spec, room.rows)[0]:
            room.take(request)
            cluster.offer(record, room.row)
            queue.wake_at_once(record, now)


def _offer_abroad(cluster: Cluster, room: RowRoom, node: Node, now: float) -> None:
    """Send parked pods of other pools to the row's pool."""

    def wake(alike: WaitingClass) -> bool:
        head = alike.head
        if not cluster.runner.helps(alike.spec, node) or not cluster.runner.passes(alike.spec, room.rows)[0]:
            return False
        if not may_borrow(cluster.market, head.home, room.pool, alike.spec):
            return False
        if wanted_at_home(cluster.market, room.pool, room.rows)[0]:
            cluster.errands.relook[room.pool] = cluster.queues[room.pool].version
            return False
        room.take(cluster.queues[head.home].request(alike))
        cluster.offer(head, room.row)
        send(cluster, head, room.pool, now)
        return True

    _walk(_borrowers(cluster, room.pool), room.free, wake)


def _borrowers(cluster: Cluster, lender: str) -> list[PoolQueue]:
    """Return the queues in which somebody waits who might borrow from this pool."""
    pool = cluster.pools.pools[lender]
    if pool.disable_sharing or pool.invalid:
        return []
    return [
        cluster.queues[name]
        for name in cluster.pools.names()
        if name != lender and cluster.queues[name].has_parked and not cluster.pools.pools[name].disable_borrowing
    ]
