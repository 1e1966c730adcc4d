"""Which pools have something to decide, and when time will give them something.

Law: only queues that changed are looked at again, so that many quiet pools cost nothing.
"""

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.lending import trips_ended
from aischeduler.engine.recovery import Doing, mark, step_failed
from aischeduler.engine.status import StatusReports
from aischeduler.engine.unknown_pools import late_until
from aischeduler.model.actions import Step
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.state.timers import Timers


def looks_again(cluster: Cluster, pool: str) -> bool:
    """Say whether the pool's own pods have left room that somebody else was refused because of them."""
    version, queue = cluster.errands.relook.get(pool), cluster.queues[pool]
    return version is not None and version != queue.version and not queue.home_active


class Readiness:
    """What is known of the queues as of their last change."""

    def __init__(self, status: StatusReports) -> None:
        self._status = status
        self._lively: set[str] = set()
        self._wakeups = Timers()
        self._decided: set[str] = set()

    def decided(self, pool: str) -> None:
        """Note that the pool has just decided: it is to be looked at again."""
        self._decided.add(pool)

    def ready(self, cluster: Cluster, now: float) -> tuple[str, ...]:
        """Return the pools for which `decide` has something to do, sorted."""
        self._look(cluster)
        cluster.errands.unrest.note(cluster.versions(), now)
        self._lively.update(self._wakeups.pop_due(now))
        due = self._due_at(cluster)
        found = {pool for pool, actions in cluster.outbox.items() if actions} | self._lively
        found.update(pool for pool in cluster.errands.pools() if pool in cluster.queues)
        found.update(pool for pool in cluster.errands.relook if looks_again(cluster, pool))
        found.update(pool for pool in cluster.errands.sought if trips_ended(cluster, pool))
        if due is not None and due <= now:
            found.add(DEFAULT_POOL)
        return tuple(sorted(found))

    def next_wakeup(self, cluster: Cluster) -> float | None:
        """Return the earliest time at which something moves by itself; None when nothing waits for time."""
        self._look(cluster)
        times = (self._wakeups.next(), self._due_at(cluster))
        return min((time for time in times if time is not None), default=None)

    def _look(self, cluster: Cluster) -> None:
        """Look at the queues that changed, and at those that have decided since."""
        changed = cluster.stir.pools | self._decided
        cluster.stir.pools.clear()
        self._decided.clear()
        for pool in sorted(changed):  # the same reports in the same order, whatever sets make of it
            try:
                self._look_at(cluster, pool)
            except Exception as error:  # noqa: BLE001 - a bug costs one queue its places, not the others their wake-ups
                doing = Doing(Step.QUEUE, "looking when a queue has something to decide", pool)
                for report in step_failed(cluster, doing, mark(cluster), (), error):
                    cluster.say(pool, report)

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
        """Return when time has something to do beside the queues; the default pool's loop sees to it."""
        times = (
            next(iter(cluster.unsettled.values()), None),
            cluster.windows.next(),
            late_until(cluster),
            cluster.errands.unrest.until,
            cluster.departures.next(),
            cluster.spared.next(),
            next((asked.read_at for asked in cluster.victims.values()), None),
            cluster.errands.doubts.due.next(),
            self._status.due_at(cluster),
        )
        return min((time for time in times if time is not None), default=None)
