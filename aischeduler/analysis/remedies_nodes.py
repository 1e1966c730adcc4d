"""The one node with which a waiting pod starts: uncordoned, labelled, or added.

Invariants:
- An uncordoned node loses the taint that Kubernetes gives to cordoned nodes.
- A label is added only under a key that the node does not have, and only if the node stays in its pool.
- An added node equals a node of the home pool, and is empty.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
from msgspec.structs import replace

from aischeduler.analysis.explanation import AddNode, EditNode, Remedy, RemedyKind
from aischeduler.analysis.nearest_miss import lacks_labels
from aischeduler.analysis.what_if import Question, node_added, node_as
from aischeduler.model.names import CPU, MEMORY
from aischeduler.model.node import Node
from aischeduler.model.pod import PodSpec, Toleration
from aischeduler.model.selectors import NAME_FIELD, Operator
from aischeduler.plugins.node_unschedulable import TAINT_KEY
from aischeduler.policies.borrowing import PLENTIFUL
from aischeduler.state.label_index import Rows

TRIED_MAX: Final = 16
"""The most nodes that are tried in one way, those with room first."""
ADDED_MAX: Final = 4
"""The most nodes of which a copy is tried, the smallest first."""
HOSTNAME: Final = "kubernetes.io/hostname"


def node_remedies(question: Question) -> list[Remedy]:
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
    for row in _by_room(question, np.flatnonzero(nodes.cordoned & nodes.alive), tolerant)[:TRIED_MAX]:
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
    candidates.sort(key=lambda one: one[:2])
    for count, _, node, labels in candidates[:TRIED_MAX]:
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
    for one in lacks_labels(question.spec, node):
        if one.key == NAME_FIELD or one.key in node.labels or one.operator not in (Operator.IN, Operator.EXISTS):
            return {}
        labels[one.key] = one.values[0] if one.values else ""
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
