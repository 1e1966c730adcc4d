"""Quotas: a unit that would take more than an account or a tenant queue may hold is held until that shrinks.

Invariants:
- What a quota forbids is a hold: it takes no room, and blocks no loan.
- An owner of a claim is checked without its own claim. A unit is checked without the claims of those behind it where
  it is refused only because of them; these claims then end for it.
- Each time an account shrinks, or a pod of it is placed, the first unit of each class that it holds is checked, in the
  order of queues, and the first that its quota no longer refuses is tried.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np
from msgspec import Struct

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.holds import recheck_later
from aischeduler.engine.view import View
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.resources import ResourceList
from aischeduler.model.unsupported_constraints import ConstraintKind
from aischeduler.policies.quota import QuotaRefusal, QuotaRules, Quotas, Want
from aischeduler.state.claims import Claim
from aischeduler.state.label_index import Mask
from aischeduler.state.ledger import QUEUE, Account
from aischeduler.state.pod_records import PodRecord, PodState
from aischeduler.state.scheduling_queue import queue_order

QUOTA: Final = ConstraintKind.QUOTA
CHECKED_MAX: Final = 256
"""The most classes of held pods that are checked when one account shrinks."""
CLAIMS_MAX: Final = 64
"""The most claims of pods behind a unit that may end for its quota."""


class QuotaAnswer(Struct, frozen=True):
    """What quotas say of a unit: why it is held, or which rows are closed to each of its classes.

    `closed` is by the number of the pod among those that start together; `refusal` is where it is held, or the first
    card that is closed. The claims of `outbid` end if it takes room.
    """

    message: str = ""
    reason: EventReason = EventReason.FAILED_SCHEDULING
    closed: tuple[Mask | None, ...] = ()
    closes: tuple[QuotaRefusal, ...] = ()
    outbid: tuple[Claim, ...] = ()


UNLIMITED: Final = QuotaAnswer()


def quota_of(cluster: View, record: PodRecord) -> QuotaAnswer:
    """Return what quotas say of the pod, or the unit that it leads."""
    if (refused := _over_account(cluster, record)) is not None:
        return refused
    wants = _wants(cluster, record)
    if not any(want.chain for want in wants):
        return UNLIMITED
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
        wants = [_want(cluster, member) for member in (*taken, other)]
        answer = _answer(cluster, wants, ())
        if not answer.message and not answer.closes:
            taken.append(other)
            found.append(other)
    return tuple(found)


def rules_of(cluster: View) -> QuotaRules:
    """Return how quotas are checked, as the configuration says."""
    settings = cluster.tenants.settings
    return QuotaRules(cluster.profile.gpu_resources, settings.card_unlimited_cpu_memory, settings.over_commit_milli)


def try_first(cluster: Cluster, accounts: Iterable[Account]) -> None:
    """Have the first unit tried that each of these accounts held, and that may take more now."""
    for account in sorted({account[:2] for account in accounts}):
        for record in _heads(cluster, account):
            if account[0] != QUEUE or not quota_of(cluster, record).message:
                recheck_later(cluster, (record,))
                break


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


def _wants(cluster: View, record: PodRecord) -> list[Want]:
    return [_want(cluster, member) for member in record.together]


def _want(cluster: View, record: PodRecord) -> Want:
    return Want(cluster.tenants.chain(record), record.pod.spec)


def _answer(cluster: View, wants: list[Want], lifted: tuple[Claim, ...]) -> QuotaAnswer:
    """Return what the quotas of queues say, as if these claims did not exist."""
    classes: dict[tuple[bytes, str], list[int]] = {}
    for number, want in enumerate(wants):
        classes.setdefault((want.spec.key, want.chain[0].name if want.chain else ""), []).append(number)
    several = [Want(wants[numbers[0]].chain, wants[numbers[0]].spec, len(numbers)) for numbers in classes.values()]
    quotas = Quotas(rules_of(cluster), _Without(cluster, lifted) if lifted else cluster.ledger, several)
    refusal = quotas.refused()
    if refusal is not None:
        return QuotaAnswer(refusal.message, refusal.reason)
    if not quotas.limits_cards:
        return UNLIMITED
    kinds, numbers_of_rows = cluster.nodes.cards.kinds(cluster.nodes)
    closed: list[Mask | None] = [None] * len(wants)
    closes: list[QuotaRefusal] = []
    for at, members in enumerate(classes.values()):
        of_kinds, refusal = quotas.closed(at, kinds)
        if refusal is not None:
            return QuotaAnswer(refusal.message, refusal.reason)
        if any(of_kinds):
            mask: Mask = np.array(of_kinds, dtype=np.bool_)[numbers_of_rows]
            closes += [
                why for kind, shut in zip(kinds, of_kinds, strict=True) if shut and (why := quotas.refused_on(at, kind))
            ]
            for number in members:
                closed[number] = mask
    return QuotaAnswer(closed=tuple(closed), closes=tuple(closes))


class _Without:
    """The sums of queues as if some claims did not exist."""

    def __init__(self, cluster: View, lifted: tuple[Claim, ...]) -> None:
        self._ledger = cluster.ledger
        self._lifted: dict[Account, Counter[str]] = {}
        for claim in lifted:
            for room in claim.rooms:
                for account in room.accounts:
                    self._lifted.setdefault(account, Counter()).update(room.spec.request.taken)

    def under(self, kind: str, name: str) -> Mapping[str, ResourceList]:
        """Return the sums of the accounts of this kind and name, by their last name."""
        return {
            card: {
                resource: amount - self._lifted.get((kind, name, card), Counter())[resource]
                for resource, amount in sums.items()
            }
            for card, sums in self._ledger.under(kind, name).items()
        }
