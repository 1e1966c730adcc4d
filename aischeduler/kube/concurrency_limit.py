"""How many requests may be under way at once, learnt from what the API server makes of them.

Laws:
- More are tried from time to time where even the quickest answers are slow, and kept only where they bring clearly more
  answers; fewer are tried too, and kept where they bring as many. So a server that is far away gets more, and one that
  is busy does not get more to queue, nor connections that it does not need.
- Never fewer than the first, once a crowd has waited never fewer than `USUAL`, and never more than the limit.
- Nothing is learnt while there is less to do than the window allows.

Source: hill climbing on throughput; at a busy server more under way only waits longer (Little's law).
"""

from collections.abc import Callable
from typing import Final

INITIAL: Final = 64
"""Under way for a few pods: each further one costs a TLS handshake, which they are not worth."""
BACKLOG_MIN: Final = 128
"""Under way for a crowd: a server nearby is busy with half of them too, but spends more on each, as does etcd."""
BACKLOG: Final = BACKLOG_MIN
"""So many that wait at one time are a crowd: each connection has something to send at once."""
STEP: Final = 2
"""A trial is with so many times as many, or with the same part."""
MORE_ANSWERS: Final = 1.2
"""What more under way has to bring to be kept."""
AS_MANY_ANSWERS: Final = 0.95
"""What fewer under way have to bring to be kept."""
PERIOD_SECONDS: Final = 0.5
ROUNDS: Final = 2
"""A period lasts until each of those under way was answered so often, too."""
REST_PERIODS: Final = 10
"""Periods after a trial that brought nothing before the next."""
FAR_SHARE: Final = 0.5
"""Of those under way, how many would be with the quickest answer for all: below that it is the server that is slow."""
BUSY_SHARE: Final = 0.8
"""Of the answers of a period, how many must have been awaited by others for it to count."""


class ConcurrencyLimit:
    """How many requests may be under way now: `size`, at most `limit`."""

    def __init__(self, limit: int, clock: Callable[[], float], first: int = INITIAL) -> None:
        self._initial = first
        self.size = self._min = min(first, limit)
        self._limit = limit
        self._clock = clock
        self._trial: tuple[int, float] | None = None
        """Size and rate before the trial that is under way."""
        self._growing = True
        self._rest_periods = 0
        self._began = clock()
        self._answers = 0
        self._awaited_answers = 0
        """How many of the answers came while more waited to be sent."""
        self._quickest_seconds = float("inf")

    def record_answer(self, seconds: float, *, more_waits: bool) -> bool:
        """Hear after how long an answer came, and whether more waits to be sent; say whether the window has grown."""
        now = self._clock()
        if not self._answers:
            self._began = max(self._began, now - seconds)  # before that there was nothing to do
        self._answers += 1
        self._awaited_answers += more_waits
        self._quickest_seconds = min(self._quickest_seconds, seconds)
        passed = now - self._began
        if passed < PERIOD_SECONDS or self._answers < ROUNDS * self.size:
            return False
        before = self.size
        if self._awaited_answers >= BUSY_SHARE * self._answers:
            self._judge(self._answers / passed)
        elif self._trial is not None:
            self.size, self._trial = self._trial[0], None
        self._begin_period()
        return self.size > before

    def note_backlog(self) -> bool:
        """Hear that a crowd waits to be sent; say whether the window has grown."""
        usual = min(BACKLOG_MIN, self._limit)
        if self._min >= usual:
            return False
        before, self._min = self.size, usual
        self.size, self._trial = max(before, usual), None
        self._begin_period()
        return self.size > before

    def set_limit(self, limit: int) -> bool:
        """Take another limit; say whether the window has grown."""
        before, self._limit, self._trial = self.size, limit, None
        self._min = min(max(self._min, self._initial), limit)
        self.size = min(max(before, self._min), limit)
        return self.size > before

    def _judge(self, rate: float) -> None:
        if self._trial is not None:
            size, rate_before = self._trial
            enough = MORE_ANSWERS if self.size > size else AS_MANY_ANSWERS
            self._trial = None
            if rate < enough * rate_before:
                self.size, self._rest_periods, self._growing = size, REST_PERIODS, not self._growing
                return
        if self._rest_periods:
            self._rest_periods -= 1
            return
        self._begin_trial(rate)

    def _begin_trial(self, rate: float) -> None:
        """Begin a trial with more or fewer; where there is no way on, turn round."""
        far = rate * self._quickest_seconds >= FAR_SHARE * self.size
        size = min(self.size * STEP, self._limit) if self._growing else max(self.size // STEP, self._min)
        if size == self.size:
            self._growing = not self._growing
            self._rest_periods = REST_PERIODS
        elif self._growing and not far:
            self._growing = False
        else:
            self._trial = self.size, rate
            self.size = size

    def _begin_period(self) -> None:
        self._began, self._answers, self._awaited_answers = self._clock(), 0, 0
        self._quickest_seconds = float("inf")
