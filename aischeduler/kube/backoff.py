"""When to try again: backoff with jitter, and waiting because the server said so.

Laws:
- Clock, sleep and chance are arguments, so that tests need no waiting.
- One `Throttle` holds back a whole client: when the API server is tired, everybody waits. Those who waited go on one
  after the other, by chance: all at one instant would tire it again.

Source: numbers of client-go's reflector.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

BACKOFF_FIRST_SECONDS: Final = 0.8
BACKOFF_LONGEST_SECONDS: Final = 30.0
HEALTHY_SECONDS: Final = 120.0
"""After this long without a failure the next one counts as the first."""
HOLD_LONGEST_SECONDS: Final = 60.0
"""Longest that a Retry-After is obeyed."""
SPREAD_LONGEST_SECONDS: Final = 2.0
"""Longest time over which those who waited for the API server go on; it is as long as they had to wait."""


class Chance(Protocol):
    """A source of numbers in [0, 1)."""

    def random(self) -> float:
        """Return the next number."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Time and chance of one client: seconds that never go back, a sleep in them, and jitter.

    `throttle` is the door that all parts of the client share.
    """

    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    chance: Chance
    throttle: "Throttle" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Give the client its door."""
        object.__setattr__(self, "throttle", Throttle(self))


class ExponentialBackoff:
    """Doubling waits with jitter, from `first_seconds` to `longest_seconds`."""

    def __init__(
        self,
        timing: Timing,
        first_seconds: float = BACKOFF_FIRST_SECONDS,
        longest_seconds: float = BACKOFF_LONGEST_SECONDS,
    ) -> None:
        self._timing = timing
        self._first = first_seconds
        self._longest = longest_seconds
        self._failures = 0
        self._failed_at = timing.clock()

    def next_seconds(self) -> float:
        """Count a failure and return how long to wait: between once and twice the doubled wait."""
        now = self._timing.clock()
        if now - self._failed_at > HEALTHY_SECONDS:
            self._failures = 0
        self._failed_at = now
        wait = min(self._longest, self._first * float(2 ** min(self._failures, 16)))
        self._failures += 1
        return wait * (1.0 + self._timing.chance.random())

    async def wait(self) -> None:
        """Count a failure and wait."""
        await self._timing.sleep(self.next_seconds())


class Outage:
    """What several streams of one API server learn from each other: the first that is answered lets all try again."""

    def __init__(self) -> None:
        self._over = asyncio.Event()

    def over(self) -> None:
        """Let all that wait now try at once."""
        self._over.set()
        self._over = asyncio.Event()

    async def wait(self, timing: Timing, seconds: float, asked_seconds: float = 0.0) -> None:
        """Wait so long, or until somebody was answered, but as long as the server has asked for in any case."""
        over, asked = self._over, min(asked_seconds, HOLD_LONGEST_SECONDS)
        if asked:
            await timing.sleep(asked)
        if asked >= seconds:
            return
        waits = [asyncio.ensure_future(timing.sleep(seconds - asked)), asyncio.ensure_future(over.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


class Throttle:
    """A door that the API server closes for a while; what waits goes on within a while after it opens, by chance."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._open_at = timing.clock()

    @property
    def closed(self) -> bool:
        """Whether `pass_through` would wait now."""
        return self._open_at > self._timing.clock()

    def hold(self, seconds: float) -> None:
        """Close for at least so long from now."""
        self._open_at = max(self._open_at, self._timing.clock() + min(seconds, HOLD_LONGEST_SECONDS))

    async def pass_through(self) -> None:
        """Return once the door is open."""
        while (left := self._open_at - self._timing.clock()) > 0:
            await self._timing.sleep(left + self._timing.chance.random() * min(left, SPREAD_LONGEST_SECONDS))


class Rate:
    """At most `per_second` over time and `burst` at once."""

    def __init__(self, timing: Timing, per_second: float, burst: int) -> None:
        self._timing = timing
        self._next_at = float("-inf")
        self._line = asyncio.Lock()
        self.change(per_second, burst)

    def change(self, per_second: float, burst: int) -> None:
        """Take other limits; turns that were taken stay taken."""
        self._interval = 1.0 / per_second
        self._burst_seconds = burst * self._interval

    @property
    def used_up(self) -> bool:
        """Whether `pass_through` would wait now."""
        now = self._timing.clock()
        return self._line.locked() or self._next(now) > now

    @property
    def left(self) -> int:
        """How many turns there are now without waiting."""
        now = self._timing.clock()
        return int((now - self._next(now)) / self._interval) + 1 if not self.used_up else 0

    async def pass_through(self) -> None:
        """Take one turn; wait for it where the turns of now are used up.

        One of those who wait has its turn, the others stand in line: so other limits count for them at once.
        """
        async with self._line:
            now = self._timing.clock()
            self._next_at = self._next(now)
            if self._next_at > now:
                await self._timing.sleep(self._next_at - now)

    def _next(self, now: float) -> float:
        """When the next turn is, or would have been."""
        return max(self._next_at, now - self._burst_seconds) + self._interval
