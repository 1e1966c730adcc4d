"""The free volumes of one storage class, and for each row the smallest that fits a claim.

Invariants:
- A volume is free where it is Available, belongs to no claim and is not being deleted.
- Volumes are numbered by size, then by name: of those that fit, the lowest number is taken.
- Volumes with the same node affinity form a group: the rows of a group are found once, not once per volume.
- Nothing loops over nodes; a volume that is taken or freed changes one flag.

Source: FindMatchingVolume of kube-scheduler. Of volumes of one size it takes any; here the name decides.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from aischeduler.model.selectors import LabelSelector, NodeSelectorTerm
from aischeduler.model.volumes import Volume, VolumeClaim
from aischeduler.state.label_index import Mask, Rows

Numbers = npt.NDArray[np.int64]
NONE: Final = 2**40
"""No volume: a number above all others."""
Affinity = tuple[NodeSelectorTerm, ...] | None
"""What ties a volume to nodes: the terms of its node affinity, None where it can be used on every node."""
SHAPES_MAX: Final = 256
"""The most kinds of claims for which it is kept which volumes fit."""


class _Shape(NamedTuple):
    """What of a claim decides which volumes fit."""

    request_bytes: int
    access_modes: tuple[str, ...]
    block: bool
    attributes_class: str
    selector: LabelSelector | None


def is_free(volume: Volume) -> bool:
    """Return whether a claim may take the volume."""
    return volume.available and volume.claim is None and not volume.terminating


def suits(volume: Volume, claim: VolumeClaim) -> bool:
    """Return whether size and mode of a volume are as the claim asks; one that belongs to it needs no more."""
    return (
        volume.capacity_bytes >= (claim.request_bytes or 0)
        and volume.block == claim.block
        and volume.attributes_class == claim.attributes_class
        and not volume.terminating
    )


class ClassVolumes:
    """The volumes of one class. `changed` has the names of volumes that changed since `catch_up`."""

    def __init__(self) -> None:
        self.changed: dict[str, None] = {}
        self.names: list[str] = []
        self._volumes: dict[str, Volume] = {}
        self._number: dict[str, int] = {}
        self._free: Mask = np.zeros(0, dtype=np.bool_)
        self._group: Rows = np.zeros(0, dtype=np.intp)
        self._by_group: Rows = self._group
        self._starts: Rows = self._group
        self._affinities: dict[Affinity, int] = {}
        self._fitting: dict[_Shape, Mask] = {}

    def catch_up(self, volumes: Mapping[str, Volume]) -> bool:
        """Read the volumes that changed; `volumes` are those of the class. Return whether the groups changed."""
        changed, self.changed = self.changed, {}
        renumber = False
        for name in changed:
            volume = volumes.get(name)
            free, known = volume is not None and is_free(volume), self._volumes.get(name)
            if known is not None and (volume is None or _facts(volume) == _facts(known)):
                self._free[self._number[name]] = free
            elif known is not None or free:
                renumber = True
        if renumber:
            self._number_anew(volumes)
        return renumber

    @property
    def affinities(self) -> Iterable[Affinity]:
        """The affinities of the groups, in their order."""
        return self._affinities

    def fitting(self, claim: VolumeClaim, taken: Iterable[str]) -> Mask:
        """Return which volumes a claim may take, but for those that are `taken`."""
        shape = _Shape(
            claim.request_bytes or 0, claim.access_modes, claim.block, claim.attributes_class, claim.selector
        )
        fits = self._fitting.get(shape)
        if fits is None:
            if len(self._fitting) >= SHAPES_MAX:
                self._fitting.clear()
            fits = self._fitting[shape] = np.array([self._fits(name, claim) for name in self.names], dtype=np.bool_)
        mask: Mask = fits & self._free
        mask[[self._number[name] for name in taken if name in self._number]] = False
        return mask

    def smallest(self, fits: Mask, rows: "GroupRows", chosen: Sequence[Numbers]) -> Numbers:
        """Return per row the number of the smallest volume that fits and is not `chosen` there; NONE where none is."""
        firsts = self._firsts(fits, len(chosen) + 1)
        found = np.full(len(rows.rows), NONE, dtype=np.int64)
        for first in firsts:
            candidate = first[rows.groups]
            for before in chosen:
                candidate[before[rows.rows] == candidate] = NONE
            np.minimum(found, candidate, out=found)
        of_row = np.full(rows.width, NONE, dtype=np.int64)
        np.minimum.at(of_row, rows.rows, found)
        return of_row

    def _firsts(self, fits: Mask, count: int) -> list[Numbers]:
        """Return the number of the first, the second, ... fitting volume of each group."""
        fits_in_order = fits[self._by_group]
        before: Numbers = np.cumsum(fits_in_order) - fits_in_order
        turn: Numbers = before - before[self._starts][self._group[self._by_group]] if len(before) else before
        found = []
        for nth in range(count):
            numbers = self._by_group[fits_in_order & (turn == nth)]
            first = np.full(len(self._affinities), NONE, dtype=np.int64)
            first[self._group[numbers]] = numbers
            found.append(first)
        return found

    def _fits(self, name: str, claim: VolumeClaim) -> bool:
        volume = self._volumes[name]
        return (
            suits(volume, claim)
            and set(claim.access_modes) <= set(volume.access_modes)
            and (claim.selector is None or claim.selector.matches(volume.labels))
        )

    def _number_anew(self, volumes: Mapping[str, Volume]) -> None:
        """Give numbers to the volumes that are free or were so: those that a claim has may be freed again."""
        kept = [volume for volume in volumes.values() if is_free(volume) or volume.name in self._number]
        kept.sort(key=lambda volume: (volume.capacity_bytes, volume.name))
        self._volumes = {volume.name: volume for volume in kept}
        self.names = list(self._volumes)
        self._number = {name: number for number, name in enumerate(self.names)}
        self._free = np.array([is_free(volume) for volume in kept], dtype=np.bool_)
        self._affinities, self._fitting = {}, {}
        groups = [self._affinities.setdefault(volume.affinity, len(self._affinities)) for volume in kept]
        self._group = np.array(groups, dtype=np.intp)
        self._by_group = np.argsort(self._group, kind="stable")
        self._starts = np.searchsorted(self._group[self._by_group], np.arange(len(self._affinities)))


class GroupRows(NamedTuple):
    """The rows of each group of a class: pairs of a group and a row, for a table of `width` rows."""

    groups: Rows
    rows: Rows
    width: int


def _facts(volume: Volume) -> tuple[object, ...]:
    """Return what of a volume decides its number, its group and the claims that it fits."""
    return (
        volume.capacity_bytes,
        volume.affinity,
        volume.access_modes,
        volume.block,
        volume.attributes_class,
        volume.labels,
    )
