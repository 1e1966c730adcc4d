"""The quotas of a waiting pod: what each of its tenant queues uses, what is asked, and what refuses.

Invariants:
- Whether a quota refuses is what `quota_of` says of the pod, or its unit; the numbers are those of its checks.
- A unit asks with all its required pods together, of a card with those that may run on such nodes.
- Levels are in the order of the check: a queue before its ancestors.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from aischeduler.analysis.explanation import QuotaLevel, QuotaUse, Refusal, full_name
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.quotas import coverage_of, quota_of, rules_of, want_of
from aischeduler.model.card_shares import CARD, asks_for_cards, charge, counted
from aischeduler.model.card_types import TypeNameError, card_form, card_names, form_names, is_card
from aischeduler.model.device import NVIDIA_GPU
from aischeduler.model.names import CPU, GPU_SHARE, MEMORY
from aischeduler.model.tenant_queue import CardQuota, TenantQueue
from aischeduler.policies.quota import QuotaRefusal, QuotaRules, Quotas, Want, cards_of_form, cards_on, names_kind
from aischeduler.state.cards import CardKind
from aischeduler.state.label_index import Rows
from aischeduler.state.ledger import NO_CARD, QUEUE
from aischeduler.state.pod_records import PodRecord

RULE: Final = "TenantQuota"
"""The name of quotas among the rules that refuse nodes."""
HOLDERS_MAX: Final = 5
"""The most pods that are named of those that hold the most of a quota."""
NO_LIMIT: Final = 2**62
DEPLOYMENT: Final = "Deployment"


class QuotaCheck(Struct, frozen=True):
    """The checks of the engine for a pod, or the unit that it leads: one want for each pod that starts with it."""

    quotas: Quotas
    wants: tuple[Want, ...]
    kinds: tuple[CardKind, ...]
    """The cards of the nodes, or those that the pods name where no node has them."""
    whole: QuotaRefusal | None = None
    """What refuses the workload of the pods as a whole, as far as one quota is too small for it."""

    @property
    def queues(self) -> Mapping[str, TenantQueue]:
        """The queues that the pods count in, in the order of the check."""
        return {queue.name: queue for want in self.wants for queue in want.chain}

    @property
    def refused(self) -> QuotaRefusal | None:
        """What refuses the pods whatever their nodes are; None where nothing does."""
        return self.whole or self.quotas.refused()

    def refused_on(self, kind: CardKind) -> QuotaRefusal | None:
        """Return what refuses one of the pods on nodes with such cards; None where nothing does."""
        if not self.quotas.limits_cards:
            return None
        numbers = (number for number, want in enumerate(self.wants) if names_kind(want, kind))
        return next((why for number in numbers if (why := self.quotas.refused_on(number, kind)) is not None), None)

    def refusals(self) -> tuple[QuotaRefusal, ...]:
        """Return what refuses the pods on every node, else what does on nodes of each kind, each once."""
        if self.refused is not None:
            return (self.refused,)
        return tuple(dict.fromkeys(why for kind in self.kinds if (why := self.refused_on(kind)) is not None))


def check_of(cluster: Cluster, record: PodRecord) -> QuotaCheck:
    """Return the checks for a pod that waits, or the unit that it leads."""
    wants = tuple(want_of(cluster, member) for member in record.together)
    of_nodes, _ = cluster.nodes.cards.kinds(cluster.nodes)
    named = tuple(kind for kind in of_nodes if kind.names and any(names_kind(want, kind) for want in wants))
    types = {name for want in wants for name in want.types}
    kinds = named or tuple(CardKind(card_names(name)) for name in sorted(types))
    quotas = Quotas(coverage_of(cluster), cluster.ledger, wants)
    return QuotaCheck(quotas, wants, kinds, _whole(cluster, record, quotas))


def _whole(cluster: Cluster, record: PodRecord, quotas: Quotas) -> QuotaRefusal | None:
    """Return what refuses the workload of a pod as a whole, as a refusal of the first quota for such cards."""
    requests = record.tenancy.card_request
    found = quotas.refused_whole(0, requests) if requests and not cluster.tenants.has_begun(record) else None
    if found is None:
        return None
    queue = cluster.tenants.queues.get(found.queue)
    names = {name for request in requests if request.name == found.dimension for name in request.forms}
    names |= {name for form in names for name in card_names(form)}
    entries = [entry for entry in queue.cards if entry.card in names] if queue is not None else []
    rules = rules_of(cluster)
    resource = next(iter(sorted(rules.cards(record.pod.spec, 0))), rules.gpu_resources[0])
    if not entries:
        return replace(found, resource=resource, dimension=min(names, key=len))
    entry, lacking = entries[0], found.total - found.capability
    most = entry.cards * CARD
    return replace(found, resource=resource, dimension=entry.name, total=most + lacking, capability=most)


def quota_use(cluster: Cluster, record: PodRecord) -> QuotaUse | None:
    """Return the quotas of a pod that waits, or the unit that it leads; None where it counts in no queue."""
    if not any(cluster.tenants.chain(member) for member in record.together):
        return None
    answer = quota_of(cluster, record)
    levels = quota_levels(cluster, check_of(cluster, record), refused=bool(answer.message or answer.closes))
    replaces = bool(answer.message) and any(
        _replaces_its_own(cluster, record, level) for level in levels if level.refuses
    )
    return QuotaUse(record.tenancy.queue, levels, replaces=replaces)


def closed_rows(cluster: Cluster, record: PodRecord, pod: PodRecord, rows: Rows) -> tuple[Refusal, ...]:
    """Return the rows that only quotas close to this pod, which is the record or waits in its unit."""
    answer = quota_of(cluster, record) if cluster.has_quotas else None
    if answer is None or not answer.closes:
        return ()
    place = next((number for number, member in enumerate(record.together) if member is pod), 0)
    mask = answer.closed[place]
    if mask is None:
        return ()
    closed = rows[mask[rows]]
    closed = closed[cluster.runner.passes(pod.pod.spec, closed)]
    named = dict.fromkeys(f"{why.dimension} of the queue {why.queue}" for why in answer.closes)
    return (Refusal(RULE, len(closed), f"no quota is left for {', '.join(named)}"),) if len(closed) else ()


def quota_levels(cluster: Cluster, check: QuotaCheck, *, refused: bool = True) -> tuple[QuotaLevel, ...]:
    """Return each queue with each dimension in which it is asked, resources before cards; with `refused`, what refuses.

    Every quota that is too small is marked: one of them raised alone may start nothing.
    """
    levels = [level for queue in check.queues.values() for level in _levels(cluster, check, queue)]
    marked = [replace(level, refuses=refused and _is_short(level)) for level in levels]
    names = {level.name for level in marked if level.refuses and not level.is_card}
    return tuple(
        replace(
            level,
            concerned=refused and (level.concerned or level.refuses or level.name in names),
            holders=tuple(_most(cluster, level)) if level.refuses else (),
        )
        for level in marked
    )


def _is_short(level: QuotaLevel) -> bool:
    return level.quota is not None and level.used + level.asked > level.quota


def _most(cluster: Cluster, level: QuotaLevel) -> list[tuple[str, int]]:
    """Return the pods that hold the most of what a queue lacks, with the amounts."""
    found = sorted((-amount, full_name(record.pod)) for record, amount in holders_of(cluster, level))
    return [(name, -amount) for amount, name in found[:HOLDERS_MAX]]


def holders_of(cluster: Cluster, level: QuotaLevel) -> list[tuple[PodRecord, int]]:
    """Return the pods that hold some of what a queue lacks, those on nodes and owners of claims, with the amounts."""
    names = cluster.tenants.queues.below((level.queue,))
    found = ((record, _held(cluster, record, level)) for record in cluster.tenants.in_queues(names))
    return [(record, amount) for record, amount in found if amount]


def _held(cluster: Cluster, record: PodRecord, level: QuotaLevel) -> int:
    """Return how much a pod holds of what a queue lacks."""
    room = cluster.claims.room_of(record)
    accounts, spec = (room.accounts, room.spec) if room is not None else (record.accounts, record.counted)
    card = next((name[2] for name in accounts if name[:2] == (QUEUE, level.queue)), None)
    if spec is None or card is None:
        return 0
    rules = rules_of(cluster)
    allocation = room.allocation if room is not None else record.allocation
    counts = charge(spec, allocation)
    if level.is_card:
        return cards_of_form(_form(level.name), rules, {card: counts})
    free = card != NO_CARD and rules.unlimited_with_cards and level.resource in (CPU, MEMORY)
    return 0 if free else counted(level.resource, counts)


def _levels(cluster: Cluster, check: QuotaCheck, queue: TenantQueue) -> Iterator[QuotaLevel]:
    """Yield a queue with each dimension in which it is asked: resources, then cards."""
    rules = rules_of(cluster)
    wants = [want for want in check.wants if any(member.name == queue.name for member in want.chain)]
    sums = _asked(rules, wants)
    for resource in sorted({NVIDIA_GPU if name == GPU_SHARE else name for name in sums}):
        limit = rules.limit(queue, resource) if resource in queue.capability else None
        if limit is None and is_card(resource, rules.gpu_resources):
            continue  # its cards stand for it
        used, asked = check.quotas.in_use(queue.name, resource), counted(resource, sums)
        yield QuotaLevel(queue.name, resource, resource, used, asked, limit)
    yield from _cards(cluster, check, queue, wants)


def _asked(rules: QuotaRules, wants: list[Want]) -> Counter[str]:
    """Return what these pods request, as far as it is checked."""
    found: Counter[str] = Counter()
    for want in wants:
        free = rules.unlimited_with_cards and asks_for_cards(want.spec, rules.gpu_resources)
        found.update({name: n for name, n in want.amounts.items() if not (free and name in (CPU, MEMORY))})
    return found


def _cards(cluster: Cluster, check: QuotaCheck, queue: TenantQueue, wants: list[Want]) -> list[QuotaLevel]:
    """Return the quotas of a queue for the cards that these pods may use; of each the most that is asked."""
    rules, sums = rules_of(cluster), cluster.ledger.under(QUEUE, queue.name)
    found: dict[str, QuotaLevel] = {}
    for kind in check.kinds:
        concerned = check.refused_on(kind) is not None
        asked: Counter[str] = Counter()
        for want in wants:
            asked.update(cards_on(want, kind, rules) if names_kind(want, kind) else {})
        for resource, number in sorted(asked.items()):
            forms = form_names(kind.card, resource)
            entries: list[CardQuota] = [entry for entry in queue.cards if entry.card in forms]
            alone = CardQuota(forms[0], forms[0], 0) if forms else CardQuota(resource, "", 0)
            for entry in entries or [alone]:
                limit = entry.cards * CARD if entries else 0 if queue.cards else None
                used = cards_of_form(entry.card, rules, sums)
                level = QuotaLevel(queue.name, entry.name, resource, used, number, limit, is_card=True)
                before = found.get(entry.name, level)
                found[entry.name] = replace(
                    level, asked=max(number, before.asked), concerned=concerned or before.concerned
                )
    whole = check.whole
    if whole is not None and whole.queue == queue.name and whole.dimension in found:
        found[whole.dimension] = replace(found[whole.dimension], asked=whole.requested, concerned=True)
    return list(found.values())


def left_on(check: QuotaCheck, kind: CardKind, resource: str) -> int:
    """Return how many units of a resource the quotas leave on nodes with such cards; `NO_LIMIT` where none limits."""
    forms, left = form_names(kind.card, resource), NO_LIMIT
    for queue in check.queues.values():
        covering = [entry for entry in queue.cards if entry.card in forms]
        uses = check.quotas.cards_in_use(queue)
        left = min(left, *((entry.cards * CARD - uses.get(entry.card, 0)) // CARD for entry in covering), NO_LIMIT)
        left = 0 if queue.cards and not covering else left
    return left


def _form(name: str) -> str:
    """Return the form of a card by a name of it; a name of none is its own form."""
    try:
        return card_form(name)
    except TypeNameError:
        return name


def _replaces_its_own(cluster: Cluster, record: PodRecord, level: QuotaLevel) -> bool:
    """Return whether pods of an older version of the pod's Deployment hold some of what its queue lacks."""
    mine = _maker(cluster, record)
    if not mine.startswith(f"{DEPLOYMENT}/"):
        return False
    return any(
        other.pod.namespace == record.pod.namespace
        and other.pod.owner != record.pod.owner
        and _maker(cluster, other) == mine
        for other, _ in holders_of(cluster, level)
    )


def _maker(cluster: Cluster, record: PodRecord) -> str:
    """Return the owner of the workload of a pod; empty where it has none."""
    kind, _, name = record.pod.owner.partition("/")
    workload = cluster.tenants.workloads.get((kind, record.pod.namespace, name))
    return workload.owner if workload is not None else ""
