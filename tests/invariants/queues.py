"""The invariants of a queue: its lists, classes and counters agree with its records."""

from collections import Counter
from collections.abc import Iterable

from aischeduler.engine.cluster import Cluster
from aischeduler.state.node_table import UNOFFERED
from aischeduler.state.pod_records import WAITING, PodRecord, PodState
from aischeduler.state.scheduling_queue import PoolQueue, QueuedClass, class_key, queue_order
from tests.invariants import recount
from tests.invariants.recount import Faults, unequal

TIMED = frozenset((PodState.PARKED, PodState.NOMINATED, PodState.HELD))
"""The states from which the five-minute flush brings pods back."""


def queue_faults(cluster: Cluster, queue: PoolQueue) -> Faults:
    """Check one queue: every waiting pod is in exactly the lists of its state."""
    records = list(queue._records.values())
    for record in records:
        if record.queue != queue.pool or record.state not in WAITING:
            yield "I3", f"{record.pod.uid}: {record.state.name} in '{record.queue}', and in the queue of {queue.pool}"
    yield from _list_faults(queue, records)
    yield from _class_faults(cluster, queue)


def _list_faults(queue: PoolQueue, records: list[PodRecord]) -> Faults:
    """Check the lists, in their order, and the counters."""
    active = [record for record in records if record.state is PodState.ACTIVE]
    backoff = [record for record in records if record.state is PodState.BACKOFF]
    early = [record for record in backoff if not record.failed]
    timed = [record.pod.uid for record in records if record.state in TIMED]
    parked = {_class(record) for record in records if record.state is PodState.PARKED}
    home = [record for record in records if record.home == queue.pool]
    since = list(queue._since.values())
    by_time = sorted(backoff, key=lambda record: (record.backoff_until, queue_order(record)))
    yield from unequal(
        queue.pool,
        ("I3", "active pods are", _uids(queue._active), _uids(sorted(active, key=queue_order))),
        ("I3", "pods in backoff are", _uids(queue._backoff), _uids(by_time)),
        ("I3", "tried early are", _uids(queue._early), _uids(sorted(early, key=queue_order))),
        ("I3", "waiting times are kept for", sorted(queue._since), sorted(timed)),
        ("I3", "the waiting times are in the order", since, sorted(since)),
        ("I3", "pods by state are", +queue._counts, Counter(record.state for record in records)),
        ("I3", "active home pods are", queue.home_active, sum(record.state is PodState.ACTIVE for record in home)),
        ("I3", "usable pods are", queue._usable, sum(record.usable for record in home)),
        ("I3", "parked classes are", len(queue._heads), len(parked)),
    )


def _class_faults(cluster: Cluster, queue: PoolQueue) -> Faults:
    alike: dict[tuple[object, ...], list[PodRecord]] = {}
    for record in queue._records.values():
        if record.state is not PodState.GATED:
            alike.setdefault(_class(record), []).append(record)
    if len(alike) != len(queue._classes) or list(queue._slots) != [one.slot for one in queue._slots.values()]:
        yield "I3", f"{queue.pool}: {len(alike)} classes wait, {len(queue._classes)} are kept"
        return
    by_spec = {spec: {key for key, one in queue._classes.items() if spec in one.specs} for spec in queue._by_spec}
    shapes = {slot: key for key, classes in queue._shapes.items() for slot in classes}
    yield from unequal(
        queue.pool,
        ("I3", "classes by spec are", {spec: set(keys) for spec, keys in queue._by_spec.items()}, by_spec),
        ("I3", "specs of classes are", set(by_spec), {spec for one in queue._classes.values() for spec in one.specs}),
        ("I3", "shapes are", shapes, {one.slot: one.shape.key for one in queue._classes.values() if one.shape}),
    )
    for records in alike.values():
        yield from _one_class_faults(cluster, queue, queue._classes[class_key(records[0])], records)


def _one_class_faults(cluster: Cluster, queue: PoolQueue, kept: QueuedClass, records: list[PodRecord]) -> Faults:
    parked = sorted((record for record in records if record.state is PodState.PARKED), key=queue_order)
    usable = [record for record in records if record.usable and record.home == queue.pool]
    nominated = [record for record in records if record.state is PodState.NOMINATED]
    row, asked, columns = queue._demand.request(kept.slot), _asked(records[0]), cluster.nodes.columns
    known = {name: int(row[column]) for name, column in columns.items()}
    unoffered = any(amount for name, amount in asked.items() if name not in columns)
    yield from unequal(
        f"{queue.pool}, the class of {_uids(records)}",
        ("I3", "nominated are", sorted(kept.nominated), sorted(_uids(nominated))),
        ("I3", "parked are", _uids(kept.parked), _uids(parked)),
        ("I3", "waiting and usable pods are", (kept.pending, kept.usable), (len(records), len(usable))),
        ("I3", "requests", known, {name: asked[name] for name in known}),
        ("I3", "requests what no node offers:", bool(row[UNOFFERED]), bool(unoffered)),
        ("I3", "has a slot of its own:", queue._slots.get(kept.slot) is kept, True),
    )


def _class(record: PodRecord) -> tuple[object, ...]:
    """Return the class of a pod: its spec, whether it may preempt, and where a plugin sorts the queue its priority.

    Its tenant queue and its service are parts of it. A unit of several is a class of its own.
    """
    unit = record.unit
    if unit is not None and unit.lead is record:
        return (b"", True, unit.name, None)
    queue, service = record.tenancy.queue, record.tenancy.service
    tenancy = (queue, (service if record.tenancy.known else "unseen") if queue else None)
    ranked = record.pod.priority if record.rank is not None else None
    return (record.pod.spec.key, record.pod.preempts, "", ranked, tenancy)


def _asked(record: PodRecord) -> Counter[str]:
    """Return the request of a pod; of a unit, the smallest of each resource that all of its pods request."""
    of_each = [recount.amounts(one.pod.spec) for one in record.together]
    return Counter({name: min(asked[name] for asked in of_each) for name in set().union(*of_each)})


def _uids(records: Iterable[PodRecord]) -> list[str]:
    return [record.pod.uid for record in records]
