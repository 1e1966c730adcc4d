"""Which parked pods an event may help.

Laws:
- A parked pod is refused by every row of its pool, even with all whom it may evict gone, and by every lender. So an
  event that changes one row is judged on that row alone, and exactly: with all filters, claims, victims and loans.
- Home pods come first. Borrowers are sent straight into the lender's queue, where their order decides between pools;
  while a home pod of the lender could use the room, they wait until it has gone.
- Judged once per class; the chain in the queue decides how many of the class are tried. What cannot fit into the room
  is sorted out for all classes at once.

Source: kube-scheduler's QueueingHints, which judge by plugin; here the filters themselves judge by row.
"""

import numpy as np

from aischeduler.engine.cluster import Cluster
from aischeduler.model.node import Node
from aischeduler.policies.borrowing import Lender, choose_lender, may_borrow, wanted_at_home
from aischeduler.policies.preemption import Chosen, Demand, choose_victims
from aischeduler.state.demand import Amounts
from aischeduler.state.index import Rows
from aischeduler.state.queue import PoolQueue, WaitingClass
from aischeduler.state.records import Place, PodRecord
from aischeduler.state.trial import Trial

FEW_ROWS = 8
"""So many changed rows are judged one by one; more of them together."""


def row_changed(cluster: Cluster, row: int, now: float) -> None:
    """Wake those who can use what this row now offers: the pool's own pods first, then borrowers."""
    pool, node = cluster.pool_of(row), cluster.nodes.nodes[row]
    if not pool or node is None:
        return
    _wake_home(cluster, cluster.queues[pool], row, node, now)
    _wake_nominated(cluster, cluster.queues[pool], row, now)
    _lend_row(cluster, pool, row, node, now)


def rows_changed(cluster: Cluster, rows: list[int], now: float) -> None:
    """Wake those who can use what these rows, new to their pools, now offer."""
    if len(rows) <= FEW_ROWS:
        for row in rows:
            row_changed(cluster, row, now)
        return
    by_pool: dict[str, list[int]] = {}
    for row in rows:
        by_pool.setdefault(cluster.pool_of(row), []).append(row)
    for pool in sorted(name for name in by_pool if name):
        queue, found = cluster.queues[pool], np.array(by_pool[pool], dtype=np.intp)
        evicts = cluster.market.may_evict(cluster.pools.pools[pool])
        room = cluster.nodes.allocatable if evicts else cluster.nodes.allocatable - cluster.nodes.used
        for alike in queue.parked_within(room[:, found].max(axis=1)):
            if could_use(cluster, alike.head, found):
                queue.wake_next(alike.head.pod, now)
        for record in queue.in_place(Place.NOMINATED):
            if cluster.runner.passes(record.pod.spec, found).any():
                queue.wake_at_once(record, now)
        lend(cluster, pool, now)


def could_use(cluster: Cluster, record: PodRecord, rows: Rows) -> bool:
    """Say whether the home pod would get one of these rows if it were tried: free, claimed behind it, or evicted."""
    pool = cluster.pools.pools[record.home]
    spec = record.pod.spec
    if cluster.runner.passes(spec, rows).any():
        return True
    evicts = cluster.market.may_evict(pool) and record.pod.preempts
    behind = [c for c in cluster.claims.in_pool(pool.name) if record.order < c.owner.order and c.row in rows]
    if not behind and not evicts:
        return False
    with Trial(cluster.nodes) as trial:
        for claim in behind:
            trial.evict(claim.spec, claim.row)
        if behind and cluster.runner.passes(spec, rows).any():
            return True
        demand = Demand(spec, record.pod.priority, frozenset(cluster.spared.names()))
        return evicts and isinstance(
            choose_victims(demand, cluster.runner, cluster.running, rows, cluster.budgets), Chosen
        )


def lend(cluster: Cluster, lender: str, now: float) -> None:
    """Send those to this lender who wait at home and could borrow some room of it."""
    nodes, market = cluster.nodes, cluster.market
    rows = nodes.rows_of_pool(cluster.pools.id(lender))
    if not len(rows):
        return
    room = (nodes.allocatable[:, rows] - nodes.used[:, rows]).max(axis=1)
    for alike in _may_borrow(cluster, lender, room):
        head = alike.head
        fitting = rows[cluster.runner.feasible(cluster.ask(alike.spec, head.home))[rows]]
        if not len(fitting):
            continue
        if wanted_at_home(market, lender, fitting).all():
            cluster.relook[lender] = cluster.queues[lender].version
        else:
            send(cluster, head, lender, now)


def seek_lenders(cluster: Cluster, home: str, now: float) -> None:
    """Send those who wait in this pool to whoever lends to them now: their pool may borrow more than before."""
    for alike in cluster.queues[home].parked():
        found = choose_lender(cluster.market, home, cluster.ask(alike.spec, home), (home,))
        if isinstance(found, Lender):
            send(cluster, alike.head, found.name, now)
        note_blocked(cluster, found.blocked)


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
        cluster.relook[lender] = cluster.queues[lender].version


def _wake_home(cluster: Cluster, queue: PoolQueue, row: int, node: Node, now: float) -> None:
    if not queue.has_parked:
        return
    room = cluster.nodes.room(row)
    for claim in cluster.claims.on_row(row):
        for resource, amount in claim.spec.request.amounts.items():
            room[cluster.nodes.column(resource)] += amount
    classes = queue.parked_within(room)
    if cluster.market.may_evict(cluster.pools.pools[queue.pool]):
        classes = _with_evictors(cluster, queue, row, room)
    rows = np.array([row], dtype=np.intp)
    for alike in classes:
        if cluster.runner.helps(alike.spec, node) and could_use(cluster, alike.head, rows):
            queue.wake_next(alike.head.pod, now)


def _with_evictors(cluster: Cluster, queue: PoolQueue, row: int, room: Amounts) -> tuple[WaitingClass, ...]:
    """Return the parked classes that fit into `room`, or would with those gone whom they may evict."""
    running, nodes = cluster.running, cluster.nodes
    slots = running.slots_on(np.array([row], dtype=np.intp))
    pods = running.table[slots]
    goes_first = pods["leaving"] | (pods["evictable"] & pods["borrower"])
    goes_for_priority = pods["evictable"] & ~goes_first
    columns = [nodes.column(resource) for resource in running.kinds.resources]
    most = room.copy()
    most[columns] += running.kinds.amounts[pods["kind"][goes_first]].sum(axis=0)
    found = queue.parked_within(most)
    if not goes_for_priority.any():
        return found
    lowest = int(pods["priority"][goes_for_priority].min())
    most[columns] += running.kinds.amounts[pods["kind"][goes_for_priority]].sum(axis=0)
    with_priority = queue.parked_within(most)
    return tuple(alike for alike in with_priority if alike in found or alike.head.pod.priority > lowest)


def _wake_nominated(cluster: Cluster, queue: PoolQueue, row: int, now: float) -> None:
    """Let owners of claims elsewhere in the pool take room that is there already."""
    rows = np.array([row], dtype=np.intp)
    for record in queue.in_place(Place.NOMINATED):
        claim = cluster.claims.of(record.pod.uid)
        if claim is not None and claim.row != row and cluster.runner.passes(record.pod.spec, rows)[0]:
            queue.wake_at_once(record, now)


def _lend_row(cluster: Cluster, lender: str, row: int, node: Node, now: float) -> None:
    rows = np.array([row], dtype=np.intp)
    wanted: bool | None = None
    for alike in _may_borrow(cluster, lender, cluster.nodes.room(row)):
        if not cluster.runner.helps(alike.spec, node) or not cluster.runner.passes(alike.spec, rows)[0]:
            continue
        if wanted is None:
            wanted = bool(wanted_at_home(cluster.market, lender, rows)[0])
        if wanted:
            cluster.relook[lender] = cluster.queues[lender].version
            return
        send(cluster, alike.head, lender, now)


def _may_borrow(cluster: Cluster, lender: str, room: Amounts) -> list[WaitingClass]:
    """Return the parked classes of other pools that fit into `room` and may borrow it, by whose turn it is."""
    pool = cluster.pools.pools[lender]
    if pool.disable_sharing or pool.invalid:
        return []
    found = [
        alike
        for name in cluster.pools.names()
        if name != lender and cluster.queues[name].has_parked
        for alike in cluster.queues[name].parked_within(room)
        if may_borrow(cluster.market, name, lender, alike.spec)
    ]
    return sorted(found, key=lambda alike: alike.head.order)
