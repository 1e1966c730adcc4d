"""Recovery from an exception of the scheduler: the incomplete changes of the failed step are undone.

Invariants:
- No policy and no search is called here, and of the plugins only gates: they may fail again. Pods that may have missed
  a wake-up are tried by a check of their pool, after a backoff.
- Rows that the failed step changed are counted again from their pods and claims; the pods of other rows are not read.
- An exception here is reported like any other and ends neither the recovery nor the decision.
"""

import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.counters import Result
from aischeduler.engine.freshness import go_on
from aischeduler.engine.plugin_errors import plugin_of
from aischeduler.engine.pod_counting import book_again, count_with_unit
from aischeduler.engine.recount import can_come_true
from aischeduler.model.actions import Action, Evict, Nominate, ReportInternalError, ReportWaiting, Step
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.pod import Pod
from aischeduler.state.assigned_pod import AssignedPod
from aischeduler.state.claims import Claim
from aischeduler.state.pod_records import NOWHERE, WAITING, PodRecord, PodState, Unit

FRAMES_MAX: Final = 32
TRACEBACK_MAX: Final = 8000
"""The most frames and characters of a traceback that are reported, the last ones."""
ERROR_MAX: Final = 300
INTERNAL_ERROR: Final = (
    "internal error: the scheduler failed when it tried to schedule this pod. "
    "The log of the scheduler has the traceback. The pod is tried again."
)
"""The message of the pod, the same after each failed attempt, so that there is one event."""
PLUGIN_ERROR: Final = (
    "internal error: the plugin {} failed when the scheduler tried to schedule this pod. "
    "The log of the scheduler has the traceback. The pod is tried again."
)
"""The same where a plugin raised."""


class Mark(Struct, frozen=True, gc=False):
    """The versions of the state when a step began: a version that grew shows what the step changed."""

    nodes: int
    running: int
    ledger: int
    decisions: int


class Before(Struct, frozen=True):
    """The state of a pod at the beginning of its attempt."""

    mark: Mark
    pods: tuple[PodRecord, ...]
    """The pods of its unit; the pod itself."""
    claim: Claim | None
    nominated: str
    message: str


class Doing(NamedTuple):
    """A step: a description in words, the pool in whose loop it runs, and the pod, if any."""

    step: Step
    words: str
    pool: str = ""
    record: PodRecord | None = None
    pod: Pod | None = None


def mark(cluster: Cluster) -> Mark:
    """Return the versions of now."""
    return Mark(cluster.nodes.version, cluster.running.version, cluster.ledger.version, cluster.decisions)


def before_attempt(cluster: Cluster, record: PodRecord) -> Before:
    """Return what a failed attempt of this pod must restore."""
    pods = (record,) if record.unit is None or record.leads is None else record.unit.pods
    return Before(mark(cluster), pods, cluster.claims.of(record.pod.uid), record.nominated, record.message)


def internal_error(cluster: Cluster, doing: Doing, error: Exception) -> ReportInternalError:
    """Count an exception and return its report."""
    cluster.counters.internal_errors[doing.step] += 1
    plugin = plugin_of(cluster.profile, error)
    if plugin:
        cluster.counters.plugin_errors[plugin] += 1
    text = "".join(traceback.format_exception(error, limit=-FRAMES_MAX))
    record = doing.record
    return ReportInternalError(
        step=doing.step,
        doing=doing.words,
        pool=doing.pool,
        pod=doing.pod if record is None else record.pod,
        decision="" if record is None else record.decision,
        error="".join(traceback.format_exception_only(error)).strip()[:ERROR_MAX],
        traceback=text[-TRACEBACK_MAX:],
        plugin=plugin,
    )


def attempt_failed(
    cluster: Cluster, doing: Doing, before: Before, dropped: list[Action], error: Exception
) -> list[Action]:
    """Undo a failed attempt, whose actions are dropped, put the pod into backoff, and return the actions."""
    record, now = doing.record, cluster.now
    assert record is not None, "every attempt is that of a pod"
    told: list[Action] = [internal_error(cluster, doing, error)]
    row = record.offered
    attempt_each(
        cluster,
        told,
        partial(_recall, cluster, before.mark, dropped=dropped),
        partial(_end_claim, cluster, record, before.claim),
        partial(_ask_again, cluster, doing),
        *(partial(take_out, cluster, one) for one in before.pods),
        partial(mend, cluster, before.mark),
        *(partial(put_back, cluster, one) for one in before.pods),
        partial(find_lost, cluster),
        partial(_tell, cluster, record, before, told),
        partial(cluster.wake_alike, record, now),
    )
    cluster.counters.attempts[doing.pool, Result.ERROR] += 1
    moved = replace(mark(cluster), decisions=before.mark.decisions) != before.mark  # more than its queue
    if row != NOWHERE or len(told) > 1 or moved:
        doubt(cluster, (doing.pool, record.home, cluster.pool_of(row) if row != NOWHERE else ""))
    return told


def _ask_again(cluster: Cluster, doing: Doing) -> None:
    """Have everything that waits for a refresh of the pool request it again, where the request may be lost."""
    freshness, record = cluster.freshness, doing.record
    waits = record is not None and record.pod.uid in freshness.waiting.get(doing.pool, ())
    if waits or doing.pool in freshness.loans:
        go_on(cluster, doing.pool, cluster.now)


def step_failed(cluster: Cluster, doing: Doing, before: Mark, kept: Iterable[Action], error: Exception) -> list[Action]:
    """Repair the state after a failed step other than an attempt; its actions are `kept`. Return further actions."""
    told: list[Action] = [internal_error(cluster, doing, error)]
    repairs = [
        partial(_recall, cluster, before, kept=kept),
        partial(mend, cluster, before),
        partial(find_lost, cluster),
    ]
    if doing.step is Step.QUEUE:
        repairs.insert(0, partial(_rebuild_queue, cluster, doing.pool))
    attempt_each(cluster, told, *repairs, partial(_ask_again, cluster, doing))
    doubt(cluster, tuple(cluster.queues) if doing.step is Step.TIME else (doing.pool,))
    return told


def judging_failed(cluster: Cluster, record: PodRecord, words: str, error: Exception) -> None:
    """Have a waiting pod tried separately after its check with other pods raised, so that only this pod is affected.

    The step continues; incomplete changes of the check are repaired at the end of the step.
    """
    told: list[Action] = [internal_error(cluster, Doing(Step.WAKING, words, record.home, record), error)]
    attempt_each(cluster, told, partial(take_out, cluster, record), partial(_wait_again, cluster, record))
    cluster.deferred.to_mend = True
    for report in told:
        cluster.say(record.home, report)


def forming_failed(cluster: Cluster, unit: Unit, error: Exception) -> None:
    """Gate the waiting pods of a unit whose forming raised: until it is formed, none may start without the others."""
    first = next(iter(unit.members.values()))
    doing = Doing(Step.WAKING, "forming the unit of the pod", first.home, first)
    told: list[Action] = [internal_error(cluster, doing, error)]
    for record in [one for one in unit.members.values() if one.state in WAITING]:
        ends = (partial(_end_claim, cluster, record, None), partial(take_out, cluster, record))
        attempt_each(cluster, told, *ends, partial(_enqueue, cluster, record, gated=True))
    cluster.deferred.to_mend = True
    for report in told:
        cluster.say(first.home, report)


def mend_after(cluster: Cluster, before: Mark) -> None:
    """Repair the incomplete changes of a check, in a step that reached its end."""
    told: list[Action] = []
    attempt_each(cluster, told, partial(mend, cluster, before), partial(find_lost, cluster))
    for report in told:
        cluster.say(DEFAULT_POOL, report)


def doubt(cluster: Cluster, pools: Iterable[str]) -> None:
    """Have these pools checked after a backoff: their pods may have missed a wake-up."""
    for pool in pools:
        if pool in cluster.queues:
            cluster.deferred.doubts.note(pool, cluster.now, cluster.profile.backoff)


def _recall(cluster: Cluster, before: Mark, *, kept: Iterable[Action] = (), dropped: Iterable[Action] = ()) -> None:
    """Drop the evictions that were requested since, except those whose actions are `kept`."""
    for action in dropped:
        if isinstance(action, Evict):
            cluster.counters.evictions[action.pool, action.cause] -= 1
    sent = {action.victim.uid for action in kept if isinstance(action, Evict)}
    for uid, asked in tuple(cluster.leaving_pods.asked.items()):
        if asked.number > before.decisions and uid not in sent:
            stay(cluster, cluster.records[uid])


def stay(cluster: Cluster, record: PodRecord) -> None:
    """Drop the requested eviction of a pod, and end the claims that may count on its room."""
    cluster.forget_eviction(record.pod.uid)
    cluster.budgets.note_refusal(record.pod)
    if record.counted is not None:
        cluster.refresh(record)
    for claim in cluster.claims.on_row(record.row):
        end_quietly(cluster, claim)


def _end_claim(cluster: Cluster, record: PodRecord, old: Claim | None) -> None:
    """End the claim that the failed attempt made, or that it was about to renew."""
    claim = cluster.claims.of(record.pod.uid)
    if claim is not None and (claim is not old or claim.outdated):
        drop_claim(cluster, claim)


def drop_claim(cluster: Cluster, claim: Claim) -> None:
    """End a claim on a row whose amounts may be half changed."""
    try:
        cluster.claims.forget(claim)
    finally:
        _count_anew(cluster, claim.rows)


def end_quietly(cluster: Cluster, claim: Claim) -> None:
    """End a claim and wake its owner; a later check of the pool offers its room to others."""
    if cluster.claims.of(claim.owner.pod.uid) is claim:
        drop_claim(cluster, claim)
    if claim.owner.state is PodState.NOMINATED and claim.owner.queue:
        cluster.queues[claim.owner.queue].wake_at_once(claim.owner, cluster.now)
    doubt(cluster, (claim.pool,))


def take_out(cluster: Cluster, record: PodRecord) -> None:
    """Remove a pod from its queue and its row, whatever the failed step has already done; `put_back` undoes that.

    Its unit no longer waits as one. The lead of that may be in no queue then.
    """
    uid = record.pod.uid
    _break_up(cluster, record)
    queue = cluster.queues.get(record.queue)
    if queue is not None and queue.holds(record):
        queue.remove(record)
    record.queue = ""
    cluster.reservations.unsettled.pop(uid, None)
    with suppress(Exception):  # a rule that cannot release must not keep the pod from its queue
        cluster.reservations.release(uid)
    row, booked = record.row, record.accounts
    if uid in cluster.running:
        cluster.running.remove(uid)
    record.row, record.counted, record.accounts = NOWHERE, None, ()
    if row != NOWHERE:
        _count_anew(cluster, [row])
    if booked:
        book_again(cluster)


def _break_up(cluster: Cluster, record: PodRecord) -> None:
    """Have the unit of a pod formed again; until then it does not wait as one, and its lead may be in no queue."""
    cluster.units.touch(record)
    unit = record.unit
    lead = unit.lead if unit is not None and record in unit.pods else None
    if unit is None or lead is None:
        return
    claim, queue = cluster.claims.of(lead.pod.uid), cluster.queues.get(lead.queue)
    if claim is not None:
        drop_claim(cluster, claim)
    if queue is not None and queue.holds(lead):
        queue.remove(lead)
    lead.queue = ""
    unit.lead, unit.pods, unit.required = None, (), 0


def _wait_again(cluster: Cluster, record: PodRecord) -> None:
    """Put a pod that is in no queue into backoff in its home queue."""
    record.home = cluster.pools.home(record.pod.pool)
    record.broken = record.failed = True
    record.back_off(cluster.now, cluster.profile.backoff)
    gate = ""
    with suppress(Exception):  # the next attempt checks the gate again and reports the exception
        gate = cluster.gate_of(record.pod)
    record.message = gate or record.message
    _enqueue(cluster, record, gated=bool(gate))


def _enqueue(cluster: Cluster, record: PodRecord, *, gated: bool) -> None:
    """Add a pod to its home queue; a pod of a unit is gated until that is formed."""
    cluster.withdraw(record)
    record.offered = NOWHERE
    record.visited = ()
    queue = cluster.queues[record.home]
    queue.add(record, cluster.now)
    if gated or record.unit is not None:
        queue.remove(record)
        queue.gate(record)
        cluster.units.touch(record)


def _tell(cluster: Cluster, record: PodRecord, before: Before, told: list[Action]) -> None:
    """Report the internal error to the pod, and clear its nominated node where it has no claim."""
    plugin = next((one.plugin for one in told if isinstance(one, ReportInternalError)), "")
    message = PLUGIN_ERROR.format(plugin) if plugin else INTERNAL_ERROR
    record.nominated, record.message = before.nominated, before.message
    home = record.home
    if cluster.claims.of(record.pod.uid) is None:
        if record.nominated or record.pod.nominated_node:
            told.append(Nominate(record.pod, "", home, record.decision))
        record.nominated = ""
    if record.message != message:
        record.message = message
        told.append(ReportWaiting(record.pod, home, home, message, record.decision))


def mend(cluster: Cluster, before: Mark) -> None:
    """Count again what changed since, and wake nominated pods without a claim."""
    cluster.deferred.to_mend = False
    for unit in tuple(cluster.units.reranked.values()):
        count_with_unit(cluster, unit)
    nodes, running = cluster.nodes, cluster.running
    touched = (nodes.changed_since(before.nodes), running.changed_since(before.running))
    if touched[0] is None or touched[1] is None:
        rows = sorted(nodes.rows.values())
    else:
        rows = sorted({*touched[0], *touched[1]})
    for claim in cluster.claims.all():
        owner = claim.owner
        if owner.queue not in ("", claim.pool) or any(cluster.pool_of(row) != claim.pool for row in claim.rows):
            end_quietly(cluster, claim)
    _count_anew(cluster, rows)
    for row in rows:
        for claim in cluster.claims.on_row(row):
            if not can_come_true(cluster, claim, row):
                end_quietly(cluster, claim)
    if cluster.ledger.version != before.ledger:
        book_again(cluster)
    for queue in cluster.queues.values():
        for record in queue.in_state(PodState.NOMINATED):
            if cluster.claims.of(record.pod.uid) is None:
                queue.wake_at_once(record, cluster.now)


def put_back(cluster: Cluster, record: PodRecord) -> None:
    """Put a pod that was taken out into backoff in its home queue, without a look at all pods as in `find_lost`."""
    queue = cluster.queues.get(record.queue)
    known = cluster.records.get(record.pod.uid) is record
    if known and record.counted is None and (queue is None or not queue.holds(record)):
        _wait_again(cluster, record)


def find_lost(cluster: Cluster) -> None:
    """Put pods that are in no queue and on no row into backoff in their home queues."""
    if len(cluster.records) == len(cluster.running) + sum(len(queue) for queue in cluster.queues.values()):
        return
    for record in _lost(cluster):
        take_out(cluster, record)
    for record in _lost(cluster):  # with the leads of units that were broken up
        _wait_again(cluster, record)


def _lost(cluster: Cluster) -> list[PodRecord]:
    """Return the pods that are on no row and in no queue."""
    waiting = [(record, cluster.queues.get(record.queue)) for record in cluster.records.values() if not record.counted]
    return [record for record, queue in waiting if queue is None or not queue.holds(record)]


def _count_anew(cluster: Cluster, rows: Iterable[int]) -> None:
    """Count the pods and claims on these rows again; an attempt that changed none costs nothing here."""
    nodes, touched, there = cluster.nodes, {*rows}, list[AssignedPod]()
    for row in sorted(touched):
        if nodes.names[row]:
            pods = [record.assigned for record in cluster.on_row(row) if record.counted is not None]
            claimed = [room.assigned for claim in cluster.claims.on_row(row) for room in claim.on(row)]
            nodes.recount(row, (*pods, *claimed))
            there += [*pods, *claimed]
    nodes.pod_counts.apart = None
    nodes.pod_counts.recount_on(touched, [(one.pod, one.row, one.claims) for one in there])
    cluster.nodes.storage.used.end_apart()


def _rebuild_queue(cluster: Cluster, pool: str) -> None:
    """Build the queue of a pool again, with the pods that are, or should be, in it; all of them are tried."""
    records = [record for record in cluster.records.values() if record.state in WAITING and record.queue in ("", pool)]
    for record in records:
        _break_up(cluster, record)
    cluster.add_queue(pool)
    for record in records:
        record.queue = ""
        cluster.deferred.queue_changes.abroad.drop(record.home, record.pod.uid)
        _enqueue(cluster, record, gated=record.state is PodState.GATED)


def attempt_each(cluster: Cluster, told: list[Action], *repairs: Callable[[], None]) -> None:
    """Run every repair; an exception is reported and does not keep the others from running."""
    for repair in repairs:
        try:
            repair()
        except Exception as error:  # noqa: BLE001 - one failed repair must not stop the others
            told.append(internal_error(cluster, Doing(Step.RECOVERY, "recovering from an exception"), error))
