"""Log lines about writes that the API server refuses: one a minute for each kind of write and status.

Law: a missing right is refused thousands of times; the first refusal is said at once, and how many followed with the
next line.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

from structlog.typing import FilteringBoundLogger

from aischeduler.kube.errors import RefusedError

QUIET_SECONDS: Final = 60.0
"""How long the refusals that follow a line are only counted."""


class Refusals:
    """Says what was refused; `clock` never goes back."""

    def __init__(self, log: FilteringBoundLogger, clock: Callable[[], float]) -> None:
        self._log = log
        self._clock = clock
        self._said_at: dict[tuple[str, int], float] = {}
        self._left_out: Counter[tuple[str, int]] = Counter()

    def refused(self, write: str, error: RefusedError) -> None:
        """Say that a write of this kind was refused, or count it."""
        kind, now = (write, error.status), self._clock()
        if now - self._said_at.get(kind, float("-inf")) < QUIET_SECONDS:
            self._left_out[kind] += 1
            return
        self._said_at[kind] = now
        self._log.warning(
            "write refused",
            write=write,
            request=error.request,
            status=error.status,
            reason=error.message,
            left_out=self._left_out.pop(kind, 0),
        )
