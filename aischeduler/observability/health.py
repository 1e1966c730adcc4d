"""Liveness: whether every loop of the daemon makes progress, as one plain line.

Invariants:
- A state that a restart cannot repair is not reported: an API server that does not answer, a full queue of Bindings.
- A line names no object of the cluster; the log does.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from msgspec import Struct

STUCK_SECONDS: Final = 60.0
"""A loop is stuck if it has had something to decide for so long and decided nothing."""
FAILURES_MAX: Final = 5
HEALTHY_SECONDS: Final = 120.0
"""After so much time without a failure, the next failure counts as the first."""
HOLD_SECONDS: Final = 1.0
"""After a longer wait for room, the time of all pools with something to decide starts again."""

Problem = Callable[[], str]
"""Returns what is wrong as one plain line, or nothing."""


def pool_loop(pool: str) -> str:
    """Return the name of a pool's loop, or of the loop of the work of no pool."""
    return f"pool {pool}" if pool else "cluster"


class _Failures(Struct):
    count: int
    last_at: float


class LoopHealth:
    """The health of the daemon's loops. `clock` returns seconds and never goes back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due_since: dict[str, float] = {}
        self._failures: dict[str, _Failures] = {}
        self._waiting_for_room = 0

    def due(self, pools: Iterable[str]) -> None:
        """Record the pools with something to decide now; the others have nothing."""
        now = self._clock()
        self._due_since = {pool: self._due_since.get(pool, now) for pool in pools}

    def decided(self, pool: str) -> None:
        """Record that the loop of a pool made a decision."""
        self._due_since.pop(pool, None)
        self._failures.pop(pool_loop(pool), None)

    async def wait_for_room(self, room: Callable[[], Awaitable[None]]) -> None:
        """Wait until few enough Bindings are in flight; a loop that waits here is not stuck."""
        began = self._clock()
        self._waiting_for_room += 1
        try:
            await room()
        finally:
            self._waiting_for_room -= 1
        if self._clock() - began > HOLD_SECONDS:
            self._due_since = dict.fromkeys(self._due_since, self._clock())

    def failed(self, loop: str) -> None:
        """Record that a loop failed; the daemon starts it again."""
        now = self._clock()
        known = self._failures.get(loop)
        recent = known is not None and now - known.last_at <= HEALTHY_SECONDS
        self._failures[loop] = _Failures(known.count + 1 if known is not None and recent else 1, now)

    def problem(self) -> str:
        """Return what is wrong, or nothing; the names of the loops are left out."""
        now = self._clock()
        self._failures = {
            loop: failures for loop, failures in self._failures.items() if now - failures.last_at <= HEALTHY_SECONDS
        }
        most = max((failures.count for failures in self._failures.values()), default=0)
        if most >= FAILURES_MAX:
            return f"a loop keeps failing: {most} times in a row"
        waits = now - min(self._due_since.values(), default=now)
        if waits > STUCK_SECONDS and not self._waiting_for_room:
            return f"a pool's loop is stuck: something to decide has waited for {waits:.0f} seconds"
        return ""
