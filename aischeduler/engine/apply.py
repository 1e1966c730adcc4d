"""What a proposal says is done: the state changes at once, and the actions carry it out.

Invariants:
- Nothing is decided here.
- An attempt ends in exactly one way: the pod is placed, nominated, sent to a lender, parked, held, or sent home.
"""

from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.counters import Result
from aischeduler.engine.evictions import by_their_jobs, evict, next_victims, plan_evictions, useless
from aischeduler.engine.freshness import await_fresh_view, is_fresh
from aischeduler.engine.lending import note_blocked, travel
from aischeduler.engine.nominator import end_claim_of, nominate, renominate
from aischeduler.engine.permits import reserve, send_or_delay, take_back
from aischeduler.engine.pod_counting import adopt
from aischeduler.engine.queueing_hints import Placed, count_saved
from aischeduler.engine.quotas import try_behind, try_next
from aischeduler.engine.unknown_pools import is_known, want_pool
from aischeduler.framework.plugin import Delayed, Vetoed
from aischeduler.model.actions import Action, Bind, Evict, ReportWaiting
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.proposal import (
    NO_SEARCH,
    Borrow,
    Hold,
    MakeRoom,
    Place,
    Placement,
    Proposal,
    Wait,
    WaitFor,
)
from aischeduler.model.unsupported_constraints import ConstraintKind
from aischeduler.policies.eviction_order import is_below
from aischeduler.state.claims import Claim, ClaimedRoom
from aischeduler.state.pod_records import AssignedPod, PodRecord
from aischeduler.state.running_pods import RunningTable
from aischeduler.state.scheduling_queue import PoolQueue
from aischeduler.state.transitions import Transition, change_state


class NoProposalError(Exception):
    """An exception, its cause, came before anything was decided: the state is as it was, but for the pod's queue."""


class Attempt(Struct):
    """An attempt to schedule a pod that was popped from a queue; `actions` are added to."""

    cluster: Cluster
    queue: PoolQueue
    record: PodRecord
    actions: list[Action]
    now: float

    def report(self, message: str, reason: EventReason = EventReason.FAILED_SCHEDULING) -> None:
        """Report why the pods wait, where the message is new; the object of their gang shows it too."""
        if message != self.record.message:
            self.cluster.units.touch(self.record)
        for record in self.record.with_surplus:
            if message != record.message:
                record.message = message
                told = ReportWaiting(record.pod, self.queue.pool, record.home, message, self.record.decision, reason)
                self.actions.append(told)


def apply(tried: Attempt, proposal: Proposal) -> Result | None:
    """Do what a proposal says: change the state and add the actions. Return the result; None where none counts."""
    cluster, record = tried.cluster, tried.record
    if proposal.search is not NO_SEARCH:
        _count_borrowing(tried, proposal)
        note_blocked(cluster, proposal.search.blocked)
    if isinstance(proposal, Hold):
        return _hold(tried, proposal)
    record.constraint = None
    if not isinstance(proposal, Place) and cluster.has_quotas:
        try_behind(cluster, record)
    match proposal:
        case Place():
            return _place(tried, proposal)
        case MakeRoom():
            return _make_room(tried, proposal)
        case Borrow(lender):
            end_claim_of(cluster, record, tried.now)
            tried.actions += nominate(tried.record, tried.queue.pool, "")
            record.backoff_until = tried.now
            travel(cluster, record, lender, tried.now)
            return Result.BORROWING
        case Wait():
            return _wait(tried, proposal)
        case _:
            assert_never(proposal)


def _place(tried: Attempt, proposal: Place) -> Result:
    """Assume the pod on its row and add a Bind, unless a rule delays or vetoes it; so for each pod of its unit."""
    cluster, record = tried.cluster, tried.record
    placements = _placements(tried, proposal)
    ruled = cluster.reservations.ruled and _binds_with_rules(cluster, placements)
    try:
        verdicts = _reserve(cluster, placements) if ruled else ()
    except Exception as error:
        raise NoProposalError from error
    if isinstance(verdicts, Vetoed):
        return _wait(tried, Wait(WaitFor.BACKOFF, verdicts.message))
    own = cluster.claims.of(record.pod.uid)
    displaced = _end_claims_of(cluster, proposal.displaced) if proposal.displaced else ()
    if own is not None:
        _evict(tried, useless(cluster, own), together=False)
        cluster.claims.end(own)
    for _, assigned in placements:
        cluster.nodes.add(assigned)
    if own is not None:
        rows = {assigned.row for _, assigned in placements}
        for row in own.rows:
            if row not in rows:
                cluster.row_changed(row)
    if displaced:
        renominate(cluster, displaced, tried.now)
    count_saved(cluster, tried.queue, record, placements, free=True)
    binds: list[Bind] = []
    for placed, assigned in placements:
        if placed is not record:
            cluster.queues[placed.queue].remove(placed)
            placed.decision = record.decision
        adopt(cluster, placed, assigned)
        change_state(placed, Transition.PLACED)
        placed.visited = ()
        binds.append(_bind(tried, placed, assigned, proposal))
    send_or_delay(cluster, binds, verdicts, tried.actions)
    cluster.wake_alike(record, tried.now)
    try_next(cluster, record)
    unit = record.unit
    if unit is not None and unit.lead is record:  # its other pods wait for themselves once it is formed again
        unit.lead, unit.pods, unit.required = None, (), 0
    return Result.BOUND


def _placements(tried: Attempt, proposal: Place | MakeRoom) -> Placed:
    """Return the pods of a proposal on their rows, the lead first."""
    cluster, record = tried.cluster, tried.record
    if not proposal.others:
        row = cluster.nodes.rows[proposal.node]
        return ((record, AssignedPod(record.pod, record.pod.spec, row, proposal.allocation)),)
    first = Placement(record.pod.uid, proposal.node, proposal.allocation)
    found: list[tuple[PodRecord, AssignedPod]] = []
    for placement in (first, *proposal.others):
        placed = cluster.records[placement.pod]
        row = cluster.nodes.rows[placement.node]
        found.append((placed, AssignedPod(placed.pod, placed.pod.spec, row, placement.allocation)))
    return tuple(found)


def _binds_with_rules(cluster: Cluster, placements: Placed) -> bool:
    """Return whether rules reserve for one of these pods, or may delay its Binding."""
    plugins = (cluster.profile.plugins_of(record.pod) for record, _ in placements)
    return any(plugin.reserves or plugin.permits for plugin in plugins)


def _reserve(cluster: Cluster, placements: Placed) -> list[Delayed | None] | Vetoed:
    """Have the rules reserve for these pods; return what delays each. After a veto, nothing is reserved."""
    verdicts: list[Delayed | None] = []
    for at, (record, assigned) in enumerate(placements):
        verdict = reserve(cluster, record.pod, cluster.nodes.names[assigned.row])
        if isinstance(verdict, Vetoed):
            for other, _ in placements[:at]:
                cluster.reservations.release(other.pod.uid)
            return verdict
        verdicts.append(verdict)
    return verdicts


def _bind(tried: Attempt, record: PodRecord, assigned: AssignedPod, proposal: Place) -> Bind:
    node, waited_seconds = tried.cluster.nodes.names[assigned.row], tried.now - record.since
    return Bind(
        record.pod,
        node,
        tried.queue.pool if not proposal.others else tried.cluster.pool_of(assigned.row),
        record.home,
        record.decision,
        proposal.feasible,
        waited_seconds,
        record.attempts + 1,
        assigned.allocation,
    )


def _make_room(tried: Attempt, proposal: MakeRoom) -> Result:
    """Claim the room of the victims, and evict them."""
    cluster, record, pool = tried.cluster, tried.record, tried.queue.pool
    end_claim_of(cluster, record, tried.now)
    placements = _placements(tried, proposal)
    placed = dict(placements)
    count_saved(cluster, tried.queue, record, placements, free=False)
    displaced = _end_claims_of(cluster, proposal.displaced)
    rooms = tuple(
        ClaimedRoom(
            member,
            placed[member].spec,
            placed[member].row,
            placed[member].allocation,
            cluster.accounts_of(member, placed[member].row),
        )
        for member in record.together
    )
    victims, planned = proposal.victims, plan_evictions(cluster, proposal.victims)
    by_queues = victims and cluster.tenants.queues.in_force
    evicted = _evicted(tried, victims) if by_queues or (victims and cluster.elastic.by_key) else None
    claim = Claim(record, rooms, pool, victims, tried.now, planned, evicted)
    cluster.claims.make(claim)
    tried.queue.nominate(record, tried.now)
    _evict(tried, next_victims(cluster, claim) if planned else [cluster.records[uid] for uid in victims])
    renominate(cluster, displaced, tried.now)
    if by_queues and (record.tenancy.queue or tried.queue.of_tenants):
        # A pod ahead of it that could evict none of these may take the room if it could evict this one.
        for row in sorted({cluster.records[uid].row for uid in victims}):
            cluster.row_changed(row)
    tried.actions += nominate(record, tried.queue.pool, proposal.node, proposal.others)
    tried.report(proposal.message)
    record.visited = ()
    cluster.wake_alike(record, tried.now)
    return Result.NOMINATED


def _evicted(tried: Attempt, victims: tuple[str, ...]) -> RunningTable:
    """Return those of the victims that go for the pod itself, not because they are lost with others."""
    running = tried.cluster.running
    pods = running.pods_in(running.slots_of(victims))
    return pods.compress(is_below(tried.cluster.preemptor_of(tried.record), pods))


def _evict(tried: Attempt, victims: list[PodRecord], *, together: bool = True) -> None:
    """Evict these pods; of those that a budget covers no more than it allows. `together` they go all or not at all."""
    cluster, record = tried.cluster, tried.record
    evicted: list[Evict] = []
    for victim in victims:
        if victim.pod.uid in cluster.reservations.delayed:
            why = f"preempted by {record.pod.namespace}/{record.pod.name} before its Binding"
            take_back(cluster, victim, why, tried.actions)
        elif not cluster.budgets.forbids(victim.pod):
            evicted.append(evict(cluster, victim, record, record.decision))
    if together and len(evicted) > 1:
        evicted = [replace(action, together=len(evicted)) for action in evicted]
    tried.actions += by_their_jobs(cluster, evicted)


def _evict_more(tried: Attempt) -> None:
    """Evict the next victims of the pod's claim, where it has any that may be asked now."""
    cluster, record = tried.cluster, tried.record
    claim = cluster.claims.of(record.pod.uid)
    victims = next_victims(cluster, claim) if claim is not None else []
    if victims and not is_fresh(cluster, tried.queue.pool, tried.now):
        tried.actions += await_fresh_view(cluster, tried.queue.pool, record, tried.now)
    else:
        _evict(tried, victims)


def _end_claims_of(cluster: Cluster, owners: tuple[str, ...]) -> tuple[Claim, ...]:
    """End the claims of these pods, and return them in their order."""
    claims = tuple(claim for uid in owners if (claim := cluster.claims.of(uid)) is not None)
    for claim in claims:
        cluster.claims.end(claim)
    return claims


def _wait(tried: Attempt, proposal: Wait) -> Result:
    """Let the pod wait for what the proposal names."""
    cluster, record, queue, now = tried.cluster, tried.record, tried.queue, tried.now
    if proposal.waits_for is WaitFor.CLAIM:
        queue.nominate(record, now)
        _evict_more(tried)
        return Result.NOMINATED
    end_claim_of(cluster, record, now)
    match proposal.waits_for:
        case WaitFor.HOME:
            record.backoff_until = now
            cluster.queues[record.home].add(record, now)
            return Result.UNSCHEDULABLE
        case WaitFor.REFRESH:
            tried.actions += await_fresh_view(cluster, queue.pool, record, now)
            queue.park_unrefused(record, now)
        case WaitFor.BACKOFF:
            queue.retry(record, now)
        case _:
            record.short = proposal.by_quota
            queue.park(record, now)
            if proposal.by_quota:
                cluster.held.put(record, cluster.holders(record))
    record.visited = ()
    tried.actions += nominate(tried.record, tried.queue.pool, "")
    if proposal.message:
        tried.report(proposal.message)
    return Result.REFRESHING if proposal.waits_for is WaitFor.REFRESH else Result.UNSCHEDULABLE


def _hold(tried: Attempt, proposal: Hold) -> Result:
    """Hold the pod until the pod, its pool, its namespace or the object of its constraint changes."""
    cluster, record = tried.cluster, tried.record
    record.constraint = proposal.constraint
    if proposal.constraint is ConstraintKind.QUOTA:
        cluster.held.put(record, cluster.holders(record))
    end_claim_of(cluster, record, tried.now)
    record.visited = ()
    cluster.queues[record.home].hold(record, tried.now)
    cluster.wake_alike(record, tried.now)  # what holds this pod may not hold the next
    tried.actions += nominate(tried.record, tried.queue.pool, "")
    if proposal.unknown_pool:
        for member in record.together:
            if not is_known(cluster, member, tried.now):
                want_pool(cluster, member)
        record.message = proposal.message  # no event: the answer comes soon
    else:
        tried.report(proposal.message, proposal.reason)
    return Result.HELD


def _count_borrowing(tried: Attempt, proposal: Proposal) -> None:
    counters, home = tried.cluster.counters, tried.record.home
    for found in proposal.search.lenders:
        counters.borrow_attempts[home] += 1
        for refusal, pools in found.refusals.items():
            counters.borrow_refusals[home, refusal] += pools
