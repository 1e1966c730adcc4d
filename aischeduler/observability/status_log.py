"""The log of statuses: the numbers of each Pool, and of each tenant queue, as one line.

Invariants:
- An object has at most one line a minute, and none while its numbers are as in its last line; the first is always
  written.
- All objects of a kind have at most `LINES_MAX` lines a minute together; those left out are named, and come first
  afterwards.
- The loops of pools only note the newest report; lines are written by a task of their own.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final, Generic, NoReturn, TypeVar

from structlog.typing import FilteringBoundLogger

from aischeduler.model.actions import ReportPool, ReportQueue
from aischeduler.model.card_shares import CARD
from aischeduler.model.names import CPU, MEMORY
from aischeduler.model.pool_summary import GPU, PoolSummary, gpus

PERIOD_SECONDS: Final = 60.0
"""Shortest time between two lines of an object, and the time in which `LINES_MAX` lines are written."""
LINES_MAX: Final = 100
POLL_SECONDS: Final = 1.0
_KINDS: Final = ("used", "allocatable", "shared", "borrowed", "pending")
_SWITCHES_AND_COUNTS: Final = ("preemption", "borrowing", "sharing", "nodes", "pods", "pending_pods")
_RESOURCES: Final = (("cpu", CPU, 1000), ("memory_gib", MEMORY, 2**30), ("gpu", GPU, 1))
"""The name of a resource in the fields, its name in a summary, and the units of the summary in one of the line."""

Fields = dict[str, bool | float | str]
_NEVER: Final[tuple[float, Fields]] = (float("-inf"), {})
R = TypeVar("R", ReportPool, ReportQueue)


class StatusLog(ABC, Generic[R]):
    """Writes the lines. `names` returns the objects that exist; `clock` returns seconds and never goes back."""

    def __init__(
        self, log: FilteringBoundLogger, names: Callable[[], Collection[str]], clock: Callable[[], float]
    ) -> None:
        self.log, self._names, self._clock = log, names, clock
        self._reported: dict[str, R] = {}
        """The newest status of each object with a status that its last line does not show."""
        self._last: dict[str, tuple[float, Fields]] = {}
        """When the last line of each object was written, and its fields."""
        self._period_began = float("-inf")
        self._lines_left = 0
        self._names_left_out = False
        """Whether the line about the objects left out was written in this period."""

    @abstractmethod
    def fields(self, report: R) -> Fields:
        """Return the numbers of a line."""

    @abstractmethod
    def tell(self, name: str, fields: Fields) -> None:
        """Write the line of an object."""

    @abstractmethod
    def tell_left_out(self, names: Collection[str]) -> None:
        """Write the line about objects that have none in this minute."""

    def record(self, reports: Iterable[R]) -> None:
        """Note the newest status of objects."""
        for report in reports:
            self._reported[report.name] = report

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
        existing = frozenset(self._names())
        for deleted in (self._reported.keys() | self._last.keys()) - existing:
            self._reported.pop(deleted, None)
            self._last.pop(deleted, None)
        left_out = []
        for name in sorted(self._reported, key=lambda name: self._last.get(name, _NEVER)[0]):
            written_at, last = self._last.get(name, _NEVER)
            fields = self.fields(self._reported[name])
            if now - written_at < PERIOD_SECONDS:
                break
            if fields != last and not self._lines_left:
                left_out.append(name)
                continue
            del self._reported[name]
            if fields != last:
                self._lines_left -= 1
                self._last[name] = now, fields
                self.tell(name, fields)
        if left_out and not self._names_left_out:
            self._names_left_out = True
            self.tell_left_out(left_out)


class PoolStatusLog(StatusLog[ReportPool]):
    """The lines of Pools: cpu in cores, memory in GiB, gpu in devices."""

    def fields(self, report: ReportPool) -> Fields:
        """Return the numbers of the table of pools."""
        summary: PoolSummary = report.summary
        fields: Fields = {name: getattr(summary, name) for name in _SWITCHES_AND_COUNTS}
        for name, resource, unit in _RESOURCES:
            for kind in _KINDS:
                amounts = getattr(summary, kind)
                amount = gpus(amounts) / CARD if resource == GPU else amounts.get(resource, 0) / unit
                fields[f"{name}_{kind}"] = _number(amount)
        return fields

    def tell(self, name: str, fields: Fields) -> None:
        """Write the line of a Pool."""
        self.log.info("pool status", pool=name, **fields)

    def tell_left_out(self, names: Collection[str]) -> None:
        """Write the line about Pools that have none in this minute."""
        self.log.info("pool statuses left out", count=len(names), pools=", ".join(names))


class QueueStatusLog(StatusLog[ReportQueue]):
    """The lines of tenant queues: cpu in cores, memory in GiB, cards by name as used and quota."""

    def fields(self, report: ReportQueue) -> Fields:
        """Return the numbers of the table of queues."""
        summary = report.summary
        cards = (
            f"{card.card} {card.used}" + ("" if card.quota is None else f"/{card.quota}") for card in summary.cards
        )
        fields: Fields = {
            "state": str(report.state),
            "priority": report.priority,
            "over_quota": any(found.type == "OverQuota" and found.status for found in report.conditions),
            "pods": summary.pods,
            "pending_pods": summary.pending_pods,
            "cards": ", ".join(cards),
        }
        for name, resource, unit in _RESOURCES[:2]:
            fields[f"{name}_used"] = _number(summary.used.get(resource, 0) / unit)
            if resource in summary.quota:
                fields[f"{name}_quota"] = _number(summary.quota[resource] / unit)
        return fields

    def tell(self, name: str, fields: Fields) -> None:
        """Write the line of a queue."""
        self.log.info("queue status", queue=name, **fields)

    def tell_left_out(self, names: Collection[str]) -> None:
        """Write the line about queues that have none in this minute."""
        self.log.info("queue statuses left out", count=len(names), queues=", ".join(names))


def _number(amount: float) -> float:
    return int(amount) if amount == int(amount) else round(amount, 3)
