"""The pods on nodes with whose end a waiting pod, or a unit, starts; see `remedies`.

Invariants:
- The pods are on one node; those of a unit may be on several of its home pool. None of them can be left out.
- Pods of DaemonSets, static pods and system-critical pods are never ended: they come back, or the node needs them.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import numpy as np
from msgspec import Struct

from aischeduler.analysis.explanation import EndPods, Remedy, RemedyKind, Start, full_name
from aischeduler.analysis.what_if import (
    Question,
    importance,
    may_leave,
    pods_ended,
    proposed,
    question_of,
    room_of,
)
from aischeduler.engine.propose import may_not_preempt
from aischeduler.model.proposal import Hold, LenderRefusal
from aischeduler.policies.loan_limits import lender_refusal
from aischeduler.state.label_index import Rows
from aischeduler.state.ledger import BORROWS, within
from aischeduler.state.pod_records import PodRecord
from aischeduler.state.requests import Amounts

NODES_TRIED_MAX: Final = 16
"""The most nodes that are changed in one way, those first that may need the smallest change."""
NODES_RANKED_MAX: Final = 64
"""The most nodes of which the pods that may end are looked at."""
SIZES_TRIED_MAX: Final = 8
"""By how many pods a set that frees what a node lacks may be larger than the smallest that could."""
OTHERS_TRIED_MAX: Final = 8
"""The most sets of other pods of a node that are tried where the end of the least important ones does not help."""
ENDED_MAX: Final = 64
"""The most pods that end for a unit."""
NAMED_MAX: Final = 3
"""The most pods, and nodes, that the text names; the others are counted."""
NEVER: Final = 2**31
"""The number of pods whose end frees enough on a row, where that of all does not."""


def pods_end_remedies(question: Question) -> list[Remedy]:
    """Return few pods on one node whose end starts the pod; where fewer do with evictions, those too."""
    cluster, record = question.cluster, question.record
    if isinstance(proposed(cluster, record, question.now), Hold):
        return []  # what holds a pod is no pod on a node
    if record.leads is not None:
        return _few_for_unit(question)
    at_once = _few_pods(question, evicting=False)
    found = [at_once] if at_once is not None else []
    if not may_not_preempt(cluster, record):
        later = _few_pods(question, evicting=True)
        if later is not None and (at_once is None or later.cost[0] < at_once.cost[0]):
            found.append(later)
    return found


def _few_pods(question: Question, *, evicting: bool) -> Remedy | None:
    """Return the remedy of the fewest pods found on the nodes that are tried, of which none can be left out."""
    nodes = _nodes_with_pods(question, evicting=evicting)
    ended, start, least = list[PodRecord](), None, 0
    for node in nodes:
        if start is not None and len(ended) <= node.least:
            break
        records = node.enough()
        found = _start_without(question, records, evicting=evicting)
        if found is not None and (start is None or len(records) < len(ended)):
            ended, start, least = records, found, node.least
    if start is None:
        others = (records for node in nodes for records in node.others())
        tries = ((records, _start_without(question, records, evicting=evicting)) for records in others)
        ended, start = next((tried for tried in tries if tried[1] is not None), ([], None))
    count = least
    while start is not None and len(ended) != count:
        count = len(ended)
        ended, start = _put_back(question, ended, start, evicting=evicting)
    return _on_nodes(question, ended, start) if start is not None else None


def _few_for_unit(question: Question) -> list[Remedy]:
    """Return pods whose end starts a unit at once: on a node after the other, for each pod of it that does not fit."""
    cluster, ended, start, short = question.cluster, list[PodRecord](), None, question
    with ExitStack() as changes:
        while start is None and len(ended) < ENDED_MAX:
            with short.beside(question.home) as (fits, _):
                node = next(iter(_nodes_with_pods(short, evicting=False)), None)
            records = node.enough() if node is not None and fits < len(question.record.together) else []
            if not records:
                break
            ended += records
            changes.enter_context(pods_ended(cluster, records))
            start = _start_without(question, [], evicting=False)
            short = question_of(cluster, question.record, question.now)
    if start is None or len(ended) > ENDED_MAX:
        return []
    ended, start = _put_back(question, ended, start, evicting=False)
    return [_on_nodes(question, ended, start)]


def pods_end(where: str, records: list[PodRecord], start: Start) -> Remedy:
    """Return the end of these pods as a remedy; `where` says what they have in common."""
    pods = tuple(record.pod for record in records)
    text = f"end {'these pods' if len(pods) > 1 else 'the pod'} {where}: {_some([*map(full_name, pods)])}"
    return Remedy(RemedyKind.PODS_END, text, EndPods(pods), start, (len(pods), text))


def _on_nodes(question: Question, records: list[PodRecord], start: Start) -> Remedy:
    nodes = sorted({question.cluster.nodes.names[record.row] for record in records})
    return pods_end(f"on {_some(nodes)}", records, start)


def _some(names: list[str]) -> str:
    more = len(names) - NAMED_MAX
    return f"{', '.join(names[:NAMED_MAX])}{f' and {more} more' if more > 0 else ''}"


class _NodeToClear(Struct, frozen=True):
    """The pods of a node that may end, the least important first, and what their end must free.

    At least `least` of them must end. `amounts` has what each pod takes of each resource that the pod requests.
    """

    least: int
    records: list[PodRecord]
    lacks: Amounts
    amounts: Amounts

    def enough(self) -> list[PodRecord]:
        """Return few pods that take what the node lacks: of as many, the less important ones; all where none are found.

        A pod is chosen where it and the largest of those after it are enough, each resource taken by itself.
        """
        for size in range(self.least, min(len(self.records), self.least + SIZES_TRIED_MAX) + 1):
            chosen: list[int] = []
            left = self.lacks.copy()
            for number in range(len(self.records)):
                after = -np.sort(-self.amounts[:, number + 1 :], axis=1)[:, : size - len(chosen) - 1].sum(axis=1)
                if (left - self.amounts[:, number] <= after).all():
                    chosen.append(number)
                    left -= self.amounts[:, number]
                if len(chosen) == size:
                    break
            if (left <= 0).all():
                return [self.records[number] for number in chosen]
        return self.records

    def others(self) -> Iterator[list[PodRecord]]:
        """Yield the least important pods, ever more, then others: a waiting pod may take the room of many or of one."""
        count = self.least
        while count < 2 * len(self.records):
            yield self.records[:count]
            count *= 2
        for first in range(1, min(len(self.records) - self.least, OTHERS_TRIED_MAX) + 1):
            yield self.records[first : first + self.least]


def _put_back(
    question: Question, records: list[PodRecord], start: Start, *, evicting: bool
) -> tuple[list[PodRecord], Start]:
    """Put back those of the ended pods without whose end the pod starts too, the most important first.

    Pods that are put back together are tried together first, so that few of many need few tries.
    """
    ended, parts = list(range(len(records))), [range(len(records))]
    while parts:
        part = parts.pop()
        fewer = [number for number in ended if number not in part]
        other = _start_without(question, [records[number] for number in fewer], evicting=evicting) if fewer else None
        if other is not None:
            ended, start = fewer, other
        elif len(part) > 1:
            half = len(part) // 2
            parts += [part[:half], part[half:]]
    return [records[number] for number in ended], start


def _start_without(question: Question, records: list[PodRecord], *, evicting: bool) -> Start | None:
    """Return where the pod starts after the end of these pods: at once, or with `evicting` also after evictions."""
    with pods_ended(question.cluster, records):
        start = question.start()
    return start if start is not None and (evicting or not start.victims) else None


def _nodes_with_pods(question: Question, *, evicting: bool) -> list[_NodeToClear]:
    """Return nodes to try: first those where fewer pods must end, then those with less important pods.

    With `evicting`, pods that may be evicted are evicted, so they do not end.
    """
    cluster, names, running = question.cluster, question.cluster.nodes.names, question.cluster.running
    lacking = _lacking(question, evicting=evicting)
    found: list[tuple[int, tuple[bool, int], str, _NodeToClear]] = []
    for row in sorted(lacking, key=lambda row: (lacking[row][0], names[row]))[:NODES_RANKED_MAX]:
        least, lacks = lacking[row]
        records = [record for record in cluster.on_row(row) if not (record.pod.guarded or record.pod.critical)]
        if evicting:
            slots = running.slots_on(np.array([row], dtype=np.intp))
            evicted = set(running.uids_of(slots[may_leave(question, slots)]))
            records = [record for record in records if record.pod.uid not in evicted]
        if len(records) >= least:
            records.sort(key=importance)
            taken = [record.pod.spec.request.taken for record in records]
            amounts = [[asked.get(name, 0) for asked in taken] for name in question.spec.request.taken]
            node = _NodeToClear(least, records, lacks, np.array(amounts, dtype=np.int64))
            found.append((least, importance(records[least - 1])[:2], names[row], node))
    return [node for *_, node in sorted(found, key=lambda node: node[:3])[:NODES_TRIED_MAX]]


def _lacking(question: Question, *, evicting: bool) -> dict[int, tuple[int, Amounts]]:
    """Return the rows where the end of pods may start the pod: how many must end at least, and what the row lacks.

    The pod starts on the row, or, where a limit keeps it waiting, on a row of a lender that has room. A unit, to which
    a pool lends as a whole, is to start at home.
    """
    cluster, spec, home = question.cluster, question.spec, question.cluster.pools.pools[question.home]
    found = _short_of_room(question, home.name, evicting=evicting)
    if evicting or question.record.leads is not None or home.invalid or home.disable_borrowing:
        return found
    table = cluster.running.table
    loans = table[(table["row"] >= 0) & table["borrower"] & table["ours"]]
    own = (loans["home"] == cluster.pools.id(home.name)) & bool(
        within(home.borrowing_limit, cluster.ledger.of(BORROWS, home.name), question.total)
    )
    for name in question.others():
        refusal = lender_refusal(cluster.borrowing, home.name, name, question.total)
        if refusal not in (None, LenderRefusal.LENDING_LIMIT):
            continue
        found |= _short_of_room(question, name, evicting=False)
        if cluster.runner.passes(spec, question.rows_of(name)).any():
            of_lender = (cluster.nodes.pool[loans["row"]] == cluster.pools.id(name)) & (refusal is not None)
            nothing = np.zeros(len(spec.request.taken), dtype=np.int64)
            found |= dict.fromkeys(loans["row"][own | of_lender].tolist(), (1, nothing))
    return found


def _short_of_room(question: Question, pool: str, *, evicting: bool) -> dict[int, tuple[int, Amounts]]:
    """Return of each row of a pool on which the pod could run how many pods must end at least, and what it lacks."""
    nodes, wanted = question.cluster.nodes, question.cluster.nodes.wanted(question.spec)
    rows = question.rows_of(pool)
    rows = rows[question.cluster.runner.allowed(question.spec, rows)]
    with room_of(question, question.spec, rows, evicting=evicting):
        short = wanted.amounts - (nodes.allocatable - nodes.used)[np.ix_(wanted.columns, rows)]
        least = np.maximum(_least_that_free(question, rows, short, evicting=evicting), 1)
    return {row: (int(least[at]), short[:, at]) for at, row in enumerate(rows.tolist()) if least[at] < NEVER}


def _least_that_free(question: Question, rows: Rows, short: Amounts, *, evicting: bool) -> Amounts:
    """Return per row the fewest pods whose end frees what is short of each resource by itself; NEVER where none do."""
    cluster = question.cluster
    slots = cluster.running.slots_on(rows)
    slots = slots[~may_leave(question, slots)] if evicting else slots
    table, specs = cluster.running.pods_in(slots), cluster.running.specs
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
