"""Waiting: the clock of a daemon, backoffs, the throttle that obeys Retry-After (429), and the token bucket.

Invariants:
- Clock, sleep and jitter are arguments, so tests do not wait.
- A daemon has one clock, in unix seconds: times of objects compare with it, and it never goes back.
- One `Throttle` pauses a whole client: when the API server is overloaded, every task waits. What one lane is asked to
  wait delays the others only if several lanes are asked. Jitter spreads the tasks after the pause, so that they do not
  overload the server again at once.
- An `ExponentialBackoff` belongs to one task, and a `RetrySignal` ends it early.

Source: the numbers of the backoff are those of client-go's reflector.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

RETRY_AFTER_SECONDS_MAX: Final = 60.0
LANES_PAUSED_MAX: Final = 2
"""If the server asks more lanes than this to wait, it is the server that is overloaded: all wait."""
CLOCK_SECONDS: Final = 1e-6
"""Times of a clock that differ by less are equal: it counts from 1970, and its numbers are no finer."""
JITTER_SECONDS_MAX: Final = 2.0
"""After a pause, tasks continue within as long as the pause lasted, but at most within this time."""


class RandomSource(Protocol):
    """A source of random numbers in [0, 1)."""

    def random(self) -> float:
        """Return the next number."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The time source of a client: a clock that never goes back, a sleep, and jitter.

    `throttle` is the pause that all parts of the client share.
    """

    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    jitter: RandomSource
    throttle: "Throttle" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Create the throttle of the client."""
        object.__setattr__(self, "throttle", Throttle(self))


def unix_clock(
    monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
) -> Callable[[], float]:
    """Return a clock in unix seconds that never goes back: `wall` is read once, and `monotonic` carries it on."""
    begun = wall() - monotonic()
    return lambda: begun + monotonic()


class Throttle:
    """Pauses that the API server asks for. Tasks that waited continue one after another, spread by jitter.

    A lane is what should not delay the others: a pool, or a namespace.
    """

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._ends_at = self._last_at = timing.clock()
        """When the pause of all lanes ends, and the last one of any."""
        self._lanes: dict[str, float] = {}
        """When the pauses of single lanes end."""

    @property
    def active(self) -> bool:
        """Whether `wait` would wait now, at least for one lane."""
        return self._last_at > self._timing.clock()

    def hold_for(self, seconds: float, lane: str | None = None) -> None:
        """Pause for at least this long from now: this lane, or all."""
        now = self._timing.clock()
        ends_at = now + min(seconds, RETRY_AFTER_SECONDS_MAX)
        if ends_at <= now:
            return
        self._last_at = max(self._last_at, ends_at)
        if lane is not None:
            self._lanes = {lane: at for lane, at in self._lanes.items() if at > now}
            self._lanes[lane] = max(self._lanes.get(lane, now), ends_at)
        if lane is None or len(self._lanes) > LANES_PAUSED_MAX:
            self._ends_at = max(self._ends_at, ends_at)

    async def wait(self, lane: str | None = None) -> None:
        """Return once the pause is over, that of all and that of this lane."""
        while (rest := self._until(lane) - self._timing.clock()) > 0:
            await self._timing.sleep(rest + self._timing.jitter.random() * min(rest, JITTER_SECONDS_MAX))

    def _until(self, lane: str | None) -> float:
        return self._ends_at if lane is None else max(self._ends_at, self._lanes.get(lane, self._ends_at))


class TokenBucket:
    """A limit of `per_second` requests over time and `burst` at once; `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float], per_second: float, burst: int) -> None:
        self._clock = clock
        self._next_at = float("-inf")
        self.set_limits(per_second, burst)

    def set_limits(self, per_second: float, burst: int) -> None:
        """Replace the limits; tokens already taken stay taken."""
        self._interval = 1.0 / per_second
        self._burst_seconds = burst * self._interval

    @property
    def seconds_until_token(self) -> float:
        """How long until a token is available; 0 if there is one."""
        now = self._clock()
        seconds = self._next(now) - now
        return seconds if seconds > CLOCK_SECONDS else 0.0

    @property
    def available(self) -> int:
        """How many tokens are available."""
        now = self._clock()
        return max(0, int((now - self._next(now) + CLOCK_SECONDS) / self._interval + 1))

    def take(self) -> None:
        """Take a token, one of the future if none is available."""
        self._next_at = self._next(self._clock())

    def _next(self, now: float) -> float:
        """Return the time of the next token, which may be in the past."""
        return max(self._next_at, now - self._burst_seconds) + self._interval


INITIAL_BACKOFF_SECONDS: Final = 0.8
BACKOFF_SECONDS_MAX: Final = 30.0
BACKOFF_RESET_SECONDS: Final = 120.0
"""After this long without a failure, the next failure counts as the first."""


def backoff_seconds(
    failures: int,
    jitter: RandomSource,
    initial_seconds: float = INITIAL_BACKOFF_SECONDS,
    seconds_max: float = BACKOFF_SECONDS_MAX,
) -> float:
    """Return how long to wait after so many failures in a row: between one and two times the doubled wait."""
    wait = min(seconds_max, initial_seconds * float(2 ** min(failures - 1, 16)))
    return wait * (1.0 + jitter.random())


class ExponentialBackoff:
    """Doubling waits with jitter, from `initial_seconds` to `seconds_max`."""

    def __init__(
        self,
        timing: Timing,
        initial_seconds: float = INITIAL_BACKOFF_SECONDS,
        seconds_max: float = BACKOFF_SECONDS_MAX,
    ) -> None:
        self._timing = timing
        self._initial = initial_seconds
        self._max = seconds_max
        self._failures = 0
        self._failed_at = timing.clock()

    def next_seconds(self) -> float:
        """Count a failure and return how long to wait: between one and two times the doubled wait."""
        now = self._timing.clock()
        if now - self._failed_at > BACKOFF_RESET_SECONDS:
            self._failures = 0
        self._failed_at = now
        self._failures += 1
        return backoff_seconds(self._failures, self._timing.jitter, self._initial, self._max)

    async def wait(self) -> None:
        """Count a failure and wait."""
        await self._timing.sleep(self.next_seconds())


class RetrySignal:
    """A wakeup that the streams of one API server share: when the server answers one stream, all retry at once."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Let every waiting stream retry now."""
        self._woken.set()
        self._woken = asyncio.Event()

    async def wait(self, timing: Timing, seconds: float, retry_after_seconds: float = 0.0) -> None:
        """Wait `seconds`, or until `wake` is called, but at least `retry_after_seconds`."""
        woken, retry_after = self._woken, min(retry_after_seconds, RETRY_AFTER_SECONDS_MAX)
        if retry_after:
            await timing.sleep(retry_after)
        if retry_after >= seconds:
            return
        waits = [asyncio.ensure_future(timing.sleep(seconds - retry_after)), asyncio.ensure_future(woken.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
