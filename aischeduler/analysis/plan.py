"""Plan a change: what the scheduler would do if these objects were applied, or these nodes drained, now.

Invariants:
- The engine decides; nothing here does. The result is what happened in a copy of the cluster.
- What the cluster does without the change is done first, and is told apart.
- Every pod of a unit starts, or waits with a reason.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from aischeduler.analysis.cluster_copy import ClusterCopy
from aischeduler.analysis.elastic_jobs import elastic_jobs, job_row
from aischeduler.analysis.explanation import full_name
from aischeduler.analysis.job_controllers import as_adopted
from aischeduler.analysis.kept_pods import kept_pods
from aischeduler.analysis.what_if import question_of
from aischeduler.engine.queue_status import OverQuota, over_quota, summary_of
from aischeduler.model.actions import Bind, Evict, LogLoanChange, ReportInternalError, Resize, Warn
from aischeduler.model.events import Event, Seen, gone, objects_of
from aischeduler.model.node import Node
from aischeduler.model.pod import PENDING, Pod
from aischeduler.model.pool import Pool
from aischeduler.model.tenant_queue import QueueSource, TenantQueue
from aischeduler.model.times import time_text
from aischeduler.model.workload import Workload
from aischeduler.state.elastic_jobs import JobKey

NODE: Final = "Node"
UNIT: Final = "Unit"
"""The kind of several objects whose pods start together."""
POD: Final = "Pod"
"""The kind of a plain pod: it comes before the pods that controllers make."""
NAMED_MAX: Final = 3
"""Pods that a note names; it counts the others."""
OTHER_SCHEDULER: Final = 'its schedulerName is "{}", so another scheduler decides'


class PlanError(ValueError):
    """A change that cannot be planned; the message is a sentence that says why."""


class UnitVerdict(StrEnum):
    """What becomes of a unit."""

    STARTS = "starts"
    """Every pod starts on free room of its own pool."""
    BORROWS = "borrows"
    """Every pod starts on free room, some of it of another pool."""
    EVICTS = "evicts"
    """Every pod starts, some only after pods are evicted."""
    WAITS = "waits"
    """A pod waits."""


class PlannedUnit(Struct, frozen=True):
    """The pods that one object brings, or several whose pods start together; `notes` are sentences about them.

    `others` wait already and belong to a unit of these pods, so that what is decided for them is decided for these too.
    `job` is the elastic job whose minimum they are.
    """

    kind: str
    namespace: str
    name: str
    pods: tuple[Pod, ...]
    notes: tuple[str, ...] = ()
    others: tuple[Pod, ...] = ()
    job: JobKey | None = None


class PlannedChange(Struct, frozen=True):
    """What is planned: `events` of other objects are applied first, then the nodes `without` go, then pods come."""

    units: tuple[PlannedUnit, ...] = ()
    events: tuple[Event, ...] = ()
    without: tuple[str, ...] = ()


class JobGrowth(Struct, frozen=True):
    """The bounds of an elastic job, and the size that it gets once its minimum has started."""

    minimum: int
    maximum: int
    size: int


class JobResize(Struct, frozen=True):
    """Another elastic job, the size that it has, and the one that it gets."""

    job: str
    before: int
    size: int


class UnitPlan(Struct, frozen=True):
    """What becomes of one unit.

    `nodes` has the node of each pod that starts, `lenders` the pool of each of them that borrows, `waits` the reason
    of each other pod; `evictions` are those for it, in their order. `growth` is None where it is no elastic job.
    """

    unit: PlannedUnit
    nodes: Mapping[str, str] = field(default_factory=dict)
    lenders: Mapping[str, str] = field(default_factory=dict)
    waits: Mapping[str, str] = field(default_factory=dict)
    evictions: tuple[Evict, ...] = ()
    notes: tuple[str, ...] = ()
    growth: JobGrowth | None = None

    @property
    def evicts(self) -> tuple[str, ...]:
        """The pods that are evicted for it, as `namespace/name`."""
        return tuple(full_name(eviction.victim) for eviction in self.evictions)

    @property
    def verdict(self) -> UnitVerdict:
        """What becomes of the unit as a whole."""
        if self.waits:
            return UnitVerdict.WAITS
        if self.evictions:
            return UnitVerdict.EVICTS
        return UnitVerdict.BORROWS if self.lenders else UnitVerdict.STARTS

    @property
    def waits_for(self) -> str:
        """The reason that most of the waiting pods have, the first one of these; empty where none waits."""
        return Counter(self.waits.values()).most_common(1)[0][0] if self.waits else ""


class Plan(Struct, frozen=True):
    """What would happen. `other_starts` and `other_evictions` are consequences for pods that no unit has.

    `loan_changes` are running pods that become loans or home pods, `pool_nodes` the numbers of nodes before and after
    of each pool where they differ. `over_quota` are the queues that the change brings above a quota, or further above.
    `queues` are the tenant queues of the evicted pods by uid, `resizes` the elastic jobs, none of a unit, that get
    another size. `at_rest` is False where the copy did not come to rest: then more would happen.
    """

    units: tuple[UnitPlan, ...]
    other_starts: tuple[Bind, ...] = ()
    other_evictions: tuple[Evict, ...] = ()
    loan_changes: tuple[LogLoanChange, ...] = ()
    pool_nodes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    over_quota: tuple[OverQuota, ...] = ()
    queues: Mapping[str, str] = field(default_factory=dict)
    resizes: tuple[JobResize, ...] = ()
    notes: tuple[str, ...] = ()
    at_rest: bool = True


def plan(copy: ClusterCopy, change: PlannedChange) -> Plan:
    """Apply the change to the copy, let it come to rest, and return what happened; raises PlanError."""
    for name in change.without:
        if name not in copy.nodes:
            raise PlanError(f"there is no node {name}")
    at_rest = copy.settle()
    notes, nodes, over = _meanwhile(copy), _pool_nodes(copy), _over_quota(copy)
    copy.happened.clear()
    units = _as_decided(copy, _apply(copy, change))
    at_rest = copy.settle() and at_rest
    uids = {pod.uid for unit in units for pod in unit.pods}
    askers = uids | {pod.uid for unit in units for pod in unit.others}
    after = _pool_nodes(copy)
    return Plan(
        units=tuple(_unit_plan(copy, unit) for unit in units),
        other_starts=tuple(
            action
            for action in copy.happened
            if isinstance(action, Bind) and action.pod.uid not in uids and action.pod.uid not in copy.jobs.made
        ),
        other_evictions=tuple(
            action for action in copy.happened if isinstance(action, Evict) and _asker(action) not in askers
        ),
        loan_changes=tuple(action for action in copy.happened if isinstance(action, LogLoanChange)),
        pool_nodes={
            name: (nodes.get(name, 0), after.get(name, 0))
            for name in sorted(nodes.keys() | after.keys())
            if nodes.get(name, 0) != after.get(name, 0)
        },
        over_quota=tuple(found for found in _over_quota(copy) if found not in over),
        queues=_queues_of_victims(copy),
        resizes=_resizes(copy, {unit.job for unit in units}),
        notes=(*notes, *_queue_notes(copy, change), *_errors(copy)),
        at_rest=at_rest,
    )


def _apply(copy: ClusterCopy, change: PlannedChange) -> list[PlannedUnit]:
    """Apply the change, and return the units with their pods as they came."""
    for event in change.events:
        copy.tell(_as_applied(copy, event))
    drained = [_drain(copy, name) for name in change.without]
    units = _as_new([*drained, *change.units], int(copy.now))
    for unit in sorted(units, key=lambda unit: unit.kind != POD):
        for pod in unit.pods:
            copy.tell(Seen(pod))
    return units


def _as_decided(copy: ClusterCopy, units: list[PlannedUnit]) -> list[PlannedUnit]:
    """Join objects whose pods form one unit at the place of the first, and find the pods that wait for them already."""
    cluster, joined = copy.scheduler.cluster, dict[int, PlannedUnit]()
    places: dict[str, int] = {}
    known = {pod.uid for unit in units for pod in unit.pods}
    for number, unit in enumerate(units):
        names = dict.fromkeys(name for pod in unit.pods if (name := cluster.unit_name(pod)))
        members = [member for name in names for _, member in sorted(cluster.units.by_name[name].members.items())]
        others = tuple(member.pod for member in members if member.counted is None and member.pod.uid not in known)
        known.update(pod.uid for pod in others)
        shared = next((name for name in names if name in places), "")
        place, whole = places.get(shared, number), replace(unit, others=others)
        if shared:
            first = joined[place]
            whole = PlannedUnit(
                UNIT,
                "",
                shared,
                first.pods + unit.pods,
                first.notes + unit.notes,
                first.others + others,
                first.job or unit.job,
            )
        joined[place] = whole
        if unit.kind != NODE:  # drained nodes come first
            places.update(dict.fromkeys(names, place))
    return list(joined.values())


def _as_applied(copy: ClusterCopy, event: Event) -> Event:
    """Return the event of an object of a file; one that exists keeps its uid, and what is in its status."""
    match event:
        case Seen(Pool() as pool) if pool.name in copy.pools:
            before = copy.pools[pool.name]
            return Seen(replace(pool, uid=before.uid, generation=before.generation + 1))
        case Seen(TenantQueue() as queue) if (queue.source, queue.name) in copy.queues:
            there = copy.queues[queue.source, queue.name]
            state = there.state if queue.source is QueueSource.VOLCANO else queue.state
            known = replace(queue, uid=there.uid, generation=there.generation + 1, state=state)
            since = {"over_quota_since_seconds": there.over_quota_since_seconds}
            return Seen(replace(known, **since, draining_since_seconds=there.draining_since_seconds))
        case Seen(Workload() as workload):
            return Seen(as_adopted(workload))
        case _:
            return event


def _drain(copy: ClusterCopy, node: str) -> PlannedUnit:
    """Remove a node with its pods; return those that their controllers would make again for this scheduler."""
    there = [pod for pod in copy.pods.values() if pod.node_name == node]
    there.sort(key=lambda pod: (pod.namespace, pod.name, pod.uid))
    copy.tell(gone(Node, node))
    for pod in there:
        copy.tell(gone(Pod, pod.uid))
    copy.count_lost(there)
    ours = copy.scheduler.cluster.ours
    again = [pod for pod in there if ours(pod) and not (pod.guarded or pod.terminating)]
    others = len(there) - len(again)
    notes = (f"{others} other pod{'s' * (others != 1)} on it {'end' if others != 1 else 'ends'} with it",)
    return PlannedUnit(NODE, "", node, tuple(again), notes if others else ())


def _as_new(units: Iterable[PlannedUnit], now_seconds: int) -> list[PlannedUnit]:
    """Return the units with pods that were created just now, each with a uid of its own."""
    return [
        replace(
            unit,
            pods=tuple(
                msgspec.structs.replace(
                    pod,
                    uid=f"planned-{number}-{index}",
                    node_name="" if unit.kind == NODE else pod.node_name,
                    created_seconds=now_seconds,
                    started_seconds=0,
                    nominated_node="",
                    said_to_wait=False,
                    phase=PENDING,
                )
                for index, pod in enumerate(unit.pods)
            ),
        )
        for number, unit in enumerate(units)
    ]


def _unit_plan(copy: ClusterCopy, unit: PlannedUnit) -> UnitPlan:
    uids = {pod.uid for pod in unit.pods}
    binds = {action.pod.uid: action for action in copy.happened if isinstance(action, Bind)}
    evicted = {action.victim.uid: action for action in copy.happened if isinstance(action, Evict)}
    nodes: dict[str, str] = {}
    lenders: dict[str, str] = {}
    waits: dict[str, str] = {}
    for pod in unit.pods:
        name, now, bind = pod_name(unit, pod), copy.pods.get(pod.uid), binds.get(pod.uid)
        if now is None:
            gone_for = evicted[pod.uid].message if pod.uid in evicted else "Its job shrinks."
            waits[name] = f"it starts and is evicted again. {gone_for}"
        elif now.node_name:
            nodes[name] = now.node_name
            if bind is not None and bind.borrowed:
                lenders[name] = bind.pool
        elif not copy.scheduler.cluster.ours(pod):
            waits[name] = OTHER_SCHEDULER.format(pod.scheduler_name)
        else:
            waits[name] = copy.scheduler.why(pod.uid)
    warned = [action.message for action in copy.happened if isinstance(action, Warn) and action.about.uid in uids]
    askers = uids | {pod.uid for pod in unit.others}
    evictions = [eviction for eviction in evicted.values() if _asker(eviction) in askers]
    with_it = [
        f"{full_name(pod)} of its unit, which waits already, starts on {binds[pod.uid].node}"
        for pod in unit.others
        if pod.uid in binds
    ]
    growth = _growth(copy, unit.job) if unit.job is not None else None
    grows = [_growth_note(copy, unit.job, growth)] if unit.job is not None and growth is not None and not waits else []
    notes = (*unit.notes, *dict.fromkeys(warned), *with_it, *_kept(copy, unit), *grows)
    return UnitPlan(unit, nodes, lenders, waits, tuple(evictions), notes, growth)


def _growth(copy: ClusterCopy, key: JobKey) -> JobGrowth | None:
    """Return what becomes of an elastic job; None where it is not elastic."""
    workload = copy.jobs.workloads.get(key)
    job = workload.elastic if workload is not None else None
    if job is None or job.problem is not None:
        return None
    return JobGrowth(job.terms.min_instances, job.terms.max_instances, job.size)


def _growth_note(copy: ClusterCopy, key: JobKey, growth: JobGrowth) -> str:
    """Return with how many instances a job starts, and to how many it grows; where it does not, why."""
    starts = f"it starts with {growth.minimum} instance{'s' * (growth.minimum != 1)}"
    if growth.size > growth.minimum:
        return f"{starts}, would grow to {growth.size}"
    row = job_row(elastic_jobs(copy.scheduler.cluster, copy.now), key[:1], *key[1:])
    return f"{starts}, would not grow: {row.growth.why}" if row is not None else starts


def _resizes(copy: ClusterCopy, planned: Container[JobKey | None]) -> tuple[JobResize, ...]:
    """Return the sizes of other jobs before everything that happened, and now, of those that changed."""
    before: dict[JobKey, int] = {}
    for action in copy.happened:
        if isinstance(action, Resize):
            before.setdefault((action.kind, action.namespace, action.name), action.before)
    found = []
    for key, size in sorted(before.items()):
        workload = copy.jobs.workloads.get(key)
        job = workload.elastic if workload is not None else None
        if job is not None and job.size != size and key not in planned:
            found.append(JobResize("/".join(part for part in key if part != "default"), size, job.size))
    return tuple(found)


def _kept(copy: ClusterCopy, unit: PlannedUnit) -> list[str]:
    """Return which pods the first pod that waits may not evict, by the rules of tenant queues."""
    cluster = copy.scheduler.cluster
    records = (cluster.records.get(pod.uid) for pod in unit.pods)
    waiting = next((record for record in records if record is not None and record.waits_as.usable), None)
    found = kept_pods(question_of(cluster, waiting, copy.now)) if waiting is not None else ()
    return [f"it may not evict {_named(kept.pods)}: {kept.text}" for kept in found]


def _asker(eviction: Evict) -> str:
    return eviction.beneficiary.uid if eviction.beneficiary is not None else ""


def _queues_of_victims(copy: ClusterCopy) -> dict[str, str]:
    tenants = copy.scheduler.cluster.tenants
    victims = [action.victim for action in copy.happened if isinstance(action, Evict)]
    return {victim.uid: queue for victim in victims if (queue := tenants.tenancy(victim).queue)}


def _queue_notes(copy: ClusterCopy, change: PlannedChange) -> Iterator[str]:
    """Yield what is wrong with the tenant queues of the change, and which evictions come later than the plan goes."""
    tenants = copy.scheduler.cluster.tenants
    for given in objects_of(change.events, TenantQueue):
        queue = tenants.queues.get(given.name)
        if queue is None or queue.source is not given.source:
            yield f"The queue {given.name} of Volcano does not count, because there is a Queue of this name"
            continue
        if problem := queue.invalid or tenants.queues.problem(queue):
            yield f"The queue {queue.name} takes nothing new: {problem}"
        running = any(record.counted is not None for record in tenants.in_queues(tenants.queues.below((queue.name,))))
        since, after, why = queue.over_quota_since_seconds, queue.shrink_after_seconds, "is above its quota"
        if queue.draining_since_seconds:
            since, after, why = queue.draining_since_seconds, queue.drain_after_seconds, "drains"
        if running and since and after is not None and since + after > copy.now:
            yield f"The queue {queue.name} {why}: pods are evicted for it from {time_text(since + after)} on"


def _over_quota(copy: ClusterCopy) -> tuple[OverQuota, ...]:
    """Return what queues use beyond their quotas, as their status would say."""
    cluster, found = copy.scheduler.cluster, list[OverQuota]()
    for name in cluster.tenants.queues.names():
        queue = cluster.tenants.queues.get(name)
        if queue is None:
            continue
        summary = summary_of(cluster, queue, Counter())
        found += over_quota(name, summary)
    return tuple(found)


def _pool_nodes(copy: ClusterCopy) -> dict[str, int]:
    return {summary.name: summary.nodes for summary in copy.scheduler.summary()}


def _meanwhile(copy: ClusterCopy) -> list[str]:
    """Return notes about what happens without the change."""
    made = copy.jobs.made
    binds = [action for action in copy.happened if isinstance(action, Bind) and action.pod.uid not in made]
    started = [full_name(bind.pod) for bind in binds]
    evicted = [full_name(action.victim) for action in copy.happened if isinstance(action, Evict)]
    notes = []
    if started:
        notes.append(f"Without this change too, {_counted(started, 'waiting pod')} would start: {_named(started)}")
    if evicted:
        notes.append(f"Without this change too, {_counted(evicted, 'pod')} would be evicted: {_named(evicted)}")
    notes += [
        f"Without this change too, {change.job} would have the size {change.size} instead of {change.before}"
        for change in _resizes(copy, ())
    ]
    return [*notes, *_errors(copy)]


def _errors(copy: ClusterCopy) -> list[str]:
    return [
        f"The scheduler failed while {action.doing}: {action.error}"
        for action in copy.happened
        if isinstance(action, ReportInternalError)
    ]


def pod_name(unit: PlannedUnit, pod: Pod) -> str:
    """Return the name of a pod in its unit: a drained node, or several objects, may have pods of several namespaces."""
    return full_name(pod) if unit.kind in (NODE, UNIT) else pod.name


def _counted(names: Sequence[str], noun: str) -> str:
    return f"{len(names)} {noun}{'s' * (len(names) != 1)}"


def _named(names: Sequence[str]) -> str:
    more = len(names) - NAMED_MAX
    return f"{', '.join(names[:NAMED_MAX])}{f' and {more} more' if more > 0 else ''}"
