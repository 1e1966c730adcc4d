"""The life of a unit: whether it has started, whether it is late, what its gang's object shows, and its roll-back.

Invariants:
- A unit has started once enough of its pods have been on nodes, until none of them is left there.
- A unit with pods on nodes that were there before it was formed first counts as started: whether it was whole then, and
  which of its pods have ended since, is not known. What is not known evicts no pod.
- A unit that has not started, and of which some pods are on nodes, is finished or given up within `FINISH_SECONDS`.
  Giving up evicts its pods on nodes once, after a fresh view of their pools.
- A unit that is late goes on waiting: only its reason and its status say so. A change that makes room for it wakes it.
"""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.elastic_pods import surplus_of
from aischeduler.engine.evictions import evict
from aischeduler.engine.freshness import await_to_roll_back, is_fresh, was_refreshed
from aischeduler.engine.pod_counting import may_go
from aischeduler.framework.plugin import UnitMembers, UnitPolicy
from aischeduler.model.actions import Action, EvictionCause, ReportGang, pod_warning
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.gang import Gang, GangPhase, GangSource, GangStatus
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.pod import RUNNING, Pod
from aischeduler.state.pod_records import PodRecord, PodState, Unit
from aischeduler.state.running_pods import NONE_TO_SPARE, Spare

FINISH_SECONDS: Final = 60.0
"""How long a unit may have some pods on nodes before enough of them are."""
UNDER_WAY_SECONDS: Final = 1.0
"""How much later a unit is given up while Bindings of its pods are under way."""
ROLLED_BACK_AT_ONCE: Final = 16
"""The most units that one decision gives up."""
WARNED_AT_MOST: Final = 10
"""The most pods of a half gang that get a warning."""

_WITHOUT_STATUS: Final = (GangSource.LABELS, GangSource.WORKLOAD)
"""The sources that have no object to show the state of the gang."""


def note_start(cluster: Cluster, unit: Unit, members: UnitMembers, placed: list[PodRecord]) -> UnitMembers:
    """Note whether the unit has started, and how many of its pods on nodes may leave; return the members so."""
    policy, units = cluster.profile.unit_policy, cluster.units
    assert policy is not None, "a policy has named the unit"
    spare = policy.spare(members) if placed else NONE_TO_SPARE
    if not placed:
        unit.started = False
    elif not unit.formed or (not unit.started and unit.unsure and _was_whole(policy, unit, members.gang, placed)):
        unit.started = True
    unit.unsure = False
    if not placed or unit.started:
        unit.ended.clear()
    if unit.started != members.started:
        members = UnitMembers(members.waiting, members.placed, members.gang, unit.started)
        spare = policy.spare(members) if placed else NONE_TO_SPARE
    if members.gang is None or not placed or unit.started:
        units.unfinished.drop(unit.name)
        unit.given_up = None
    elif spare is None and unit.name not in units.unfinished:  # else the Bindings under way may still be refused
        units.unfinished.set(unit.name, cluster.now + FINISH_SECONDS)
    found = spare if isinstance(spare, Spare) else NONE_TO_SPARE
    before, now = cluster.running.spare_of(unit.number), _with_surplus(cluster, found, placed)
    cluster.running.set_spare(unit.number, now)
    for record in placed:
        if record.pod.uid in now.surplus and record.pod.uid not in before.surplus:
            cluster.row_changed(record.row)  # home pods that wait may take its room now
    return members


def _with_surplus(cluster: Cluster, spare: Spare, placed: list[PodRecord]) -> Spare:
    """Return what a unit can spare, with the surplus of its elastic job. Production counts by its priority."""
    found = surplus_of(cluster, placed, spare.pods) if cluster.elastic.by_key and spare.pods else None
    if found is None:
        return spare
    surplus = frozenset[str]() if found.job.job.terms.is_production else frozenset(found.tail)
    return replace(spare, surplus=surplus, tail=found.tail, tail_goes=found.goes)


def gang_now(cluster: Cluster, unit: Unit, records: list[PodRecord]) -> Gang | None:
    """Return the gang of the unit as it counts now: pods that are bound together start as the gang that was decided."""
    policy = cluster.profile.unit_policy
    assert policy is not None, "a policy has named the unit"
    if unit.gang is not None and unit.binds:
        return unit.gang
    gang = policy.gang_of(tuple(record.pod for record in records), cluster.units.gangs)
    if unit.gang is not None and gang != unit.gang and not unit.started:
        unit.started, unit.unsure = _was_whole(policy, unit, unit.gang, records), True
    return gang


def note_end(cluster: Cluster, record: PodRecord) -> None:
    """Note before a pod leaves its node, or may leave it, that its unit has started, or that the pod was there."""
    unit, policy = record.unit, cluster.profile.unit_policy
    if unit is None or unit.started or policy is None or record.state not in (PodState.BOUND, PodState.ASSUMED):
        return
    if not record.pod.terminating and record.pod.uid not in cluster.leaving_pods.asked:
        unit.unsure = unit.unsure or record.state is PodState.ASSUMED
        unit.ended[record.pod.uid] = record.pod
    elif unit.unsure:  # another takes its place: it counts while it is there
        records = sorted(unit.members.values(), key=lambda member: member.pod.uid)
        gang = policy.gang_of(tuple(record.pod for record in records), cluster.units.gangs)
        unit.started, unit.unsure = _was_whole(policy, unit, gang, records), False


def _was_whole(policy: UnitPolicy, unit: Unit, gang: Gang | None, records: list[PodRecord]) -> bool:
    """Return whether enough pods have been on nodes: those that ended, and those that the watch shows there now."""
    there = (*unit.ended.values(), *(record.pod for record in records if record.state is PodState.BOUND))
    return _enough(policy, there, gang)


def _enough(policy: UnitPolicy, placed: tuple[Pod, ...], gang: Gang | None) -> bool:
    return bool(placed) and policy.spare(UnitMembers((), placed, gang)) is not None


def holds_enough(cluster: Cluster, unit: Unit) -> bool:
    """Return whether enough pods of the unit for its start are on rows, and do not leave."""
    policy = cluster.profile.unit_policy
    assert policy is not None, "a policy has named the unit"
    on_rows = (
        member.pod
        for member in unit.members.values()
        if member.counted is not None and not cluster.leaving(member.pod.uid)
    )
    return _enough(policy, tuple(sorted(on_rows, key=lambda pod: pod.uid)), unit.gang)


def note_deadline(cluster: Cluster, unit: Unit, members: UnitMembers) -> None:
    """Count the time that a unit waits for its start, anew where its gang or its waiting pods changed."""
    deadlines = cluster.units.deadlines
    seconds = unit.timeout_seconds if members.waiting and members.waiting[0].gang is not None else 0
    if unit.started or not members.waiting or not seconds:
        deadlines.drop(unit.name)
        unit.overdue = None
    elif unit.overdue is not None and unit.overdue != _uids(members):
        unit.overdue = None
    if seconds and members.waiting and not unit.started and unit.overdue is None and unit.name not in deadlines:
        deadlines.set(unit.name, cluster.now + seconds)


def count_overdue(cluster: Cluster) -> None:
    """Count the units as overdue whose time has come, and have them formed and their leads tried once more."""
    units = cluster.units
    for name in units.deadlines.pop_due(cluster.now, ROLLED_BACK_AT_ONCE):
        unit = units.by_name[name]
        waiting = [record for record in unit.members.values() if record.queue]
        unit.overdue = frozenset(record.pod.uid for record in waiting)
        units.changed(unit, at_once=True)
        lead = unit.lead
        if lead is not None and lead.state is PodState.PARKED:
            cluster.queues[lead.queue].wake_at_once(lead, cluster.now)


def roll_back_some(cluster: Cluster, actions: list[Action]) -> None:
    """Evict the pods on nodes of the next units that were not finished in time."""
    units = cluster.units
    for name in units.unfinished.pop_due(cluster.now, ROLLED_BACK_AT_ONCE):
        unit = units.by_name[name]
        placed = sorted(
            (member for member in unit.members.values() if member.counted is not None),
            key=lambda member: member.pod.uid,
        )
        if unit.started or not placed:
            continue
        if any(record.state is PodState.ASSUMED for record in placed):  # their Bindings may finish it
            units.unfinished.set(name, cluster.now + UNDER_WAY_SECONDS)
            continue
        units.unfinished.set(name, cluster.now + FINISH_SECONDS)
        staying = [record for record in placed if not cluster.leaving(record.pod.uid)]
        if not cluster.profile.preemption:
            _warn_of_half(cluster, unit, staying, "Preemption is switched off")
        elif staying and not any(may_go(cluster, record) for record in staying):
            _warn_of_half(cluster, unit, staying, "None of them may be evicted")
        elif staying:
            _roll_back(cluster, unit, staying, actions)


def _warn_of_half(cluster: Cluster, unit: Unit, staying: list[PodRecord], why: str) -> None:
    """Warn once of a unit that is not whole and keeps its room, at its first pods on nodes."""
    least = unit.gang.min_member if unit.gang is not None else len(unit.members)
    count = f"{len(staying)} of the {least} pods that start together of the gang {unit.name} are on nodes"
    text = f"{count}, and the others did not start. {why}: they stay and keep their room."
    for record in staying[:WARNED_AT_MOST]:
        if cluster.warned(f"{record.pod.uid}/{EventReason.GANG_NOT_WHOLE}", text):
            cluster.say(record.home, pod_warning(record.pod, EventReason.GANG_NOT_WHOLE, text))


def _roll_back(cluster: Cluster, unit: Unit, staying: list[PodRecord], actions: list[Action]) -> None:
    """Evict the pods in fresh pools, once every pool was refreshed since this began; have the others refreshed.

    Where one refresh takes longer than another counts, the pods of the latter's pool follow after its next one.
    """
    if unit.given_up is None:
        unit.given_up = cluster.now
    pools = {record: cluster.pool_of(record.row) or DEFAULT_POOL for record in staying}
    stale = [pool for pool in dict.fromkeys(pools.values()) if not is_fresh(cluster, pool, cluster.now)]
    for pool in stale:
        actions += await_to_roll_back(cluster, pool, unit.name, cluster.now)
    if all(was_refreshed(cluster, pool, unit.given_up) for pool in stale):
        decision = cluster.next_decision()
        for member in staying:
            if pools[member] not in stale and may_go(
                cluster, member
            ):  # the eviction before may have used up its budget
                actions.append(evict(cluster, member, None, decision, EvictionCause.GANG_NOT_WHOLE))
    if not stale:
        unit.given_up = None


def report(cluster: Cluster, unit: Unit, members: UnitMembers) -> None:
    """Report the status of the unit's gang where it changed, and warn of pods that say different things."""
    gang = members.gang
    if gang is None:
        return
    _warn(cluster, unit, gang)
    if gang.key.source in _WITHOUT_STATUS:
        return
    status = _status(unit, members, gang)
    if cluster.units.gangs.reported.get(gang.key) != (gang, status):
        cluster.units.gangs.reported[gang.key] = (gang, status)
        cluster.say(_first(unit).home, ReportGang(gang, status))


def _status(unit: Unit, members: UnitMembers, gang: Gang) -> GangStatus:
    running = sum(pod.phase == RUNNING for pod in members.placed)
    count = gang.min_member, len(members.waiting) + len(members.placed), len(members.placed), running
    if unit.started:
        phase = GangPhase.RUNNING if running >= gang.min_member else GangPhase.SCHEDULED
        return GangStatus(phase, *count)
    if unit.message:
        reason = "Invalid" if gang.invalid else "NotEnoughPods"
        phase = GangPhase.PENDING if unit.overdue is None else GangPhase.FAILED
        return GangStatus(phase, *count, reason, unit.message)
    if unit.overdue is not None:
        return GangStatus(GangPhase.FAILED, *count, "Timeout", (unit.late + _why(unit)).strip())
    return GangStatus(GangPhase.SCHEDULING, *count, "Unschedulable" if _why(unit) else "", _why(unit))


def _why(unit: Unit) -> str:
    """Return the reason of the waiting unit, without the sentence about its lateness."""
    return unit.lead.message.removeprefix(unit.late) if unit.lead is not None else ""


def _warn(cluster: Cluster, unit: Unit, gang: Gang) -> None:
    """Warn once of pods of different priorities, of different minima, and of pods that name several gangs."""
    for record in sorted(unit.members.values(), key=lambda record: record.arrival):
        pod = record.pod
        for reason, text in _problems(cluster, pod, unit, gang):
            if cluster.warned(f"{pod.uid}/{reason}", text):
                cluster.say(record.home, pod_warning(pod, reason, text))


def _problems(cluster: Cluster, pod: Pod, unit: Unit, gang: Gang) -> Iterator[tuple[EventReason, str]]:
    if pod.priority != unit.priority:
        text = f"The pod has the priority {pod.priority}. Its gang {gang.key} counts with its highest, {unit.priority}."
        yield EventReason.GANG_PODS_DIFFER, text
    claim = pod.gang
    if claim is not None and claim.said is not None and claim.said.min_member != gang.min_member:
        least = f"The pod names the minimum {claim.said.min_member} for its gang {gang.key}"
        yield EventReason.GANG_PODS_DIFFER, f"{least}. The largest that a pod names counts, {gang.min_member}."
    named = claim.others if claim is not None else ()
    others = [key for key in named if (str(key.source), key.namespace, key.name) not in cluster.elastic.by_key]
    if others:  # an elastic job names its own minimum: the larger one counts
        text = f"The pod names several gangs. {gang.key} counts, not {', '.join(map(str, others))}."
        yield EventReason.SEVERAL_GANGS, text


def _first(unit: Unit) -> PodRecord:
    return min(unit.members.values(), key=lambda record: record.arrival)


def _uids(members: UnitMembers) -> frozenset[str]:
    return frozenset(pod.uid for pod in members.waiting)
