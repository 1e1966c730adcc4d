"""When to try again: backoff with jitter, and waiting because the server said so.

Laws:
- Clock, sleep and chance are arguments, so that tests need no waiting.
- One `Throttle` holds back a whole client: when the API server is tired, everybody waits.

Source: numbers of client-go's reflector.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

BACKOFF_FIRST_SECONDS: Final = 0.8
BACKOFF_LONGEST_SECONDS: Final = 30.0
HEALTHY_SECONDS: Final = 120.0
"""After this long without a failure the next one counts as the first."""
HOLD_LONGEST_SECONDS: Final = 60.0
"""Longest that a Retry-After is obeyed."""


class Chance(Protocol):
    """A source of numbers in [0, 1)."""

    def random(self) -> float:
        """Return the next number."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Time and chance of one client: seconds that never go back, a sleep in them, and jitter."""

    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    chance: Chance


class Backoff:
    """Doubling waits with jitter, from `first_seconds` to `longest_seconds`."""

    def __init__(
        self, pace: Pace, first_seconds: float = BACKOFF_FIRST_SECONDS, longest_seconds: float = BACKOFF_LONGEST_SECONDS
    ) -> None:
        self._pace = pace
        self._first = first_seconds
        self._longest = longest_seconds
        self._failures = 0
        self._failed_at = pace.clock()

    def next_seconds(self) -> float:
        """Count a failure and return how long to wait: between once and twice the doubled wait."""
        now = self._pace.clock()
        if now - self._failed_at > HEALTHY_SECONDS:
            self._failures = 0
        self._failed_at = now
        wait = min(self._longest, self._first * float(2 ** min(self._failures, 16)))
        self._failures += 1
        return wait * (1.0 + self._pace.chance.random())

    async def wait(self) -> None:
        """Count a failure and wait."""
        await self._pace.sleep(self.next_seconds())


class Throttle:
    """A door that the API server closes for a while; everything that waits goes on when it opens."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._open_at = pace.clock()

    @property
    def closed(self) -> bool:
        """Whether `pass_through` would wait now."""
        return self._open_at > self._pace.clock()

    def hold(self, seconds: float) -> None:
        """Close for at least so long from now."""
        self._open_at = max(self._open_at, self._pace.clock() + min(seconds, HOLD_LONGEST_SECONDS))

    async def pass_through(self) -> None:
        """Return once the door is open."""
        while (left := self._open_at - self._pace.clock()) > 0:
            await self._pace.sleep(left)


class Rate:
    """At most `per_second` over time and `burst` at once."""

    def __init__(self, pace: Pace, per_second: float, burst: int) -> None:
        self._pace = pace
        self._next_at = float("-inf")
        self.change(per_second, burst)

    def change(self, per_second: float, burst: int) -> None:
        """Take other limits; turns that were taken stay taken."""
        self._interval = 1.0 / per_second
        self._burst_seconds = burst * self._interval

    @property
    def used_up(self) -> bool:
        """Whether `pass_through` would wait now."""
        now = self._pace.clock()
        return self._next(now) > now

    async def pass_through(self) -> None:
        """Take one turn; wait for it where the turns of now are used up."""
        now = self._pace.clock()
        self._next_at = self._next(now)
        if self._next_at > now:
            await self._pace.sleep(self._next_at - now)

    def _next(self, now: float) -> float:
        """When the next turn is, or would have been."""
        return max(self._next_at, now - self._burst_seconds) + self._interval
