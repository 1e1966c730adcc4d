"""Recovery from an exception of the scheduler.

Where the exception came from a look that changes nothing (a proposal, a check), it costs the pod one attempt. Where it
came from a change of the state (an event, an applied proposal, deferred work), the state may be half changed: all of
it is built anew from the objects that were seen, as after a restart, and every waiting pod is tried again.

Invariants:
- What the objects do not say is carried over: assumed pods with their Bindings in flight, requested evictions, claims,
  the life of units, backoffs, counters, and what was said.
- What a failed attempt decided is not carried over, since its actions are dropped; of another failed step, evictions
  of which no action is returned are not.
- An object that cannot be added is reported and left out until its next event. It costs no other object its place.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from aischeduler.engine.admission import admit
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.counters import Result
from aischeduler.engine.event_lines import as_line
from aischeduler.engine.evictions import reconsider, terminates
from aischeduler.engine.freshness import go_on
from aischeduler.engine.internal_errors import Doing, break_off, error_message, internal_error
from aischeduler.engine.node_events import node_seen
from aischeduler.engine.object_events import object_changed
from aischeduler.engine.pod_counting import adopt, count
from aischeduler.engine.pool_events import put_in_force
from aischeduler.engine.queueing_hints import offer_ends
from aischeduler.engine.units import form, stop_waiting
from aischeduler.engine.unknown_pools import want_again
from aischeduler.model.actions import Action, Evict, Nominate, ReportInternalError, ReportWaiting, Step
from aischeduler.model.allocation import NO_ALLOCATION, Allocation
from aischeduler.model.device import DEVICES, NodeDevices
from aischeduler.model.events import BindRefused, Event, EvictRefused, Gone, Object, Seen
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Namespace, Pool
from aischeduler.model.workload import NO_TENANCY
from aischeduler.state.claims import Claim
from aischeduler.state.pod_records import NOWHERE, WAITING, AssignedPod, PodRecord, PodState, Unit
from aischeduler.state.transitions import Transition, change_state


class Before(Struct, frozen=True):
    """The state of a pod at the beginning of its attempt; `decisions` is the number of decisions until then."""

    decisions: int
    pods: tuple[PodRecord, ...]
    """The pods of its unit; the pod itself."""
    claim: Claim | None
    nominated: str
    message: str


def before_attempt(cluster: Cluster, record: PodRecord) -> Before:
    """Return what a failed attempt of this pod must restore."""
    claim = cluster.claims.of(record.pod.uid)
    return Before(cluster.decisions, record.with_surplus, claim, record.nominated, record.message)


def proposal_failed(cluster: Cluster, doing: Doing, before: Before, error: Exception) -> list[Action]:
    """Put a pod into backoff for which no proposal could be made; return the actions."""
    record = doing.record
    assert record is not None, "every attempt is that of a pod"
    told: list[Action] = [internal_error(cluster, doing, error)]
    _each(cluster, told, (partial(cluster.reservations.release, member.pod.uid) for member in before.pods))
    offer_ends(cluster, record)
    record.broken, record.visited = True, ()
    cluster.queues[record.home].retry(record, cluster.now)
    _tell(cluster, doing, before, told)
    return told


def attempt_failed(
    cluster: Cluster, doing: Doing, before: Before, dropped: list[Action], error: Exception
) -> list[Action]:
    """Undo an attempt that failed when its proposal was applied; its actions are dropped. Return the actions."""
    record = doing.record
    assert record is not None, "every attempt is that of a pod"
    told: list[Action] = [internal_error(cluster, doing, error)]
    for action in dropped:
        if isinstance(action, Evict):
            cluster.counters.evictions[action.pool, action.cause] -= 1
    for member in before.pods:
        break_off(cluster, member)
    undone = frozenset(member.pod.uid for member in before.pods)
    rebuild(cluster, told, Dropped(before.decisions, undone=undone, claim=before.claim))
    _tell(cluster, doing, before, told)
    return told


def step_failed(
    cluster: Cluster, doing: Doing, decisions: int, kept: Iterable[Action], error: Exception
) -> list[Action]:
    """Rebuild the state after a failed step other than an attempt; its actions are `kept`. Return further actions."""
    told: list[Action] = [internal_error(cluster, doing, error)]
    rebuild(cluster, told, dropped_of(decisions, kept))
    return told


def event_failed(cluster: Cluster, event: Event, error: Exception, take: Callable[[Event], None]) -> list[Action]:
    """Rebuild the state after an event whose handling failed, and `take` it again; return the actions.

    Where it fails again, its pod, its node or its answer counts, and nothing else of it.
    """
    name = as_line(event)[0]
    pod = event.object if isinstance(event, Seen) and isinstance(event.object, Pod) else None
    doing = Doing(Step.EVENT, f"handling {name}", pod=pod)
    told: list[Action] = [internal_error(cluster, doing, error)]
    rebuild(cluster, told)
    seen = event.object if isinstance(event, Seen) else None
    if isinstance(seen, Pool) and cluster.pools.pools.get(seen.name) == seen:
        return told  # it is in force; a second time it would count as a further edit
    try:
        take(event)
    except Exception as again:  # noqa: BLE001 - the event counts, whatever its handling says
        told.append(internal_error(cluster, doing, again))
        rebuild(cluster, told, event=event)
    return told


def set_aside(cluster: Cluster) -> None:
    """Put the pods into backoff whose checks raised, each by itself."""
    failed, cluster.deferred.failed = tuple(cluster.deferred.failed.values()), {}
    for record in failed:
        if cluster.records.get(record.pod.uid) is record and record.state in WAITING:
            stop_waiting(cluster, record, cluster.now)
            break_off(cluster, record)
            admit(cluster, record, cluster.now)


def _tell(cluster: Cluster, doing: Doing, before: Before, told: list[Action]) -> None:
    """Report the internal error to the pod, and clear its nominated node where it has no claim."""
    record = doing.record
    assert record is not None, "every attempt is that of a pod"
    cluster.counters.attempts[doing.pool, Result.ERROR] += 1
    message = error_message(next(action for action in told if isinstance(action, ReportInternalError)))
    record.nominated, record.message = before.nominated, before.message
    home = record.home
    if cluster.claims.of(record.pod.uid) is None:
        if record.nominated or record.pod.nominated_node:
            told.append(Nominate(record.pod, "", home, record.decision))
        record.nominated = ""
    if record.message != message:
        record.message = message
        told.append(ReportWaiting(record.pod, home, home, message, record.decision))
    cluster.wake_alike(record, cluster.now)


class Dropped(Struct, frozen=True):
    """What of a failed step is not carried over: evictions requested after so many `decisions` and not `sent` (uids).

    The pods (uids) of an attempt that is `undone` wait; of their claims only this `claim`, from before it, stays.
    """

    decisions: int = sys.maxsize
    sent: frozenset[str] = frozenset()
    undone: frozenset[str] = frozenset()
    claim: Claim | None = None


NOTHING: Final = Dropped()


def dropped_of(decisions: int, kept: Iterable[Action]) -> Dropped:
    """Return what of a step that began after so many `decisions` is dropped, where these actions are `kept`."""
    return Dropped(decisions, frozenset(action.victim.uid for action in kept if isinstance(action, Evict)))


def rebuild(cluster: Cluster, told: list[Action], dropped: Dropped = NOTHING, event: Event | None = None) -> None:
    """Build the state anew; exceptions are added to `told`. The pod, the node or the answer of the `event` counts."""
    for uid, asked in tuple(cluster.leaving_pods.asked.items()):
        if asked.number > dropped.decisions and uid not in dropped.sent:
            cluster.leaving_pods.asked.pop(uid)
            if uid in cluster.records:
                cluster.budgets.note_refusal(cluster.records[uid].pod)
    known = _Known(cluster, event, dropped.undone)
    claims = [
        claim for claim in cluster.claims.all() if claim is dropped.claim or claim.owner.pod.uid not in dropped.undone
    ]
    places = {claim: [cluster.nodes.names[room.row] for room in claim.rooms] for claim in claims}
    cluster.clear()
    _each(cluster, told, (partial(cluster.budgets.see, budget) for budget in known.budgets.all()))
    _each(
        cluster,
        told,
        (partial(object_changed, cluster, Seen(known_object), cluster.now) for known_object in known.objects),
    )
    _each(cluster, told, (partial(put_in_force, cluster, pool, cluster.now) for pool in known.pools))
    _each(cluster, told, (partial(node_seen, cluster, node, cluster.now) for node in known.nodes))
    cluster.units.go_on_from(known.units)
    cluster.elastic.go_on_from(known.elastic)
    _each(cluster, told, (partial(_add, cluster, known, *pod) for pod in known.pods))
    _each(cluster, told, (partial(_carry_over, cluster, known),))
    _each(cluster, told, (partial(form, cluster, unit) for unit in tuple(cluster.units.stale.values())))
    _each(cluster, told, (partial(_claim_again, cluster, claim, places[claim]) for claim in claims))
    _each(cluster, told, _go_on(cluster))


class _Known:
    """What is known of the cluster, from a state that may be half changed: nothing is called that may raise."""

    def __init__(self, cluster: Cluster, event: Event | None, undone: frozenset[str]) -> None:
        self.units, self.running, self.budgets = cluster.units, cluster.running, cluster.budgets
        self.elastic = cluster.elastic
        self.pools = [pool for pool in cluster.pools.pools.values() if pool is not cluster.profile.default_pool]
        self.objects: list[Object] = [
            *(
                Namespace(name, labels, cluster.elastic.levels.get(name))
                for name, labels in cluster.nodes.pod_counts.namespaces.items()
            ),
            *cluster.tenants.queues.objects(),
            *cluster.tenants.workloads.values(),
            *cluster.pod_sets.by_key.values(),
            *cluster.nodes.storage.objects(),
            *cluster.nodes.devices.objects(),
        ]
        self.nodes = [node for node in cluster.nodes.nodes if node is not None]
        self._records = dict(cluster.records)
        self._undone = set(undone)
        if event is not None:
            self._believe(cluster, event)
        self.pods = [(record, *self._place(cluster, record)) for record in self._records.values()]

    def _place(self, cluster: Cluster, record: PodRecord) -> tuple[str, Allocation | None]:
        """Return the node of a pod, empty where it waits, and what it has there; None where that is not known."""
        on = cluster.nodes.names[record.row] if record.row != NOWHERE else ""
        under_way = record.state is PodState.ASSUMED and record.pod.uid not in self._undone
        node = record.pod.node_name or (on if under_way else "")
        known = node == on and record.counted is not None
        if record.pod.spec.devices is not None and record.allocation.part(DEVICES) is None:
            known = False  # the first Device object may be what failed
        return node, record.allocation if known else None

    def _believe(self, cluster: Cluster, event: Event) -> None:
        """Take the pod or the node of an event, or its answer, as it is."""
        match event:
            case Seen(Pod() as pod):
                self._believe_pod(cluster, pod)
            case Gone("Pod", (uid,)):
                self._records.pop(uid, None)
            case Seen(Node() as node):
                self.nodes = [known for known in self.nodes if known.name != node.name] + [node]
            case Gone("Node", (name,)):
                self.nodes = [node for node in self.nodes if node.name != name]
            case Seen(NodeDevices(node=name)) | Gone("NodeDevices", (name,)):
                self.objects = [
                    known for known in self.objects if not (isinstance(known, NodeDevices) and known.node == name)
                ]
                self.objects += [event.object] if isinstance(event, Seen) else []
            case BindRefused(uid) if uid in self._records:
                self._undone.add(uid)
                break_off(cluster, self._records[uid])
            case EvictRefused(uid):
                cluster.leaving_pods.asked.pop(uid, None)

    def _believe_pod(self, cluster: Cluster, pod: Pod) -> None:
        record = self._records.get(pod.uid)
        if pod.finished or (pod.terminating and not pod.node_name):
            self._records.pop(pod.uid, None)
        elif record is not None:
            if pod.node_name or record.state is not PodState.BOUND:  # else it is older
                record.pod = pod
        elif pod.node_name or cluster.ours(pod):
            self._records[pod.uid] = PodRecord(pod, cluster.next_arrival(), PodState.NEW, cluster.now)


def _add(cluster: Cluster, known: _Known, record: PodRecord, node: str, allocation: Allocation | None) -> None:
    """Add a pod: on its node, or to the queue of its home pool; one that cannot be added leaves nothing behind."""
    try:
        _place(cluster, known, record, node, allocation)
    except Exception:  # whatever it is: it is raised again, and `_each` reports it
        if cluster.records.pop(record.pod.uid, None) is not None:
            cluster.units.leave(record)
        raise


def _place(cluster: Cluster, known: _Known, record: PodRecord, node: str, allocation: Allocation | None) -> None:
    record.unit, record.row, record.counted, record.allocation = None, NOWHERE, None, NO_ALLOCATION
    record.queue, record.visited, record.offered, record.accounts = "", (), NOWHERE, ()
    record.tenancy, record.waits_with = NO_TENANCY, None
    if not node and record.state not in (PodState.NEW, *WAITING):
        change_state(record, Transition.FAILED)
    elif record.pod.node_name:
        change_state(record, Transition.SHOWN)
    cluster.enroll(record)
    unit = cluster.records[record.pod.uid].unit
    if unit is not None and len(unit.members) == 1 and unit.name in known.units.by_name:
        _go_on_as(unit, known.units.by_name[unit.name])
    if not node:
        admit(cluster, record, cluster.now)
    elif allocation is None:
        count(cluster, record, node)
    else:
        assigned = AssignedPod(record.pod, record.pod.spec, cluster.nodes.row(node), allocation)
        cluster.nodes.add(assigned)
        adopt(cluster, record, assigned)
    if node and record.pod.terminating:
        terminates(cluster, record, cluster.now)


def _go_on_as(unit: Unit, before: Unit) -> None:
    """Let a unit be what it was before: whether it has started is not to be seen at its pods."""
    unit.priority, unit.created_seconds, unit.arrival = before.priority, before.created_seconds, before.arrival
    unit.gang, unit.formed, unit.started, unit.ended = before.gang, before.formed, before.started, before.ended
    unit.given_up, unit.overdue, unit.message = before.given_up, before.overdue, before.message


def _carry_over(cluster: Cluster, known: _Known) -> None:
    """Keep what is kept of the places of pods, and drop it where a pod has none now."""
    leaving, reservations = cluster.leaving_pods, cluster.reservations
    for uid in {*leaving.asked, *leaving.terminating.names(), *leaving.overstayed, *leaving.spared.names()}:
        if not _is_placed(cluster, uid):
            leaving.forget(uid)
    cluster.budgets.count(known.budgets.counted())
    for namespace in cluster.budgets.namespaces():
        reconsider(cluster, cluster.budgets.turned(namespace))
    for name, unit in cluster.units.by_name.items():
        if name in known.units.by_name:
            cluster.running.set_spare(unit.number, known.running.spare_of(known.units.by_name[name].number))
    assumed = {uid for uid, record in cluster.records.items() if record.state is PodState.ASSUMED}
    for uid in [uid for uid in reservations.unsettled if uid not in assumed]:
        del reservations.unsettled[uid]
    for uid in [uid for uid in reservations.delayed if uid not in assumed]:
        reservations.end_delay(uid)
    for uid in sorted(assumed - {*reservations.unsettled, *reservations.delayed}):
        reservations.unsettled[uid] = cluster.now  # its Binding may be lost
        reservations.unsettled.move_to_end(uid, last=False)


def _is_placed(cluster: Cluster, uid: str) -> bool:
    record = cluster.records.get(uid)
    return record is not None and record.counted is not None


def _claim_again(cluster: Cluster, claim: Claim, nodes: list[str]) -> None:
    """Make a claim again, where its owner waits as before and its room on these nodes can still become free."""
    owner, table = claim.owner, cluster.nodes
    if owner.state not in (PodState.ACTIVE, PodState.BACKOFF) or owner.queue != claim.pool:
        return
    if tuple(room.record for room in claim.rooms) != owner.together:
        return
    if any(name not in table.rows or cluster.pool_of(table.rows[name]) != claim.pool for name in nodes):
        return
    rows = [table.rows[name] for name in nodes]
    rooms = tuple(
        replace(room, spec=room.record.pod.spec, row=row, accounts=cluster.accounts_of(room.record, row))
        for room, row in zip(claim.rooms, rows, strict=True)
    )
    planned = {uid: useless for uid, useless in claim.planned.items() if _is_placed(cluster, uid)}
    again = replace(claim, rooms=rooms, planned=planned)
    cluster.claims.make(again)
    for row in again.rows:
        cluster.row_changed(row)


def _go_on(cluster: Cluster) -> Iterator[Callable[[], object]]:
    """Yield what remains to be done: requests may be lost, loans may be too many, rules may reserve for nobody."""
    freshness, reservations = cluster.freshness, cluster.reservations
    yield partial(want_again, cluster)
    asked = {*freshness.asked_at, *freshness.waiting, *freshness.loans, *freshness.units}
    for pool in sorted({*asked, *cluster.said.reported, *cluster.said.outbox}):
        if pool not in cluster.queues:
            yield partial(cluster.forget_pool, pool)
        elif pool in asked:
            yield partial(go_on, cluster, pool, cluster.now)
    for uid in tuple(reservations.kept):
        if not _is_placed(cluster, uid):
            yield partial(reservations.release, uid)
    cluster.deferred.review(cluster.pools.names())


def _each(cluster: Cluster, told: list[Action], parts: Iterable[Callable[[], object]]) -> None:
    """Do every part; an exception is reported and does not keep the others from being done."""
    for part in parts:
        try:
            part()
        except Exception as error:  # noqa: BLE001 - one object that cannot be added must not stop the others
            told.append(internal_error(cluster, Doing(Step.RECOVERY, "building the state anew"), error))
