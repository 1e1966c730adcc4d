"""Log lines about what happens thousands of times: one a minute for each kind, such as a write and how it was refused.

Law: the first of a kind is said at once, and how many followed with the next line.
"""

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from aischeduler.kube.errors import InterceptedError, RefusedError

SAMPLE_SECONDS: Final = 60.0
"""How long what follows a line is only counted."""
KINDS_MAX: Final = 1000
"""Kinds that are remembered; beyond that all are said once more."""


class LogSampler:
    """Says of many alike which are to be told; `clock` never goes back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._logged_at: dict[Hashable, float] = {}
        self._suppressed: Counter[Hashable] = Counter()

    def sample(self, kind: Hashable) -> int | None:
        """Return how many of this kind were left out since the last that was told; None where this one is, too."""
        now = self._clock()
        if now - self._logged_at.get(kind, float("-inf")) < SAMPLE_SECONDS:
            self._suppressed[kind] += 1
            return None
        if len(self._logged_at) >= KINDS_MAX:
            self._logged_at.clear()
        self._logged_at[kind] = now
        return self._suppressed.pop(kind, 0)


class RefusalLog:
    """Says what was refused; `clock` never goes back."""

    def __init__(self, log: FilteringBoundLogger, clock: Callable[[], float]) -> None:
        self._log = log
        self._sampler = LogSampler(clock)

    def refused(self, write: str, error: RefusedError) -> None:
        """Say that a write of this kind was refused, or count it."""
        fields = {"write": write, "request": error.request, "status": error.status}
        self._log_sampled("write refused", (write, error.status), reason=error.message, **fields)

    def intercepted(self, error: InterceptedError) -> None:
        """Say that something before the API server answered a request, or count it."""
        kind = (error.request.partition(" ")[0], error.status)
        self._log_sampled(
            "not the API server's answer", kind, request=error.request, status=error.status, reason=str(error)
        )

    def credential_failure(self, reason: str) -> None:
        """Say why the credentials cannot be read or are refused, or count it."""
        self._log_sampled("credentials do not work", ("credentials", reason), reason=reason)

    def _log_sampled(self, event: str, kind: tuple[str, object], **fields: Any) -> None:
        left_out = self._sampler.sample(kind)
        if left_out is not None:
            self._log.warning(event, **fields, left_out=left_out)
