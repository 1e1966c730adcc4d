"""What an attempt would do with a pod, or the unit that it leads.

`propose` looks and changes nothing; `apply` does it.

Invariants:
- The order of an attempt stands here and nowhere else: hold, place, keep the claim, make room, borrow, wait.
- The state after `propose` is the state before it: amounts, versions, queues, claims, counters. Only results of
  searches are kept, and they change no later proposal.
- A claim that its owner can no longer use does not count in the rest of its attempt.
- Each kind of clause has at most one clause; `makeRoom` of the pool decides which comes first.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from aischeduler.engine.admission import namespace_refused
from aischeduler.engine.elastic_pods import is_beyond_minimum, kept_from
from aischeduler.engine.freshness import awaits_view, is_fresh
from aischeduler.engine.holds import held_by
from aischeduler.engine.machine_groups import group_refused
from aischeduler.engine.nominator import lifted_for, without
from aischeduler.engine.quotas import UNLIMITED, QuotaAnswer, queue_refused, quota_of, surplus_within
from aischeduler.engine.searches import find_lender, find_unit_victims, find_victims
from aischeduler.engine.unknown_pools import is_known, unknown_pool_message
from aischeduler.engine.view import View
from aischeduler.framework.allocating import allocation_on
from aischeduler.framework.plugin import PlacementRequest
from aischeduler.model.allocation import allocation_of
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.pool import MakeRoomOrder, Pool
from aischeduler.model.proposal import (
    NO_SEARCH,
    Borrow,
    Hold,
    Lender,
    MakeRoom,
    NoLender,
    Place,
    Placement,
    Proposal,
    Search,
    Wait,
    WaitFor,
)
from aischeduler.model.unsupported_constraints import ConstraintKind
from aischeduler.model.workload import CARD_NAME_KEY
from aischeduler.policies.borrowing import place_spanning, wanted_by_home_pods
from aischeduler.policies.eviction_order import is_below
from aischeduler.policies.loan_limits import may_borrow
from aischeduler.policies.preemption import NoCandidate, claiming, not_eligible
from aischeduler.policies.unit_placement import (
    NotPlaced,
    UnitPlacement,
    UnitRequest,
    all_fit_after_departures,
    place_unit,
    refusals_beside,
)
from aischeduler.policies.unit_preemption import UnitCandidate
from aischeduler.state.claims import Claim
from aischeduler.state.diagnosis import MESSAGE_LENGTH_MAX, Diagnosis
from aischeduler.state.label_index import Mask, Rows
from aischeduler.state.pod_records import AssignedPod, PodRecord, Unit
from aischeduler.state.units import shape_of_unit

PREEMPTION: Final = "preemption: "
BORROWING: Final = "borrowing: "
QUOTA: Final = "quota: "
CARDS_NAMED_MAX: Final = 8
KEPT_FOR_ELASTIC: Final = "node(s) were kept for an elastic job that waits for long"
CLOSED_BY_QUOTA: Final = "node(s) had cards for which the pod has no quota"

_COUNT: Final = re.compile(r"(?<!\S)\d+(?:/\d+)? ")
"""A number of nodes or pods; a name of digits alone is never followed by a space."""
_PART_ENDS: Final = re.compile(r"[,;:.](?: |$)")


def sentence(refused: str, clauses: Mapping[str, str]) -> str:
    """Return the message: why the pool's nodes refuse the pod, then the clauses, each with a full stop."""
    parts = (refused, *(kind + said for kind, said in clauses.items() if said))
    text = " ".join(part if part.endswith(".") else f"{part}." for part in parts) if len(parts) > 1 else refused
    return text if len(text) <= MESSAGE_LENGTH_MAX else text[: MESSAGE_LENGTH_MAX - 4] + " ..."


def same_but_for_counts(reason: str, other: str) -> bool:
    """Return whether two messages differ at most in their counts, and in the order that follows from these."""
    return reason == other or without_counts(reason) == without_counts(other)


def without_counts(reason: str) -> tuple[str, ...]:
    """Return the parts of a message without counts, sorted, because counts decide their order."""
    return tuple(sorted(_COUNT.sub("", part) for part in _PART_ENDS.split(reason)))


class _Look(Struct):
    """A look for one pod in one pool, and what it has found so far."""

    cluster: View
    record: PodRecord
    pool: Pool
    now: float
    only: Rows | None = None
    """The rows of the pool that count, where not all do: then no lender is searched, and no message is made."""
    brief: bool = False
    """Whether no message is made, and rows that by amounts cannot hold a unit are not tried."""
    borrows: bool = True
    """Whether lenders are searched, where all rows count."""
    clauses: dict[str, str] = field(default_factory=dict)
    """The clauses of the message by kind, in the order tried."""
    lenders: tuple[Lender | NoLender, ...] = ()
    blocked: tuple[str, ...] = ()
    quota: QuotaAnswer = UNLIMITED
    """What its quotas say: which rows are closed to it, and whose claims end for it."""
    kept: Mask | None = None
    """The rows that are kept for elastic jobs that wait for long; None where none are closed to it."""

    @property
    def closed(self) -> tuple[Mask | None, ...]:
        """The rows that are closed to the pod, or to each of its unit; empty where none are."""
        kept, shut = self.kept, self.quota.closed
        if kept is None:
            return shut
        return tuple(kept if mask is None else mask | kept for mask in shut or (None,) * len(self.record.together))

    @property
    def ask(self) -> PlacementRequest:
        """The placement request of the pod in this pool."""
        shut = self.closed[0] if self.closed else None
        return self.cluster.ask(self.record.pod.spec, self.pool.name, self.record.home, shut)

    def unit_request(self, unit: Unit, others: tuple[PodRecord, ...] = ()) -> UnitRequest:
        """Return the placement request of the unit that the pod leads, in this pool."""
        return self.cluster.unit_request(unit, self.pool.name, others, self.closed)

    @property
    def rows(self) -> Rows:
        """The rows of the pool that count."""
        return (
            self.cluster.nodes.rows_of_pool(self.cluster.pools.id(self.pool.name)) if self.only is None else self.only
        )

    @property
    def open_rows(self) -> Rows:
        """The rows that count and that are not closed to the pod."""
        rows = self.rows
        shut = self.closed[0] if self.closed else None
        return rows if shut is None else rows[~shut[rows]]

    def displaced(self, claims: tuple[Claim, ...], rows: set[int]) -> tuple[str, ...]:
        """Return the other pods whose claims end: those of `claims` on these rows, and those that its quota ends."""
        on_rows = self.others_on(claims, rows) if claims else ()
        if not self.quota.outbid:
            return on_rows
        return tuple(dict.fromkeys((*on_rows, *(claim.owner.pod.uid for claim in self.quota.outbid))))

    def search(self) -> Search:
        """Return how this was found."""
        return Search(self.lenders, self.blocked) if self.lenders or self.blocked else NO_SEARCH

    def find(self, rows: Rows) -> tuple[int, int] | UnitPlacement | None:
        """Return the best of these rows for the pod and how many fit, or rows for the whole unit; None where none."""
        unit = self.record.unit
        if unit is None or unit.lead is not self.record:
            runner = self.cluster.runner
            return runner.best(self.ask, rows) if self.only is None else runner.best_of_few(self.ask, rows)
        if not self.may_hold(unit):
            return None
        others = unit.pods[unit.required :] if self.pool.name == self.record.home else ()
        free = tuple(other for other in others if _hold_of(self, other, known=False) is None)
        free = surplus_within(self.cluster, self.record, free)
        found = place_unit(self.unit_request(unit, free), self.cluster.runner, rows)
        return found if isinstance(found, UnitPlacement) else None

    def may_hold(self, unit: Unit, priority: int | None = None) -> bool:
        """Return whether, by amounts, the pool may hold a unit, with a priority also by evictions; in brief alone."""
        capacity, pool = self.cluster.capacity, self.cluster.pools.id(self.pool.name)
        return not self.brief or capacity.may_hold(shape_of_unit(unit), pool, priority)

    def place(self, found: tuple[int, int] | UnitPlacement, lifted: tuple[Claim, ...] = ()) -> Place:
        """Return the proposal to place the pod, or its unit, on these rows; claims of others there end for it."""
        if isinstance(found, UnitPlacement):
            own, others = self.split(found.pods)
            displaced = self.displaced(lifted, {pod.row for pod in found.pods})
            return Place(own.node, found.feasible, displaced, self.search(), own.allocation, others)
        row, feasible = found
        displaced = self.displaced(lifted, {row})
        allocation = allocation_on(self.cluster.runner, self.record.pod.spec, row, self.ask.placement)
        return Place(self.cluster.nodes.names[row], feasible, displaced, self.search(), allocation)

    def uncompared(self, found: tuple[int, int] | UnitPlacement) -> Wait | None:
        """Return that the pod waits because the nodes that fit cannot be compared; None where they can."""
        unscored = self.record.pod.spec.unscored
        if not unscored:
            return None
        several = not isinstance(found, UnitPlacement) and found[1] > 1
        return Wait(WaitFor.BACKOFF, unscored, self.search()) if several else None

    def split(self, pods: Sequence[AssignedPod]) -> tuple[Placement, tuple[Placement, ...]]:
        """Return the placement of the lead, and those of the other pods of its unit."""
        names, lead = self.cluster.nodes.names, self.record.pod.uid
        placements = [Placement(pod.pod.uid, names[pod.row], pod.allocation) for pod in pods]
        if len(placements) == 1:
            return placements[0], ()
        others = tuple(placement for placement in placements if placement.pod != lead)
        return next(placement for placement in placements if placement.pod == lead), others

    def others_on(self, claims: tuple[Claim, ...], rows: set[int]) -> tuple[str, ...]:
        """Return the other pods that own one of these claims on one of these rows."""
        here = self.cluster.claims.on_rows(rows)
        return tuple(claim.owner.pod.uid for claim in claims if claim in here and claim.owner is not self.record)

    def message(self, clauses: dict[str, str]) -> str:
        """Return why the pool's nodes refuse the pod, and these clauses; of a unit, the first pod that does not fit."""
        if self.only is not None or self.brief:
            return ""
        unit, cluster = self.record.leads, self.cluster
        found = place_unit(self.unit_request(unit), cluster.runner, self.rows) if unit else None
        if unit is not None and isinstance(found, NotPlaced):
            fits, pod = len(found.pods), unit.pods[found.short].pod
            refusals = self._with_closed(refusals_beside(found, pod.spec, cluster.runner, self.open_rows))
            text = sentence(refusals.message, clauses)
            return (
                f"{unit.late}{fits} of the {unit.required} pods that start together fit. The next, {pod.name}: {text}"
            )
        return sentence(self._with_closed(cluster.runner.diagnose(self.ask, self.open_rows)).message, clauses)

    def _with_closed(self, refusals: Diagnosis) -> Diagnosis:
        """Return a diagnosis of the open rows with the number of those that quotas, or elastic jobs, close."""
        closed = len(self.rows) - len(self.open_rows) if self.closed else 0
        if not closed:
            return refusals
        kept = int(self.kept[self.rows].sum()) if self.kept is not None else 0
        reasons = {KEPT_FOR_ELASTIC: kept, CLOSED_BY_QUOTA: closed - kept}
        return Diagnosis(refusals.nodes + closed, refusals.reasons + Counter(reasons))


def propose(cluster: View, record: PodRecord, pool: str, now: float, *, known: bool = False) -> Proposal:
    """Return what an attempt to schedule the pod from the queue of this pool would do now.

    With `known`, a Pool that the pod names and that was not seen counts as missing, as after a read.
    """
    return _proposal(_Look(cluster, record, cluster.pools.pools[pool], now), known=known)


def propose_briefly(cluster: View, record: PodRecord, *, borrows: bool = True) -> Proposal:
    """Return what an attempt from the home queue would do now, without a message; a Pool not seen counts as missing.

    Without `borrows`, no lender is searched.
    """
    return _proposal(
        _Look(cluster, record, cluster.pools.pools[record.home], cluster.now, brief=True, borrows=borrows), known=True
    )


def propose_on(cluster: View, record: PodRecord, pool: str, rows: Rows) -> Proposal:
    """Return what an attempt from the queue of this pool would do if the pool had these few rows only, and no lender.

    In the queue of a lender, these are rows that the lender does not need. A Pool that was not seen counts as missing.
    """
    return _proposal(_Look(cluster, record, cluster.pools.pools[pool], cluster.now, rows), known=True)


def _proposal(look: _Look, *, known: bool) -> Proposal:
    record = look.record
    for member in (record,) if record.unit is None else record.together:
        held = _hold_of(look, member, known=known)
        if held is not None:
            return held
    if look.cluster.has_quotas:
        look.quota = quota_of(look.cluster, record)
        if look.quota.message:
            return Hold(look.quota.message, ConstraintKind.QUOTA, reason=look.quota.reason)
        if look.quota.closes:
            look.clauses[QUOTA] = _closed_cards(look.quota)
    if look.cluster.elastic.kept:
        look.kept = kept_from(look.cluster, record)
    return _at_home(look) if record.home == look.pool.name else _abroad(look)


def _hold_of(look: _Look, record: PodRecord, *, known: bool) -> Hold | None:
    """Return why this pod, the one of the look or another of its unit, may not be tried."""
    cluster = look.cluster
    spec = record.pod.spec
    refused = spec.invalid or namespace_refused(cluster, record)
    if spec.machine_group and not refused:
        refused = group_refused(cluster, record.pod)
    held = None if refused else held_by(cluster, record.pod)
    constraint = held.kind if held is not None else None
    if not known and not is_known(cluster, record, look.now):
        return Hold(unknown_pool_message(record.pod.pool), constraint, unknown_pool=True)
    queue = queue_refused(cluster, record) if record.tenancy.queue and not refused and held is None else None
    of = "" if record is look.record else f"The pod {record.pod.name}, which starts together with this one: "
    if queue is not None:
        return Hold(of + queue.message, ConstraintKind.QUEUE, reason=queue.reason)
    if refused or held is not None:
        text = held.message if held is not None else refused
        unreadable = bool(record.tenancy.queue) and CARD_NAME_KEY in refused
        reason = EventReason.GET_TASK_REQUEST_RESOURCE_FAILED if unreadable else EventReason.FAILED_SCHEDULING
        return Hold(of + text, constraint, reason=reason)
    return None


def _closed_cards(quota: QuotaAnswer) -> str:
    """Return the clause that names the cards that quotas close to the pod."""
    cards = dict.fromkeys(f"{refusal.dimension} of queue {refusal.queue}" for refusal in quota.closes)
    return f"no quota is left for {', '.join(list(cards)[:CARDS_NAMED_MAX])}"


def _at_home(look: _Look) -> Proposal:
    """Place the pod in its home pool, keep its claim, make room, borrow, or wait."""
    cluster = look.cluster
    own = cluster.claims.of(look.record.pod.uid)
    placed = (_place(look, (own,)) if own is not None else _find(look, ())) or _place_over_claims(look)
    if placed is not None:
        return placed
    if own is not None and _keeps(look, own):
        return Wait(WaitFor.CLAIM, search=look.search())
    with without(cluster, (own,) if own is not None else ()):
        if cluster.profile.first_room(look.pool) is MakeRoomOrder.PREEMPT_THEN_BORROW:
            return _make_room(look) or _borrow(look) or _wait(look)
        return _borrow(look) or _make_room(look) or _wait(look)


def _abroad(look: _Look) -> Proposal:
    """Place the pod on a node that the lender does not need, try the next lender, or go home."""
    cluster, record, lender = look.cluster, look.record, look.pool.name
    if may_borrow(cluster.borrowing, record.home, lender, cluster.total(record)):
        rows = look.ask.open(look.rows)
        if look.only is None and cluster.queues[lender].has_usable:
            if record.leads is None:
                rows = rows[cluster.runner.feasible(look.ask)[rows]]
            wanted = wanted_by_home_pods(cluster.borrowing, lender, rows)
            if len(rows) and wanted.all():
                look.blocked = (lender,)
            rows = rows[~wanted]
        found = look.find(rows)
        if found is not None:
            return look.uncompared(found) or look.place(found)
    return _borrow(look) or Wait(WaitFor.HOME, search=look.search(), by_quota=bool(look.quota.closed))


def _place(look: _Look, lifted: tuple[Claim, ...]) -> Place | Wait | None:
    """Place the pod as if these claims did not exist; those on its node end for it.

    A pod waits whose preferred terms cannot be read, unless one node alone fits, which needs no scores.
    """
    with without(look.cluster, lifted):
        return _find(look, lifted)


def _find(look: _Look, lifted: tuple[Claim, ...]) -> Place | Wait | None:
    found = look.find(look.rows)
    if found is None:
        return None
    return look.uncompared(found) or look.place(found, lifted)


def _place_over_claims(look: _Look) -> Place | Wait | None:
    """Place the pod on a node that only pods behind it claim."""
    claims = lifted_for(look.cluster, look.record, look.pool.name)
    return None if all(claim.owner is look.record for claim in claims) else _place(look, claims)


def _keeps(look: _Look, claim: Claim) -> bool:
    """Return whether the claimed room is open, and will still be enough once the pods that are leaving are gone."""
    cluster, closed = look.cluster, look.closed or (None,) * len(claim.rooms)
    if any(shut is not None and shut[room.row] for shut, room in zip(closed, claim.rooms, strict=False)):
        return False
    with without(cluster, lifted_for(cluster, look.record, claim.pool)):
        return all_fit_after_departures(claim.assigned, cluster.runner, cluster.running)


def _make_room(look: _Look) -> MakeRoom | Wait | None:
    """Choose victims whose eviction makes room; the pod's own claim does not count already."""
    cluster, record, pool = look.cluster, look.record, look.pool
    if not len(look.rows) or (look.only is not None and awaits_view(cluster, record)):
        return None  # after the refresh all rows count; until then only free room does
    if record.leads is not None and not look.may_hold(record.leads, record.reach):
        return None
    refusal = may_not_preempt(cluster, record)
    if refusal:
        look.clauses[PREEMPTION] = refusal
        return None
    claims = tuple(claim for claim in lifted_for(cluster, record, pool.name) if claim.owner is not record)
    find = find_victims if record.leads is None else find_unit_victims
    chosen = find(cluster, record, look.open_rows, claims, look.closed)
    if isinstance(chosen, NoCandidate):
        look.clauses[PREEMPTION] = unhelpful(cluster, record, pool.name, chosen)
        return None
    if chosen.victims and (leaving := _leaving_for(look)):
        look.clauses[PREEMPTION] = f"waits for {leaving} evicted pod{'s' * (leaving > 1)}"
        return None
    if chosen.victims and not is_fresh(cluster, pool.name, look.now):
        return Wait(WaitFor.REFRESH, _not_fresh(look), look.search())
    pods = chosen.pods if isinstance(chosen, UnitCandidate) else (_alone(record, chosen.row),)
    with without(cluster, claims):  # what they hold is free for this pod
        own, others = look.split(claiming(pods, chosen.victims, cluster.runner, cluster.running))
    displaced = look.displaced(claims, {pod.row for pod in pods})
    count, nodes = len(chosen.victims), dict.fromkeys((own.node, *(other.node for other in others)))
    waits = f"{count} evicted pod{'s' * (count > 1)}" if count else "pods that are leaving"
    to = f"node {own.node}" if len(nodes) == 1 else f"the nodes {', '.join(nodes)}"
    message = look.message({PREEMPTION: f"nominated to {to}, waits for {waits}"})
    return MakeRoom(
        own.node, chosen.victims, chosen.violations, displaced, message, look.search(), own.allocation, others
    )


def _leaving_for(look: _Look) -> int:
    """Return how many pods are leaving that were evicted for a pod that asks for devices; others evict meanwhile.

    Amounts that leave are of use whatever happens; a device may turn sick, and others would go for the same pod.
    """
    if look.record.pod.spec.devices is None:
        return 0
    uid, leaving = look.record.pod.uid, look.cluster.leaving_pods
    return sum(asker == uid and leaving.has(victim) for victim, asker in leaving.evicted_for.items())


def _alone(record: PodRecord, row: int) -> AssignedPod:
    """Return the pod on a row whose room it is to claim; nothing is chosen for it yet."""
    return AssignedPod(record.pod, record.pod.spec, row, allocation_of(record.pod.spec))


def _not_fresh(look: _Look) -> str:
    """Return the message of a pod for which the refresh failed; empty where the answer is to come soon."""
    problem = look.cluster.freshness.problems.get(look.pool.name)
    if not problem:
        return ""
    why = f"waits for up-to-date data about the pool before it evicts a pod: {problem}"
    return look.message({PREEMPTION: why})


def _span(look: _Look) -> Place | None:
    """Place a unit whose gang allows it in its home pool and in lenders at once; only an attempt at home does."""
    cluster, record, unit = look.cluster, look.record, look.record.leads
    if unit is None or not unit.spans or record.home != look.pool.name:
        return None
    if look.brief and not cluster.capacity.may_hold(shape_of_unit(unit), None):
        return None
    found = place_spanning(cluster.borrowing, record.home, look.unit_request(unit))
    if isinstance(found, UnitPlacement):
        return look.place(found)
    look.blocked += found
    return None


def _borrow(look: _Look) -> Borrow | Place | None:
    """Choose the best lender that the pod has not visited yet, or where it may, several of them."""
    if look.only is not None or not look.borrows:
        return None
    record = look.record
    found = find_lender(look.cluster, record, record.visited or (record.home,), look.closed)
    look.lenders = (*look.lenders, found)
    look.blocked += found.blocked
    if isinstance(found, NoLender) and (spanned := _span(look)) is not None:
        return spanned
    if isinstance(found, NoLender):
        look.clauses[BORROWING] = found.message
        return None
    return Borrow(found.name, look.search())


def _wait(look: _Look) -> Wait:
    """Wait in the home queue until an event can help the pod."""
    if look.only is not None or not look.borrows:
        return Wait(WaitFor.ROOM, by_quota=bool(look.quota.closed))
    cluster, record = look.cluster, look.record
    found = find_lender(cluster, record, (record.home,), look.closed) if record.visited else None
    if isinstance(found, NoLender):
        look.blocked += found.blocked
        look.clauses[BORROWING] = found.message
    for plugin in () if look.brief else cluster.profile.plugins_of(record.pod).post_filters:
        look.clauses[f"{plugin.name}: "] = plugin.post_filter(record.pod, look.pool.name)
    waits_for = WaitFor.BACKOFF if isinstance(found, Lender) else WaitFor.ROOM
    preemption = look.clauses.get(PREEMPTION, "")
    return Wait(waits_for, look.message(look.clauses), look.search(), preemption, by_quota=bool(look.quota.closed))


def may_not_preempt(cluster: View, record: PodRecord) -> str:
    """Return why the pod, or the unit that it leads, may not preempt; empty where it may."""
    if cluster.elastic.by_key and is_beyond_minimum(cluster, record):
        return "an instance beyond the minimum of its elastic job takes free room only."
    profile, pods = cluster.profile, [member.pod for member in record.together]
    unwilling = ("" if profile.plugins_of(pod).preempts else pod.spec.profile or profile.scheduler_name for pod in pods)
    home = cluster.pools.pools[record.home]
    return not_eligible(home, zip(pods, unwilling, strict=True), everywhere=profile.preemption)


def unhelpful(cluster: View, record: PodRecord, pool: str, found: NoCandidate) -> str:
    """Return why no eviction helps, with the number of pods of the pool that are spared, or that budgets forbid."""
    spared = [cluster.records[uid] for uid in cluster.leaving_pods.spared.names()]
    here = [record for record in spared if cluster.pool_of(record.row) == pool]
    forbidden = [cluster.records[uid] for uid in cluster.budgets.forbidden if uid not in cluster.leaving_pods.spared]
    here += [victim for victim in forbidden if cluster.pool_of(victim.row) == pool and _below(cluster, record, victim)]
    protected = sum(victim.protected or victim.pod.uid in cluster.budgets.forbidden for victim in here)
    text = found.message
    if protected:
        text += f" Disruption budgets forbid the eviction of {_pods(protected)} now."
    if len(here) > protected:
        text += f" The API server refused to evict {_pods(len(here) - protected)} just now."
    return text


def _below(cluster: View, record: PodRecord, victim: PodRecord) -> bool:
    """Return whether the pod stands above this running one of its pool."""
    pods = cluster.running.pods_in(cluster.running.slots_of([victim.pod.uid]))
    return bool(is_below(cluster.preemptor_of(record), pods).all())


def _pods(count: int) -> str:
    return f"{count} pod{'s' * (count > 1)}"
