"""The room that one row offers to waiting pods, by column of the node table."""

import numpy as np

from aischeduler.engine.cluster import Cluster
from aischeduler.policies.victims import PRIORITY_MIN, Preemptor, gone_for, may_go, standing_of
from aischeduler.state.requests import Amounts


class RowRoom:
    """The room of a row. The request of a pod that is woken for it is subtracted from all of it.

    `free` is free room, without offers to woken pods; `lent` adds claimed room. After `evict`, `lent` adds the room of
    leaving pods and of loans, and a home pod may also count on that of home pods of lower priority; `most` is what a
    pod of the highest priority may count on.
    """

    def __init__(self, cluster: Cluster, row: int) -> None:
        nodes = cluster.nodes
        self.row = row
        self.pool = cluster.pool_of(row)
        self.rows = np.array([row], dtype=np.intp)
        self.free = nodes.room(row)
        for spec in cluster.deferred.offers.get(row, {}).values():
            self.free -= nodes.request(spec)
        self.lent = self.free.copy()
        for claim in cluster.claims.on_row(row):
            for room in claim.on(row):
                self.lent += nodes.request(room.spec)
        self.most = self.lent.copy()
        self._standings = np.zeros(0, dtype=np.int64)
        self._below = np.zeros((1, len(self.lent)), dtype=np.int64)
        """[n, column]: the sum of what the n home pods of lowest priority use."""

    def evict(self, cluster: Cluster, highest: int) -> None:
        """Add the room of leaving and evictable pods, for home pods of at most the `highest` priority."""
        running = cluster.running
        pods = running.table[running.slots_on(self.rows)]
        first = gone_for(Preemptor(PRIORITY_MIN), pods)
        lower = pods[may_go(pods) & ~first]
        columns = [cluster.nodes.column(resource) for resource in running.specs.resources]
        self.lent[columns] += running.specs.amounts[pods["spec"][first]].sum(axis=0)
        standings = standing_of(lower)
        lower = lower[np.argsort(standings, kind="stable")]
        self._standings = np.sort(standings)
        self._below = np.zeros((len(lower) + 1, len(self.lent)), dtype=np.int64)
        self._below[1:, columns] = np.cumsum(running.specs.amounts[lower["spec"]], axis=0)
        self.most = self.lent + self._below[np.searchsorted(self._standings, Preemptor(highest).standing)]

    def may_hold(self, request: Amounts, priority: int) -> bool:
        """Return whether, by amounts, the row may have room for a home pod of this priority."""
        lower = int(np.searchsorted(self._standings, Preemptor(priority).standing))
        return bool((request <= np.maximum(self.lent + self._below[lower], 0)).all())

    def take(self, request: Amounts) -> None:
        """Subtract the request of a woken pod."""
        self.free -= request
        self.lent -= request
        self.most -= request
