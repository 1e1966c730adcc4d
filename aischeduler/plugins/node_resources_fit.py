"""NodeResourcesFit: every resource that a pod asks for must be left on the node, and one more pod allowed.

The score is LeastAllocated where the pool spreads and MostAllocated where it packs. A pod that asks for GPUs is
scored by them too, with a weight that outvotes CPU and memory: whole free GPU nodes are what large jobs wait for.

Source: kube-scheduler's NodeResourcesFit (filter, default scoring strategies, non-zero defaults).
"""

from collections import Counter
from typing import Final

import numpy as np

from aischeduler.framework.plugin import Ask, Scores
from aischeduler.model.names import PODS
from aischeduler.model.node import Node
from aischeduler.model.pod import PodSpec
from aischeduler.model.pool import Placement
from aischeduler.state.index import Mask, Rows
from aischeduler.state.nodes import CPU_AND_MEMORY, Column, NodeTable
from aischeduler.state.wanted import requested

GPU_WEIGHT: Final = 5


class NodeResourcesFit:
    """Filter and score by what is left."""

    name = "NodeResourcesFit"
    static = False
    weight = 1
    normalize = False
    reverse = False

    def __init__(self, gpu_resources: tuple[str, ...]) -> None:
        self._gpu_resources = gpu_resources

    def filter(self, spec: PodSpec, nodes: NodeTable, rows: Rows) -> Mask | None:
        """Pass rows with room for everything that the pod asks for."""
        return self.filter_using(spec, nodes, rows, nodes.used.take(rows, axis=1))

    def filter_using(self, spec: PodSpec, nodes: NodeTable, rows: Rows, used: Column) -> Mask:
        """Pass rows with room for everything that the pod asks for, were that `used` there."""
        return np.asarray(self._room(spec, nodes, rows, used).all(axis=0))

    def reasons(self, spec: PodSpec, nodes: NodeTable, rows: Rows) -> Counter[str]:
        """Count every resource that is short, so that a node may count more than once."""
        taken = spec.request.taken
        words = ["Too many pods" if resource == PODS else f"Insufficient {resource}" for resource in taken]
        room = self._room(spec, nodes, rows, nodes.used.take(rows, axis=1))
        short = (len(rows) - room.sum(axis=1)).tolist()
        return Counter({word: rows_short for word, rows_short in zip(words, short, strict=True) if rows_short})

    def helps(self, spec: PodSpec, node: Node) -> bool:
        """Expect room: how much is left is no property of the node, and was asked before."""
        return True

    def score(self, ask: Ask, nodes: NodeTable, rows: Rows) -> Scores | None:
        """Score 0 to 100: the free (or used) share after placing, averaged over the resources by weight."""
        pack = ask.placement is not Placement.SPREAD
        request = ask.spec.request
        capacity = nodes.allocatable[CPU_AND_MEMORY].take(rows, axis=1)
        after = nodes.scored.take(rows, axis=1) + nodes.wanted(ask.spec).scored
        shares = _shares(capacity, after, pack=pack)
        has = capacity > 0
        total, weights = shares[0] + shares[1], has[0].astype(np.int64) + has[1]
        for resource in self._gpu_resources:
            if resource in request.amounts:
                column = nodes.column(resource)
                capacity = nodes.allocatable[column, rows]
                after = nodes.used[column, rows] + requested(request.amounts[resource])
                total += GPU_WEIGHT * _shares(capacity, after, pack=pack)
                weights += GPU_WEIGHT * (capacity > 0)
        average: Scores = total // np.maximum(weights, 1)
        return average

    @staticmethod
    def _room(spec: PodSpec, nodes: NodeTable, rows: Rows, used: Column) -> Mask:
        """Return where there is room, [resource, row], in the order of what the pod takes."""
        wanted = nodes.wanted(spec)
        left = nodes.allocatable.take(rows, axis=1) - used
        has_room: Mask = left.take(wanted.columns, axis=0) >= wanted.amounts
        return has_room


def _shares(capacity: Scores, after: Scores, *, pack: bool) -> Scores:
    """Return the used (pack) or free shares in percent; a row without the resource gets 0."""
    safe = np.maximum(capacity, 1)
    counted = np.minimum(after, capacity) if pack else np.maximum(capacity - after, 0)
    return counted * 100 // safe
