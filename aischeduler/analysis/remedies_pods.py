"""The fewest pods on one node with whose end a waiting pod starts.

Invariants:
- Pods of DaemonSets, static pods and system-critical pods are never named: they come back, or the node needs them.
- Of as many pods, the least important ones are named: borrowers, then lower priority, then later start, then uid.
- The end of a pod can free room on its node, a host port, room within a limit, or a pod that is held for it.
"""

from collections.abc import Iterator
from heapq import merge
from itertools import islice
from typing import Final

import numpy as np
from msgspec import Struct

from aischeduler.analysis.explanation import EndPods, Remedy, RemedyKind, Start
from aischeduler.analysis.fewest import fewest_first
from aischeduler.analysis.what_if import Question, may_leave, pods_ended, proposed, room_of
from aischeduler.engine.propose import may_not_evict
from aischeduler.model.pool import Pool
from aischeduler.model.proposal import Hold, LenderRefusal
from aischeduler.plugins.inter_pod_affinity import kept_away_by
from aischeduler.plugins.node_ports import conflict
from aischeduler.policies.borrowing import lender_refusal
from aischeduler.state.label_index import Rows
from aischeduler.state.ledger import BORROWS, LENDS
from aischeduler.state.pod_records import PodRecord
from aischeduler.state.requests import Amounts

SOLVED_MAX: Final = 64
"""The most nodes on which the fewest pods are searched, those first that may need the fewest."""
TRIED_MAX: Final = 16
"""The most sets of pods that are tried: of the first set of each node, and again of all others."""
NAMED_MAX: Final = 3
"""The most pods that the text names; the others are counted."""
NEVER: Final = 2**31


class _Shortage(Struct, frozen=True):
    """A node whose pods may end, and what their end must free.

    `limits` are the amounts by which the pod exceeds a limit: the pool whose loans count, whether it lends, the
    resource, the amount. With `room`, the pod runs on this node; else a node of the lender has room already.
    `least` is a lower bound of the number of pods. With `evicting`, the pods that may leave for it are evicted besides.
    """

    row: int
    least: int
    room: bool
    evicting: bool
    limits: tuple[tuple[str, bool, str, int], ...]


def pods_end_remedies(question: Question) -> list[Remedy]:
    """Return the fewest pods on one node whose end starts the pod; where fewer do with evictions, those too."""
    if isinstance(proposed(question.cluster, question.record, question.now), Hold):
        return []
    if question.record.leads is not None:  # the pods of a unit start on several nodes
        return []
    at_once = _fewest(question, evicting=False)
    found = [at_once] if at_once is not None else []
    if not may_not_evict(question.cluster, question.record):
        later = _fewest(question, evicting=True)
        if later is not None and (at_once is None or later.cost[0] < at_once.cost[0]):
            found.append(later)
    return found


def _fewest(question: Question, *, evicting: bool) -> Remedy | None:
    """Return the remedy of the smallest set of pods whose end starts the pod.

    Other pods that wait may take what a set frees. So after the first set of each node, its others are tried.
    """
    in_vain: list[Iterator[list[PodRecord]]] = []
    found = None
    for records, others in islice(_first_sets(question, evicting=evicting), TRIED_MAX):
        found = _tried(question, records)
        if found is not None:
            break
        in_vain.append(others)
    for records in islice(merge(*in_vain, key=len), TRIED_MAX):
        if found is not None and len(records) >= found.cost[0]:
            break
        fewer = _tried(question, records)
        if fewer is not None:
            return fewer
    return found


def _tried(question: Question, records: list[PodRecord]) -> Remedy | None:
    """Return the remedy of these pods; None where the pod does not start after their end."""
    with pods_ended(question.cluster, records):
        start = question.start()
    return _remedy(question, records, start) if start is not None else None


def _remedy(question: Question, records: list[PodRecord], start: Start) -> Remedy:
    pods = tuple(record.pod for record in records)
    names = [f"{pod.namespace}/{pod.name}" for pod in pods]
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    node = question.cluster.nodes.names[records[0].row]
    text = f"end {'these pods' if len(names) > 1 else 'the pod'} on {node}: {', '.join(names[:NAMED_MAX])}{more}"
    return Remedy(RemedyKind.PODS_END, text, EndPods(pods), start, (len(pods), text))


def _may_end(record: PodRecord) -> bool:
    return not record.pod.guarded and not record.pod.critical


def _first_sets(question: Question, *, evicting: bool) -> Iterator[tuple[list[PodRecord], Iterator[list[PodRecord]]]]:
    """Yield the first set of each shortage, the smallest first, and of one size the least important pods first.

    The other sets of the shortage follow each.
    """
    names = question.cluster.nodes.names
    found = _short_of_room(question, question.home, (), evicting=True) if evicting else _shortages(question)
    shortages = sorted(found, key=lambda one: (one.least, names[one.row], one.room, one.limits))
    ready: list[tuple[int, tuple[bool, int], str, list[PodRecord], Iterator[list[PodRecord]]]] = []
    for shortage in shortages[:SOLVED_MAX]:
        ready.sort(key=lambda one: one[:3])
        while ready and ready[0][0] < shortage.least:
            yield ready.pop(0)[-2:]
        sets = _sets(question, shortage)
        records = next(sets, None)
        if records:
            worst = max((record.loan is None, record.pod.priority) for record in records)
            ready.append((len(records), worst, names[shortage.row], records, sets))
    yield from (one[-2:] for one in sorted(ready, key=lambda one: one[:3]))


def _shortages(question: Question) -> Iterator[_Shortage]:
    """Yield each node whose pods' end may start the pod at once."""
    yield from _short_of_room(question, question.home, ())
    home = question.cluster.pools.pools[question.home]
    if home.invalid or home.disable_borrowing:
        return
    for name in question.others():
        refusal = lender_refusal(question.cluster.borrowing, question.home, name, question.spec)
        if refusal not in (None, LenderRefusal.LENDING_LIMIT):
            continue
        limits = _exceeded(question, home, question.cluster.pools.pools[name])
        yield from _short_of_room(question, name, limits)
        if limits and question.cluster.runner.passes(question.spec, question.rows_of(name)).any():
            for row in _rows_with_loans(question, limits):
                yield _Shortage(row, 1, room=False, evicting=False, limits=limits)


def _exceeded(question: Question, home: Pool, lender: Pool) -> tuple[tuple[str, bool, str, int], ...]:
    """Return the amounts by which the pod exceeds the limits of its pool and of the lender."""
    ledger, asked = question.cluster.ledger, question.spec.request.taken
    found: list[tuple[str, bool, str, int]] = []
    for pool, lends, limit, sums in (
        (home, False, home.borrowing_limit, ledger.of(BORROWS, home.name)),
        (lender, True, lender.lending_limit, ledger.of(LENDS, lender.name)),
    ):
        for resource in sorted(limit):
            excess = sums.get(resource, 0) + asked.get(resource, 0) - limit[resource]
            if resource in asked and excess > 0:
                found.append((pool.name, lends, resource, excess))
    return tuple(found)


def _rows_with_loans(question: Question, limits: tuple[tuple[str, bool, str, int], ...]) -> list[int]:
    pools = {(pool, lends) for pool, lends, _, _ in limits}
    table = question.cluster.running.table
    rows = np.unique(table["row"][(table["row"] >= 0) & table["borrower"]]).tolist()
    return [
        row
        for row in rows
        if any(
            record.loan is not None and ((record.loan[1], False) in pools or (record.loan[0], True) in pools)
            for record in question.cluster.on_row(row)
        )
    ]


def _short_of_room(
    question: Question, pool: str, limits: tuple[tuple[str, bool, str, int], ...], *, evicting: bool = False
) -> Iterator[_Shortage]:
    """Yield the rows of a pool on which the pod could run, with a lower bound of the pods that must end."""
    cluster, spec = question.cluster, question.spec
    rows = question.rows_of(pool)
    rows = rows[cluster.runner.allowed(spec, rows)]
    with room_of(question, spec, rows, evicting=evicting):
        least = np.maximum(_least(question, rows, evicting=evicting), 1)
    for row, count in zip(rows.tolist(), least.tolist(), strict=True):
        if count < NEVER:
            yield _Shortage(row, count, room=True, evicting=evicting, limits=limits)


def _least(question: Question, rows: Rows, *, evicting: bool) -> Amounts:
    """Return per row the fewest pods whose end frees each resource, taken by itself; NEVER where none does."""
    cluster, wanted = question.cluster, question.cluster.nodes.wanted(question.spec)
    short = wanted.amounts - (cluster.nodes.allocatable - cluster.nodes.used)[np.ix_(wanted.columns, rows)]
    slots = cluster.running.slots_on(rows)
    slots = slots[~may_leave(question, slots)] if evicting else slots
    table, specs = cluster.running.table[slots], cluster.running.specs
    place = np.searchsorted(rows, table["row"])
    least = np.zeros(len(rows), dtype=np.int64)
    for resource, lacks in zip(question.spec.request.taken, short, strict=True):
        column = specs.resources.get(resource)
        amounts = specs.amounts[table["spec"], column] if column is not None else np.zeros(len(slots), dtype=np.int64)
        order = np.lexsort((-amounts, place))
        sums = np.cumsum(amounts[order])
        starts = np.searchsorted(place[order], np.arange(len(rows)))
        before = np.concatenate((np.zeros(1, dtype=np.int64), sums))
        already = before[:-1] - before[starts][place[order]]
        needed = np.bincount(place[order][already < lacks[place[order]]], minlength=len(rows))
        total = np.bincount(place, weights=amounts, minlength=len(rows))
        least = np.maximum(least, np.where(total >= lacks, needed, NEVER))
    return least


def _sets(question: Question, shortage: _Shortage) -> Iterator[list[PodRecord]]:
    """Yield the sets of pods of the node that free what is missing, the smallest first."""
    cluster, row = question.cluster, np.array([shortage.row], dtype=np.intp)
    records = [record for record in cluster.on_row(shortage.row) if _may_end(record)]
    if shortage.evicting:
        slots = cluster.running.slots_of(record.pod.uid for record in records)
        gone = set(cluster.running.uids_of(slots[may_leave(question, slots)]))
        records = [record for record in records if record.pod.uid not in gone]
    records.sort(key=_importance)
    needs: list[tuple[int, list[int]]] = []
    if shortage.room:
        with room_of(question, question.spec, row, evicting=shortage.evicting):
            needs += _room_needed(question, shortage.row, records)
    for pool, lends, resource, amount in shortage.limits:
        loans = [record.loan is not None and record.loan[0 if lends else 1] == pool for record in records]
        needs.append((amount, [_takes(one, resource) * loan for one, loan in zip(records, loans, strict=True)]))
    if needs and records:
        for chosen in fewest_first([need for need, _ in needs], [frees for _, frees in needs]):
            yield [records[i] for i in chosen]


def _room_needed(question: Question, row: int, records: list[PodRecord]) -> Iterator[tuple[int, list[int]]]:
    """Yield each amount and host port that the row lacks, and how much of it each pod takes.

    Where the pod and others there keep away from each other, what it lacks is that they are gone.
    """
    nodes = question.cluster.nodes
    room = nodes.named(nodes.room(row))
    for resource, amount in question.spec.request.taken.items():
        if amount > room.get(resource, 0):
            yield amount - room.get(resource, 0), [_takes(record, resource) for record in records]
    for port in question.spec.host_ports:
        taking = [any(conflict(port, other) for other in record.pod.spec.host_ports) for record in records]
        if any(conflict(port, other) for other in nodes.ports.on.get(row, {})):
            yield max(sum(taking), 1), [int(takes) for takes in taking]
    counts = nodes.pod_counts
    for by in kept_away_by(question.spec, counts):
        kept = counts.of(by)
        if kept.rows[row]:
            yield kept.rows[row], [int(record.pod.uid in kept) for record in records]


def _takes(record: PodRecord, resource: str) -> int:
    return record.pod.spec.request.taken.get(resource, 0)


def _importance(record: PodRecord) -> tuple[bool, int, int, str]:
    """Return the order in which pods are named: the least important first."""
    pod = record.pod
    started = pod.started_seconds or 2**62
    return (record.loan is None, pod.priority, -started, pod.uid)
