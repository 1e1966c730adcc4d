"""Lending: which waiting pods are sent to a lender's queue.

Invariants:
- Borrowers are sent into the lender's queue, where the queue order decides between pools.
- Borrowers wait while a home pod of the lender can use the room; the lender is checked again when its queue changed.
- Each decision checks a few classes; the next decision continues there, and a new search begins after the last class.
"""

from collections.abc import Callable, Iterable, Sequence
from heapq import merge
from operator import attrgetter
from typing import Final

import numpy as np

from aischeduler.engine.agenda import BOUNDS_PER_CHECK, Checks, LenderSearch
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.internal_errors import judging_failed
from aischeduler.engine.propose import propose_briefly, propose_on
from aischeduler.engine.quotas import is_held_from_now, try_first
from aischeduler.model.names import PODS
from aischeduler.model.proposal import Hold, Lender, Place, Proposal
from aischeduler.policies.borrowing import choose_lender, wanted_by_home_pods
from aischeduler.policies.loan_limits import may_borrow
from aischeduler.state.label_index import Rows
from aischeduler.state.ledger import BORROWS, LOAN
from aischeduler.state.node_table import UNOFFERED
from aischeduler.state.pod_records import PodRecord
from aischeduler.state.requests import Amounts
from aischeduler.state.scheduling_queue import Holds, OrderKey, PoolQueue, QueuedClass
from aischeduler.state.units import Shape

PASSED_MAX: Final = 256
"""The most quick refusals in one walk over parked classes."""
NEVER_LOOKED: Final = -1
"""A version that no queue has: the lender is checked again in any case."""
UNLIMITED: Final = 2**62


def looks_again(cluster: Cluster, pool: str) -> bool:
    """Return whether to check the pool again as a lender: its queue changed since its own pods blocked a loan."""
    version, queue = cluster.deferred.look_at(pool).relook, cluster.queues[pool]
    return version is not None and version != queue.version and not queue.home_active


def lend(cluster: Cluster, lender: str, checks: Checks) -> None:
    """Send waiting pods of other pools to this lender, as many as its free room may hold, where that is due."""
    if cluster.deferred.look_at(lender).lending is not None:
        _lend(cluster, lender, checks)
    elif looks_again(cluster, lender):
        cluster.deferred.agenda(lender).relook = None
        _lend(cluster, lender, checks)


def _lend(cluster: Cluster, lender: str, checks: Checks) -> None:
    cluster.said.announcements.of_pool(lender)
    nodes, borrowing, queues = cluster.nodes, cluster.borrowing, borrowers(cluster, lender)
    agenda = cluster.deferred.agenda(lender)
    after, agenda.lending = agenda.lending, None
    rows = nodes.rows_of_pool(cluster.pools.id(lender))
    rows = rows[nodes.used[nodes.columns[PODS], rows] < nodes.allocatable[nodes.columns[PODS], rows]]
    if not queues or not len(rows):
        return
    wanted = wanted_by_home_pods(borrowing, lender, rows)
    if wanted.any():
        note_blocked(cluster, (lender,))
    rows = rows[~wanted]
    if not len(rows):
        return
    left = np.maximum(nodes.allocatable[:, rows] - nodes.used[:, rows], 0)
    free, largest = left.sum(axis=1), left.max(axis=1)
    for resource, amount in cluster.queues[lender].borrowers_ask.items():
        free[nodes.column(resource)] -= amount  # these borrowers are in the lender's queue already
    room = np.minimum(free, largest)

    def check(alike: QueuedClass) -> Use | bool | None:
        head = alike.head
        allowed = may_borrow(borrowing, head.home, lender, cluster.total(head))
        if not (allowed or _spans(head)):
            return None
        checks.spend(len(head.together))
        requests = _all_requests(cluster, head)
        queue = queue_for(cluster, head, lender, rows) if allowed else spanning_queue(cluster, head)
        if not queue:
            return False

        def use() -> None:
            try_in(cluster, head, queue, cluster.now)
            if takes_room(head, queue):
                np.subtract(free, requests, out=free)
                np.minimum(free, largest, out=room)

        return use

    def holds(shape: Shape, _: int) -> bool:
        checks.spend_part(BOUNDS_PER_CHECK)
        return may_borrow_whole(cluster, shape, lender)

    agenda.lending = walk(cluster, parked_in(queues, room, holds), check, after, checks)
    if len(cluster.queues[lender]):
        note_blocked(cluster, (lender,))  # a borrower that takes nothing leaves the room to others


def seek_lenders(cluster: Cluster, home: str, checks: Checks) -> None:
    """Send waiting pods of this pool to lenders, because the pool may borrow more than before."""
    cluster.said.announcements.of_pool(home)
    agenda, queue = cluster.deferred.agenda(home), cluster.queues[home]
    limit = cluster.pools.pools[home].borrowing_limit
    search, agenda.seeking = agenda.seeking, None
    assert search is not None, "the task is on the agenda"
    borrowed = cluster.ledger.of(BORROWS, home)
    columns = {cluster.nodes.column(name): most - borrowed.get(name, 0) for name, most in limit.items()}
    room = np.full(len(cluster.nodes.used), UNLIMITED, dtype=np.int64)
    room[list(columns)] = list(columns.values())
    room[UNOFFERED] = 0
    lenders = [name for name in cluster.pools.names() if name != home]

    def check(alike: QueuedClass) -> Use | bool:
        head = alike.head
        checks.spend(len(head.together))
        found = choose_lender(cluster.borrowing, home, cluster.request_of(head, home), (home,))
        note_blocked(cluster, found.blocked)
        tried = found.name if isinstance(found, Lender) else spanning_queue(cluster, head)
        if not tried:
            return False

        def use() -> None:
            if tried != home:
                np.subtract(room, _all_requests(cluster, head), out=room)
                agenda.sought = True
            try_in(cluster, head, tried, cluster.now)

        return use

    def holds(shape: Shape, _: int) -> bool:
        checks.spend_part(BOUNDS_PER_CHECK)
        return any(may_borrow_whole(cluster, shape, lender) for lender in lenders)

    rest = walk(cluster, parked_in([queue], room, holds), check, search.after, checks)
    if rest is not None or search.again:
        agenda.seeking = LenderSearch(rest, again=search.again and rest is not None)


def _on_loan(cluster: Cluster, lender: str, record: PodRecord, rows: Rows) -> Proposal:
    """Return what an attempt in the lender's queue would do with these rows, which the lender does not need.

    A unit is placed as a whole, on whatever rows the lender does not need; a lender that needs some is noted.
    """
    if record.leads is not None:
        every = cluster.nodes.rows_of_pool(cluster.pools.id(lender))
        wanted = wanted_by_home_pods(cluster.borrowing, lender, every)
        if wanted.any():
            note_blocked(cluster, (lender,))
        rows = every[~wanted]
    return propose_on(cluster, record, lender, rows)


def may_borrow_whole(cluster: Cluster, shape: Shape, lender: str) -> bool:
    """Return whether, by amounts, the lender may hold a unit of this shape; one that may span, all pools together.

    Units that were woken for room of the pool and not tried yet take theirs first: it is offered again afterwards.
    """
    return holds_beside_promised(cluster, lender, shape, None if shape.spans else cluster.pools.id(lender))


def holds_beside_promised(
    cluster: Cluster, pool: str, shape: Shape, number: int | None, priority: int | None = None
) -> bool:
    """Return whether, by amounts, the pool of this number, or all pools, may hold a unit beside what is promised.

    That is what the units take that were woken for room of `pool` and not tried yet.
    """
    promised = [promise for promise in cluster.deferred.promised.values() if promise.pool == pool]
    beside = sum(promise.pods for promise in promised)
    if cluster.capacity.may_hold(shape, number, priority, beside=beside):
        return True
    if beside and cluster.capacity.may_hold(shape, number, priority):
        for promise in promised:
            promise.withholds = True
    return False


def note_offered_beside(cluster: Cluster, pool: str, rows: Sequence[int]) -> None:
    """Have these rows of the pool offered again once the units are tried whose promised room was kept from others."""
    for promise in cluster.deferred.promised.values():
        if promise.withholds and promise.pool == pool:
            promise.rows |= dict.fromkeys(rows)


def _spans(record: PodRecord) -> bool:
    return record.leads is not None and record.leads.spans


def queue_for(cluster: Cluster, record: PodRecord, lender: str, rows: Rows) -> str:
    """Return the pool in whose queue a pod would take room of these rows of a lender; empty where it takes none.

    A pod that is held by now is tried at home: nothing else would hold it, and try it again once that changes.
    """
    proposal = _on_loan(cluster, lender, record, rows)
    if isinstance(proposal, Hold) or is_held_from_now(cluster, record, proposal):
        return record.home
    return lender if isinstance(proposal, Place) else spanning_queue(cluster, record)


def takes_room(record: PodRecord, pool: str) -> bool:
    """Return whether a pod that `queue_for` sends to the queue of this pool takes room of the lender."""
    return pool != record.home or _spans(record)


def spanning_queue(cluster: Cluster, record: PodRecord) -> str:
    """Return the home pool of a unit that may span pools and starts; each lender's limit is about its part alone."""
    return record.home if _spans(record) and isinstance(propose_at_home(cluster, record), Place) else ""


def propose_at_home(cluster: Cluster, record: PodRecord, *, borrows: bool = True) -> Proposal:
    """Return what an attempt at home would do, and note the lenders whose own pods may take the room first."""
    proposal = propose_briefly(cluster, record, borrows=borrows)
    note_blocked(cluster, proposal.search.blocked)
    return proposal


def try_in(cluster: Cluster, record: PodRecord, pool: str, now: float) -> None:
    """Have a parked pod tried in the queue of this pool: its home pool, or a lender."""
    if pool == record.home:
        cluster.queues[pool].wake_at_once(record, now)
    else:
        send(cluster, record, pool, now)


def _all_requests(cluster: Cluster, record: PodRecord) -> Amounts:
    requests = [cluster.nodes.request(member.pod.spec) for member in record.together]
    return requests[0] if len(requests) == 1 else np.sum(requests, axis=0)


def trips_ended(cluster: Cluster, home: str) -> bool:
    """Return whether all pods that `seek_lenders` sent have taken a node or are back."""
    return cluster.deferred.look_at(home).sought and home not in cluster.deferred.queue_changes.abroad


def leave_to_others(cluster: Cluster, home: str) -> None:
    """Search lenders for other pods once the sent pods are back: a pod that took nothing left its room."""
    if trips_ended(cluster, home):
        _seek(cluster, home)
        cluster.deferred.agenda(home).sought = False


def accounts_shrunk(cluster: Cluster) -> None:
    """Have pods tried again that a limit of loans refused, or a quota, after something was taken out of accounts."""
    shrunk, cluster.ledger.shrunk = cluster.ledger.shrunk, set()
    try_first(cluster, shrunk)
    ended = {(account[1], account[2]) for account in shrunk if account[0] == LOAN}
    pools = cluster.pools.pools
    for lender, home in sorted(ended):
        if lender in pools and pools[lender].lending_limit:
            cluster.deferred.agenda(lender).relook = NEVER_LOOKED
        if home in pools and pools[home].borrowing_limit:
            _seek(cluster, home)


def _seek(cluster: Cluster, home: str) -> None:
    """Search lenders for the waiting pods of this pool; again after a search that is under way."""
    agenda = cluster.deferred.agenda(home)
    if agenda.seeking is None:
        agenda.seeking = LenderSearch()
    else:
        agenda.seeking.again = True


def send(cluster: Cluster, record: PodRecord, lender: str, now: float) -> None:
    """Move a pod from its home queue to the lender's queue."""
    cluster.queues[record.queue].remove(record)
    travel(cluster, record, lender, now)


def travel(cluster: Cluster, record: PodRecord, lender: str, now: float) -> None:
    """Add a pod that is in no queue to the lender's queue as a borrower, and note the lender as visited."""
    record.visited = (*(record.visited or (record.home,)), lender)
    cluster.queues[lender].add(record, now)


def note_blocked(cluster: Cluster, lenders: tuple[str, ...]) -> None:
    """Note lenders whose own pods wait for the room that a borrower could use, to check them again.

    A lender that is already noted keeps its version.
    """
    for lender in lenders:
        agenda = cluster.deferred.agenda(lender)
        if agenda.relook is None:
            agenda.relook = cluster.queues[lender].version


def look_again(cluster: Cluster, lenders: Iterable[str]) -> None:
    """Check noted lenders again in any case: a pod of theirs that kept room from borrowers may no longer fit there."""
    for lender in lenders:
        agenda = cluster.deferred.look_at(lender)
        if agenda.relook is not None:
            agenda.relook = NEVER_LOOKED


def borrowers(cluster: Cluster, lender: str) -> list[PoolQueue]:
    """Return the queues with parked pods that may borrow from this pool."""
    pool = cluster.pools.pools[lender]
    if pool.disable_sharing or pool.invalid:
        return []
    return [
        cluster.queues[name]
        for name in cluster.pools.names()
        if name != lender and cluster.queues[name].has_parked and not cluster.pools.pools[name].disable_borrowing
    ]


Use = Callable[[], None]
"""Wakes or sends the head of a class for room that it can use."""
Check = Callable[[QueuedClass], Use | bool | None]
"""Returns how the head of a class uses room, False where it cannot, and None for a quick refusal; changes nothing."""
Parked = Callable[[OrderKey | None], Iterable[QueuedClass]]


def parked_in(queues: Sequence[PoolQueue], room: Amounts, holds: Holds) -> Parked:
    """Return how to list the parked classes of these queues that fit into `room`, in queue order after a turn.

    Of units, those come that something may hold as a whole.
    """
    return lambda after: merge(*(queue.parked_within(room, after, holds) for queue in queues), key=attrgetter("turn"))


def walk(cluster: Cluster, parked: Parked, check: Check, after: OrderKey | None, checks: Checks) -> OrderKey | None:
    """Check the parked classes, in queue order, as long as there are some; those that can use the room do so.

    `check` counts its checks; a pod whose check raises is tried separately. Once no check is left this stops and
    returns the turn after which to continue; None at the end.
    """
    passed, going = 0, True
    while going:
        going = False
        for alike in parked(after):
            if checks.left <= 0 or passed == PASSED_MAX:
                return after
            after = alike.turn
            try:
                use = check(alike)
            except Exception as error:  # noqa: BLE001 - a bug costs one pod its turn, not those behind it
                judging_failed(cluster, alike.head, "checking whether free room fits it", error)
                checks.spend(1)
                continue
            passed += use is None
            if callable(use):
                use()
                going = True
                break
    return None
