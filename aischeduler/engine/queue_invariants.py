"""The invariants of a queue: its lists, classes and counters agree with its records."""

from collections import Counter
from collections.abc import Iterable, Iterator

from aischeduler.engine import recount
from aischeduler.engine.cluster import Cluster
from aischeduler.state.nodes import UNOFFERED
from aischeduler.state.queue import PoolQueue
from aischeduler.state.records import WAITING, PodRecord, PodState
from aischeduler.state.waiting_class import class_key

TIMED = frozenset((PodState.PARKED, PodState.NOMINATED, PodState.HELD))
"""The states from which the five-minute flush brings pods back."""


def queue_faults(cluster: Cluster, queue: PoolQueue) -> Iterator[tuple[str, str]]:
    """Check one queue: every waiting pod is in exactly the lists of its state."""
    records = list(queue._records.values())
    for record in records:
        if record.queue != queue.pool or record.state not in WAITING:
            yield "I3", f"{record.pod.uid}: {record.state.name} in '{record.queue}', and in the queue of {queue.pool}"
    for fault in (*_list_faults(queue, records), *_counter_faults(queue, records), *_class_faults(cluster, queue)):
        yield "I3", f"{queue.pool}: {fault}"


def _list_faults(queue: PoolQueue, records: list[PodRecord]) -> Iterator[str]:
    backoff = [record for record in records if record.state is PodState.BACKOFF]
    lists: tuple[tuple[str, Iterable[PodRecord], list[PodRecord]], ...] = (
        ("active", queue._active, [record for record in records if record.state is PodState.ACTIVE]),
        ("backing off", queue._backoff, backoff),
        ("tried early", queue._early, [record for record in backoff if not record.failed]),
    )
    for name, kept, should in lists:
        if Counter(record.pod.uid for record in kept) != Counter(record.pod.uid for record in should):
            yield f"{name} are {_uids(should)}, kept are {_uids(kept)}"
    for name, kept in (("active", queue._active), ("tried early", queue._early)):
        orders = [record.order for record in kept]
        if orders != sorted(orders):
            yield f"{name} are out of order: {_uids(kept)}"
    times = [(record.backoff_until, record.order) for record in queue._backoff]
    if times != sorted(times):
        yield f"backing off are out of order: {_uids(queue._backoff)}"
    if set(queue._since) != {record.pod.uid for record in records if record.state in TIMED}:
        yield f"waiting times are kept for {sorted(queue._since)}"
    if list(queue._since.values()) != sorted(queue._since.values()):
        yield f"the waiting times are out of order: {queue._since}"


def _counter_faults(queue: PoolQueue, records: list[PodRecord]) -> Iterator[str]:
    states = Counter(record.state for record in records)
    if states != +queue._counts:
        yield f"its states hold {states}, counted are {queue._counts}"
    home = [record for record in records if record.home == queue.pool]
    counts = {
        "home_active": (queue.home_active, sum(record.state is PodState.ACTIVE for record in home)),
        "usable": (queue._usable, sum(record.usable for record in home)),
        "parked classes": (
            len(queue._heads),
            len({_class(record) for record in records if record.state is PodState.PARKED}),
        ),
    }
    odd = {name: pair for name, pair in counts.items() if pair[0] != pair[1]}
    if odd:
        yield f"counted (is, should be): {odd}"


def _class_faults(cluster: Cluster, queue: PoolQueue) -> Iterator[str]:
    alike: dict[tuple[bytes, bool, str], list[PodRecord]] = {}
    for record in queue._records.values():
        if record.state is not PodState.GATED:
            alike.setdefault(_class(record), []).append(record)
    if len(alike) != len(queue._classes) or list(queue._slots) != [one.slot for one in queue._slots.values()]:
        yield f"{len(alike)} classes wait, {len(queue._classes)} are kept"
        return
    for records in alike.values():
        kept = queue._classes[class_key(records[0])]
        parked = sorted((record for record in records if record.state is PodState.PARKED), key=lambda r: r.order)
        usable = [record for record in records if record.usable and record.home == queue.pool]
        nominated = {record.pod.uid for record in records if record.state is PodState.NOMINATED}
        if set(kept.nominated) != nominated:
            yield f"of one class {sorted(nominated)} are nominated, kept are {sorted(kept.nominated)}"
        if [record.pod.uid for record in kept.parked] != _uids(parked):
            yield f"of one class {_uids(parked)} are parked, kept are {_uids(kept.parked)}"
        if (kept.pending, kept.usable) != (len(records), len(usable)):
            yield f"the class of {_uids(records)} is counted as {kept.pending} pending, {kept.usable} usable"
        row = queue._demand._amounts[kept.slot]
        asked, columns = _asked(records[0]), cluster.nodes.columns
        if len(row) == len(cluster.nodes.used) and bool(row[UNOFFERED]) != any(name not in columns for name in asked):
            yield f"the class of {_uids(records)} asks for {asked}, unoffered kept is {row[UNOFFERED]}"
        if queue._slots.get(kept.slot) is not kept or any(
            row[column] != asked[name] for name, column in columns.items() if column < len(row)
        ):
            yield f"the class of {_uids(records)} asks for {asked}, kept is {row.tolist()}"


def _class(record: PodRecord) -> tuple[bytes, bool, str]:
    """Return the class of a pod: its spec, and whether it may preempt; a unit of several is a class of its own."""
    unit = record.unit
    if unit is not None and unit.lead is record:
        return (b"", True, unit.name)
    return (record.pod.spec.key, record.pod.preempts, "")


def _asked(record: PodRecord) -> Counter[str]:
    """Return the request of a pod; of a unit, the smallest of each resource that all of its pods request."""
    of_each = [recount.amounts(one.pod.spec) for one in record.together]
    return Counter({name: min(asked[name] for asked in of_each) for name in set().union(*of_each)})


def _uids(records: Iterable[PodRecord]) -> list[str]:
    return [record.pod.uid for record in records]
