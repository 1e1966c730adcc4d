"""Where the numbers of `/metrics` come from: what engine and shell have to tell.

Law: these are only shapes; engine and shell know nothing of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from aischeduler.engine.tally import Tally
from aischeduler.model.pool_summary import PoolSummary
from aischeduler.model.unsupported_constraints import ConstraintKind
from aischeduler.observability.meter import Meter


class Engine(Protocol):
    """The part of the engine that tells numbers; see `engine.scheduler.Scheduler`."""

    @property
    def tally(self) -> Tally:
        """What was counted so far."""

    def pools(self) -> tuple[str, ...]:
        """Return all pools."""

    def summary(self) -> tuple[PoolSummary, ...]:
        """Return every pool in numbers."""

    def waiting(self) -> Mapping[str, Mapping[str, int]]:
        """Return per pool how many pods wait in each place of its queue."""

    def held(self) -> Mapping[tuple[str, ConstraintKind], int]:
        """Return how many pods are held, by home pool and kind of constraint."""

    def loans(self) -> Mapping[tuple[str, str], int]:
        """Return running loans by lender and home pool."""

    def conflicts(self) -> Mapping[str, int]:
        """Return per pool how many nodes it and another one select."""


class Written(Protocol):
    """What became of reports."""

    @property
    def written(self) -> int:
        """Reports that the API server took."""

    @property
    def dropped(self) -> int:
        """Reports given up: too many, or too many failures."""

    @property
    def refused(self) -> int:
        """Reports that the API server refused."""


class Heard(Protocol):
    """What a reflector met; every attribute only grows."""

    events: int
    lists: int
    watches: int
    failures: int
    old_events: int
    older_lists: int
    unreadable_objects: int
    unreadable_lines: int
    unknown_events: int
    recreated: int
    found_gone: int


class Reflecting(Protocol):
    """A reflector of one kind."""

    @property
    def counts(self) -> Heard:
        """What it met."""

    @property
    def watch_open_seconds(self) -> float:
        """How long its watch has been open."""

    @property
    def watch_idle_seconds(self) -> float:
        """How long ago its watch last brought a byte."""

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits in the shell: how much, by name, and for how many seconds the oldest Binding has had no outcome."""

    backlogs: Mapping[str, Callable[[], int]]
    oldest_binding: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Sources:
    """Where numbers come from. `reflectors` by kind; `leads` says whether this is the scheduler that schedules."""

    engine: Engine
    meter: Meter
    reports: Written
    reflectors: Mapping[str, Reflecting]
    leads: Callable[[], bool]
    waiting: Waiting
