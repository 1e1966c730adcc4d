"""Stands between the engine and the loops that call it, and tells meter and vitals what passes.

Laws:
- The engine is called exactly as without it; what it returns is handed on unchanged.
"""

from collections.abc import Callable
from typing import Protocol

from aischeduler.engine.tally import Result, Tally
from aischeduler.model.actions import Action
from aischeduler.observability.health import Vitals
from aischeduler.observability.meter import Meter


class Deciding(Protocol):
    """The part of the engine that the loops call; see `engine.scheduler.Scheduler`."""

    @property
    def tally(self) -> Tally:
        """What was counted so far."""

    def decide(self, pool: str, now: float, limit: int) -> list[Action]:
        """Try at most `limit` pods of a pool."""

    def ready(self, now: float) -> tuple[str, ...]:
        """Return the pools with something to decide."""

    def next_wakeup(self) -> float | None:
        """Return when something moves by itself."""

    def pools(self) -> tuple[str, ...]:
        """Return all pools."""


class Onlooker:
    """The engine, watched."""

    def __init__(self, engine: Deciding, clock: Callable[[], float], meter: Meter, vitals: Vitals) -> None:
        self._engine = engine
        self._clock = clock
        self._meter = meter
        self._vitals = vitals

    def decide(self, pool: str, now: float, limit: int) -> list[Action]:
        """Try at most `limit` pods of a pool."""
        before, began = self._attempts(pool), self._clock()
        actions = self._engine.decide(pool, now, limit)
        self._meter.decided(pool, self._attempts(pool) - before, self._clock() - began)
        self._meter.asked(actions)
        self._vitals.decided(pool)
        return actions

    def ready(self, now: float) -> tuple[str, ...]:
        """Return the pools with something to decide."""
        pools = self._engine.ready(now)
        self._vitals.due(pools)
        return pools

    def next_wakeup(self) -> float | None:
        """Return when something moves by itself."""
        return self._engine.next_wakeup()

    def pools(self) -> tuple[str, ...]:
        """Return all pools."""
        return self._engine.pools()

    def _attempts(self, pool: str) -> int:
        attempts = self._engine.tally.attempts
        return sum(attempts.get((pool, result), 0) for result in Result)
