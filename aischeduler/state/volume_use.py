"""The claims and disks that pods on rows use.

Invariants:
- `put` and `drop` come in pairs, for pods on rows and owners of claims on room; a trial undoes its own.
- While `apart` is set, what a search for victims has removed from a row counts as gone for that row alone.
- Rows whose volumes may have changed are `stale`, until their volumes are read again.
"""

from collections import Counter
from collections.abc import Iterator

from aischeduler.model.volumes import Disk, DiskKind, PodVolumes, VolumeClaimKey
from aischeduler.state.groups import Groups, Tallies

Used = VolumeClaimKey | Disk


class VolumeUse:
    """The use of claims and disks by row, each with the number of pods."""

    def __init__(self) -> None:
        self.on: Tallies[int, Used] = Tallies()
        """Row -> what pods there use."""
        self.rows: Tallies[Used, int] = Tallies()
        """Claim or disk -> the rows with pods that use it."""
        self.disks: Groups[tuple[DiskKind, str], Disk, None] = Groups()
        """Kind and name -> the disks in use of this name, by how they are used."""
        self.apart: dict[int, Counter[Used]] | None = None
        """Row -> what pods there used that a search has removed."""
        self.stale: dict[int, None] = {}

    def put(self, volumes: PodVolumes, row: int) -> None:
        """Count a pod with these volumes on a row."""
        for one in _used(volumes):
            self.on.add(row, one)
            self.rows.add(one, row)
            if isinstance(one, Disk):
                self.disks.put((one.kind, one.name), one, None)
        self.stale[row] = None

    def drop(self, volumes: PodVolumes, row: int) -> None:
        """Undo `put`."""
        for one in _used(volumes):
            self.on.subtract(row, one)
            self.rows.subtract(one, row)
            self._forget_unused(one)
        self.stale[row] = None

    def set_apart(self, volumes: PodVolumes, row: int, sign: int) -> None:
        """Let a pod of the row count as gone for the row (-1), or undo that (1)."""
        assert self.apart is not None, "a search for victims has begun"
        for one in _used(volumes):
            self.apart.setdefault(row, Counter())[one] -= sign
        self.stale[row] = None

    def end_apart(self) -> None:
        """End a search for victims: all pods count again."""
        self.stale.update(dict.fromkeys(self.apart or ()))
        self.apart = None

    def gone(self, one: Used, row: int) -> int:
        """Return how many pods of a row that use this claim or disk are set apart."""
        return self.apart[row][one] if self.apart is not None and row in self.apart else 0

    def left_on(self, row: int) -> Iterator[Used]:
        """Yield the claims and disks that pods on a row use, without those that are set apart."""
        return (one for one, pods in self.on.get(row, Counter()).items() if pods > self.gone(one, row))

    def _forget_unused(self, one: Used) -> None:
        if isinstance(one, Disk) and one not in self.rows:
            self.disks.drop((one.kind, one.name), one)


def _used(volumes: PodVolumes) -> Iterator[Used]:
    """Yield the claims and disks of a pod, each once."""
    yield from volumes.keys
    yield from dict.fromkeys(volumes.disks)
