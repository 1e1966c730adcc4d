"""The single changes with which a waiting pod starts, each verified by a proposal on the changed state.

Invariants:
- A remedy is one change: of one request, one limit, one flag, one node, the quotas that refuse it, or the end of pods
  on one node, for a unit on several, or of one tenant queue.
- It is named only if the engine proposes a start on the state with the change.
- No smaller change of one request or limit starts the pod, and no pod can be left out of those that end.
- A start at once comes before a start after evictions, then the kinds in the order of `ORDER`, then the cost.
- At most `REMEDIES_MAX` are named, and at most `OF_A_KIND_MAX` of one kind.
- A request stays above zero: a pod that asks for nothing of a resource is another pod.
- An uncordoned node loses the taint that Kubernetes gives to cordoned nodes. A label is added only under a key that the
  node does not have, and only if the node stays in its pool. An added node equals one of the home pool and is empty.
- A pool that lends is edited only if the pod fits on one of its nodes now.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from aischeduler.analysis.explanation import (
    AddNode,
    EditNode,
    EditPool,
    LowerRequest,
    Remedy,
    RemedyKind,
)
from aischeduler.analysis.nearest_miss import lacks_labels
from aischeduler.analysis.pods_end_remedies import NODES_TRIED_MAX, pods_end_remedies
from aischeduler.analysis.quota_remedies import ended_in_queue, opened_queues, quota_left, raised_quotas
from aischeduler.analysis.what_if import (
    Question,
    node_added,
    node_as,
    pool_as,
    requesting,
    room_of,
)
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.propose import may_not_preempt
from aischeduler.model.card_shares import counted, unit_of
from aischeduler.model.names import CPU, MEMORY
from aischeduler.model.node import Node
from aischeduler.model.pod import PodSpec, Toleration
from aischeduler.model.pool import Pool
from aischeduler.model.quantity import quantity_text, readable
from aischeduler.model.resources import ResourceList
from aischeduler.model.selectors import NAME_FIELD, Operator
from aischeduler.plugins.node_unschedulable import TAINT_KEY
from aischeduler.policies.borrowing import PLENTIFUL, wanted_by_home_pods
from aischeduler.policies.loan_limits import may_borrow
from aischeduler.policies.unit_placement import total_of
from aischeduler.state.label_index import Mask, Rows
from aischeduler.state.ledger import BORROWS, LENDS

REMEDIES_MAX: Final = 8
OF_A_KIND_MAX: Final = 3
ADDED_MAX: Final = 4
"""The most nodes of which a copy is tried, the smallest first."""
EDITS_TRIED_MAX: Final = 32
"""The most edits of one kind that are tried, in the order of the pools' names, the home pool first."""
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
    total = total_of((spec,), cluster.borrowing.memories)
    home = cluster.pools.pools[question.home]
    for name in question.others():
        if not may_borrow(cluster.borrowing, question.home, name, total):
            continue
        rows = question.rows_of(name)
        free = _most_free(cluster, spec, rows[~wanted_by_home_pods(cluster.borrowing, name, rows)], resource)
        for limit, sums in (
            (home.borrowing_limit, cluster.ledger.of(BORROWS, question.home)),
            (cluster.pools.pools[name].lending_limit, cluster.ledger.of(LENDS, name)),
        ):
            scale = unit_of(resource)[1]
            free = min(free, limit[resource] - -(-counted(resource, sums) // scale)) if resource in limit else free
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
    needed = {
        name: -(-counted(name, sums, asked) // unit_of(name)[1]) for name in sorted(limit) if counted(name, asked)
    }
    return {name: amount for name, amount in needed.items() if amount > limit[name]}


def _verified(question: Question, kind: RemedyKind, pool: Pool, change: tuple[str, EditPool]) -> Remedy | None:
    """Return the remedy if the pod starts with this Pool."""
    with pool_as(question.cluster, pool):
        start = question.start()
    text, edit = change
    return Remedy(kind, text, edit, start, (int(pool.name != question.home), text)) if start is not None else None


FAMILIES_WITHOUT_QUEUES: Final = (
    _request_remedies,
    _node_remedies,
    _limit_remedies,
    _flag_remedies,
    pods_end_remedies,
)
FAMILIES: Final = (*FAMILIES_WITHOUT_QUEUES, raised_quotas, opened_queues, ended_in_queue)
