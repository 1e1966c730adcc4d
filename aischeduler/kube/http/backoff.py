"""Exponential backoff with jitter, and the signal that ends the waits of all streams of one API server.

Source: the numbers of client-go's reflector.
"""

import asyncio
from typing import Final

from aischeduler.kube.http.timing import RETRY_AFTER_SECONDS_MAX, RandomSource, Timing

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
