"""An adaptive limit on requests in flight: it grows and shrinks with the measured throughput.

Invariants:
- The limit tries to grow while even the fastest answers are slow, and keeps the larger value only if throughput rises
  clearly. It also tries to shrink, and keeps the smaller value if throughput stays. So a distant server gets more
  requests in flight, and a busy server gets no longer queue and no more connections than it needs.
- The limit is never below its initial value, after a backlog never below `BACKLOG_MIN`, and never above its maximum.
- A period in which fewer requests wait than the limit allows changes nothing.

Source: hill climbing on throughput; at a busy server more requests in flight only wait longer (Little's law).
"""

from collections.abc import Callable
from typing import Final

INITIAL: Final = 64
"""The limit for a few pods, which are not worth the TLS handshake of another connection."""
BACKLOG_MIN: Final = 128
"""The smallest limit after a backlog. A server nearby is busy with half of it, but spends more on each request."""
BACKLOG: Final = BACKLOG_MIN
"""How many waiting requests are a backlog: every connection then has a request to send."""
STEP: Final = 2
"""The factor by which a trial changes the limit."""
MORE_ANSWERS: Final = 1.2
"""The throughput that keeps a larger limit, relative to before."""
AS_MANY_ANSWERS: Final = 0.95
"""The throughput that keeps a smaller limit, relative to before."""
PERIOD_SECONDS: Final = 0.5
ROUNDS: Final = 2
"""A period lasts at least until this many answers per request in flight."""
REST_PERIODS: Final = 10
"""How many periods pass between a trial that changed nothing and the next one."""
DISTANT_SHARE: Final = 0.5
"""The server is distant if this share of the requests in flight would remain at the fastest answer time."""
BUSY_SHARE: Final = 0.8
"""The share of answers that must have arrived while requests waited, for a period to count."""


class ConcurrencyLimit:
    """The limit now: `size`, at most `limit`."""

    def __init__(self, limit: int, clock: Callable[[], float], first: int = INITIAL) -> None:
        self._initial = first
        self.size = self._min = min(first, limit)
        self._limit = limit
        self._clock = clock
        self._trial: tuple[int, float] | None = None
        """Size and throughput before the current trial."""
        self._growing = True
        self._rest_periods = 0
        self._began = clock()
        self._answers = 0
        self._awaited_answers = 0
        """How many answers arrived while requests waited to be sent."""
        self._quickest_seconds = float("inf")

    def record_answer(self, seconds: float, *, more_waits: bool) -> bool:
        """Record an answer, its seconds, and whether requests wait; return whether the limit grew."""
        now = self._clock()
        if not self._answers:
            self._began = max(self._began, now - seconds)  # before that there was nothing to do
        self._answers += 1
        self._awaited_answers += more_waits
        self._quickest_seconds = min(self._quickest_seconds, seconds)
        elapsed = now - self._began
        if elapsed < PERIOD_SECONDS or self._answers < ROUNDS * self.size:
            return False
        before = self.size
        if self._awaited_answers >= BUSY_SHARE * self._answers:
            self._judge(self._answers / elapsed)
        elif self._trial is not None:
            self.size, self._trial = self._trial[0], None
        self._begin_period()
        return self.size > before

    def note_backlog(self) -> bool:
        """Record that a backlog waits; return whether the limit grew."""
        usual = min(BACKLOG_MIN, self._limit)
        if self._min >= usual:
            return False
        before, self._min = self.size, usual
        self.size, self._trial = max(before, usual), None
        self._begin_period()
        return self.size > before

    def set_limit(self, limit: int) -> bool:
        """Set another maximum; return whether the limit grew."""
        before, self._limit, self._trial = self.size, limit, None
        self._min = min(max(self._min, self._initial), limit)
        self.size = min(max(before, self._min), limit)
        return self.size > before

    def _judge(self, rate: float) -> None:
        if self._trial is not None:
            size, rate_before = self._trial
            needed = MORE_ANSWERS if self.size > size else AS_MANY_ANSWERS
            self._trial = None
            if rate < needed * rate_before:
                self.size, self._rest_periods, self._growing = size, REST_PERIODS, not self._growing
                return
        if self._rest_periods:
            self._rest_periods -= 1
            return
        self._begin_trial(rate)

    def _begin_trial(self, rate: float) -> None:
        """Begin a trial with a larger or smaller limit; change direction if it cannot move."""
        distant = rate * self._quickest_seconds >= DISTANT_SHARE * self.size
        size = min(self.size * STEP, self._limit) if self._growing else max(self.size // STEP, self._min)
        if size == self.size:
            self._growing = not self._growing
            self._rest_periods = REST_PERIODS
        elif self._growing and not distant:
            self._growing = False
        else:
            self._trial = self.size, rate
            self.size = size

    def _begin_period(self) -> None:
        self._began, self._answers, self._awaited_answers = self._clock(), 0, 0
        self._quickest_seconds = float("inf")
