"""The engine as the pool loops call it, with metrics, health and the log of pool statuses around each call.

Invariant: the engine is called exactly as without this, and its results are returned unchanged.
"""

from collections.abc import Callable

from msgspec import Struct

from aischeduler.engine.counters import Result
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.actions import Action, Evict, ReportPool
from aischeduler.observability.health import LoopHealth
from aischeduler.observability.metrics_recorder import MetricsRecorder
from aischeduler.observability.pool_status_log import PoolStatusLog


class Recorders(Struct, frozen=True):
    """The parts that record what the engine does."""

    metrics: MetricsRecorder
    health: LoopHealth
    pool_status_log: PoolStatusLog


class InstrumentedScheduler:
    """The engine, with records of each call."""

    def __init__(self, engine: Scheduler, clock: Callable[[], float], recorders: Recorders) -> None:
        self._engine = engine
        self._clock = clock
        self._recorders = recorders

    def decide(self, pool: str, now: float, limit: int) -> list[Action]:
        """Try at most `limit` pods of a pool, or do the work of no pool."""
        before, began = self._attempts(pool), self._clock()
        actions = self._engine.decide(pool, now, limit)
        recorders = self._recorders
        recorders.metrics.record_attempts(pool, self._attempts(pool) - before, self._clock() - began)
        if evictions := [action for action in actions if isinstance(action, Evict)]:
            recorders.metrics.record_victims(evictions)
        if reports := [action for action in actions if isinstance(action, ReportPool)]:
            recorders.pool_status_log.record(reports)
        recorders.health.decided(pool)
        return actions

    def ready(self, now: float) -> tuple[str, ...]:
        """Return the pools with something to decide."""
        pools = self._engine.ready(now)
        self._recorders.health.due(pools)
        return pools

    def next_wakeup(self) -> float | None:
        """Return the earliest time at which a pool becomes ready by time alone; None if none does."""
        return self._engine.next_wakeup()

    def loops(self) -> tuple[str, ...]:
        """Return all pools, and the name of the work of no pool."""
        return self._engine.loops()

    def _attempts(self, pool: str) -> int:
        attempts = self._engine.counters.attempts
        return sum(attempts.get((pool, result), 0) for result in Result)
