"""Reclaim: loans that a lender's spec no longer allows end, where its reclaimPolicy is Evict.

Invariants:
- The fewest loans end, the newest first; a pod that is leaving counts as gone.
- The pods of a unit that are of no use without a pod that goes, go with it.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.evictions import by_their_jobs, evict
from aischeduler.engine.freshness import await_to_end_loans, is_fresh
from aischeduler.engine.pod_counting import may_go
from aischeduler.model.actions import Action
from aischeduler.model.card_shares import charged, counted, unit_of
from aischeduler.model.pool import Pool, ReclaimPolicy
from aischeduler.model.resources import ResourceList
from aischeduler.policies.borrowing import kept_from_borrowers
from aischeduler.policies.gang_losses import kept_by_unit, lost_with
from aischeduler.state.ledger import LENDS
from aischeduler.state.pod_records import PodRecord


def end_loans(cluster: Cluster, lender: str, actions: list[Action]) -> None:
    """End the loans that the lender's spec no longer allows, the newest first, where its reclaimPolicy is Evict."""
    cluster.deferred.agenda(lender).review = False
    pool = cluster.pools.pools[lender]
    if pool.reclaim_policy is not ReclaimPolicy.EVICT or not cluster.borrowing.may_evict(pool):
        return
    lent, keeps = cluster.ledger.of(LENDS, lender), cluster.nodes.cards.rare and not pool.lend_rare_types
    if pool.disable_sharing or keeps or _over(pool.lending_limit, lent, lent):
        ended = _not_allowed(cluster, pool)
        if ended and not is_fresh(cluster, lender, cluster.now):
            actions += await_to_end_loans(cluster, lender, cluster.now)
            return
        decision = cluster.next_decision() if ended else ""
        evicted = [evict(cluster, record, None, decision) for record in ended if may_go(cluster, record)]
        actions += by_their_jobs(cluster, evicted)


def _not_allowed(cluster: Cluster, pool: Pool) -> list[PodRecord]:
    """Return the fewest loans of the pool that must end, the newest first.

    A leaving pod counts as gone, however long it takes. A loan stays where no resource that it uses exceeds the limit.
    """
    rows = cluster.nodes.rows_of_pool(cluster.pools.id(pool.name)).tolist()
    loans = [record for row in rows for record in cluster.on_row(row) if record.loan is not None]
    lent = Counter(cluster.ledger.of(LENDS, pool.name))
    for record in loans:
        if cluster.leaving(record.pod.uid) or record.pod.uid in cluster.leaving_pods.overstayed:
            lent.subtract(charge_of(cluster, record))
    mortal = [record for record in loans if may_go(cluster, record) and not kept_by_its_unit(cluster, record)]
    newest_first = sorted(mortal, key=newness)
    if pool.disable_sharing:
        return with_lost(cluster, newest_first)
    kept = kept_from_borrowers(cluster.nodes)
    on_kept = [record for record in newest_first if kept is not None and kept[record.row]]
    if on_kept:  # what these leave lowers the sums of the limit: it is checked again then
        return with_lost(cluster, on_kept)
    over = Counter({name: counted(name, lent) - most * unit_of(name)[1] for name, most in pool.lending_limit.items()})
    return fewest_above(cluster, newest_first, over, partial(_lent_to, cluster, pool))


def fewest_above(
    cluster: Cluster,
    records: Iterable[PodRecord],
    over: Counter[str],
    share: Callable[[PodRecord], ResourceList],
    most: int | None = None,
) -> list[PodRecord]:
    """Return the fewest of these pods, the first first, without which no amount of `over` is above 0; whole units.

    `share` returns what a pod takes of these amounts. At most so many are chosen, units aside. Changes `over`.
    """
    chosen: dict[PodRecord, tuple[PodRecord, ...]] = {}
    gone: set[PodRecord] = set()
    for record in records:
        if len(chosen) == most or not any(amount > 0 for amount in over.values()):
            break
        if record in gone or not any(amount and over[name] > 0 for name, amount in share(record).items()):
            continue
        chosen[record] = tuple(lost for lost in _lost_with(cluster, record, gone) if lost not in gone)
        gone.update(chosen[record])
        for lost in chosen[record]:
            over.subtract(share(lost))
    ended: list[PodRecord] = []
    for record in reversed(chosen):
        back: Counter[str] = Counter()
        for lost in chosen[record]:
            back.update(share(lost))
        if all(over[name] + amount <= 0 for name, amount in back.items()):
            over.update(back)
        else:
            ended += reversed(chosen[record])
    return with_lost(cluster, ended[::-1])


def newness(record: PodRecord) -> tuple[int, int, int, str]:
    """Return the order from the newest: a pod that has not started, then by start, creation and arrival.

    The arrivals before a restart are not known: the pods come by their names then.
    """
    pod = record.pod
    return (-(pod.started_seconds or 2**62), -pod.created_seconds, -record.arrival, pod.uid)


def kept_by_its_unit(cluster: Cluster, record: PodRecord) -> bool:
    """Return whether a pod of its unit stays that would be lost with it: the unit goes as a whole or not at all."""
    return bool(kept_by_unit(cluster.running, cluster.running.slots_of((record.pod.uid,))).any())


def with_lost(cluster: Cluster, records: list[PodRecord]) -> list[PodRecord]:
    """Return these pods, each followed by the pods of its unit that are of no use without them."""
    gone = set(records)
    return list(dict.fromkeys(lost for record in records for lost in _lost_with(cluster, record, gone)))


def _lost_with(cluster: Cluster, record: PodRecord, gone: set[PodRecord]) -> tuple[PodRecord, ...]:
    """Return the pod, and the pods of its unit that are of no use without it and those that are `gone`."""
    if record.unit is None:
        return (record,)
    running = cluster.running
    leave = running.slots_of(uid for uid, member in record.unit.members.items() if member is record or member in gone)
    others = lost_with(running, leave.tolist())
    return (record, *(cluster.records[running.uid_of(slot)] for slot in others))


def charge_of(cluster: Cluster, record: PodRecord) -> ResourceList:
    """Return what a pod on a row counts for in accounts."""
    return charged(record.pod.spec, cluster.running.gpu_share_of(record.pod.uid))


def _lent_to(cluster: Cluster, pool: Pool, record: PodRecord) -> ResourceList:
    """Return what the pool has lent to this pod, of what its limit names, each in its unit."""
    if record.loan is None or record.loan[0] != pool.name:
        return {}
    charge = charge_of(cluster, record)
    return {name: counted(name, charge) for name in pool.lending_limit}


def _over(limit: ResourceList, lent: ResourceList, taken: ResourceList) -> bool:
    """Return whether a resource in `taken` is lent beyond the limit."""
    return any(counted(name, lent) > most * unit_of(name)[1] and counted(name, taken) for name, most in limit.items())
