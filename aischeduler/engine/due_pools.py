"""Which pools have something to decide now, and when the next one has.

Invariants:
- Only queues that changed are read again, so that idle pools cost nothing.
- Nothing here changes what the engine decides or reports, however often it is asked.
"""

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.elastic_passes import ElasticPasses
from aischeduler.engine.lending import looks_again, trips_ended
from aischeduler.engine.message_updates import note_changes
from aischeduler.engine.pool_status import StatusReports
from aischeduler.engine.queue_orders import QueueOrders
from aischeduler.engine.queue_status import QueueReports
from aischeduler.engine.unknown_pools import late_until
from aischeduler.model.names import CLUSTER
from aischeduler.state.timers import Timers


class Readiness:
    """The state of the queues at their last change."""

    def __init__(
        self, status: StatusReports, queues: QueueReports, orders: QueueOrders, elastic: ElasticPasses
    ) -> None:
        self._status, self._queues, self._orders, self._elastic = status, queues, orders, elastic
        self._lively: set[str] = set()
        self._wakeups = Timers()
        self._decided: set[str] = set()
        self._failed: dict[str, Exception] = {}
        """Pool -> why its queue could not be read: its next decision reports it."""

    def raise_failure(self, pool: str) -> None:
        """Raise the exception with which the last reading of the pool's queue ended, if it did."""
        error = self._failed.pop(pool, None)
        if error is not None:
            raise error

    def decided(self, pool: str) -> None:
        """Note that the pool has just decided, so that its queue is read again."""
        self._decided.add(pool)

    def ready(self, cluster: Cluster, now: float) -> tuple[str, ...]:
        """Return the pools, or CLUSTER, for which `decide` has something to do, sorted."""
        self._look(cluster)
        self._lively.update(self._wakeups.pop_due(now))
        due = self._due_at(cluster)
        found = {pool for pool, actions in cluster.said.outbox.items() if actions} | self._lively
        if cluster.units.stale:
            found.add(CLUSTER)
        for pool, agenda in cluster.deferred.agendas.items():
            if pool in cluster.queues and (agenda.is_due() or looks_again(cluster, pool) or trips_ended(cluster, pool)):
                found.add(pool)
        if due is not None and due <= now:
            found.add(CLUSTER)
        return tuple(sorted(found))

    def next_wakeup(self, cluster: Cluster) -> float | None:
        """Return the earliest time at which a pool becomes ready by time alone; None where none does."""
        self._look(cluster)
        times = (self._wakeups.next(), self._due_at(cluster))
        return min((time for time in times if time is not None), default=None)

    def _look(self, cluster: Cluster) -> None:
        """Read the queues that changed, and those that decided, since the last call."""
        changed = cluster.deferred.queue_changes.pools | self._decided
        cluster.deferred.queue_changes.pools.clear()
        self._decided.clear()
        for pool in sorted(changed):  # sorted: the same calls must read the queues in the same order
            try:
                self._look_at(cluster, pool)
            except Exception as error:  # noqa: BLE001 - a bug in one queue must not stop the wake-ups of the others
                self._failed[pool] = error
                self._lively.add(pool)

    def _look_at(self, cluster: Cluster, pool: str) -> None:
        queue = cluster.queues.get(pool)
        self._lively.discard(pool)
        at = queue.next_wakeup() if queue is not None else None
        if queue is not None and queue.lively:
            self._lively.add(pool)
        if at is None:
            self._wakeups.drop(pool)
        else:
            self._wakeups.set(pool, at)

    def _due_at(self, cluster: Cluster) -> float | None:
        """Return when something beside the queues is due."""
        note_changes(cluster)
        times = (
            next(iter(cluster.reservations.unsettled.values()), None),
            cluster.reservations.asked_at.next(),
            cluster.edits.windows.next(),
            late_until(cluster),
            cluster.deferred.unrest.until,
            cluster.leaving_pods.terminating.next(),
            cluster.leaving_pods.spared.next(),
            cluster.claims.stalled.next(),
            cluster.tenants.shields.next(),
            cluster.tenants.resumes.next(),
            next((asked.read_at for asked in cluster.leaving_pods.asked.values()), None),
            cluster.units.again.next(),
            cluster.units.deadlines.next(),
            cluster.units.unfinished.next(),
            self._status.due_at(cluster),
            self._queues.due_at(cluster),
            self._orders.due_at(cluster),
            self._elastic.due_at(cluster),
        )
        return min((time for time in times if time is not None), default=None)
