"""The log of pool statuses: the numbers of the table of pools as one line for each pool.

Invariants:
- A pool has at most one line a minute, and none while its numbers are as in its last line; the first is always written.
- All pools together have at most `LINES_MAX` lines a minute; the pools left out are named, and come first afterwards.
- The loops of pools only note the newest report; lines are written by a task of their own.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final, NoReturn

from structlog.typing import FilteringBoundLogger

from aischeduler.model.actions import ReportPool
from aischeduler.model.names import CPU, MEMORY
from aischeduler.model.pool_summary import GPU, PoolSummary

PERIOD_SECONDS: Final = 60.0
"""Shortest time between two lines of a pool, and the time in which `LINES_MAX` lines are written."""
LINES_MAX: Final = 100
POLL_SECONDS: Final = 1.0
_KINDS: Final = ("used", "allocatable", "shared", "borrowed", "pending")
_SWITCHES_AND_COUNTS: Final = ("preemption", "borrowing", "sharing", "nodes", "pods", "pending_pods")
_RESOURCES: Final = (("cpu", CPU, 1000), ("memory_gib", MEMORY, 2**30), ("gpu", GPU, 1))
"""The name of a resource in the fields, its name in a summary, and the units of the summary in one of the line."""

Fields = dict[str, bool | float]
_NEVER: Final[tuple[float, Fields]] = (float("-inf"), {})


class PoolStatusLog:
    """Writes the lines. `pools` returns the pools that exist; `clock` returns seconds and never goes back."""

    def __init__(
        self, log: FilteringBoundLogger, pools: Callable[[], Collection[str]], clock: Callable[[], float]
    ) -> None:
        self._log, self._pools, self._clock = log, pools, clock
        self._reported: dict[str, PoolSummary] = {}
        """The newest status of each pool with a status that its last line does not show."""
        self._last: dict[str, tuple[float, Fields]] = {}
        """When the last line of each pool was written, and its fields."""
        self._period_began = float("-inf")
        self._lines_left = 0
        self._names_left_out = False
        """Whether the line about the pools left out was written in this period."""

    def record(self, reports: Iterable[ReportPool]) -> None:
        """Note the newest status of pools."""
        for report in reports:
            self._reported[report.name] = report.summary

    async def run(self, sleep: Callable[[float], Awaitable[None]]) -> NoReturn:
        """Write the lines that are due until cancelled."""
        while True:
            await sleep(POLL_SECONDS)
            self.write()

    def write(self) -> None:
        """Write the lines that are due now."""
        if not self._reported:
            return
        now = self._clock()
        if now - self._period_began >= PERIOD_SECONDS:
            self._period_began, self._lines_left, self._names_left_out = now, LINES_MAX, False
        pools = frozenset(self._pools())
        for deleted in (self._reported.keys() | self._last.keys()) - pools:
            self._reported.pop(deleted, None)
            self._last.pop(deleted, None)
        left_out = []
        for pool in sorted(self._reported, key=lambda pool: self._last.get(pool, _NEVER)[0]):
            written_at, last = self._last.get(pool, _NEVER)
            fields = _fields(self._reported[pool])
            if now - written_at < PERIOD_SECONDS:
                break
            if fields != last and not self._lines_left:
                left_out.append(pool)
                continue
            del self._reported[pool]
            if fields != last:
                self._lines_left -= 1
                self._last[pool] = now, fields
                self._log.info("pool status", pool=pool, **fields)
        if left_out and not self._names_left_out:
            self._names_left_out = True
            self._log.info("pool statuses left out", count=len(left_out), pools=", ".join(left_out))


def _fields(summary: PoolSummary) -> Fields:
    """Return the numbers of a line: cpu in cores, memory in GiB, gpu in devices."""
    fields: Fields = {name: getattr(summary, name) for name in _SWITCHES_AND_COUNTS}
    for name, resource, unit in _RESOURCES:
        for kind in _KINDS:
            amount = getattr(summary, kind).get(resource, 0) / unit
            fields[f"{name}_{kind}"] = int(amount) if amount == int(amount) else round(amount, 3)
    return fields
