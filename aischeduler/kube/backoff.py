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

INITIAL_BACKOFF_SECONDS: Final = 0.8
BACKOFF_SECONDS_MAX: Final = 30.0
BACKOFF_RESET_SECONDS: Final = 120.0
"""After this long without a failure the next one counts as the first."""
RETRY_AFTER_SECONDS_MAX: Final = 60.0
"""Longest that a Retry-After is obeyed."""
JITTER_SECONDS_MAX: Final = 2.0
"""Longest time over which those who waited for the API server go on; it is as long as they had to wait."""


class RandomSource(Protocol):
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
    jitter: RandomSource
    throttle: "Throttle" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Give the client its door."""
        object.__setattr__(self, "throttle", Throttle(self))


class ExponentialBackoff:
    """Doubling waits with jitter, from `first_seconds` to `longest_seconds`."""

    def __init__(
        self,
        timing: Timing,
        first_seconds: float = INITIAL_BACKOFF_SECONDS,
        longest_seconds: float = BACKOFF_SECONDS_MAX,
    ) -> None:
        self._timing = timing
        self._first = first_seconds
        self._longest = longest_seconds
        self._failures = 0
        self._failed_at = timing.clock()

    def next_seconds(self) -> float:
        """Count a failure and return how long to wait: between once and twice the doubled wait."""
        now = self._timing.clock()
        if now - self._failed_at > BACKOFF_RESET_SECONDS:
            self._failures = 0
        self._failed_at = now
        wait = min(self._longest, self._first * float(2 ** min(self._failures, 16)))
        self._failures += 1
        return wait * (1.0 + self._timing.jitter.random())

    async def wait(self) -> None:
        """Count a failure and wait."""
        await self._timing.sleep(self.next_seconds())


class RetrySignal:
    """What several streams of one API server learn from each other: the first that is answered lets all try again."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Let all that wait now try at once."""
        self._woken.set()
        self._woken = asyncio.Event()

    async def wait(self, timing: Timing, seconds: float, asked_seconds: float = 0.0) -> None:
        """Wait so long, or until somebody was answered, but as long as the server has asked for in any case."""
        over, asked = self._woken, min(asked_seconds, RETRY_AFTER_SECONDS_MAX)
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
        self._ends_at = timing.clock()

    @property
    def active(self) -> bool:
        """Whether `pass_through` would wait now."""
        return self._ends_at > self._timing.clock()

    def hold_for(self, seconds: float) -> None:
        """Close for at least so long from now."""
        self._ends_at = max(self._ends_at, self._timing.clock() + min(seconds, RETRY_AFTER_SECONDS_MAX))

    async def wait(self) -> None:
        """Return once the door is open."""
        while (left := self._ends_at - self._timing.clock()) > 0:
            await self._timing.sleep(left + self._timing.jitter.random() * min(left, JITTER_SECONDS_MAX))


class RateLimiter:
    """At most `per_second` over time and `burst` at once."""

    def __init__(self, timing: Timing, per_second: float, burst: int) -> None:
        self._timing = timing
        self._next_at = float("-inf")
        self._turn = asyncio.Lock()
        self.set_limits(per_second, burst)

    def set_limits(self, per_second: float, burst: int) -> None:
        """Take other limits; turns that were taken stay taken."""
        self._interval = 1.0 / per_second
        self._burst_seconds = burst * self._interval

    @property
    def exhausted(self) -> bool:
        """Whether `pass_through` would wait now."""
        now = self._timing.clock()
        return self._turn.locked() or self._next(now) > now

    @property
    def available(self) -> int:
        """How many turns there are now without waiting."""
        now = self._timing.clock()
        return int((now - self._next(now)) / self._interval) + 1 if not self.exhausted else 0

    async def wait(self) -> None:
        """Take one turn; wait for it where the turns of now are used up.

        One of those who wait has its turn, the others stand in line: so other limits count for them at once.
        """
        async with self._turn:
            now = self._timing.clock()
            self._next_at = self._next(now)
            if self._next_at > now:
                await self._timing.sleep(self._next_at - now)

    def _next(self, now: float) -> float:
        """When the next turn is, or would have been."""
        return max(self._next_at, now - self._burst_seconds) + self._interval
