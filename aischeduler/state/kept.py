"""Kept results and change logs. A kept result has the versions of what it was made from; it holds while these hold.

Invariants:
- A change takes a version that never was. What a trial puts back gets the version from before: it is the same again.
- Trials change rows, whose version therefore comes with the number of the open trial, and the choices of volumes. So a
  result that was made in a trial does not hold after it, and one from before it holds again.
- For a version before the oldest kept change, or of another log, a change log returns None: a reader reads all.
"""

from collections.abc import Callable
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from aischeduler.state.node_table import NodeTable


Value = TypeVar("Value")
Versions = tuple[int, ...]


class Stamp:
    """The `version` of a part of the state that trials change."""

    __slots__ = ("_made", "version")

    def __init__(self) -> None:
        self.version, self._made = 0, 0

    def change(self) -> None:
        """Note a change; a trial that undoes it sets `version` again."""
        self._made += 1
        self.version = self._made


class StatePart(StrEnum):
    """A part of the node table from which results are made: where its version is."""

    ROWS = "version"
    """Amounts, ports, numbers of pods, volumes in use."""
    UNLABELLED = "unlabelled_version"
    """Taints, cordons, features, rare types and the set of nodes."""
    OFFERED = "offered_version"
    """What nodes offer."""
    POOLS = "pool_version"
    LABELS = "labels.version"
    """The labels that something read."""
    CARDS = "cards.version"
    GPU_MEMORIES = "devices.memories_version"
    """The memory of the GPUs of nodes."""
    COUNTED = "pod_counts.begun"
    """What is counted, not how many pods there are."""
    STORAGE = "storage.version"
    CHOICES = "storage.chosen.stamp.version"
    """The volumes that are chosen for claims."""


WIDTH: Final = "width"
TRIAL: Final = "trial.version"


def reading(*parts: StatePart) -> "Callable[[NodeTable], Versions]":
    """Return how to get the versions of these parts; those of a table that grew are others in any case."""
    read: Callable[[NodeTable], Versions] = attrgetter(WIDTH, *parts, *((TRIAL,) if StatePart.ROWS in parts else ()))
    return read


class Kept(Struct, Generic[Value], frozen=True, eq=False):
    """A result, with the versions of what it was made from, and all else that it was made from."""

    made_from: tuple[object, ...]
    value: Value


Noted = TypeVar("Noted")


class ChangeLog(Generic[Noted]):
    """The changes in their order. `version` grows with each; at most `limit` are kept."""

    def __init__(self, limit: int, version: int = 0) -> None:
        self.version = version
        self.limit = limit
        self._changes: list[Noted] = []
        self._start = version

    def note(self, change: Noted) -> None:
        """Note a change."""
        self.version += 1
        self._changes.append(change)
        if len(self._changes) > self.limit:
            cut = len(self._changes) // 2
            del self._changes[:cut]
            self._start += cut

    def note_all(self) -> None:
        """Note that everything changed."""
        self.version += 1
        self._changes.clear()
        self._start = self.version

    def since(self, version: int) -> list[Noted] | None:
        """Return the changes after this version, in their order; None where they are no longer kept."""
        return self._changes[version - self._start :] if self._start <= version <= self.version else None


def rows_since(log: ChangeLog[int], version: int) -> list[int] | None:
    """Return the rows that changed after this version, ascending; None where the changes are no longer kept."""
    rows = log.since(version)
    return None if rows is None else sorted(set(rows))
