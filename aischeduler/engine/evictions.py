"""Evictions: requested, under way, refused; and reads of pods whose eviction shows no effect.

Invariants:
- A pod whose eviction is requested, or that is terminating, is leaving: claims count on its room, and it is no victim
  again. Its room is free when it is gone.
- A pod whose eviction shows no effect is read. Only if the read shows that the pod is not terminating, the claims on
  its room are checked again. Time alone causes no further eviction.
- A terminating pod that outlives its grace period no longer counts as leaving.
- A pod whose eviction was refused is spared, longer each time, and the claim for which it was to go ends. Where no pod
  left for the claim, its owner waits for its backoff, as after any failed attempt: many pods may be refused in turn.
- The victims of a claim whose eviction may be refused are asked first, and the others once those are on their way.
  Those that were refused before are asked one by one; then, where budgets are obeyed, those that budgets cover, no more
  at once than the budgets allow. The room of the first ones is the claim's while it waits for the others.
- Where budgets are obeyed, a pod that they forbid to evict is no victim.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.cluster_parts import Asked
from aischeduler.engine.elastic_pods import wait_for_minimum
from aischeduler.engine.holds import recheck_later
from aischeduler.engine.nominator import end_claim, wake_owner
from aischeduler.engine.pod_counting import refresh
from aischeduler.engine.resizing import resizing
from aischeduler.model.actions import Action, Evict, EvictionCause, ReadPod
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.events import EvictRefusal, EvictRefused
from aischeduler.model.gang import GangSource
from aischeduler.model.pod import Pod
from aischeduler.model.workload import JobRef
from aischeduler.state.claims import Claim
from aischeduler.state.disruption_budgets import BudgetKey
from aischeduler.state.pod_records import PodRecord, PodState

LEAVING_SLACK_SECONDS: Final = 60.0
"""How long after its grace period a terminating pod still counts as leaving."""
SPARED_SECONDS: Final = 30.0
"""How long a pod whose eviction was refused once is no victim; twice as long after each further refusal."""
FLUSHED_AT_ONCE: Final = 64
"""The most pods of each kind that one decision handles because their time has come."""
PROTECTED_SECONDS: Final = 300.0
"""The same where a disruption budget forbade the eviction; a change of the budget ends it sooner.

A claim waits as long for a budget to allow the eviction of its next victims.
"""
SPARED_SHARE_MAX: Final = 10
"""The most times as long as after its first refusal that a pod is spared."""
UNHEARD_SECONDS: Final = 60.0
"""A pod whose eviction shows no effect for this long is read, and again after the same time."""
NOT_REFUSED: Final = (EvictRefusal.LOST, EvictRefusal.CALLED_OFF)
"""Nothing has refused to evict this pod."""
_JOBS: Final = (GangSource.JOB, GangSource.JOB_SET)
READS_MAX: Final = 16
"""The most victims that one decision has read."""


def evict(
    cluster: Cluster,
    victim: PodRecord,
    beneficiary: PodRecord | None,
    decision: str,
    cause: EvictionCause = EvictionCause.LOAN_ENDED,
) -> Evict:
    """Request the eviction of a pod, for a beneficiary or, without one, for this cause."""
    pod, pool = victim.pod, cluster.pool_of(victim.row)
    asker = beneficiary.pod.uid if beneficiary is not None else ""
    cluster.leaving_pods.asked[pod.uid] = Asked(asker, decision, cluster.decisions, cluster.now + UNHEARD_SECONDS)
    if asker:
        cluster.leaving_pods.evicted_for[pod.uid] = asker
    cluster.claims.plan_no_more(pod.uid)
    cluster.budgets.note_eviction(pod)
    refresh(cluster, victim)
    recheck_minimum(cluster, victim)
    reconsider(cluster, cluster.budgets.turned(pod.namespace))
    if victim.unit is not None and not victim.unit.started:
        cluster.units.touch(victim)  # the pod no longer counts for the start
    if beneficiary is not None:
        cause = EvictionCause.RECLAIMED if victim.home != pool else EvictionCause.PREEMPTED
        if cause is EvictionCause.PREEMPTED and cluster.running.is_surplus(pod.uid):
            cause = EvictionCause.SURPLUS_TAKEN
        elif cause is EvictionCause.PREEMPTED and victim.tenancy.queue != beneficiary.tenancy.queue:
            cause = EvictionCause.QUEUE_RECLAIMED
    cluster.counters.evictions[pool, cause] += 1
    return Evict(
        victim=pod,
        node=cluster.nodes.names[victim.row],
        pool=pool,
        home_pool=victim.home,
        cause=cause,
        beneficiary=beneficiary.pod if beneficiary is not None else None,
        decision=decision,
        queue=victim.tenancy.queue,
    )


def by_their_jobs(cluster: Cluster, evicted: list[Evict]) -> list[Evict]:
    """Return these evictions of one decision as their controllers can carry them out, so that they make no others.

    Jobs and JobSets of which no pod stays are suspended, and elastic jobs of which surplus goes get a smaller size. A
    Job whose pods are deleted may count them as failed more often than it may fail, and then fails as a whole.
    """
    if all(action.victim.gang is None for action in evicted):
        return resizing(cluster, evicted)
    jobs = [_suspended_for(cluster, action.victim) for action in evicted]
    return resizing(
        cluster,
        [action if job is None else replace(action, suspends=job) for action, job in zip(evicted, jobs, strict=True)],
    )


def _suspended_for(cluster: Cluster, victim: Pod) -> JobRef | None:
    record, gang = cluster.records[victim.uid], victim.gang
    if record.unit is None or gang is None or gang.key.source not in _JOBS:
        return None
    kind, namespace, name = str(gang.key.source), gang.key.namespace, gang.key.name
    workload = cluster.tenants.workloads.get((kind, namespace, name))
    if workload is None or not workload.uid or workload.managed:
        return None
    stay = (member for member in record.unit.members.values() if member.counted is not None)
    if any(not cluster.leaving(member.pod.uid) for member in stay):
        return None
    return JobRef(kind, namespace, name, workload.uid, workload.terms.aborts)


def plan_evictions(cluster: Cluster, victims: tuple[str, ...]) -> dict[str, bool]:
    """Return the victims of a new claim that are not asked at once: all, where the eviction of one may be refused."""
    some = len(victims) > 1 and any(_may_be_refused(cluster, cluster.records[uid]) for uid in victims)
    return dict.fromkeys(victims if some else (), False)


def next_victims(cluster: Cluster, claim: Claim) -> list[PodRecord]:
    """Return the planned victims of a claim that may be asked now; note since when a budget forbids all of them."""
    asked = [cluster.records[uid] for uid in claim.victims if uid in cluster.leaving_pods.asked]
    if not claim.planned or any(_may_be_refused(cluster, record) for record in asked):
        return []
    planned, owner = [cluster.records[uid] for uid in claim.planned], claim.owner.pod.uid
    risky = [record for record in planned if _may_be_refused(cluster, record)]
    if not risky:
        return planned
    most = max(risky, key=lambda record: (record.refusals, record.pod.uid))
    if most.refusals:
        risky = [most]
    allowed = [record for record in _of_scarce(cluster, risky) if not cluster.budgets.forbids(record.pod)]
    if allowed:
        cluster.claims.stalled.drop(owner)
    elif owner not in cluster.claims.stalled:
        cluster.claims.stalled.set(owner, cluster.now + PROTECTED_SECONDS)
    return allowed


def useless(cluster: Cluster, claim: Claim) -> list[PodRecord]:
    """Return the planned victims that go also where the claim ends: pods of their unit were evicted for it."""
    return [cluster.records[uid] for uid, is_useless in claim.planned.items() if is_useless]


def _of_scarce(cluster: Cluster, risky: list[PodRecord]) -> list[PodRecord]:
    """Return those of these pods whose budget does not allow the eviction of all of them; where none is scarce, all."""
    needs = Counter(key for record in risky for key in cluster.budgets.covering(record.pod))
    scarce = {key for key, pods in needs.items() if pods > cluster.budgets.left(key)}
    return (
        [victim for victim in risky if not scarce.isdisjoint(cluster.budgets.covering(victim.pod))] if scarce else risky
    )


def _may_be_refused(cluster: Cluster, record: PodRecord) -> bool:
    """Return whether it is known that something may refuse to evict this pod."""
    return record.refusals > 0 or (cluster.budgets.obeyed and cluster.budgets.protects(record.pod.uid))


def on_its_way(cluster: Cluster, record: PodRecord, now: float) -> None:
    """Have a claim ask its planned victims, now that this victim of it leaves its row."""
    uid, asked = record.pod.uid, cluster.leaving_pods.asked.get(record.pod.uid)
    owners = (cluster.claims.plan_no_more(uid), asked.beneficiary if asked is not None else "")
    for claim in map(cluster.claims.of, filter(None, owners)):
        if claim is not None and claim.planned:
            for other in claim.planned if record.unit is not None and asked is not None else ():
                claim.planned[other] |= cluster.records[other].unit is record.unit
            wake_owner(cluster, claim, now)


def terminates(cluster: Cluster, record: PodRecord, now: float) -> None:
    """Note that a pod on a row is terminating."""
    uid = record.pod.uid
    on_its_way(cluster, record, now)
    cluster.forget_eviction(uid)
    if uid not in cluster.leaving_pods.terminating and uid not in cluster.leaving_pods.overstayed:
        cluster.leaving_pods.terminating.set(uid, now + record.pod.grace_seconds + LEAVING_SLACK_SECONDS)
        refresh(cluster, record)
        recheck_minimum(cluster, record)
        cluster.row_changed(record.row)  # a pod may wait for its room instead of evicting another


def recheck_minimum(cluster: Cluster, record: PodRecord) -> None:
    """Have the waiting instances of the elastic job of a pod woken that leaves, or has left its minimum short."""
    if cluster.elastic.by_key:
        recheck_later(cluster, wait_for_minimum(cluster, record))


def left(cluster: Cluster, record: PodRecord) -> None:
    """Drop the eviction state of a pod that is no longer on a node."""
    uid = record.pod.uid
    cluster.forget_eviction(uid)
    _try_asker(cluster, uid)
    cluster.leaving_pods.forget(uid)
    cluster.budgets.forget_pod(record.pod)


def _try_asker(cluster: Cluster, uid: str) -> None:
    """Have the parked pod with devices tried for which this one was evicted: it evicts no other before this leaves."""
    asker = cluster.records.get(cluster.leaving_pods.evicted_for.pop(uid, ""))
    if asker is not None and asker.state is PodState.PARKED and asker.pod.spec.devices is not None:
        recheck_later(cluster, (asker,))


def evict_refused(cluster: Cluster, event: EvictRefused, now: float) -> None:
    """Spare a pod whose eviction was refused; it may be evicted again at once if that was lost or called off."""
    record, asked = cluster.records.get(event.uid), cluster.leaving_pods.asked.get(event.uid)
    if record is None or asked is None:
        return
    cluster.forget_eviction(event.uid)
    _try_asker(cluster, event.uid)
    record.protected, record.needs = event.why is EvictRefusal.BUDGET, 1
    if event.why not in NOT_REFUSED:
        _spare(cluster, record, now)
    cluster.budgets.note_refusal(record.pod)
    if record.counted is not None:
        refresh(cluster, record)
        cluster.row_changed(record.row, offers=False)
        if event.why in NOT_REFUSED:
            _spare_no_more(cluster, [event.uid])
    reconsider(cluster, cluster.budgets.turned(record.pod.namespace))
    claim = cluster.claims.of(asked.beneficiary)
    if claim is not None and event.uid in claim.victims and event.why is not EvictRefusal.CALLED_OFF:
        end_claim(cluster, claim, now)
        if event.why is not EvictRefusal.LOST:
            _back_off(cluster, claim, now)


def _back_off(cluster: Cluster, claim: Claim, now: float) -> None:
    """Let the owner of a claim that was refused wait for its backoff, unless pods leave for it."""
    owner = claim.owner
    some_leave = any(uid not in cluster.records or cluster.leaving(uid) for uid in claim.victims)
    if owner.queue and not some_leave:
        queue = cluster.queues[owner.queue]
        queue.remove(owner)
        queue.retry(owner, now)


def _spare(cluster: Cluster, record: PodRecord, now: float) -> None:
    """Let a pod whose eviction was refused be no victim for a while."""
    first = PROTECTED_SECONDS if record.protected else SPARED_SECONDS
    cluster.leaving_pods.spared.set(record.pod.uid, now + first * min(2**record.refusals, SPARED_SHARE_MAX))
    record.refusals = min(record.refusals + 1, SPARED_SHARE_MAX)


def budget_seen(cluster: Cluster, budget: DisruptionBudget) -> None:
    """Store a budget as it is now, and stop sparing the pods that it covers or covered, where budgets allow."""
    before = cluster.budgets.see(budget, cluster.leaving_pods.asked)
    _uncover(cluster, (budget, before or budget))
    _budgets_turned(cluster, budget.namespace)


def budget_gone(cluster: Cluster, namespace: str, name: str) -> None:
    """Remove a budget, and stop sparing the pods that it covered, where other budgets allow."""
    budget = cluster.budgets.forget(namespace, name)
    if budget is not None:
        _uncover(cluster, (budget,))
        _budgets_turned(cluster, namespace)


def _budgets_turned(cluster: Cluster, namespace: str) -> None:
    """Handle that budgets allow other evictions than before; a unit may go whole that could go only in part."""
    uids = cluster.budgets.turned(namespace)
    reconsider(cluster, uids)
    records = [cluster.records[uid] for uid in uids if uid not in cluster.budgets.forbidden]
    for record in records:
        if record.unit is not None and cluster.budgets.protects(record.pod.uid):
            cluster.row_changed(record.row, loans=True)


def _uncover(cluster: Cluster, changed: tuple[DisruptionBudget, ...]) -> None:
    """Stop sparing the pods of these budgets whose eviction the budgets now allow."""
    freed: list[str] = []
    for uid in cluster.leaving_pods.spared.names():
        record = cluster.records[uid]
        covered = record.protected and any(budget.covers(record.pod) for budget in changed)
        if covered and _may_be_evicted(cluster, record):
            cluster.leaving_pods.spared.drop(uid)
            freed.append(uid)
    _spare_no_more(cluster, freed)
    for uid, owner in cluster.claims.planned.items():
        claim = cluster.claims.of(owner)
        if claim is not None and any(budget.covers(cluster.records[uid].pod) for budget in changed):
            wake_owner(cluster, claim, cluster.now)


def _may_be_evicted(cluster: Cluster, record: PodRecord) -> bool:
    """Return whether the budgets allow the eviction, as the Eviction API reads them: never where several cover it."""
    budgets = cluster.budgets.covering(record.pod)
    return not budgets or (len(budgets) == 1 and cluster.budgets.left(budgets[0]) >= record.needs)


def reconsider(cluster: Cluster, uids: Iterable[str]) -> None:
    """Note which of these pods on rows the budgets forbid to evict; wake those that may need the room of the others."""
    changed = [uid for uid in uids if cluster.budgets.note(cluster.records[uid].pod)]
    for uid in changed:
        refresh(cluster, cluster.records[uid])
    _spare_no_more(cluster, [uid for uid in changed if uid not in cluster.budgets.forbidden])


def flush(cluster: Cluster, now: float) -> None:
    """Handle the next pods that outlived their grace period, and the next that were spared long enough."""
    overstayed = [cluster.records[uid] for uid in cluster.leaving_pods.terminating.pop_due(now, FLUSHED_AT_ONCE)]
    cluster.leaving_pods.overstayed.update(record.pod.uid for record in overstayed)
    for record in overstayed:
        refresh(cluster, record)
        cluster.row_changed(record.row, offers=False)
    _spare_no_more(cluster, cluster.leaving_pods.spared.pop_due(now, FLUSHED_AT_ONCE))
    for owner in cluster.claims.stalled.pop_due(now, FLUSHED_AT_ONCE):
        claim = cluster.claims.of(owner)
        if claim is not None and claim.planned:
            _give_up(cluster, claim, now)


def _give_up(cluster: Cluster, claim: Claim, now: float) -> None:
    """End a claim whose budget has not allowed its next evictions; spare these pods until it allows all of them."""
    planned = [cluster.records[uid] for uid in claim.planned]
    needs: Counter[BudgetKey] = Counter(key for record in planned for key in cluster.budgets.covering(record.pod))
    end_claim(cluster, claim, now)
    for record in planned:
        if cluster.budgets.forbids(record.pod):
            record.protected = True
            record.needs = 1 + max(needs[key] for key in cluster.budgets.covering(record.pod))
            _spare(cluster, record, now)
            refresh(cluster, record)


def read_unheard(cluster: Cluster, actions: list[Action]) -> None:
    """Request reads of the pods whose evictions have shown no effect for long."""
    for _ in range(READS_MAX):
        uid, asked = next(iter(cluster.leaving_pods.asked.items()), ("", None))
        if asked is None or asked.read_at > cluster.now:
            break
        cluster.leaving_pods.asked[uid] = replace(asked, read_at=cluster.now + UNHEARD_SECONDS)
        cluster.leaving_pods.asked.move_to_end(uid)
        record = cluster.records[uid]
        node = cluster.nodes.names[record.row]
        actions.append(ReadPod(record.pod, node, asked.decision, evicted=True))


def _spare_no_more(cluster: Cluster, uids: list[str]) -> None:
    """Wake the pods that may need the room of pods that are spared no longer."""
    for record in [cluster.records[uid] for uid in uids]:
        refresh(cluster, record)
        for member in record.unit.members.values() if record.unit is not None else (record,):
            if member.counted is not None:  # pods of its unit may go where it may
                cluster.row_changed(member.row, loans=True)
