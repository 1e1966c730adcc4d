"""The scheduling cycle: one attempt to schedule one pod. Read `attempt` first.

Invariants:
- An attempt ends in exactly one way: the pod is placed, nominated, sent to a lender, parked, held, or sent home.
- A decision changes the state at once; the actions only carry it out.
"""

from dataclasses import dataclass
from typing import Final

from aischeduler.engine.claiming import end_claim, end_claim_of, lifted_for, renominate, room_came, without
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.constraints import held_by, note_held
from aischeduler.engine.evictions import evict
from aischeduler.engine.freshness import await_fresh_view, is_fresh
from aischeduler.engine.lending import note_blocked, travel
from aischeduler.engine.net import count_saved
from aischeduler.engine.reasons import may_not_evict, unhelpful
from aischeduler.engine.searches import find_lender, find_victims
from aischeduler.engine.sentences import BORROWING, PREEMPTION, sentence
from aischeduler.engine.tally import Result
from aischeduler.engine.unknown_pools import is_known, unknown_pool_message, want_pool
from aischeduler.engine.wakeups import offer_ends
from aischeduler.framework.plugin import PlacementRequest
from aischeduler.model.actions import Action, Bind, Nominate, ReportWaiting
from aischeduler.model.pool import MakeRoom, Pool
from aischeduler.policies.borrowing import (
    Lender,
    LenderRefusal,
    NoLender,
    may_borrow,
    wanted_by_home_pods,
)
from aischeduler.policies.placement import BestNode, place
from aischeduler.policies.preemption import Candidate, fits_after_departures
from aischeduler.state.claims import Claim
from aischeduler.state.index import Rows
from aischeduler.state.queue import PoolQueue
from aischeduler.state.records import PodRecord, PodState
from aischeduler.state.trial import Trial

SEARCH_COST: Final = 64
"""The cost of a search for victims or a lender, in attempts without one."""
SETTLE_SECONDS: Final = 30.0
"""An assumed pod that the watch has not shown bound for this long is read; time alone never frees its room."""


@dataclass(slots=True)
class Attempt:
    """An attempt to schedule a pod of one queue. `clauses` are those of its message, by kind, in the order tried."""

    cluster: Cluster
    queue: PoolQueue
    record: PodRecord
    actions: list[Action]
    now: float
    clauses: dict[str, str]
    result: Result | None = None

    @property
    def pool(self) -> Pool:
        """The pool of the queue."""
        return self.cluster.pools.pools[self.queue.pool]

    @property
    def at_home(self) -> bool:
        """Whether the pool is the pod's home pool."""
        return self.record.home == self.queue.pool

    @property
    def ask(self) -> PlacementRequest:
        """The placement request of the pod in this pool."""
        return self.cluster.ask(self.record.pod.spec, self.queue.pool)

    @property
    def rows(self) -> Rows:
        """The rows of the pool."""
        return self.cluster.nodes.rows_of_pool(self.cluster.pools.id(self.queue.pool))

    def ended(self, result: Result) -> None:
        """Set the result; `attempt` counts it at its end."""
        self.result = result

    def nominate(self, node: str) -> None:
        """Write the nominated node into the pod's status, where it differs; an empty `node` clears it."""
        record = self.record
        if node != (record.nominated or record.pod.nominated_node):
            self.actions.append(Nominate(record.pod, node, self.queue.pool, record.decision))
        record.nominated = node

    def report(self, message: str) -> None:
        """Report why the pod waits, where the message is new."""
        record = self.record
        if message != record.message:
            record.message = message
            self.actions.append(ReportWaiting(record.pod, self.queue.pool, record.home, message, record.decision))


def attempt(cluster: Cluster, queue: PoolQueue, record: PodRecord, actions: list[Action], now: float) -> int:
    """Try to schedule a pod that was popped from this queue; add to `actions`.

    Return the cost; an attempt without searches costs 1.
    """
    record.decision, searches = cluster.next_decision(), cluster.searches.made
    record.broken = False
    cluster.withdraw(record)
    if record.failed and _gated(cluster, record, now):
        return 1
    tried = Attempt(cluster, queue, record, actions, now, {})
    refused = record.pod.spec.invalid or _not_allowed(cluster, record)
    held = None if refused else held_by(cluster, record.pod)
    if held is not None or record.constraint is not None or record.blocker:
        note_held(cluster, record, held)
    if not is_known(cluster, record, now):
        want_pool(cluster, record)
        _hold(tried)
        record.message = unknown_pool_message(record.pod.pool)  # no event: the answer comes soon
    elif refused or held is not None:
        _hold(tried)
        tried.report(held.message if held is not None else refused)
    elif tried.at_home:
        _at_home(tried)
    else:
        _abroad(tried)
    offer_ends(cluster, record, now)
    if tried.result is not None:
        cluster.tally.attempts[tried.queue.pool, tried.result] += 1
    return 1 + SEARCH_COST * (cluster.searches.made - searches)


def _gated(cluster: Cluster, record: PodRecord, now: float) -> bool:
    """Gate a pod whose gates were not checked because of an exception; return whether a gate holds it."""
    gate = cluster.gate_of(record.pod)
    if gate:
        record.message, record.visited = gate, ()
        end_claim_of(cluster, record, now)
        cluster.queues[record.home].gate(record)
        offer_ends(cluster, record, now)
    return bool(gate)


def _at_home(tried: Attempt) -> None:
    """Place the pod in its home pool, keep its claim, preempt, borrow, or park it."""
    if _place_at_home(tried) or _keep_claim(tried):
        return
    if tried.cluster.profile.first_room(tried.pool) is MakeRoom.PREEMPT_THEN_BORROW:
        done = _preempt(tried) or _borrow(tried)
    else:
        done = _borrow(tried) or _preempt(tried)
    if not done:
        _park(tried)


def _abroad(tried: Attempt) -> None:
    """Place the pod on a node that the lender does not need, send it to the next lender, or send it home."""
    cluster, record, lender = tried.cluster, tried.record, tried.queue.pool
    if may_borrow(cluster.borrowing, record.home, lender, record.pod.spec):
        rows = tried.rows
        if tried.queue.has_usable:
            rows = rows[cluster.runner.feasible(tried.ask)[rows]]
            wanted = wanted_by_home_pods(cluster.borrowing, lender, rows)
            if len(rows) and wanted.all():
                note_blocked(cluster, (lender,))
            rows = rows[~wanted]
        with Trial(cluster.nodes) as trial:
            placed = place(cluster.runner, tried.ask, rows, trial)
            if placed is not None:
                trial.commit()
        if placed is not None:
            _bind(tried, placed)
            return
    if not _borrow(tried):
        record.backoff_until = tried.now
        cluster.queues[record.home].add(record, tried.now)
        tried.ended(Result.UNSCHEDULABLE)


def _place_at_home(tried: Attempt) -> bool:
    """Place the pod, ignoring its own claim, then the claims of pods behind it too."""
    cluster, record = tried.cluster, tried.record
    own = cluster.claims.of(record.pod.uid)
    with without(cluster, (own,) if own else ()) as trial:
        placed = place(cluster.runner, tried.ask, tried.rows, trial)
        if placed is not None:
            trial.commit()
            if own is not None:
                cluster.claims.forget(own)
    if placed is None:
        placed = _place_over_claims(tried)
    elif own is not None and own.row != placed.row:
        room_came(cluster, own.row, tried.now)
    if placed is None:
        return False
    _bind(tried, placed)
    return True


def _place_over_claims(tried: Attempt) -> BestNode | None:
    """Place the pod on a row that only pods behind it claim; their claims stay where the room still suffices."""
    cluster, record = tried.cluster, tried.record
    claims = lifted_for(cluster, record, tried.queue.pool)
    if all(claim.owner is record for claim in claims):
        return None
    with without(cluster, claims):
        found = cluster.runner.best(tried.ask, tried.rows)
    if found is None:
        return None
    row, feasible = found
    displaced = _end_for(tried, claims, row)
    cluster.nodes.add(record.pod.spec, row)
    renominate(cluster, displaced, tried.now)
    return BestNode(row, feasible)


def _end_for(tried: Attempt, claims: tuple[Claim, ...], row: int) -> tuple[Claim, ...]:
    """End the pod's own claim and the other claims on the row; return the others in their order."""
    cluster, record = tried.cluster, tried.record
    displaced = tuple(claim for claim in claims if claim.row == row and claim.owner is not record)
    for claim in displaced:
        cluster.claims.end(claim)
    own = cluster.claims.of(record.pod.uid)
    if own is not None:
        cluster.claims.end(own)
        if own.row != row:
            room_came(cluster, own.row, tried.now)
    return displaced


def _keep_claim(tried: Attempt) -> bool:
    """Keep waiting for the claimed room; end the claim where the pod can no longer use it."""
    cluster, record = tried.cluster, tried.record
    claim = cluster.claims.of(record.pod.uid)
    if claim is None:
        return False
    with without(cluster, lifted_for(cluster, record, claim.pool)):
        keeps = fits_after_departures(claim.spec, cluster.runner, cluster.running, claim.row)
    if keeps:
        tried.queue.nominate(record, tried.now)
        tried.ended(Result.NOMINATED)
        return True
    end_claim(cluster, claim, tried.now)
    return False


def _preempt(tried: Attempt) -> bool:
    """Choose victims, claim their room, and evict them."""
    cluster, record, pool = tried.cluster, tried.record, tried.pool
    if not len(tried.rows):
        return False
    refusal = may_not_evict(cluster, record)
    if refusal:
        tried.clauses[PREEMPTION] = refusal
        return False
    claims = lifted_for(cluster, record, pool.name)
    chosen = find_victims(cluster, record, tried.rows, claims)
    if not isinstance(chosen, Candidate):
        tried.clauses[PREEMPTION] = unhelpful(cluster, pool.name, chosen)
        return False
    if chosen.victims and not is_fresh(cluster, pool.name, tried.now):
        _await_fresh_view(tried)
        return True
    count_saved(cluster, tried.queue, record, chosen.row)
    displaced = _end_for(tried, claims, chosen.row)
    cluster.claims.make(Claim(record, record.pod.spec, chosen.row, pool.name, chosen.victims, tried.now))
    node = cluster.nodes.names[chosen.row]
    tried.queue.nominate(record, tried.now)
    for uid in chosen.victims:
        tried.actions.append(evict(cluster, cluster.records[uid], record, record.decision))
    renominate(cluster, displaced, tried.now)
    tried.nominate(node)
    count = len(chosen.victims)
    waits = f"{count} evicted pod{'s' * (count > 1)}" if count else "pods that are leaving"
    tried.report(_sentence(tried, {PREEMPTION: f"nominated to node {node}, waits for {waits}"}))
    record.visited = ()
    tried.ended(Result.NOMINATED)
    cluster.wake_alike(record, tried.now)
    return True


def _await_fresh_view(tried: Attempt) -> None:
    """Park the pod until the pool is refreshed: an unseen change may make the eviction unnecessary."""
    cluster, record, pool = tried.cluster, tried.record, tried.queue.pool
    tried.actions += await_fresh_view(cluster, pool, record, tried.now)
    record.visited = ()
    tried.queue.park(record, tried.now)
    record.backoff_until = tried.now  # no attempt failed: the pod may take free room at once
    tried.nominate("")
    problem = cluster.freshness.problems.get(pool)
    if problem:
        tried.report(
            _sentence(
                tried, {PREEMPTION: f"waits for up-to-date data about the pool before it evicts a pod: {problem}"}
            )
        )
    tried.ended(Result.REFRESHING)


def _borrow(tried: Attempt) -> bool:
    """Send the pod to the best lender that it has not visited yet."""
    cluster, record = tried.cluster, tried.record
    visited = record.visited or (record.home,)
    found = find_lender(cluster, record, visited)
    _count_borrowing(tried, found)
    note_blocked(cluster, found.blocked)
    if isinstance(found, NoLender):
        tried.clauses[BORROWING] = found.message()
        return False
    tried.nominate("")
    record.backoff_until = tried.now
    travel(cluster, record, found.name, tried.now)
    tried.ended(Result.BORROWING)
    return True


def _count_borrowing(tried: Attempt, found: Lender | NoLender) -> None:
    tally, home = tried.cluster.tally, tried.record.home
    tally.borrow_attempts[home] += 1
    for _, refusal in found.refused:
        if refusal is not LenderRefusal.VISITED:
            tally.borrow_refusals[home, refusal] += 1
    if isinstance(found, NoLender) and found.home is not None:
        tally.borrow_refusals[home, found.home] += 1


def _park(tried: Attempt) -> None:
    """Park the pod in its home queue until an event can help it."""
    cluster, record, queue = tried.cluster, tried.record, tried.queue
    found = find_lender(cluster, record, (record.home,)) if record.visited else None
    record.visited = ()
    if isinstance(found, Lender):
        # A lender that the pod already left has room now: no further event announces it.
        queue.retry(record, tried.now)
    else:
        queue.park(record, tried.now)
    if isinstance(found, NoLender):
        note_blocked(cluster, found.blocked)
        tried.clauses[BORROWING] = found.message()
    tried.nominate("")
    tried.report(_sentence(tried, tried.clauses))
    tried.ended(Result.UNSCHEDULABLE)


def _hold(tried: Attempt) -> None:
    """Hold the pod until the pod, its pool, its namespace or the object of its constraint changes."""
    cluster, record = tried.cluster, tried.record
    claim = cluster.claims.of(record.pod.uid)
    if claim is not None:
        end_claim(cluster, claim, tried.now)
    record.visited = ()
    cluster.queues[record.home].hold(record, tried.now)
    cluster.wake_alike(record, tried.now)  # what holds this pod may not hold the next
    tried.nominate("")
    tried.ended(Result.HELD)


def _bind(tried: Attempt, placed: BestNode) -> None:
    """Assume the pod on its row and return a Bind."""
    cluster, record, queue = tried.cluster, tried.record, tried.queue
    count_saved(cluster, queue, record, placed.row)
    cluster.adopt(record, placed.row)
    record.state, record.visited = PodState.ASSUMED, ()
    cluster.unsettled[record.pod.uid] = tried.now + SETTLE_SECONDS
    tried.actions.append(
        Bind(
            pod=record.pod,
            node=cluster.nodes.names[placed.row],
            pool=queue.pool,
            home_pool=record.home,
            decision=record.decision,
            feasible_nodes=placed.feasible,
            waited_seconds=tried.now - record.since,
            attempts=record.attempts + 1,
        )
    )
    tried.ended(Result.BOUND)
    cluster.wake_alike(record, tried.now)


def _not_allowed(cluster: Cluster, record: PodRecord) -> str:
    """Return why the home pool takes no pods from this namespace; empty where it does."""
    allowed = cluster.pools.pools[record.home].allowed_namespaces
    namespace = record.pod.namespace
    labels = cluster.namespaces.get(namespace)
    if allowed is None or (labels is not None and allowed.matches(labels)):
        return ""
    return f"The pool {record.home} takes no pods from the namespace {namespace}: its allowedNamespaces do not match."


def _sentence(tried: Attempt, clauses: dict[str, str]) -> str:
    return sentence(tried.cluster.runner.diagnose(tried.ask, tried.rows).message(), clauses)
