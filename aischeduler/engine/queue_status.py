"""The status of tenant queues: what counts in them, what waits, and whether they are over their quotas.

Invariants:
- The sums are those of the ledger, so that the status and the checks tell the same.
- A status is reported on change, at most once a second, and of many queues less often. Only objects of our own kind
  get one.
- A queue is over a quota if more counts than the quota says; nothing is evicted for that alone.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.quotas import coverage_of
from aischeduler.model.actions import Condition, ReportQueue
from aischeduler.model.card_shares import CARD, charge, counted, hundredths_of, unit_of
from aischeduler.model.card_types import form_names, is_card
from aischeduler.model.event_reasons import ConditionReason
from aischeduler.model.names import CPU, DEFAULT_POOL, GPU_SHARE, MEMORY, PODS
from aischeduler.model.quantity import quantity_text
from aischeduler.model.resources import ResourceList
from aischeduler.model.tenant_queue import CardUse, QueueSource, QueueState, QueueSummary, TenantQueue
from aischeduler.policies.quota import Coverage, cards_by_entry
from aischeduler.state.ledger import NO_CARD, QUEUE, QUEUE_BORROWS, UNNAMED_CARD

STATUS_SECONDS: Final = 1.0
STATUSES_PER_SECOND: Final = 50
"""Where more queues change than this, all of them are reported less often: each status is a write beside Bindings."""
OVER_NAMED_MAX: Final = 8
"""The most dimensions over quota that a condition names."""

State = tuple[int, ...]


class OverQuota(Struct, frozen=True):
    """A tenant queue uses more of a resource, or of cards, than its quota; `unit` says in what the amounts are."""

    queue: str
    name: str
    unit: str
    used: int
    quota: int
    is_card: bool = False


class QueueReports:
    """Reports the status of queues."""

    def __init__(self) -> None:
        self._state: State = ()
        self._next_at = float("-inf")
        self._told: dict[str, ReportQueue] = {}

    def due_at(self, cluster: Cluster) -> float | None:
        """Return when to call `report`; None when nothing changed."""
        if not cluster.tenants.queues.names() or self._state == _state(cluster):
            return None
        return self._next_at

    def report(self, cluster: Cluster, now: float) -> None:
        """Put a report into the outbox for each queue whose status changed."""
        due = self.due_at(cluster)
        if due is None or due > now:
            return
        self._state, changed = _state(cluster), 0
        queues, waiting = cluster.tenants.queues, waiting_of(cluster)
        reported: dict[str, ReportQueue] = {}
        for name in queues.names():
            queue = queues.get(name)
            if queue is None or queue.source is not QueueSource.OWN or not queue.uid:
                continue
            told = reported[name] = report_of(cluster, queue, waiting.get(name, Counter()))
            if self._told.get(name) != told:
                changed += 1
                cluster.say(DEFAULT_POOL, told)
        self._told = reported
        self._next_at = now + STATUS_SECONDS * max(1.0, changed / STATUSES_PER_SECOND)


def report_of(cluster: Cluster, queue: TenantQueue, waiting: Counter[str]) -> ReportQueue:
    """Return the report of a queue in which these requests wait."""
    state, _ = cluster.tenants.queues.state_of(cluster.tenants.queues.chain(queue.name))
    summary = summary_of(cluster, queue, waiting)
    return ReportQueue(
        queue.name,
        queue.uid,
        queue.generation,
        _conditions(cluster, queue, state, summary),
        summary,
        state,
        queue.parent,
        queue.priority,
    )


def summary_of(cluster: Cluster, queue: TenantQueue, waiting: Counter[str]) -> QueueSummary:
    """Return the numbers of a queue."""
    coverage = coverage_of(cluster)
    rules = coverage.rules
    sums = cluster.ledger.under(QUEUE, queue.name)
    used: Counter[str] = Counter()
    for card, amounts in sums.items():
        free = card != NO_CARD and rules.unlimited_with_cards
        used.update({name: n for name, n in amounts.items() if not (free and name in (CPU, MEMORY))})
    return QueueSummary(
        used={name: used[name] for name in sorted(used) if name != PODS},
        pending={name: waiting[name] for name in sorted(waiting) if name != PODS and waiting[name]},
        borrowed={n: amount for n, amount in sorted(cluster.ledger.of(QUEUE_BORROWS, queue.name).items()) if n != PODS},
        quota={name: rules.limit(queue, name) for name in sorted(queue.capability)},
        cards=_cards(queue, coverage, sums),
        pods=used[PODS],
        pending_pods=waiting[PODS],
    )


def over_quota(queue: str, summary: QueueSummary) -> list[OverQuota]:
    """Return in what a queue is over its quota: resources, then cards."""
    sums = {**summary.used, PODS: summary.pods}
    uses = [OverQuota(queue, name, unit_of(name)[0], counted(name, sums), most) for name, most in summary.quota.items()]
    uses += [
        OverQuota(queue, use.card, GPU_SHARE, use.used_hundredths, use.quota * CARD, is_card=True)
        for use in summary.cards
        if use.quota is not None
    ]
    return [use for use in uses if use.used > use.quota]


def _cards(queue: TenantQueue, coverage: Coverage, by_card: Mapping[str, ResourceList]) -> tuple[CardUse, ...]:
    covered = cards_by_entry(queue, coverage, by_card)
    found = {entry.card: CardUse(entry.card, covered[entry.card], entry.cards) for entry in queue.cards}
    others: Counter[str] = Counter()
    for card, amounts in by_card.items():
        for resource, amount in amounts.items():
            if not is_card(resource, coverage.rules.gpu_resources):
                continue
            forms = form_names(card, resource) if card != UNNAMED_CARD else ()
            if not any(form in covered for form in forms):
                others[forms[0] if forms else "other"] += hundredths_of(resource, amount)
    limited = 0 if queue.cards else None
    found |= {card: CardUse(card, number, limited) for card, number in others.items()}
    return tuple(found[card] for card in sorted(found))


def waiting_of(cluster: Cluster) -> dict[str, Counter[str]]:
    """Return what waits in each queue and its ancestors, by resource; owners of claims count as use."""
    found: dict[str, Counter[str]] = {}
    tenants = cluster.tenants
    waiting = {name: +total for name, total in tenants.waiting.items()}
    for room in (room for claim in cluster.claims.all() for room in claim.rooms):
        if room.record.waits_with is not None:
            spec = room.record.waits_with
            waiting[room.record.tenancy.queue] -= Counter(charge(spec))
    for name, total in waiting.items():
        for queue in tenants.queues.chain(name) if total else ():
            found.setdefault(queue.name, Counter()).update(total)
    return found


def _state(cluster: Cluster) -> State:
    tenants = cluster.tenants
    return (
        cluster.start,
        tenants.queues.version,
        cluster.ledger.version,
        tenants.version,
        cluster.nodes.static_version,
    )


def _conditions(
    cluster: Cluster, queue: TenantQueue, state: QueueState, summary: QueueSummary
) -> tuple[Condition, ...]:
    return (_ready(cluster, queue, state), _accepted(cluster, queue), _over(queue.name, summary))


def _ready(cluster: Cluster, queue: TenantQueue, state: QueueState) -> Condition:
    if queue.invalid or cluster.tenants.queues.problem(queue):
        text = "The queue takes nothing new; see the condition Accepted."
        return Condition("Ready", status=False, reason=ConditionReason.NOT_ACCEPTED, message=text)
    if state is QueueState.OPEN:
        return Condition("Ready", status=True, reason=ConditionReason.OPEN, message="The queue takes pods.")
    _, where = cluster.tenants.queues.state_of(cluster.tenants.queues.chain(queue.name))
    of = "The queue" if where == queue.name else f"The queue {where} above it"
    reason = ConditionReason.CLOSED if state is QueueState.CLOSED else ConditionReason.DRAINING
    return Condition("Ready", status=False, reason=reason, message=f"{of} is {state.lower()}; nothing new starts.")


def _accepted(cluster: Cluster, queue: TenantQueue) -> Condition:
    if queue.invalid:
        return Condition("Accepted", status=False, reason=ConditionReason.INVALID_SPEC, message=queue.invalid)
    problem = cluster.tenants.queues.problem(queue)
    if not problem:
        return Condition("Accepted", status=True, reason=ConditionReason.VALID, message="The spec is in force.")
    cycle = "cycle" in problem
    reason = ConditionReason.PARENT_CYCLE if cycle else ConditionReason.PARENT_MISSING
    return Condition("Accepted", status=False, reason=reason, message=f"The queue takes nothing new: {problem}.")


def _over(queue: str, summary: QueueSummary) -> Condition:
    over = over_quota(queue, summary)
    if not over:
        return Condition("OverQuota", status=False, reason=ConditionReason.WITHIN_QUOTA, message="Within its quotas.")
    named = ", ".join(
        f"{one.name} {quantity_text(one.unit, one.used)} of {quantity_text(one.unit, one.quota)}"
        for one in over[:OVER_NAMED_MAX]
    )
    text = f"More is used than the quota says: {named}."
    return Condition("OverQuota", status=True, reason=ConditionReason.OVER_QUOTA, message=text)
