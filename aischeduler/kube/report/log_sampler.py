"""Sampled log lines for events that repeat thousands of times: one line a minute for each kind.

Invariant: the first event of a kind is logged at once; the next line says how many were left out.
"""

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from aischeduler.kube.http.errors import InterceptedError, RefusedError

SAMPLE_SECONDS: Final = 60.0
"""How long further events of a kind are only counted."""
KINDS_MAX: Final = 1000
"""How many kinds are remembered; beyond that all of them start again."""


class LogSampler:
    """Decides which events of a kind are logged; `clock` is monotonic."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._logged_at: dict[Hashable, float] = {}
        self._suppressed: Counter[Hashable] = Counter()

    def sample(self, kind: Hashable) -> int | None:
        """Return how many events were left out since the last logged one; None if this one is left out too."""
        now = self._clock()
        if now - self._logged_at.get(kind, float("-inf")) < SAMPLE_SECONDS:
            self._suppressed[kind] += 1
            return None
        if len(self._logged_at) >= KINDS_MAX:
            self._logged_at.clear()
            self._suppressed.clear()
        self._logged_at[kind] = now
        return self._suppressed.pop(kind, 0)


class RefusalLog:
    """Logs refused requests; `clock` is monotonic."""

    def __init__(self, log: FilteringBoundLogger, clock: Callable[[], float]) -> None:
        self._log = log
        self._sampler = LogSampler(clock)

    def refused(self, write: str, error: RefusedError) -> None:
        """Log or count a refused write."""
        fields = {"write": write, "request": error.request, "status": error.status}
        self._log_sampled("write refused", (write, error.status), reason=error.message, **fields)

    def intercepted(self, error: InterceptedError) -> None:
        """Log or count an answer that did not come from the API server."""
        kind = (error.request.partition(" ")[0], error.status)
        self._log_sampled(
            "answer not from the API server", kind, request=error.request, status=error.status, reason=str(error)
        )

    def credential_failure(self, reason: str) -> None:
        """Log or count credentials that cannot be read or are refused."""
        self._log_sampled("credentials do not work", ("credentials", reason), reason=reason)

    def _log_sampled(self, event: str, kind: tuple[str, object], **fields: Any) -> None:
        left_out = self._sampler.sample(kind)
        if left_out is not None:
            self._log.warning(event, **fields, left_out=left_out)
