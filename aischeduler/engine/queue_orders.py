"""The orders of the owners of tenant queues: pods go that are above a lowered quota, or whose queue drains.

Invariants:
- Nothing goes before the time that the queue says, counted from the condition in its status: a restart keeps it; nor
  before the pools of all pods that are to go were refreshed: the owner may have taken the order back.
- The fewest pods go: surplus of gangs first, then the lowest priority, then the newest; whole gangs. A pod that leaves
  already counts as gone. Only system-critical pods stay, and where the switches of preemption are off, all do.
"""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Final

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.evictions import by_their_jobs, evict
from aischeduler.engine.freshness import answers_due, await_for_order, is_fresh
from aischeduler.engine.pod_counting import may_go
from aischeduler.engine.queue_status import over_quota, summary_of
from aischeduler.engine.quotas import rules_of
from aischeduler.engine.reclaim import charge_of, fewest_above, kept_by_its_unit, newness, with_lost
from aischeduler.model.actions import Action, EvictionCause
from aischeduler.model.card_shares import counted
from aischeduler.model.card_types import form_names
from aischeduler.model.names import CPU, DEFAULT_POOL, GPU_SHARE, MEMORY
from aischeduler.model.tenant_queue import QueueSource, QueueState, TenantQueue
from aischeduler.state.ledger import QUEUE
from aischeduler.state.pod_records import PodRecord
from aischeduler.state.running_pods import NONE_TO_SPARE

EVICTED_AT_ONCE: Final = 64
"""The most pods, whole gangs aside, that one decision evicts for the orders of queues."""
AGAIN_SECONDS: Final = 1.0
"""How long after an order was carried out it is looked at again."""


class QueueOrders:
    """When the orders of queues are due."""

    def __init__(self) -> None:
        self._rests_until = float("-inf")
        self._refreshing: dict[str, None] = {}
        """The pools whose refresh an order waits for."""
        self._times: list[tuple[float, str]] = []
        """When each queue that gives an order wants it carried out, sorted."""
        self._made_from = (-1, -1)

    def due_at(self, cluster: Cluster) -> float | None:
        """Return when to call `carry_out`; None where no queue gives an order."""
        version = cluster.start, cluster.tenants.queues.version
        if version != self._made_from:
            self._times, self._made_from = sorted(_times(cluster)), version
        waits_until = max(self._rests_until, answers_due(cluster, self._refreshing))
        return max(self._times[0][0], waits_until) if self._times else None

    def carry_out(self, cluster: Cluster, now: float, actions: list[Action]) -> None:
        """Evict the pods that have to go now."""
        due = self.due_at(cluster)
        if due is None or due > now:
            return
        self._rests_until, self._refreshing = now + AGAIN_SECONDS, {}
        for time, name in self._times:
            queue = cluster.tenants.queues.get(name)
            if time > now or queue is None:
                continue
            drains = queue.state is QueueState.DRAINING
            cause = EvictionCause.QUEUE_DRAINED if drains else EvictionCause.QUEUE_SHRUNK
            chosen = _all_of(cluster, queue) if drains else _above_quota(cluster, queue)
            pools = dict.fromkeys(cluster.pool_of(record.row) or DEFAULT_POOL for record in chosen)
            stale = [pool for pool in pools if not is_fresh(cluster, pool, now)]
            if stale:
                self._rests_until = now
                self._refreshing.update(dict.fromkeys(stale))
                for pool in stale:
                    actions += await_for_order(cluster, pool, now)
                continue
            decision = cluster.next_decision() if chosen else ""
            evicted = [evict(cluster, record, None, decision, cause) for record in chosen if may_go(cluster, record)]
            actions += by_their_jobs(cluster, evicted)


def _times(cluster: Cluster) -> Iterator[tuple[float, str]]:
    queues = cluster.tenants.queues
    for name in queues.names():
        queue = queues.get(name)
        if queue is not None and queue.source is QueueSource.OWN and (time := _time_of(queue)) is not None:
            yield time, name


def _time_of(queue: TenantQueue) -> float | None:
    """Return when a queue wants pods to go; None where it does not, or its status does not say yet that it does."""
    if queue.state is QueueState.DRAINING:
        return float(queue.draining_since_seconds + queue.drain_after_seconds) if queue.draining_since_seconds else None
    if queue.shrink_after_seconds is None or not queue.over_quota_since_seconds:
        return None
    return float(queue.over_quota_since_seconds + queue.shrink_after_seconds)


def _running(cluster: Cluster, queue: TenantQueue) -> list[PodRecord]:
    """Return the pods on nodes in a queue and below it that may go, those that go first first."""
    records = cluster.tenants.in_queues(cluster.tenants.queues.below((queue.name,)))
    mortal = [
        record
        for record in records
        if record.counted is not None and _may_evict_in(cluster, record) and may_go(cluster, record)
    ]
    found = [record for record in mortal if not kept_by_its_unit(cluster, record)]
    return sorted(found, key=lambda record: _turn(cluster, record))


def _may_evict_in(cluster: Cluster, record: PodRecord) -> bool:
    pool = cluster.pools.pools.get(cluster.pool_of(record.row))
    return pool is not None and cluster.borrowing.may_evict(pool)


def _turn(cluster: Cluster, record: PodRecord) -> tuple[object, ...]:
    unit = record.unit
    spare = cluster.running.spare_of(unit.number) if unit is not None else NONE_TO_SPARE
    surplus = record.pod.uid in spare.surplus | spare.extra
    return (not surplus, record.pod.priority if unit is None else unit.priority, newness(record))


def _all_of(cluster: Cluster, queue: TenantQueue) -> list[PodRecord]:
    return with_lost(cluster, _running(cluster, queue)[:EVICTED_AT_ONCE])


def _above_quota(cluster: Cluster, queue: TenantQueue) -> list[PodRecord]:
    """Return the fewest pods without which a queue is within its quotas, those that go first first."""
    over = Counter(
        {one.name: one.used - one.quota for one in over_quota(queue.name, summary_of(cluster, queue, Counter()))}
    )
    for record in cluster.tenants.in_queues(cluster.tenants.queues.below((queue.name,))):
        if record.counted is not None and cluster.leaving(record.pod.uid):
            over.subtract(_share(cluster, queue, record))
    return fewest_above(cluster, _running(cluster, queue), over, partial(_share, cluster, queue), EVICTED_AT_ONCE)


def _share(cluster: Cluster, queue: TenantQueue, record: PodRecord) -> dict[str, int]:
    """Return what a running pod takes of each quota of a queue, in its unit: of resources, and of cards by forms."""
    card = next((account[2] for account in record.accounts if account[:2] == (QUEUE, queue.name)), None)
    if card is None:
        return {}
    rules, charge = rules_of(cluster), charge_of(cluster, record)
    cards = rules.cards(record.pod.spec, charge.get(GPU_SHARE, 0))
    free = (CPU, MEMORY) if cards and rules.unlimited_with_cards else ()
    share = {name: n for name in queue.capability if name not in free and (n := counted(name, charge))}
    for resource, amount in cards.items():
        forms = form_names(card, resource)
        covering = [entry.card for entry in queue.cards if entry.card in forms]
        for form in covering or forms[:1]:
            share[form] = share.get(form, 0) + amount
    return share
