"""The single changes with which a waiting pod starts, each verified by a proposal on the changed state.

Invariants:
- A remedy is one change: of one request, one limit, one flag, one node, the quotas that refuse it, or the end of pods
  on one node or of one tenant queue.
- It is named only if the engine proposes a start on the state with the change.
- No smaller change of one request or limit starts the pod, and no pod can be left out of those that end.
- A start at once comes before a start after evictions, then the kinds in the order of `ORDER`, then the cost.
- At most `REMEDIES_MAX` are named, and at most `OF_A_KIND_MAX` of one kind.
- A request stays above zero: a pod that asks for nothing of a resource is another pod.
- An uncordoned node loses the taint that Kubernetes gives to cordoned nodes. A label is added only under a key that the
  node does not have, and only if the node stays in its pool. An added node equals one of the home pool and is empty.
- A pool that lends is edited only if the pod fits on one of its nodes now.
- Pods of DaemonSets, static pods and system-critical pods are never ended: they come back, or the node needs them.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from aischeduler.analysis.explanation import (
    AddNode,
    EditNode,
    EditPool,
    EndPods,
    LowerRequest,
    Remedy,
    RemedyKind,
    Start,
    full_name,
)
from aischeduler.analysis.nearest_miss import lacks_labels
from aischeduler.analysis.quota_remedies import ended_in_queue, opened_queues, quota_left, raised_quotas
from aischeduler.analysis.what_if import (
    Question,
    importance,
    may_leave,
    node_added,
    node_as,
    pods_ended,
    pool_as,
    proposed,
    requesting,
    room_of,
)
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.propose import may_not_preempt
from aischeduler.model.names import CPU, MEMORY
from aischeduler.model.node import Node
from aischeduler.model.pod import PodSpec, Toleration
from aischeduler.model.pool import Pool
from aischeduler.model.proposal import Hold, LenderRefusal
from aischeduler.model.quantity import quantity_text, readable
from aischeduler.model.resources import ResourceList
from aischeduler.model.selectors import NAME_FIELD, Operator
from aischeduler.plugins.node_unschedulable import TAINT_KEY
from aischeduler.policies.borrowing import PLENTIFUL, wanted_by_home_pods
from aischeduler.policies.loan_limits import lender_refusal, may_borrow
from aischeduler.state.label_index import Mask, Rows
from aischeduler.state.ledger import BORROWS, LENDS, within
from aischeduler.state.pod_records import PodRecord
from aischeduler.state.requests import Amounts

REMEDIES_MAX: Final = 8
OF_A_KIND_MAX: Final = 3
NODES_TRIED_MAX: Final = 16
"""The most nodes that are changed in one way, those first that may need the smallest change."""
NODES_RANKED_MAX: Final = 64
"""The most nodes of which the pods that may end are looked at."""
ADDED_MAX: Final = 4
"""The most nodes of which a copy is tried, the smallest first."""
EDITS_TRIED_MAX: Final = 32
"""The most edits of one kind that are tried, in the order of the pools' names, the home pool first."""
SIZES_TRIED_MAX: Final = 8
"""By how many pods a set that frees what a node lacks may be larger than the smallest that could."""
OTHERS_TRIED_MAX: Final = 8
"""The most sets of other pods of a node that are tried where the end of the least important ones does not help."""
PODS_NAMED_MAX: Final = 3
"""The most pods that the text names; the others are counted."""
NEVER: Final = 2**31
"""The number of pods whose end frees enough on a row, where that of all does not."""
HOSTNAME: Final = "kubernetes.io/hostname"

ORDER: Final = (
    RemedyKind.REQUEST,
    RemedyKind.NODE,
    RemedyKind.LIMIT,
    RemedyKind.QUOTA,
    RemedyKind.FLAG,
    RemedyKind.PODS_END,
)
"""The order of the kinds: first what the owner of the pod can do, last what ends the work of others or needs a machine:
a node that must be added comes after all others."""


def remedies(question: Question) -> tuple[Remedy, ...]:
    """Return the remedies of a pod that waits, the cheapest first."""
    found: list[Remedy] = []
    for family in FAMILIES if question.cluster.has_quotas else FAMILIES_WITHOUT_QUEUES:
        found += sorted(family(question), key=_rank)[:OF_A_KIND_MAX]
    return tuple(sorted(found, key=_rank)[:REMEDIES_MAX])


def _rank(remedy: Remedy) -> tuple[bool, bool, int, tuple[int, str]]:
    return (bool(remedy.start.victims), isinstance(remedy.edit, AddNode), ORDER.index(remedy.kind), remedy.cost)


def _request_remedies(question: Question) -> list[Remedy]:
    """Return per resource the smallest reduction; where that needs evictions, also the smallest that needs none."""
    found: list[Remedy] = []
    if question.record.leads is not None:  # the smallest reduction of several requests together has no one answer
        return found
    for resource, asked in question.spec.request.amounts.items():
        spec = requesting(question.record, resource, 1).pod.spec
        at_once = max(_at_home(question, spec, resource, evicting=False), _abroad(question, spec, resource))
        amounts = {at_once, _at_home(question, spec, resource, evicting=True)}
        left = quota_left(question, resource)
        amounts = amounts if left is None else {min(amount, left) for amount in amounts}
        for amount in sorted((enough for enough in amounts if 0 < enough < asked), reverse=True):
            start = question.start(requesting(question.record, resource, amount))
            if start is None:
                continue
            text = f"request {readable(resource, amount)} instead of {readable(resource, asked)} {resource}"
            cost = ((asked - amount) * 10**6 // asked, resource)
            found.append(Remedy(RemedyKind.REQUEST, text, LowerRequest(resource, amount), start, cost))
            if not start.victims:
                break
    return found


def _abroad(question: Question, spec: PodSpec, resource: str) -> int:
    """Return the most of the resource that a lender has free for the pod, within all limits."""
    cluster, most = question.cluster, 0
    home = cluster.pools.pools[question.home]
    for name in question.others():
        if not may_borrow(cluster.borrowing, question.home, name, spec):
            continue
        rows = question.rows_of(name)
        free = _most_free(cluster, spec, rows[~wanted_by_home_pods(cluster.borrowing, name, rows)], resource)
        for limit, sums in (
            (home.borrowing_limit, cluster.ledger.of(BORROWS, question.home)),
            (cluster.pools.pools[name].lending_limit, cluster.ledger.of(LENDS, name)),
        ):
            free = min(free, limit[resource] - sums.get(resource, 0)) if resource in limit else free
        most = max(most, free)
    return most


def _at_home(question: Question, spec: PodSpec, resource: str, *, evicting: bool) -> int:
    """Return the most of the resource that a node of the home pool has for the pod, with or without evictions."""
    cluster = question.cluster
    if evicting and may_not_preempt(cluster, question.record):
        return 0
    rows = question.rows_of(question.home)
    rows = rows[cluster.runner.could_run(spec, rows)]
    with room_of(question, spec, rows, evicting=evicting):
        return _most_free(cluster, spec, rows, resource)


def _most_free(cluster: Cluster, spec: PodSpec, rows: Rows, resource: str) -> int:
    """Return the most of the resource that is free on one of the rows that pass; 0 where none passes."""
    rows = rows[cluster.runner.passes(spec, rows)]
    column = cluster.nodes.column(resource)
    left = cluster.nodes.allocatable[column, rows] - cluster.nodes.used[column, rows]
    return int(np.max(left, initial=0))


def _node_remedies(question: Question) -> list[Remedy]:
    """Return at most one node of each way."""
    ways = (_uncordoned(question), _labelled(question))
    found = [remedy for way in ways if (remedy := next(way, None)) is not None]
    added = _added(question)
    return [*found, added] if added is not None else found


def uncordoned(node: Node) -> Node:
    """Return the node as it is after `kubectl uncordon`."""
    return replace(node, unschedulable=False, taints=tuple(taint for taint in node.taints if taint.key != TAINT_KEY))


def _uncordoned(question: Question) -> Iterator[Remedy]:
    nodes, spec = question.cluster.nodes, question.spec
    toleration = Toleration(TAINT_KEY, operator="Exists")
    tolerant = replace(spec, key=spec.key + b"/cordoned", tolerations=(*spec.tolerations, toleration))
    for row in _by_room(question, np.flatnonzero(nodes.cordoned & nodes.alive), tolerant)[:NODES_TRIED_MAX]:
        node = nodes.nodes[row]
        assert node is not None, "a cordoned node exists"
        with node_as(question.cluster, uncordoned(node)):
            start = question.start()
        if start is not None:
            text = f"uncordon the node {node.name}"
            yield Remedy(RemedyKind.NODE, text, EditNode(node.name, uncordon=True), start, (0, node.name))


def _labelled(question: Question) -> Iterator[Remedy]:
    """Yield the nodes that start the pod with labels added, those with the fewest labels first."""
    candidates: list[tuple[int, int, Node, dict[str, str]]] = []
    cluster, spec = question.cluster, question.spec
    if not spec.node_selector and spec.required is None:
        return
    anywhere = replace(spec, key=spec.key + b"/anywhere", node_selector=(), required=None)
    rows = np.flatnonzero(cluster.nodes.alive & ~cluster.nodes.cordoned)
    for place, row in enumerate(_by_room(question, rows, anywhere)):
        node = cluster.nodes.nodes[row]
        labels = _missing_labels(question, node) if node is not None else {}
        if node is not None and labels:
            candidates.append((len(labels), place, node, labels))
    candidates.sort(key=lambda candidate: candidate[:2])
    for count, _, node, labels in candidates[:NODES_TRIED_MAX]:
        changed = replace(node, labels={**node.labels, **labels})
        if cluster.pools.claimants(changed) != cluster.pools.claimants(node):
            continue
        with node_as(cluster, changed):
            start = question.start()
        if start is not None:
            named = " ".join(f"{key}={value}" for key, value in labels.items())
            edit = EditNode(node.name, labels=labels)
            yield Remedy(RemedyKind.NODE, f"label the node {node.name} {named}", edit, start, (count, node.name))


def _missing_labels(question: Question, node: Node) -> dict[str, str]:
    """Return the labels that satisfy the pod once they are added; empty where adding labels does not."""
    labels: dict[str, str] = {}
    for lacked in lacks_labels(question.spec, node):
        known = lacked.key == NAME_FIELD or lacked.key in node.labels
        if known or lacked.operator not in (Operator.IN, Operator.EXISTS):
            return {}
        labels[lacked.key] = lacked.values[0] if lacked.values else ""
    return labels


def _by_room(question: Question, rows: Rows, spec: PodSpec) -> list[int]:
    """Return rows as large as the pod, in order: those that `spec` fits first, then the home pool's, then by name."""
    nodes, runner = question.cluster.nodes, question.cluster.runner
    wanted = nodes.wanted(spec)
    rows = rows[(nodes.allocatable[np.ix_(wanted.columns, rows)] >= wanted.amounts).all(axis=0)]
    abroad = nodes.pool[rows] != question.cluster.pools.id(question.home)
    ordered: list[int] = rows[np.lexsort((nodes.ranks()[rows], abroad, ~runner.passes(spec, rows)))].tolist()
    return ordered


def _added(question: Question) -> Remedy | None:
    """Return the smallest node of the home pool of which another one starts the pod."""
    cluster, spec = question.cluster, question.spec
    rows = question.rows_of(question.home)
    rows = rows[cluster.runner.could_run(spec, rows)]
    found = [node for row in rows.tolist() if (node := cluster.nodes.nodes[row]) is not None]
    for node in sorted(found, key=_size)[:ADDED_MAX]:
        name = f"{node.name}-copy"
        while cluster.nodes.has(name):
            name += "-copy"
        labels = {key: name if key == HOSTNAME else value for key, value in node.labels.items()}
        with node_added(cluster, replace(node, name=name, uid="", labels=labels)):
            start = question.start()
        if start is not None and name in start.all_nodes:
            text = f"add a node like {node.name} to the Pool {question.home}"
            nodes = tuple((pod, "" if at == name else at) for pod, at in start.nodes)
            start = replace(start, node="" if start.node == name else start.node, nodes=nodes)
            return Remedy(RemedyKind.NODE, text, AddNode(node.name), start, (0, node.name))
    return None


def _size(node: Node) -> tuple[int, int, int, str]:
    scarce = sum(amount for name, amount in node.allocatable.items() if name not in PLENTIFUL)
    return (scarce, node.allocatable.get(CPU, 0), node.allocatable.get(MEMORY, 0), node.name)


def _limit_remedies(question: Question) -> list[Remedy]:
    """Return the limits that keep the pod waiting, each with the least value that does not."""
    cluster, spec = question.cluster, question.total
    home = cluster.pools.pools[question.home]
    edits = [(home, "borrowing_limit", "borrowingLimit", cluster.ledger.of(BORROWS, home.name))]
    edits += [
        (cluster.pools.pools[name], "lending_limit", "lendingLimit", cluster.ledger.of(LENDS, name))
        for name in _with_room(question)
    ]
    found: list[Remedy] = []
    tried = 0
    for pool, attribute, field, sums in edits:
        limit: ResourceList = getattr(pool, attribute)
        raised = _raised(limit, sums, spec)
        if not raised or tried == EDITS_TRIED_MAX:
            continue
        tried += 1
        named = ", ".join(f"{readable(name, amount)} {name}" for name, amount in raised.items())
        edit = EditPool(pool.name, {field: {name: quantity_text(name, amount) for name, amount in raised.items()}})
        change: dict[str, Any] = {attribute: {**limit, **raised}}
        remedy = _verified(
            question,
            RemedyKind.LIMIT,
            replace(pool, **change),
            (f"raise {field} of the Pool {pool.name} to {named}", edit),
        )
        found += [remedy] if remedy is not None else []
    return found


def _flag_remedies(question: Question) -> list[Remedy]:
    """Return the flags that keep the pod waiting."""
    found: list[Remedy] = []
    for tried, (pool, change, said, patch) in enumerate(_flags(question)):
        if tried == EDITS_TRIED_MAX or len(found) == OF_A_KIND_MAX:
            break
        remedy = _verified(question, RemedyKind.FLAG, replace(pool, **change), (said, EditPool(pool.name, patch)))
        found += [remedy] if remedy is not None else []
    return found


def _flags(question: Question) -> Iterator[tuple[Pool, dict[str, Any], str, dict[str, Any]]]:
    """Yield the flags that may keep the pod waiting: the Pool, its change, the text and the merge patch."""
    pools = question.cluster.pools.pools
    home = pools[question.home]
    if home.allowed_namespaces is not None:
        said = f"remove allowedNamespaces of the Pool {home.name}"
        yield home, {"allowed_namespaces": None}, said, {"allowedNamespaces": None}
    for attribute, field in (("disable_preemption", "disablePreemption"), ("disable_borrowing", "disableBorrowing")):
        if getattr(home, attribute):
            yield home, {attribute: False}, f"set {field} of the Pool {home.name} to false", {field: False}
    for name in _with_room(question):
        if home.borrowing_pools is not None and name not in home.borrowing_pools:
            names = (*home.borrowing_pools, name)
            said = f"add {name} to borrowingPools of the Pool {home.name}"
            yield home, {"borrowing_pools": names}, said, {"borrowingPools": list(names)}
        elif pools[name].disable_sharing:
            said = f"set disableSharing of the Pool {name} to false"
            yield pools[name], {"disable_sharing": False}, said, {"disableSharing": False}
        elif _keeps_rare(question, name):
            said = f"set lendRareTypes of the Pool {name} to true"
            yield pools[name], {"lend_rare_types": True}, said, {"lendRareTypes": True}
        elif pools[name].disable_preemption:  # what it could take back it need not keep for its own pods
            said = f"set disablePreemption of the Pool {name} to false"
            yield pools[name], {"disable_preemption": False}, said, {"disablePreemption": False}


def _with_room(question: Question) -> list[str]:
    """Return the other pools that have a node on which the pod fits now, sorted."""
    fits, _ = _fits_where_lent(question)
    return [name for name in question.others() if fits[question.rows_of(name)].any()]


def _keeps_rare(question: Question, name: str) -> bool:
    """Return whether the pod fits on nodes of this pool, all of which the pool keeps because their cards are rare."""
    rows, (fits, closed) = question.rows_of(name), _fits_where_lent(question)
    fitting = rows[fits[rows]]
    return closed is not None and len(fitting) > 0 and bool(closed[fitting].all())


def _fits_where_lent(question: Question) -> tuple[Mask, Mask | None]:
    """Return a mask of the rows on which the pod would fit if all were lent, and one of those that are not."""
    cluster = question.cluster
    ask = cluster.ask(question.spec, question.home, question.home)
    return cluster.runner.feasible(replace(ask, closed=None)), ask.closed


def _raised(limit: ResourceList, sums: ResourceList, spec: PodSpec) -> dict[str, int]:
    """Return the least value of each resource of the limit that the pod exceeds."""
    asked = spec.request.taken
    needed = {name: sums.get(name, 0) + asked[name] for name in sorted(limit) if name in asked}
    return {name: amount for name, amount in needed.items() if amount > limit[name]}


def _verified(question: Question, kind: RemedyKind, pool: Pool, change: tuple[str, EditPool]) -> Remedy | None:
    """Return the remedy if the pod starts with this Pool."""
    with pool_as(question.cluster, pool):
        start = question.start()
    text, edit = change
    return Remedy(kind, text, edit, start, (int(pool.name != question.home), text)) if start is not None else None


def _pods_end_remedies(question: Question) -> list[Remedy]:
    """Return few pods on one node whose end starts the pod; where fewer do with evictions, those too."""
    cluster, record = question.cluster, question.record
    if record.leads is not None or isinstance(proposed(cluster, record, question.now), Hold):
        return []  # the pods of a unit start on several nodes, and what holds a pod is no pod on a node
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
    return _pods_end_remedy(question, ended, start) if start is not None else None


def _pods_end_remedy(question: Question, records: list[PodRecord], start: Start) -> Remedy:
    pods = tuple(record.pod for record in records)
    names = ", ".join(full_name(pod) for pod in pods[:PODS_NAMED_MAX])
    more = f" and {len(pods) - PODS_NAMED_MAX} more" if len(pods) > PODS_NAMED_MAX else ""
    node = question.cluster.nodes.names[records[0].row]
    text = f"end {'these pods' if len(pods) > 1 else 'the pod'} on {node}: {names}{more}"
    return Remedy(RemedyKind.PODS_END, text, EndPods(pods), start, (len(pods), text))


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

    The pod starts on the row, or, where a limit keeps it waiting, on a row of a lender that has room.
    """
    cluster, spec, home = question.cluster, question.spec, question.cluster.pools.pools[question.home]
    found = _short_of_room(question, home.name, evicting=evicting)
    if evicting or home.invalid or home.disable_borrowing:
        return found
    table = cluster.running.table
    loans = table[(table["row"] >= 0) & table["borrower"] & table["ours"]]
    own = (loans["home"] == cluster.pools.id(home.name)) & bool(
        within(home.borrowing_limit, cluster.ledger.of(BORROWS, home.name), spec)
    )
    for name in question.others():
        refusal = lender_refusal(cluster.borrowing, home.name, name, spec)
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


FAMILIES_WITHOUT_QUEUES: Final = (
    _request_remedies,
    _node_remedies,
    _limit_remedies,
    _flag_remedies,
    _pods_end_remedies,
)
FAMILIES: Final = (*FAMILIES_WITHOUT_QUEUES, raised_quotas, opened_queues, ended_in_queue)
