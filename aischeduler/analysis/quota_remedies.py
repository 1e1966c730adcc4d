"""The changes of tenant queues, and the ends of their pods, with which a pod starts; see `remedies`.

Invariants:
- A quota is raised to what is used and asked, no further, at every level that refuses: each of them alone starts
  nothing. Where cards of several kinds would do, each kind is a remedy of its own.
- Pods end in the queue that refuses, or below it: the least important first, a gang as a whole, and none that need not.
- The state of a queue of Volcano is no part of its spec: such a queue is not opened here.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aischeduler.analysis.explanation import (
    EditQueue,
    EditQueues,
    QuotaLevel,
    Remedy,
    RemedyKind,
    Start,
)
from aischeduler.analysis.pods_end_remedies import pods_end
from aischeduler.analysis.quota_use import check_of, holders_of, left_on, quota_levels
from aischeduler.analysis.what_if import Question, importance, pods_ended
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.quotas import queue_refused, rules_of
from aischeduler.model.card_shares import CARD, unit_of, whole_cards
from aischeduler.model.card_types import TypeNameError, card_form, is_card
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.names import CPU, MEMORY
from aischeduler.model.quantity import quantity_text, readable
from aischeduler.model.tenant_queue import QUEUE_KEY, CardQuota, QueueSource, QueueState, TenantQueue
from aischeduler.model.user_text import nearest
from aischeduler.policies.quota import UNSCALED_MILLI, QuotaRefusal
from aischeduler.state.cards import CardKind
from aischeduler.state.pod_records import PodRecord

KINDS_TRIED_MAX: Final = 8
"""The most kinds of cards whose quotas are raised in turn."""
RAISED_MAX: Final = 64
"""The most quotas that are raised together."""
PUT_BACK_MAX: Final = 64
"""Of pods that end, so many of the most important units are tried without."""
CAPABILITY: Final = "capability"
CARDS: Final = "cards"
CARD_QUOTA_KEY: Final = "volcano.sh/card.quota"


class _Raised(Struct, frozen=True):
    """A quota of a queue that is raised, and the `queue` with it; `field` is capability or cards."""

    queue: TenantQueue
    field: str
    name: str
    resource: str
    before: int
    amount: int

    @property
    def text(self) -> str:
        """What is raised to what, and by how much."""
        by = self.amount - self.before
        amount, more = readable(self.resource, self.amount), readable(self.resource, by)
        return f"{self.field}[{self.name}] of the Queue {self.queue.name} to {amount} (by {more})"

    @property
    def value(self) -> int | str:
        """The quota as it is written."""
        return self.amount if self.field == CARDS else quantity_text(self.resource, self.amount)


def raised_quotas(question: Question) -> list[Remedy]:
    """Return the quotas that keep the pod waiting, each with the least value that does not."""
    check = check_of(question.cluster, question.record)
    if not check.queues or not check.refusals():
        return []
    kinds = [kind for kind in check.kinds if check.refused_on(kind) is not None][:KINDS_TRIED_MAX]
    found: dict[str, Remedy] = {}
    for kind in kinds or (None,):
        with ExitStack() as changes:
            raised = _raise(question, kind, changes)
            start = question.start() if raised else None
        if start is not None:
            text = f"raise {' and '.join(rise.text for rise in raised)}"
            edit = EditQueues(tuple(_edits(raised)))
            found.setdefault(text, Remedy(RemedyKind.QUOTA, text, edit, start, (len(raised), text)))
    return list(found.values())


def _raise(question: Question, kind: CardKind | None, changes: ExitStack) -> list[_Raised]:
    """Raise what refuses the pods on nodes with such cards; return what was raised, nothing where that is in vain."""
    cluster = question.cluster
    raised: dict[tuple[str, str, str], _Raised] = {}
    for _ in range(RAISED_MAX):
        check = check_of(cluster, question.record)
        refusal = check.refused or (check.refused_on(kind) if kind is not None else None)
        if refusal is None:
            return list(raised.values())
        rise = _rise(cluster, check.queues[refusal.queue], refusal)
        if rise is None:
            return []
        changes.enter_context(queue_as(cluster, rise.queue))
        key = (refusal.queue, rise.field, rise.name)
        raised[key] = replace(rise, before=raised[key].before) if key in raised else rise
    return []


def _rise(cluster: Cluster, queue: TenantQueue, refusal: QuotaRefusal) -> _Raised | None:
    """Return the quota with which this is not refused; None where the card has no name for a quota."""
    name, total = refusal.dimension, refusal.total
    if not refusal.is_card:
        resource = refusal.resource
        factor = rules_of(cluster).over_commit_milli if resource in (CPU, MEMORY) else UNSCALED_MILLI
        amount = -(-total * UNSCALED_MILLI // (factor * unit_of(resource)[1]))
        changed = replace(queue, capability={**queue.capability, resource: amount})
        return _Raised(changed, CAPABILITY, resource, resource, queue.capability[resource], amount)
    cards = {entry.name: entry for entry in queue.cards}
    try:
        cards[name] = CardQuota(name, cards[name].card if name in cards else card_form(name), whole_cards(total))
    except TypeNameError:
        return None
    changed = replace(queue, cards=tuple(cards.values()))
    return _Raised(changed, CARDS, name, refusal.resource, refusal.capability // CARD, whole_cards(total))


def _edits(raised: list[_Raised]) -> Iterator[EditQueue]:
    """Yield the merge patch of each queue. Volcano's queues have their cards in one annotation."""
    for name in dict.fromkeys(rise.queue.name for rise in raised):
        of_queue = [rise for rise in raised if rise.queue.name == name]
        queue = of_queue[-1].queue
        spec: dict[str, dict[str, int | str]] = {}
        for rise in of_queue:
            spec.setdefault(rise.field, {})[rise.name] = rise.value
        patch: dict[str, Any] = {"spec": spec}
        if queue.source is QueueSource.VOLCANO and spec.pop(CARDS, None) is not None:
            quota = msgspec.json.encode({entry.name: entry.cards for entry in queue.cards}).decode()
            patch = {"metadata": {"annotations": {CARD_QUOTA_KEY: quota}}, **({"spec": spec} if spec else {})}
        yield EditQueue(name, queue.source, patch)


def opened_queues(question: Question) -> list[Remedy]:
    """Return the queues that are open again, and take all namespaces, with which the pod starts."""
    said, specs = list[str](), dict[str, dict[str, str | None]]()
    with ExitStack() as changes:
        while (opened := _opened(question)) is not None:
            queue, text, spec = opened
            changes.enter_context(queue_as(question.cluster, queue))
            said.append(text)
            specs.setdefault(queue.name, {}).update(spec)
        start = question.start() if said else None
    if start is None:
        return []
    text = " and ".join(said)
    edits = (EditQueue(name, QueueSource.OWN, {"spec": spec}) for name, spec in specs.items())
    return [Remedy(RemedyKind.FLAG, text, EditQueues(tuple(edits)), start, (len(said) - 1, text))]


def _opened(question: Question) -> tuple[TenantQueue, str, dict[str, str | None]] | None:
    """Return a queue that refuses one of the pods as it takes it, with the text and the patch; None where it cannot."""
    tenants = question.cluster.tenants
    for member in question.record.together:
        refused, queue = queue_refused(question.cluster, member), tenants.queue_of(member)
        if refused is None or queue is None:
            continue
        if refused.reason is EventReason.QUEUE_NAMESPACE_NOT_ALLOWED:
            changed = replace(queue, allowed_namespaces=None)
            return changed, f"remove allowedNamespaces of the Queue {queue.name}", {"allowedNamespaces": None}
        closed = tenants.queues.get(tenants.queues.state_of(tenants.chain(member))[1])
        if refused.reason is EventReason.QUEUE_CLOSED and closed is not None and closed.source is QueueSource.OWN:
            changed = replace(closed, state=QueueState.OPEN)
            return changed, f"set state of the Queue {closed.name} to Open", {"state": QueueState.OPEN.value}
    return None


def queue_hint(cluster: Cluster, record: PodRecord) -> str:
    """Return what to edit for a pod that its queue does not take, where `opened_queues` cannot; empty where it does."""
    tenants = cluster.tenants
    for member in record.together:
        refused, pod = queue_refused(cluster, member), member.pod
        chain = tenants.chain(member)
        match refused.reason if refused is not None else None:
            case EventReason.UNKNOWN_QUEUE:
                by_pod = pod.terms is not None and pod.terms.queue
                whose = f"the template of {pod.owner}" if by_pod else f"{pod.owner}, or of what made that"
                named = f"the annotation {QUEUE_KEY} of {whose if pod.owner else 'the pod'}"
                return f"Correct {named}, or create the Queue {member.tenancy.queue}."
            case EventReason.QUEUE_NOT_ACCEPTED if not any(queue.invalid for queue in chain):
                near = nearest(chain[-1].parent, [name for name in tenants.queues.names() if name != chain[-1].name])
                meant = f" Did you mean {near}?" if near and near != chain[-1].parent else ""
                return f"Edit spec.parent of the Queue {chain[-1].name}.{meant}"
            case EventReason.QUEUE_CLOSED:
                closed = tenants.queues.get(tenants.queues.state_of(chain)[1])
                if closed is not None and closed.source is QueueSource.VOLCANO:
                    return f"It is a queue of Volcano: vcctl queue operate --action open --name {closed.name}"
            case _:
                pass
    return ""


def ended_in_queue(question: Question) -> list[Remedy]:
    """Return the least important pods of the queue that refuses, whose end starts the pod; else of one above it."""
    cluster = question.cluster
    check = check_of(cluster, question.record)
    refusing = [level for level in quota_levels(cluster, check) if level.refuses]
    names = list(check.queues)
    for queue in names[names.index(refusing[0].queue) :] if refusing else ():
        ended, start = _fewest(question, _leaving(cluster, [replace(level, queue=queue) for level in refusing]))
        if start is not None:
            return [pods_end(f"in the Queue {queue}", ended, start)]
    return []


def _leaving(cluster: Cluster, levels: list[QuotaLevel]) -> list[list[PodRecord]]:
    """Return the pods that hold some of what a queue lacks in the order in which they end, those of a gang together."""
    units: dict[str, list[PodRecord]] = {}
    holders = {record.pod.uid: record for level in levels for record, _ in holders_of(cluster, level)}
    for uid, record in sorted(holders.items()):
        if record.counted is not None:
            units.setdefault(uid if record.unit is None else f"unit {record.unit.number}", []).append(record)
    for name, records in units.items():
        unit = records[0].unit
        if unit is not None:
            units[name] = [member for _, member in sorted(unit.members.items()) if member.counted is not None]
    whole = [
        records
        for records in units.values()
        if not any(record.pod.guarded or record.pod.critical for record in records)
    ]
    return sorted(whole, key=lambda records: max(map(importance, records)))


def _fewest(question: Question, units: list[list[PodRecord]]) -> tuple[list[PodRecord], Start | None]:
    """Return so many units from the first on that the pod starts, without those that need not end, and its start."""
    low, count = 0, 1
    while units and not _starts(question, units[:count]):
        if count >= len(units):
            return [], None
        low, count = count, 2 * count
    count = min(count, len(units))
    while units and low + 1 < count:  # fewer that start it are between these
        middle = (low + count) // 2
        low, count = (low, middle) if _starts(question, units[:middle]) else (middle, count)
    ended = units[:count]
    for unit in reversed(ended[:-1][-PUT_BACK_MAX:]):
        fewer = [other for other in ended if other is not unit]
        ended = fewer if _starts(question, fewer) else ended
    records = [record for unit in ended for record in unit]
    with pods_ended(question.cluster, records):
        return records, question.start() if records else None


def _starts(question: Question, units: list[list[PodRecord]]) -> bool:
    with pods_ended(question.cluster, [record for unit in units for record in unit]):
        return question.start() is not None


def quota_left(question: Question, resource: str) -> int | None:
    """Return how much of a resource the quotas leave for a single pod, on its best card; None where none limits it."""
    cluster, record = question.cluster, question.record
    if not cluster.has_quotas or not cluster.tenants.chain(record):
        return None
    check, left = check_of(cluster, record), list[int]()
    rules = rules_of(cluster)
    for name, queue in check.queues.items():
        if resource in queue.capability and resource in record.pod.spec.request.amounts:
            left.append((rules.limit(queue, resource) - check.quotas.in_use(name, resource)) // unit_of(resource)[1])
    if is_card(resource, rules.gpu_resources) and check.kinds and check.quotas.limits_cards:
        left.append(max(left_on(check, kind, resource) for kind in check.kinds))
    return min(left, default=None)


@contextmanager
def queue_as(cluster: Cluster, queue: TenantQueue) -> Iterator[None]:
    """Give a tenant queue another spec; its parent stays the same."""
    before = next(
        found for found in cluster.tenants.queues.objects() if (found.name, found.source) == (queue.name, queue.source)
    )
    cluster.tenants.queues.see(queue)
    try:
        yield
    finally:
        cluster.tenants.queues.see(before)
