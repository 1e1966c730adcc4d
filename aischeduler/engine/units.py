"""Forming units: how the waiting pods of a unit wait, each for itself, together, or not to be tried yet.

Invariants:
- An event only notes the unit, and takes its lead out of its place where the event is about one of its waiting pods.
  The decision `CLUSTER`, or the next attempt of one of its pods, forms the unit.
- A new pod of a unit is gated until its unit is formed; so are all its waiting pods where forming it raised.
- The lead is the first of the required pods in queue order; its backoff is the longest of its unit. A unit waits in
  line by the highest priority of its pods, and by the age of its gang or of its oldest pod.
"""

from typing import Final

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.gang_lifecycle import count_overdue, gang_now, note_deadline, note_start, report
from aischeduler.engine.holds import RECHECKED
from aischeduler.engine.internal_errors import Doing, error_message, internal_error
from aischeduler.engine.nominator import clear_nomination, end_claim_of
from aischeduler.engine.pod_counting import count_with_unit
from aischeduler.engine.queueing_hints import offer_ends
from aischeduler.engine.quotas import try_alike
from aischeduler.framework.plugin import Formed, Incomplete, UnitMembers
from aischeduler.model.actions import ReportWaiting, Step
from aischeduler.model.gang import Gang, GangKey, GangSource
from aischeduler.state.pod_records import WAITING, PodRecord, PodState, Unit
from aischeduler.state.scheduling_queue import queue_order

FORMED_AT_ONCE: Final = 16
"""The most units that one decision forms."""
PODS_AT_ONCE: Final = 512
"""After so many pods of the units that it forms, a decision leaves the others to the next one."""
AGAIN_SECONDS: Final = 10.0
"""After this time a unit is formed again whose policy raised."""


def form_some(cluster: Cluster) -> None:
    """Form the next stale units."""
    units = cluster.units
    count_overdue(cluster)
    units.rested(cluster.now)
    pods = 0
    for unit in list(units.stale.values())[:FORMED_AT_ONCE]:
        if pods >= PODS_AT_ONCE:
            break
        if unit.rests_until > cluster.now:
            units.rest(unit)
            continue
        pods += len(unit.members)
        form(cluster, unit)


def gang_seen(cluster: Cluster, gang: Gang) -> None:
    """Store a gang as it is now; its unit is formed again."""
    if cluster.units.gangs.see(gang):
        gang_touched(cluster, gang.key, at_once=True)


def gang_gone(cluster: Cluster, key: tuple[str, ...]) -> None:
    """Note that the object of a gang is gone; its unit is formed again."""
    source, namespace, name = key
    found = GangKey(GangSource(source), namespace, name)
    if cluster.units.gangs.forget(found):
        gang_touched(cluster, found, at_once=True)


def gang_touched(cluster: Cluster, key: GangKey, *, at_once: bool = False) -> None:
    """Have the unit of a gang formed again, if it has pods of ours."""
    unit = cluster.units.by_name.get(str(key))
    if unit is not None:
        unit.unsure = True
        cluster.units.changed(unit, at_once=at_once)


def place_changed(cluster: Cluster, row: int, now: float) -> None:
    """Have units tried again that are to be close to their pods on this row: its labels changed, or it is gone."""
    for record in cluster.on_row(row):
        unit = record.unit
        if unit is not None and unit.lead is not None and unit.gang is not None and unit.gang.topology:
            cluster.units.touch(record)
            _dissolve(cluster, unit, now)


def stop_waiting(cluster: Cluster, record: PodRecord, now: float) -> None:
    """Remove a waiting pod from its queue, and end its claim; its unit no longer waits as one."""
    break_up(cluster, record, now)
    cluster.units.waits(record, -1)
    _take_out(cluster, record, now)


def break_up(cluster: Cluster, record: PodRecord, now: float) -> None:
    """Have the unit of a waiting pod formed again; until then it does not wait as one."""
    cluster.units.touch(record)
    unit = record.unit
    if unit is not None and unit.lead is not None and (record is unit.lead or record.state is PodState.GROUPED):
        _dissolve(cluster, unit, now)


def _dissolve(cluster: Cluster, unit: Unit, now: float) -> None:
    """Take the lead of a unit out of its place: all its waiting pods are grouped without a lead until it is formed."""
    lead = unit.lead
    assert lead is not None, "only a unit with a lead waits as one"
    _take_out(cluster, lead, now)
    unit.lead, unit.pods, unit.required = None, (), 0
    lead.visited = ()
    cluster.queues[lead.home].group(lead)


def form(cluster: Cluster, unit: Unit) -> None:
    """Have the waiting pods of a unit wait as its policy says now; where the policy raises, gate them for a while."""
    policy, now = cluster.profile.unit_policy, cluster.now
    assert policy is not None, "a policy has named the unit"
    records = sorted(unit.members.values(), key=lambda record: record.pod.uid)
    waiting = [record for record in records if record.state in WAITING]
    placed = [record for record in records if record.counted is not None]
    try:
        waiting = [record for record in waiting if not cluster.gate_of(record.pod)]
        gang = gang_now(cluster, unit, records)
        pods = tuple(record.pod for record in waiting), tuple(record.pod for record in placed)
        members = note_start(cluster, unit, UnitMembers(*pods, gang, unit.started), placed)
        formed = policy.form(_without_leaving(cluster, members)) if waiting else Formed((), 0)
    except Exception as error:  # noqa: BLE001 - a bug costs one unit its turn, not those behind it
        _forming_failed(cluster, unit, waiting, error)
        return
    cluster.units.formed(unit, formed.lacks if isinstance(formed, Incomplete) else (), now)
    if unit.gang != gang:
        if unit.lead is not None:  # it may start on other nodes now
            _dissolve(cluster, unit, now)
        unit.gang, unit.overdue = gang, None
        cluster.units.deadlines.drop(unit.name)
    _take_rank(cluster, unit, records)
    if isinstance(formed, Formed) and formed.required > 1:
        formed = _of_one_pool(cluster, unit, formed)
    note_deadline(cluster, unit, members)
    unit.lacks = formed.lacks if isinstance(formed, Incomplete) else ()
    unit.message = _why_incomplete(cluster, unit, formed) if isinstance(formed, Incomplete) else ""
    if isinstance(formed, Incomplete):
        _hold_back(cluster, unit, waiting, now)
    elif formed.required > 1 or (formed.required and formed.near):
        _wait_together(cluster, unit, formed, now)
        together = {*unit.pods}
        strangers = [record for record in waiting if record not in together]
        if strangers:
            unit.message = f"Its home pool is not that of the unit {unit.name}, which is to start first."
            _gate(cluster, unit, strangers, now)
    else:
        _wait_alone(cluster, unit, waiting, now)
    report(cluster, unit, members)


def _forming_failed(cluster: Cluster, unit: Unit, waiting: list[PodRecord], error: Exception) -> None:
    """Gate the waiting pods of a unit whose policy raised: until it is formed, none may start without the others."""
    first = next(iter(unit.members.values()))
    doing = Doing(Step.WAKING, "forming the unit of the pod", first.home, first)
    told = internal_error(cluster, doing, error)
    cluster.say(first.home, told)
    unit.message = error_message(told)
    _hold_back(cluster, unit, waiting, cluster.now)
    cluster.units.formed(unit, (), cluster.now)
    cluster.units.again.set(unit.name, cluster.now + AGAIN_SECONDS)


def _without_leaving(cluster: Cluster, members: UnitMembers) -> UnitMembers:
    """Return the members of a unit without its pods that leave, unless it has started: a start needs pods that stay."""
    if members.started:
        return members
    staying = tuple(pod for pod in members.placed if not pod.terminating and pod.uid not in cluster.leaving_pods.asked)
    return UnitMembers(members.waiting, staying, members.gang)


def _why_incomplete(cluster: Cluster, unit: Unit, formed: Incomplete) -> str:
    others = cluster.units.gangs.strangers(unit.gang.key) if unit.gang is not None else ""
    return " ".join(part for part in (unit.late.strip(), formed.message, others) if part)


def _take_rank(cluster: Cluster, unit: Unit, records: list[PodRecord]) -> None:
    """Update the priority and the age by which the unit waits in line."""
    age = unit.gang.created_seconds if unit.gang is not None else 0
    rank = (
        max(record.pod.priority for record in records),
        age or min(record.pod.created_seconds for record in records),
        min(record.arrival for record in records),
    )
    before, known = (unit.priority, unit.created_seconds, unit.arrival), unit.formed
    if rank != before and unit.lead is not None:  # it has its place by the old rank
        _dissolve(cluster, unit, cluster.now)
    unit.priority, unit.created_seconds, unit.arrival = rank
    unit.formed = True
    if unit.priority != before[0] or not known:
        count_with_unit(cluster, unit)


def _of_one_pool(cluster: Cluster, unit: Unit, formed: Formed) -> Formed | Incomplete:
    """Return the pods that have the home pool of the required ones; Incomplete where these have several."""
    homes = {pod.uid: cluster.pools.home(pod.pool) for pod in formed.pods}
    required = sorted({homes[pod.uid] for pod in formed.pods[: formed.required]})
    if len(required) > 1:
        return Incomplete(f"The pods of the unit {unit.name} have different home pools: {', '.join(required)}.")
    return Formed(tuple(pod for pod in formed.pods if homes[pod.uid] == required[0]), formed.required)


def _hold_back(cluster: Cluster, unit: Unit, waiting: list[PodRecord], now: float) -> None:
    """Gate the waiting pods of a unit that is not complete."""
    if unit.lead is not None:
        _dissolve(cluster, unit, now)
    _gate(cluster, unit, waiting, now)


def _gate(cluster: Cluster, unit: Unit, records: list[PodRecord], now: float) -> None:
    for record in records:
        if record.state is not PodState.GATED:
            _take_out(cluster, record, now)
            record.visited = ()
            cluster.queues[record.home].gate(record)
        clear_nomination(cluster, record)
        if record.message != unit.message:
            record.message = unit.message
            told = ReportWaiting(record.pod, record.home, record.home, unit.message, record.decision)
            cluster.say(record.home, told)


def _wait_alone(cluster: Cluster, unit: Unit, waiting: list[PodRecord], now: float) -> None:
    """Let each pod wait for itself."""
    if unit.lead is not None:
        _dissolve(cluster, unit, now)
    for record in waiting:
        if record.state in (PodState.GROUPED, PodState.GATED):
            cluster.queues[record.queue].remove(record)
            cluster.queues[record.home].add(record, now)


def _wait_together(cluster: Cluster, unit: Unit, formed: Formed, now: float) -> None:
    """Let the pods wait in the place of the first in queue order, unless they do so already."""
    pods = tuple(unit.members[pod.uid] for pod in formed.pods)
    if unit.lead is not None and (unit.pods, unit.required) == (pods, formed.required):
        return
    if unit.lead is not None:
        _dissolve(cluster, unit, now)
    held = any(record.state is PodState.HELD for record in pods)
    for record in pods:
        if record.state is not PodState.GROUPED:
            _take_out(cluster, record, now)
            record.visited = ()
            cluster.queues[record.home].group(record)
    lead = min(pods[: formed.required], key=queue_order)
    queue = cluster.queues[lead.home]
    queue.remove(lead)
    unit.lead, unit.pods, unit.required = lead, pods, formed.required
    lead.backoff_until = max(record.backoff_until for record in pods)
    lead.failed = any(record.failed for record in pods)
    queue.add(lead, now)
    if held:  # the API server refused one of its pods: only a change of the unit helps
        queue.remove(lead)
        queue.hold(lead, now)


def _take_out(cluster: Cluster, record: PodRecord, now: float) -> None:
    rechecked = record.state in RECHECKED and record.pod.uid in cluster.deferred.look_at(record.queue).rechecking
    if rechecked or record.state is PodState.ACTIVE:
        cluster.turn_is_lost(record)
    stood_for_others = record.state is PodState.PARKED and record.pod.uid in cluster.held
    cluster.leave_queue(record, now)
    if stood_for_others:  # the next of its class is tried, so that quotas hold that one
        cluster.held.drop(record.pod.uid)
        cluster.queues[record.home].wake_next(record, now)
        try_alike(cluster, record)
    offer_ends(cluster, record)
    end_claim_of(cluster, record, now)
