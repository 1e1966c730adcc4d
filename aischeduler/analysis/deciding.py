"""Let an engine of one's own decide until it has nothing to decide, as if every answer came at once.

Invariant: every read finds what the engine has observed already: no other Pool exists, and every refresh shows nothing.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.actions import Action, Refresh
from aischeduler.model.events import Event, Refreshed

COST_MAX: Final = 2**31
"""No queue costs more to try."""
ROUNDS_MAX: Final = 1_000
"""Pods that move from pool to pool come to rest long before."""


def decide_all(scheduler: Scheduler, now: float) -> list[Action]:
    """Decide for every pool until none is ready at this time; return the actions."""
    said: list[Action] = []
    for _ in range(ROUNDS_MAX):
        pools = scheduler.ready(now)
        if not pools:
            break
        for pool in pools:
            actions = scheduler.decide(pool, now, COST_MAX)
            said += actions
            for event in _answers(actions):
                scheduler.observe(event, now)
    return said


def _answers(actions: Iterable[Action]) -> Iterator[Event]:
    for action in actions:
        match action:
            case Refresh(pool):
                yield Refreshed(pool)
