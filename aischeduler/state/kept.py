"""Kept results: each carries the versions of what it was made from, and holds while these are the same.

Invariants:
- A change takes a version that never was. What a trial puts back gets the version from before: it is the same again.
- Trials change rows, whose version therefore comes with the number of the open trial, and the choices of volumes. So a
  result that was made in a trial does not hold after it, and one from before it holds again.
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


class Part(StrEnum):
    """A part of the node table from which results are made: where its version is."""

    ROWS = "version"
    """Amounts, ports, numbers of pods, volumes in use."""
    UNLABELLED = "unlabelled_version"
    """Taints, cordons, features, rare types and the set of nodes."""
    POOLS = "pool_version"
    LABELS = "labels.version"
    """The labels that something read."""
    CARDS = "cards.version"
    COUNTED = "pod_counts.begun"
    """What is counted, not how many pods there are."""
    STORAGE = "storage.version"
    CHOICES = "storage.chosen.stamp.version"
    """The volumes that are chosen for claims."""
    PLUGINS = "storage.plugins_version"


WIDTH: Final = "width"
TRIAL: Final = "trial.version"


def reading(*parts: Part) -> "Callable[[NodeTable], Versions]":
    """Return how to get the versions of these parts; those of a table that grew are others in any case."""
    read: Callable[[NodeTable], Versions] = attrgetter(WIDTH, *parts, *((TRIAL,) if Part.ROWS in parts else ()))
    return read


class Kept(Struct, Generic[Value], frozen=True, eq=False):
    """A result, with the versions of what it was made from, and all else that it was made from."""

    made_from: tuple[object, ...]
    value: Value
