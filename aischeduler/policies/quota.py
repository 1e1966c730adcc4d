"""Quotas: whether pods may take more of the shares of their tenant queues, and of which cards.

Invariants:
- A quota is checked at a queue and at each of its ancestors, in the dimensions that the pods request alone.
- All required pods of a unit are checked at once.
- The card that a pod is charged for is that of its node, so that cards close rows: a row is open where the pod, or all
  pods of its unit that may use such cards, fit into what is left of them.
- Where every card that a pod may use is closed, the pod is refused as a whole.
- Cards are counted in hundredths, so that parts of them count as their shares. A share in bytes is that of the smallest
  GPU of such a node on which it fits, until the pod has its devices.

Source: capacity-card's checks and its words; quotas at every ancestor as in Volcano's `capacity`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from msgspec import Struct

from aischeduler.model.card_shares import (
    CARD,
    Memories,
    charge,
    counted,
    gpu_share,
    hundredths_of,
    unit_of,
)
from aischeduler.model.card_types import card_names, form_names, is_card
from aischeduler.model.device import NVIDIA_GPU
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.names import CPU, GPU_SHARE, MEMORY
from aischeduler.model.pod import PodSpec
from aischeduler.model.quantity import quantity_text
from aischeduler.model.resources import ResourceList
from aischeduler.model.tenant_queue import CardQuota, TenantQueue
from aischeduler.model.workload import CardRequest
from aischeduler.state.cards import CardKind
from aischeduler.state.ledger import NO_CARD, QUEUE, Sums
from aischeduler.state.tenant_queues import Chain

UNSCALED_MILLI: Final = 1000
BOUNDS_KEPT_MAX: Final = 10_000
CARDS_MAX: Final = 2**62
"""More cards than there are."""


class QuotaRules(Struct, frozen=True):
    """What the configuration says: which resources are whole cards, and how cpu and memory are checked."""

    gpu_resources: tuple[str, ...]
    unlimited_with_cards: bool = False
    """Whether pods with cards are neither checked nor counted in cpu and memory."""
    over_commit_milli: int = UNSCALED_MILLI
    """By how much the capability in cpu and memory is multiplied, in thousandths."""

    def cards(self, spec: PodSpec, share: int) -> dict[str, int]:
        """Return the cards that a pod with this share of GPUs requests, by resource, in hundredths.

        The share is one of nvidia.com/gpu, so that an entry of a queue is compared with whole cards and parts together.
        """
        found = {name: n * CARD for name, n in spec.request.amounts.items() if is_card(name, self.gpu_resources)}
        whole = NVIDIA_GPU if NVIDIA_GPU in self.gpu_resources else GPU_SHARE
        return {**found, whole: found.get(whole, 0) + share} if share else found

    def limit(self, queue: TenantQueue, resource: str) -> int:
        """Return the capability of a queue in a resource that it names, in its unit (`unit_of`), as it is checked."""
        amount = queue.capability[resource] * unit_of(resource)[1]
        return amount * self.over_commit_milli // UNSCALED_MILLI if resource in (CPU, MEMORY) else amount


class Want(Struct, frozen=True):
    """Pods of one spec that want room, and their queue with its ancestors."""

    chain: Chain
    spec: PodSpec
    pods: int = 1
    said: tuple[str, ...] = ()
    """The names of the cards that its workload says, where it names none itself."""
    memories: Memories = ()
    """The sizes of the GPUs that are known, where it asks for memory in bytes."""

    @property
    def amounts(self) -> ResourceList:
        """What each pod counts for, whatever its node."""
        return charge(self.spec, memories=self.memories)

    @property
    def types(self) -> tuple[str, ...]:
        """The names of cards, of which its node must have one; none where any will do."""
        return self.spec.gpu_types if self.spec.gpu_types and self.spec.gpu_type_required else self.said


class Bounds(Struct, frozen=True):
    """What may be in use at most before pods like these take more, so that nothing closes a row to one of them.

    `resources` are by queue and resource, in its unit; `cards` by queue and the form of an entry, in hundredths.
    `closes` says that cards of some nodes are closed whatever is in use.
    """

    resources: tuple[tuple[str, str, int], ...]
    cards: tuple[tuple[TenantQueue, tuple[tuple[str, int], ...]], ...]
    closes: bool


class Certain(Struct, frozen=True):
    """How much may have been added to all accounts, by resource and in hundredths of cards, while pods like these fit.

    What is taken out of accounts in between only leaves more, so that most pods are not checked against each queue.
    """

    resources: tuple[tuple[str, int], ...]
    cards: int


class Coverage:
    """Which entries of queues cover which cards. It holds as long as no queue changes."""

    def __init__(self, rules: QuotaRules) -> None:
        self.rules = rules
        self._found: dict[tuple[str, str, str], tuple[CardQuota, ...]] = {}
        self._pairs: dict[tuple[str, ...], tuple[tuple[str, str], ...]] = {}
        self._bounds: dict[tuple[bytes, str, tuple[str, ...]], Bounds] = {}
        self._certain: dict[tuple[bytes, str, tuple[str, ...]], Certain] = {}
        self._card_resources: tuple[str, ...] = ()
        self._resources_seen = 0
        self._kinds: Sequence[CardKind] = ()

    def entries(self, queue: TenantQueue, card: str, resource: str) -> tuple[CardQuota, ...]:
        """Return the entries of a queue that cover units of a resource on a node with a card."""
        key = queue.name, card, resource
        found = self._found.get(key)
        if found is None:
            forms = form_names(card, resource) if is_card(resource, self.rules.gpu_resources) else ()
            found = self._found[key] = tuple(entry for entry in queue.cards if entry.card in forms)
        return found

    def pairs(self, queue: TenantQueue, card: str, resources: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """Return which of these resources, used on nodes with a card, count for which entries of a queue."""
        key = (queue.name, card, *resources)
        found = self._pairs.get(key)
        if found is None:
            pairs = ((name, entry.card) for name in key[2:] for entry in self.entries(queue, card, name))
            found = self._pairs[key] = tuple(pairs)
        return found

    def holds(self, want: Want, kinds: Sequence[CardKind], used: Sums) -> bool:
        """Return whether a pod is within all quotas on nodes of all these kinds, so that no more needs to be asked."""
        if kinds is not self._kinds or len(self._bounds) > BOUNDS_KEPT_MAX:
            self._kinds = kinds
            self._bounds.clear()
            self._certain.clear()
        key = want.spec.key, want.chain[0].name, want.said
        added, certain = used.added, self._certain.get(key)
        if certain is not None and self._cards_added(added) <= certain.cards:
            for resource, most in certain.resources:
                if counted(resource, added) > most:
                    break
            else:
                return True
        bounds = self._bounds.get(key)
        if bounds is None:
            bounds = self._bounds[key] = self._bounds_of(want, kinds)
        if bounds.closes:
            return False
        free = self.rules.unlimited_with_cards
        until: dict[str, int] = {}
        for queue, resource, most in bounds.resources:
            left = most - counted(resource, *used.under(QUEUE, queue).values())
            if free or left < 0:
                return False
            until[resource] = min(until.get(resource, left), left)
        cards_left = CARDS_MAX
        for entries_of, limits in bounds.cards:
            in_use = cards_by_entry(entries_of, self, used.under(QUEUE, entries_of.name))
            for form, most in limits:
                cards_left = min(cards_left, most - in_use[form])
        if cards_left < 0:
            return False
        resources = tuple((name, counted(name, added) + left) for name, left in until.items())
        self._certain[key] = Certain(resources, self._cards_added(added) + cards_left)
        return True

    def _cards_added(self, added: ResourceList) -> int:
        """Return how many hundredths of cards of any kind were ever added to accounts."""
        if len(added) != self._resources_seen:
            self._resources_seen = len(added)
            self._card_resources = tuple(name for name in added if is_card(name, self.rules.gpu_resources))
        return sum([hundredths_of(name, added[name]) for name in self._card_resources])

    def _bounds_of(self, want: Want, kinds: Sequence[CardKind]) -> Bounds:
        amounts, cards = want.amounts, cards_on(want, CardKind(), self.rules)
        resources = tuple(
            (queue.name, name, self.rules.limit(queue, name) - asked)
            for queue in want.chain
            for name in sorted(queue.capability)
            if (asked := counted(name, amounts))
        )
        named = [kind for kind in kinds if kind.names and names_kind(want, kind)]
        limits: dict[str, dict[str, int]] = {}
        closes = bool(cards) and (not named or bool(want.said))
        for queue in want.chain if cards else ():
            for kind in named if queue.cards else ():
                for resource, number in cards_on(want, kind, self.rules).items():
                    covering = self.entries(queue, kind.card, resource)
                    closes = closes or not covering
                    found = limits.setdefault(queue.name, {})
                    for entry in covering:
                        most = entry.cards * CARD
                        found[entry.card] = min(found.get(entry.card, most), most - number)
        by_queue = tuple((queue, tuple(limits[queue.name].items())) for queue in want.chain if queue.name in limits)
        return Bounds(resources, by_queue, closes and any(queue.cards for queue in want.chain))


class CardsInUse(Protocol):
    """What the pods of queues use."""

    def under(self, kind: str, name: str) -> Mapping[str, ResourceList]:
        """Return the sums of the accounts of this kind and name, by their last name."""


class QuotaRefusal(Struct, frozen=True):
    """The queue that refuses, the dimension as people call it, and what it lacks, in its `unit`."""

    queue: str
    dimension: str
    resource: str
    requested: int
    total: int
    capability: int
    is_card: bool = False

    @property
    def unit(self) -> str:
        """The name of the unit of the amounts: hundredths of cards, or that of the resource."""
        return GPU_SHARE if self.is_card else unit_of(self.resource)[0]

    @property
    def reason(self) -> EventReason:
        """The word for it, as capacity-card has it."""
        if not self.capability:
            return EventReason.EMPTY_QUEUE_CAPABILITY
        return _WORDS.get(self.resource, EventReason.INSUFFICIENT_SCALAR_QUOTA)

    @property
    def message(self) -> str:
        """The sentence for it."""
        requested, total, capability = (
            quantity_text(self.unit, amount) for amount in (self.requested, self.total, self.capability)
        )
        return (
            f"Queue {self.queue} has insufficient {self.dimension} quota: requested {requested}, "
            f"total would be {total}, but capability is {capability}"
        )


_WORDS: Final = {CPU: EventReason.INSUFFICIENT_CPU_QUOTA, MEMORY: EventReason.INSUFFICIENT_MEMORY_QUOTA}
_NAMES: Final = {CPU: "CPU", MEMORY: "memory"}


class Quotas:
    """The checks for pods that want room now. `used` are the sums by queue and card, without their own."""

    def __init__(self, coverage: Coverage, used: CardsInUse, wants: Sequence[Want]) -> None:
        self._coverage, self._rules, self._used = coverage, coverage.rules, used
        self._wants = wants
        self._alone = wants[0] if len(wants) == 1 else None
        self._cards = [cards_on(want, CardKind(), self._rules) for want in wants]
        self._queues = {queue.name: queue for want in wants for queue in want.chain}
        self._entries: dict[str, dict[str, int]] = {}

    def refused(self) -> QuotaRefusal | None:
        """Return what refuses the pods whatever their nodes are: what they request beside cards; None where nothing."""
        for name, queue in self._queues.items():
            if not queue.capability:
                continue
            asked = self._asked(name)
            for resource in sorted(queue.capability):
                requested = counted(resource, asked)
                if not requested:
                    continue
                total, limit = self.in_use(name, resource) + requested, self._rules.limit(queue, resource)
                if total > limit:
                    return QuotaRefusal(name, _NAMES.get(resource, resource), resource, requested, total, limit)
        return None

    def in_use(self, queue: str, resource: str) -> int:
        """Return how much of a resource counts in a queue, in its unit."""
        free = self._rules.unlimited_with_cards and resource in (CPU, MEMORY)
        sums = self._used.under(QUEUE, queue)
        return counted(resource, *(amounts for card, amounts in sums.items() if not free or card == NO_CARD))

    @property
    def limits_cards(self) -> bool:
        """Whether a quota in cards may close rows for these pods."""
        return any(self._cards) and any(queue.cards for queue in self._queues.values())

    def refused_on(self, number: int, kind: CardKind) -> QuotaRefusal | None:
        """Return what refuses the pods of this want on nodes with cards of this kind; None where nothing does."""
        want, cards = self._wants[number], self._cards[number]
        if want.memories:
            cards = cards_on(want, kind, self._rules)
        for resource in sorted(cards) if len(cards) > 1 else cards:
            for queue in want.chain:
                if not queue.cards:
                    continue
                alone = self._alone
                asked = cards[resource] * alone.pods if alone is not None else None
                requested = asked if asked is not None else self._asked_on(queue.name, resource, kind)
                covering = self._coverage.entries(queue, kind.card, resource)
                if not covering:
                    name = next(iter(form_names(kind.card, resource)), resource)
                    return QuotaRefusal(queue.name, name, resource, requested, requested, 0, is_card=True)
                in_use = self._entries.get(queue.name) or self.cards_in_use(queue)
                for entry in covering:
                    total, most = in_use[entry.card] + requested, entry.cards * CARD
                    if total > most:
                        return QuotaRefusal(queue.name, entry.name, resource, requested, total, most, is_card=True)
        return None

    def cards_in_use(self, queue: TenantQueue) -> Mapping[str, int]:
        """Return how many hundredths of cards each entry of a queue covers now."""
        found = self._entries.get(queue.name)
        if found is None:
            found = self._entries[queue.name] = cards_by_entry(
                queue, self._coverage, self._used.under(QUEUE, queue.name)
            )
        return found

    def closed(self, number: int, kinds: Sequence[CardKind]) -> tuple[list[bool], QuotaRefusal | None]:
        """Return for each kind whether it is closed to the pods of this want, and what refuses them on every kind.

        A kind that they do not name is not closed: other rules refuse it. Where no node has a card that they name, the
        card counts as they name it.
        """
        want = self._wants[number]
        named = [self.names(number, kind) for kind in kinds]
        refusals = [self.refused_on(number, kind) if use else None for kind, use in zip(kinds, named, strict=True)]
        other = bool(want.said) and not want.spec.gpu_types  # no filter knows what the workload says
        if not any(named):
            wished = [self.refused_on(number, CardKind(card_names(card_type))) for card_type in want.types]
            return [other] * len(kinds), next(iter(wished), None) if all(wished) else None
        of_named = [refusal for refusal, use in zip(refusals, named, strict=True) if use]
        closed = [refusal is not None or (other and not use) for refusal, use in zip(refusals, named, strict=True)]
        return closed, next(iter(of_named)) if all(of_named) else None

    def names(self, number: int, kind: CardKind) -> bool:
        """Return whether the pods of this want may run on nodes with such cards, quotas aside."""
        return bool(kind.names) and names_kind(self._wants[number], kind)

    def refused_whole(self, number: int, requests: Sequence[CardRequest]) -> QuotaRefusal | None:
        """Return what refuses all pods of a workload, which asks for these cards; of A|B both count together."""
        for request in requests:
            for queue in self._wants[number].chain:
                if not queue.cards:
                    continue
                entries = [entry for entry in queue.cards if any(_covers(entry, form) for form in request.forms)]
                used = sum(self.cards_in_use(queue).get(entry.card, 0) for entry in entries)
                asked, quota = request.cards * CARD, sum(entry.cards for entry in entries) * CARD
                if used + asked > quota:
                    name, total = request.name, used + asked
                    return QuotaRefusal(queue.name, name, name, asked, total, quota, is_card=True)
        return None

    def _asked(self, queue: str) -> ResourceList:
        """Return what all the pods in a queue request, by resource, as far as it is checked."""
        if self._alone is not None and not self._rules.unlimited_with_cards:
            taken, pods = self._alone.amounts, self._alone.pods
            return taken if pods == 1 else {name: amount * pods for name, amount in taken.items()}
        found: Counter[str] = Counter()
        for want, cards in zip(self._wants, self._cards, strict=True):
            if all(member.name != queue for member in want.chain):
                continue
            free = bool(cards) and self._rules.unlimited_with_cards
            for resource, amount in want.amounts.items():
                if not (free and resource in (CPU, MEMORY)):
                    found[resource] += amount * want.pods
        return found

    def _asked_on(self, queue: str, resource: str, kind: CardKind) -> int:
        """Return how many hundredths of cards the pods in a queue may take on nodes with such cards, in all."""
        return sum(
            cards_on(want, kind, self._rules)[resource] * want.pods
            for want, cards in zip(self._wants, self._cards, strict=True)
            if resource in cards and names_kind(want, kind) and any(member.name == queue for member in want.chain)
        )


def _covers(entry: CardQuota, form: str) -> bool:
    return entry.card == form or entry.card in card_names(form)


def cards_on(want: Want, kind: CardKind, rules: QuotaRules) -> dict[str, int]:
    """Return the cards that a pod requests on a node with such cards, by resource, in hundredths."""
    return rules.cards(want.spec, gpu_share(want.spec, memories=kind.gpu_memories or want.memories))


def names_kind(want: Want, kind: CardKind) -> bool:
    """Return whether pods may run on nodes with cards of this kind, by the names that they, or their workload, say."""
    return not want.types or not set(want.types).isdisjoint(kind.names)


def cards_by_entry(queue: TenantQueue, coverage: Coverage, sums: Mapping[str, ResourceList]) -> dict[str, int]:
    """Return for each entry of a queue, by its form, how many hundredths of cards it covers of what is used by card."""
    found = {entry.card: 0 for entry in queue.cards}
    for card, amounts in sums.items():
        for resource, form in coverage.pairs(queue, card, amounts):
            found[form] += hundredths_of(resource, amounts[resource])
    return found


def cards_of_form(form: str, rules: QuotaRules, sums: Mapping[str, ResourceList]) -> int:
    """Return how many hundredths of cards of one form are used, of what is used by card."""
    return sum(
        hundredths_of(resource, amount)
        for card, amounts in sums.items()
        for resource, amount in amounts.items()
        if is_card(resource, rules.gpu_resources) and form in form_names(card, resource)
    )
