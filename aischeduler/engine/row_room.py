"""What one row offers to those who wait, by column of the node table."""

import numpy as np

from aischeduler.engine.cluster import Cluster
from aischeduler.state.demand import Amounts


class RowRoom:
    """What a row offers to whom; who is woken for it takes what he asks for off all of it.

    `free` is what nobody has, `lent` also what is only claimed. With `evict`, home pods may count on more: `lent` what
    those have as well who leave or are on loan, and a pod of some priority on what home pods of lower ones have; `most`
    is what one of the highest can count on.
    """

    def __init__(self, cluster: Cluster, row: int) -> None:
        nodes = cluster.nodes
        self.row = row
        self.pool = cluster.pool_of(row)
        self.rows = np.array([row], dtype=np.intp)
        self.free = nodes.room(row)
        for spec in cluster.offers.get(row, {}).values():
            self.free -= nodes.request(spec)
        self.lent = self.free.copy()
        for claim in cluster.claims.on_row(row):
            self.lent += nodes.request(claim.spec)
        self.most = self.lent.copy()
        self._priorities = np.zeros(0, dtype=np.int64)
        self._below = np.zeros((1, len(self.lent)), dtype=np.int64)
        """[n, column]: what the n home pods of lowest priority have together."""

    def evict(self, cluster: Cluster, highest: int) -> None:
        """Count on the room of those who leave or can be evicted, by home pods of at most the `highest` priority."""
        running = cluster.running
        pods = running.table[running.slots_on(self.rows)]
        first = pods["leaving"] | (pods["evictable"] & pods["borrower"])
        lower = pods[pods["evictable"] & ~first]
        columns = [cluster.nodes.column(resource) for resource in running.specs.resources]
        self.lent[columns] += running.specs.amounts[pods["spec"][first]].sum(axis=0)
        lower = lower[np.argsort(lower["priority"], kind="stable")]
        self._priorities = lower["priority"].astype(np.int64)
        self._below = np.zeros((len(lower) + 1, len(self.lent)), dtype=np.int64)
        self._below[1:, columns] = np.cumsum(running.specs.amounts[lower["spec"]], axis=0)
        self.most = self.lent + self._below[np.searchsorted(self._priorities, highest)]

    def may_hold(self, request: Amounts, priority: int) -> bool:
        """Say whether a home pod could find room here, as far as amounts tell."""
        lower = int(np.searchsorted(self._priorities, priority))
        return bool((request <= np.maximum(self.lent + self._below[lower], 0)).all())

    def take(self, request: Amounts) -> None:
        """Count on this room less by what a woken pod asks for."""
        self.free -= request
        self.lent -= request
        self.most -= request
