"""A node table for tests of one plugin, and calls of the plugin."""

from collections import Counter

import numpy as np

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import Filter, PlacementRequest, Score
from aischeduler.framework.runner import normalized
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import PlacementStrategy
from aischeduler.state.label_index import Rows
from aischeduler.state.node_table import NodeTable
from tests.build import on_row

OFTEN = 20
"""More often than `FEW_ROWS` of any filter."""


def a_table(*nodes: Node, pods: tuple[Pod, ...] = ()) -> NodeTable:
    """Return a table of these nodes with these bound pods."""
    table = NodeTable()
    for node in nodes:
        table.see(node)
    for pod in pods:
        table.add(on_row(pod, table.row(pod.node_name)))
    return table


def _often(table: NodeTable, rows: Rows) -> NodeView:
    """Return a view that has each of these rows so often that a filter judges them as many."""
    return NodeView(table, np.tile(rows, OFTEN))


def passing(rule: Filter, pod: Pod, table: NodeTable) -> list[str]:
    """Return the names of the nodes that the filter passes, sorted; each row is judged among few and among many."""
    rows = np.array(sorted(table.rows.values()), dtype=np.intp)
    mask, among_many = rule.filter(pod.spec, NodeView(table, rows)), rule.filter(pod.spec, _often(table, rows))
    assert (mask is None) == (among_many is None)
    if mask is not None and among_many is not None:
        assert among_many.tolist() == mask.tolist() * OFTEN
    return sorted(table.names[row] for i, row in enumerate(rows) if mask is None or mask[i])


def reasons(rule: Filter, pod: Pod, table: NodeTable) -> Counter[str]:
    """Return the filter's reasons for the nodes that it refuses."""
    rows = np.array(sorted(table.rows.values()), dtype=np.intp)
    mask = rule.filter(pod.spec, NodeView(table, rows))
    return Counter() if mask is None else rule.reasons(pod.spec, NodeView(table, rows[~mask]))


def scores(
    rule: Score, pod: Pod, table: NodeTable, placement: PlacementStrategy = PlacementStrategy.SPREAD
) -> list[int]:
    """Return the score of each node in the order of names, normalised where the plugin is."""
    rows = np.array([table.rows[name] for name in sorted(table.rows)], dtype=np.intp)
    raw = rule.score(PlacementRequest(pod.spec, placement), NodeView(table, rows))
    if raw is None:
        raw = np.zeros(len(rows), dtype=np.int64)
    final = normalized(raw, reverse=rule.reverse) if rule.normalize else raw
    return [int(score) for score in final]
