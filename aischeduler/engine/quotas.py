"""Quotas: a unit that would take more than an account or a tenant queue may hold is held until that shrinks.

Invariants:
- A pod whose queue does not exist, is not open, or does not take its namespace, is held, and tried again when that
  changes. Nothing is evicted for it.
- What a quota forbids is a hold: it takes no room, and blocks no loan.
- An owner of a claim is checked without its own claim. A unit is checked without the claims of those behind it where
  it is refused only because of them; these claims then end for it.
- Each time an account shrinks, or a pod of it was tried, the first unit of each class that it holds is checked, in the
  order of queues, and the first that its quota no longer refuses is tried: those before it may have found no room.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.holds import recheck_later
from aischeduler.engine.view import View
from aischeduler.model.card_shares import asks_for_cards, charge
from aischeduler.model.card_types import card_names
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.proposal import Hold, Proposal, Wait
from aischeduler.model.resources import ResourceList
from aischeduler.model.tenant_queue import QueueState, TenantQueue
from aischeduler.model.unsupported_constraints import ConstraintKind
from aischeduler.model.user_text import nearest
from aischeduler.model.workload import CARD_REQUEST_KEY
from aischeduler.policies.quota import CardsInUse, Coverage, QuotaRefusal, QuotaRules, Quotas, Want
from aischeduler.policies.unit_placement import total_of
from aischeduler.state.claims import Claim
from aischeduler.state.label_index import Mask
from aischeduler.state.ledger import QUEUE, Account, Ledger
from aischeduler.state.pod_records import PodRecord, PodState
from aischeduler.state.scheduling_queue import queue_order

QUOTA: Final = ConstraintKind.QUOTA
CHECKED_MAX: Final = 256
"""The most classes of held pods that are checked when one account shrinks."""
COVERAGE: Final = "coverage"
SETTINGS: Final = "settings"
CLAIMS_MAX: Final = 64
"""The most claims of pods behind a unit that may end for its quota."""


class QuotaAnswer(Struct, frozen=True):
    """What quotas say of a unit: why it is held, or which rows are closed to each of its classes.

    `closed` is by the number of the pod among those that start together, and empty where no row is closed; `closes` is
    what refuses it on the closed rows. The claims of `outbid` end if it takes room.
    """

    message: str = ""
    reason: EventReason = EventReason.FAILED_SCHEDULING
    closed: tuple[Mask | None, ...] = ()
    closes: tuple[QuotaRefusal, ...] = ()
    outbid: tuple[Claim, ...] = ()


UNLIMITED: Final = QuotaAnswer()


class QueueRefusal(Struct, frozen=True):
    """Why a queue takes no pod: a word, and a sentence."""

    reason: EventReason
    message: str


def queue_refused(cluster: View, record: PodRecord) -> QueueRefusal | None:
    """Return why the pod's queue takes it not, quotas aside; None where it does, or the pod has none."""
    name = record.tenancy.queue
    if not name:
        return None
    queues = cluster.tenants.queues
    queue = queues.get(name)
    if name in queues.open and queue is not None and not record.tenancy.invalid:
        return _namespace_refused(cluster, record, queue)
    if queue is None:
        near = nearest(name, queues.names())
        meant = f" Did you mean {near}?" if near else ""
        return QueueRefusal(EventReason.UNKNOWN_QUEUE, f"The queue {name} does not exist; the pod is held.{meant}")
    if CARD_REQUEST_KEY in record.tenancy.invalid:
        return QueueRefusal(EventReason.GET_TASK_REQUEST_RESOURCE_FAILED, f"{record.tenancy.invalid}; the pod is held.")
    for member in queues.chain(name):
        if member.invalid:
            return QueueRefusal(EventReason.QUEUE_NOT_ACCEPTED, f"The queue {member.name} is refused: {member.invalid}")
    if problem := queues.problem(queue):
        return QueueRefusal(EventReason.QUEUE_NOT_ACCEPTED, f"The queue {name} takes no pods: {problem}.")
    state, where = queues.state_of(queues.chain(name))
    if state is not QueueState.OPEN:
        of = "" if where == name else f", which is above {name},"
        return QueueRefusal(EventReason.QUEUE_CLOSED, f"The queue {where}{of} is {state.lower()}; the pod is held.")
    queues.open.add(name)
    return _namespace_refused(cluster, record, queue)


def _namespace_refused(cluster: View, record: PodRecord, queue: TenantQueue) -> QueueRefusal | None:
    namespace, allowed = record.pod.namespace, queue.allowed_namespaces
    labels = cluster.nodes.pod_counts.namespaces.get(namespace)
    if allowed is not None and (labels is None or not allowed.matches(labels)):
        text = (
            f"The queue {queue.name} takes no pods from the namespace {namespace}: its allowedNamespaces do not match."
        )
        return QueueRefusal(EventReason.QUEUE_NAMESPACE_NOT_ALLOWED, text)
    return None


def quota_of(cluster: View, record: PodRecord) -> QuotaAnswer:
    """Return what quotas say of the pod, or the unit that it leads."""
    if (refused := _over_account(cluster, record)) is not None:
        return refused
    wants = _wants(cluster, record)
    if not any(want.chain for want in wants):
        return UNLIMITED
    if (refused := _workload_refused(cluster, record)) is not None:
        return refused
    own = cluster.claims.of(record.pod.uid)
    answer = _answer(cluster, wants, (own,) if own is not None else ())
    if not answer.message or own is not None:
        return answer
    behind = cluster.claims.not_ahead(record.home, queue_order(record)) if cluster.claims.count_in(record.home) else ()
    lifted: list[Claim] = []
    for claim in reversed(behind[-CLAIMS_MAX:]):
        if not any(account[0] == QUEUE for room in claim.rooms for account in room.accounts):
            continue
        lifted.append(claim)
        without = _answer(cluster, wants, tuple(lifted))
        if not without.message:
            return QuotaAnswer(closed=without.closed, closes=without.closes, outbid=tuple(lifted))
    return answer


def surplus_within(cluster: View, record: PodRecord, others: tuple[PodRecord, ...]) -> tuple[PodRecord, ...]:
    """Return those of the other pods of a unit that its quotas let start with the required ones, in their order."""
    if not any(cluster.tenants.chain(other) for other in others):
        return others
    taken = list(record.together)
    found: list[PodRecord] = []
    for other in others:
        wants = [want_of(cluster, member) for member in (*taken, other)]
        answer = _answer(cluster, wants, ())
        if not answer.message and not answer.closed:
            taken.append(other)
            found.append(other)
    return tuple(found)


def growth_within(cluster: View, like: PodRecord, ledger: Ledger) -> QuotaAnswer:
    """Return what the quotas say of one more pod like this one, which is there, with the sums of this ledger."""
    want, quotas = want_of(cluster, like), cluster.profile.plugins_of(like.pod).quotas
    total = total_of([like.pod.spec], cluster.nodes.cards.gpu_memories(cluster.nodes)) if quotas else like.pod.spec
    why = next((why for quota in quotas if (why := quota.refuses(like.pod, total, ledger))), "")
    if why or not want.chain:
        return QuotaAnswer(why)
    if (refused := queue_refused(cluster, like)) is not None:
        return QuotaAnswer(refused.message, refused.reason)
    answer = _checked(cluster, [want], ((0,),), ledger)
    unnamed = cluster.nodes.cards.unnamed(cluster.nodes)
    return answer if answer.message or unnamed is None else _without_unnamed(cluster, [want], answer, unnamed)


def coverage_of(cluster: View) -> Coverage:
    """Return how quotas are checked, as the configuration and the queues say."""
    kept, settings = cluster.tenants.queues.kept, cluster.tenants.settings
    found = kept.get(COVERAGE)
    if not isinstance(found, Coverage) or kept.get(SETTINGS) is not settings:
        kept.clear()
        resources = cluster.profile.gpu_resources
        rules = QuotaRules(resources, settings.card_unlimited_cpu_memory, settings.over_commit_milli)
        found = kept[COVERAGE] = Coverage(rules)
        kept[SETTINGS] = settings
    return found


def rules_of(cluster: View) -> QuotaRules:
    """Return how quotas are checked, as the configuration says."""
    return coverage_of(cluster).rules


def try_first(cluster: Cluster, accounts: Iterable[Account]) -> None:
    """Have the first unit tried that each of these accounts held, and that may take more now that these shrank."""
    if cluster.held:
        of_queues = {account[:2] for account in accounts}
        cluster.held.exhausted -= of_queues
        _try_first(cluster, of_queues)


def try_next(cluster: Cluster, record: PodRecord) -> None:
    """Have the next unit tried that an account of this pod held, after that took its part, and the next one like it."""
    if cluster.held:
        _try_first(cluster, {account[:2] for account in record.accounts} - cluster.held.exhausted)
        try_alike(cluster, record)


def try_alike(cluster: Cluster, record: PodRecord) -> None:
    """Have the next pod of this pod's class tried, where quotas no longer refuse it; a unit is a class of its own."""
    behind = cluster.held.alike(record) if record.leads is None else None
    if behind is not None and behind.waits_as.queue and not quota_of(cluster, behind).message:  # not between queues
        recheck_later(cluster, (behind,))


def try_behind(cluster: Cluster, record: PodRecord) -> None:
    """Have the next unit tried that a queue of this one held, after this one was tried and not placed."""
    if cluster.held:
        of_queues = {account for account in cluster.holders(record) if account[0] == QUEUE}
        _try_first(cluster, of_queues - cluster.held.exhausted, parked=False)


def _try_first(cluster: Cluster, accounts: set[Account], *, parked: bool = True) -> None:
    """Have the first unit tried that each account held; beside it, those that are `parked` for one of their cards."""
    for account in sorted(accounts):
        found = False
        for record in _heads(cluster, account):
            if record.state is PodState.PARKED:
                recheck_later(cluster, (record,) if parked else ())
            elif not found and (account[0] != QUEUE or not quota_of(cluster, record).message):
                recheck_later(cluster, (record,))
                found = True
        if not found:
            cluster.held.exhausted.add(account)


def is_held_from_now(cluster: Cluster, record: PodRecord, proposal: Proposal) -> bool:
    """Return whether a quota keeps a parked pod from room, so that an attempt has it tried again as that frees."""
    if isinstance(proposal, Wait):
        return proposal.by_quota and record.pod.uid not in cluster.held
    return isinstance(proposal, Hold) and proposal.constraint is QUOTA


def cards_changed(cluster: Cluster) -> None:
    """Have units tried again that quotas hold, where nodes have other cards now."""
    if not cluster.held:
        return
    cards = tuple(sorted({kind.card for kind in cluster.nodes.cards.kinds(cluster.nodes)[0]}))
    if cards != cluster.tenants.cards:
        cluster.tenants.cards = cards
        try_first(cluster, cluster.held.accounts())


def _heads(cluster: Cluster, account: Account) -> Iterator[PodRecord]:
    """Yield the first pod of each class that an account holds, in their order."""
    for record in cluster.held.heads(account, CHECKED_MAX):
        if record.state is PodState.PARKED or (record.state is PodState.HELD and record.constraint is QUOTA):
            yield record
        else:
            cluster.held.drop(record.pod.uid)


def _over_account(cluster: View, record: PodRecord) -> QuotaAnswer | None:
    """Return what the quotas of plugins refuse. A unit that owns a claim is within them."""
    quotas = cluster.profile.plugins_of(record.pod).quotas
    if not quotas or cluster.claims.of(record.pod.uid) is not None:
        return None
    total = cluster.total(record)
    why = next((why for quota in quotas if (why := quota.refuses(record.pod, total, cluster.ledger))), "")
    return QuotaAnswer(why) if why else None


def _workload_refused(cluster: View, record: PodRecord) -> QuotaAnswer | None:
    """Return what refuses the workload of a pod as a whole, before the first of its pods has started."""
    requests = record.tenancy.card_request
    if not requests or cluster.tenants.has_begun(record):
        return None
    quotas = Quotas(coverage_of(cluster), cluster.ledger, [want_of(cluster, record)])
    refusal = quotas.refused_whole(0, requests)
    return QuotaAnswer(refusal.message, refusal.reason) if refusal is not None else None


def _wants(cluster: View, record: PodRecord) -> list[Want]:
    return [want_of(cluster, member) for member in record.together]


def want_of(cluster: View, record: PodRecord) -> Want:
    """Return what a pod wants of the quotas of its queue."""
    requests = record.tenancy.card_request
    said = tuple(dict.fromkeys(card_names(form)[0] for form in requests[0].forms)) if len(requests) == 1 else ()
    spec = record.pod.spec
    in_bytes = spec.devices is not None and spec.devices.gpu is not None and spec.devices.gpu.memory_bytes > 0
    sizes = cluster.nodes.cards.gpu_memories(cluster.nodes) if in_bytes else ()
    return Want(cluster.tenants.chain(record), spec, said=said, memories=sizes)


def _answer(cluster: View, wants: list[Want], lifted: tuple[Claim, ...]) -> QuotaAnswer:
    """Return what the quotas of queues say, as if these claims did not exist."""
    answer = _of_named(cluster, wants, lifted)
    unnamed = cluster.nodes.cards.unnamed(cluster.nodes)
    return answer if answer.message or unnamed is None else _without_unnamed(cluster, wants, answer, unnamed)


def _without_unnamed(cluster: View, wants: list[Want], answer: QuotaAnswer, unnamed: Mask) -> QuotaAnswer:
    """Close the rows whose cards have no name to pods with cards whose queue names some: it does not name these.

    They hold no pod: others with a name may join.
    """
    rules = coverage_of(cluster).rules
    closed = list(answer.closed or [None] * len(wants))
    for number, want in enumerate(wants):
        if any(queue.cards for queue in want.chain) and asks_for_cards(want.spec, rules.gpu_resources):
            before = closed[number]
            closed[number] = unnamed if before is None else before | unnamed
    return answer if all(mask is None for mask in closed) else replace(answer, closed=tuple(closed))


def _of_named(cluster: View, wants: list[Want], lifted: tuple[Claim, ...]) -> QuotaAnswer:
    """Return what the quotas of queues say of nodes that name their cards."""
    if len(wants) == 1:
        kinds, _ = cluster.nodes.cards.kinds(cluster.nodes)
        if not lifted and coverage_of(cluster).holds(wants[0], kinds, cluster.ledger):
            return UNLIMITED
        return _checked(cluster, wants, ((0,),), _sums(cluster, lifted))
    classes: dict[tuple[bytes, str, tuple[str, ...]], list[int]] = {}
    for number, want in enumerate(wants):
        classes.setdefault((want.spec.key, want.chain[0].name if want.chain else "", want.said), []).append(number)
    several = [replace(wants[numbers[0]], pods=len(numbers)) for numbers in classes.values()]
    return _checked(cluster, several, tuple(map(tuple, classes.values())), _sums(cluster, lifted))


def _sums(cluster: View, lifted: tuple[Claim, ...]) -> CardsInUse:
    """Return the sums of queues as if these claims did not exist."""
    return _Without(cluster, lifted) if lifted else cluster.ledger


def _checked(cluster: View, wants: list[Want], members: tuple[tuple[int, ...], ...], sums: CardsInUse) -> QuotaAnswer:
    """Return what the quotas of queues say of these wants, each of which stands for the pods of these numbers."""
    quotas = Quotas(coverage_of(cluster), sums, wants)
    refusal = quotas.refused()
    if refusal is not None:
        return QuotaAnswer(refusal.message, refusal.reason)
    if not quotas.limits_cards:
        return UNLIMITED
    kinds, numbers_of_rows = cluster.nodes.cards.kinds(cluster.nodes)
    closed: list[Mask | None] = [None] * sum(map(len, members))
    closes: list[QuotaRefusal] = []
    for at, numbers in enumerate(members):
        of_kinds, refusal = quotas.closed(at, kinds)
        if refusal is not None:
            return QuotaAnswer(refusal.message, refusal.reason)
        if any(of_kinds):
            mask: Mask = np.array(of_kinds, dtype=np.bool_)[numbers_of_rows]
            named = (kind for kind, shut in zip(kinds, of_kinds, strict=True) if shut and quotas.names(at, kind))
            closes += [why for kind in named if (why := quotas.refused_on(at, kind))]
            for number in numbers:
                closed[number] = mask
    if all(mask is None for mask in closed):
        return UNLIMITED
    return QuotaAnswer(closed=tuple(closed), closes=tuple(closes))


class _Without:
    """The sums of queues as if some claims did not exist."""

    def __init__(self, cluster: View, lifted: tuple[Claim, ...]) -> None:
        self._ledger = cluster.ledger
        self._lifted: dict[Account, Counter[str]] = {}
        for claim in lifted:
            for room in claim.rooms:
                for account in room.accounts:
                    self._lifted.setdefault(account, Counter()).update(charge(room.spec, room.allocation))

    def under(self, kind: str, name: str) -> Mapping[str, ResourceList]:
        """Return the sums of the accounts of this kind and name, by their last name."""
        return {
            card: {
                resource: amount - self._lifted.get((kind, name, card), Counter())[resource]
                for resource, amount in sums.items()
            }
            for card, sums in self._ledger.under(kind, name).items()
        }
