"""Topology of a gang: the sets of rows on which its pods may start together, the closest first.

Invariants:
- Rows without a required label are in no set. All rows of a set have one value of each required label.
- Sets come by the number of domains of each level, the widest level first; among equals by the least room that is left
  for others, then by the names of the domains.
- Only sets that may hold the pods by amounts are returned, at most `SETS_MAX`.

Source: Topology Aware Scheduling of Kueue (required and preferred levels, fewest domains, best fit).
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
from msgspec import Struct

from aischeduler.framework.plugin import PlacementRequest
from aischeduler.framework.runner import Runner
from aischeduler.model.gang import TopologyLevel
from aischeduler.state.label_index import NO_VALUE, Rows
from aischeduler.state.node_table import Column

SETS_MAX: Final = 64
"""The most sets of rows on which one look tries to place a gang."""


class Closeness(Struct, frozen=True):
    """What makes rows close to each other for pods with these requests.

    `capacity` is how many of the pods each of `rows` may hold by amounts.
    """

    levels: tuple[TopologyLevel, ...]
    asks: tuple[PlacementRequest, ...]
    runner: Runner
    rows: Rows
    capacity: Column

    def sets(self) -> list[Rows]:
        """Return the sets of rows that may hold all pods, the closest first."""
        every = np.arange(len(self.rows), dtype=np.intp)
        found: list[tuple[tuple[int, ...], int, Rows]] = []
        for cost, at in self._sets(self.levels, every):
            room = int(self.capacity[at].sum())
            if room >= len(self.asks):
                found.append(((*cost, room), int(self.runner.nodes.ranks()[self.rows[at]].min()), at))
        found.sort(key=lambda entry: entry[:2])
        return [self.rows[at] for *_, at in found[:SETS_MAX]]

    def largest(self) -> Rows:
        """Return the set of rows that may hold most of the pods; no row where there is no set."""
        every = np.arange(len(self.rows), dtype=np.intp)
        sets = [at for _, at in self._sets(self.levels, every)]
        best = max(sets, key=lambda at: (int(self.capacity[at].sum()), -int(at[0])), default=every[:0])
        return self.rows[best]

    def fewest(self, among: Rows) -> Rows:
        """Return the fewest of these rows that may hold all pods: the largest first, the last as small as can be."""
        capacity = self.capacity[np.searchsorted(self.rows, among)]
        ranks = self.runner.nodes.ranks()[among]
        order = np.lexsort((ranks, -capacity))
        sums = np.cumsum(capacity[order])
        count = int(np.searchsorted(sums, len(self.asks))) + 1
        if count > len(order):
            return among
        left = len(self.asks) - (int(sums[count - 2]) if count > 1 else 0)
        others = order[count - 1 :]
        enough = others[capacity[others] >= left]
        last = enough[np.lexsort((ranks[enough], capacity[enough]))[0]]
        return np.sort(among[[*order[: count - 1].tolist(), int(last)]])

    def _sets(self, levels: tuple[TopologyLevel, ...], at: Rows) -> Iterator[tuple[tuple[int, ...], Rows]]:
        """Yield (number of domains per level, places in `rows`) of each domain; where allowed, of several together.

        No set is empty.
        """
        if not len(at):
            return
        if not levels:
            yield (), at
            return
        level, rest = levels[0], levels[1:]
        numbers = self.runner.nodes.labels.numbers(level.label)[self.rows[at]]
        domains = [at[numbers == value] for value in np.unique(numbers[numbers != NO_VALUE]).tolist()]
        wholes = [(1, domain) for domain in domains]
        if not level.required:
            wholes += self._several(domains)
            wholes.append((len(domains) + 1, at))
        for count, domain in wholes:
            for cost, places in self._sets(rest, domain):
                yield (count, *cost), places

    def _several(self, domains: list[Rows]) -> list[tuple[int, Rows]]:
        """Return the fewest domains that may hold all pods together, where one does not: the largest ones."""
        room = [int(self.capacity[domain].sum()) for domain in domains]
        order = sorted(range(len(domains)), key=lambda number: (-room[number], number))
        sums = np.cumsum([room[number] for number in order])
        count = int(np.searchsorted(sums, len(self.asks))) + 1
        if not 1 < count <= len(domains):
            return []
        return [(count, np.sort(np.concatenate([domains[number] for number in order[:count]])))]


def closeness(
    levels: tuple[TopologyLevel, ...], asks: tuple[PlacementRequest, ...], runner: Runner, rows: Rows, room: Column
) -> Closeness:
    """Return the closeness of `rows` with this room [column, row] for pods with these requests."""
    return Closeness(levels, asks, runner, rows, row_capacity(asks, runner, rows, room))


def row_capacity(asks: tuple[PlacementRequest, ...], runner: Runner, rows: Rows, room: Column) -> Column:
    """Return how many pods each row may hold by amounts, each counted with the least that one of them requests."""
    nodes, classes = runner.nodes, {ask.spec.key: ask.spec for ask in asks}.values()
    least = np.stack([nodes.request(spec) for spec in classes]).min(axis=0)
    asked = np.flatnonzero(least)  # the column of pods at least
    capacity: Column = np.minimum.reduce(np.maximum(room[asked], 0) // least[asked, None], axis=0)
    allowed = np.logical_or.reduce([runner.allowed(spec, rows) for spec in classes])
    return np.where(allowed, np.minimum(capacity, len(asks)), 0)
