"""How many volumes of each CSI driver are attached to each node, and how many it can take.

Invariants:
- A volume counts once per node, however many pods there use it.
- An attachment counts where no pod on the node uses its volume.
- Rows are read again only where pods, claims, volumes, attachments or limits changed.
- `put` and `drop` come in pairs, for pods on rows and owners of claims on room; a trial undoes its own.
- While `apart` is set, what a search for victims has removed from a row counts as gone for that row alone.
- Rows whose volumes may have changed are `stale`, until their volumes are read again.

Source: kube-scheduler's NodeVolumeLimits.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from aischeduler.model.volumes import DriverVolume, PodVolumes, VolumeClaimKey
from aischeduler.state.groups import Tallies
from aischeduler.state.label_index import Mask, Rows

if TYPE_CHECKING:
    from aischeduler.state.node_table import NodeTable
    from aischeduler.state.storage import Storage


class VolumeUse:
    """The use of claims by row, each with the number of pods."""

    def __init__(self) -> None:
        self.on: Tallies[int, VolumeClaimKey] = Tallies()
        """Row -> the claims that pods there use."""
        self.rows: Tallies[VolumeClaimKey, int] = Tallies()
        """Claim -> the rows with pods that use it."""
        self.apart: dict[int, Counter[VolumeClaimKey]] | None = None
        """Row -> the claims of pods there that a search has removed."""
        self.stale: dict[int, None] = {}

    def put(self, volumes: PodVolumes, row: int) -> None:
        """Count a pod with these volumes on a row."""
        for key in volumes.keys:
            self.on.add(row, key)
            self.rows.add(key, row)
        self.stale[row] = None

    def drop(self, volumes: PodVolumes, row: int) -> None:
        """Undo `put`."""
        for key in volumes.keys:
            self.on.subtract(row, key)
            self.rows.subtract(key, row)
        self.stale[row] = None

    def set_apart(self, volumes: PodVolumes, row: int, sign: int) -> None:
        """Let a pod of the row count as gone for the row (-1), or undo that (1)."""
        assert self.apart is not None, "a search for victims has begun"
        for key in volumes.keys:
            self.apart.setdefault(row, Counter())[key] -= sign
        self.stale[row] = None

    def end_apart(self) -> None:
        """End a search for victims: all pods count again."""
        self.stale.update(dict.fromkeys(self.apart or ()))
        self.apart = None

    def gone(self, key: VolumeClaimKey, row: int) -> int:
        """Return how many pods of a row that use this claim are set apart."""
        return self.apart[row][key] if self.apart is not None and row in self.apart else 0

    def left_on(self, row: int) -> Iterator[VolumeClaimKey]:
        """Yield the claims that pods on a row use, without those that are set apart."""
        return (key for key, pods in self.on.get(row, Counter()).items() if pods > self.gone(key, row))


Counts = npt.NDArray[np.int64]
NO_LIMIT: Final = 2**40


class VolumeLimits:
    """The attached volumes by row and driver."""

    def __init__(self) -> None:
        self._width = 0
        self._attached: dict[str, Counts] = {}
        """Driver -> per row the number of attached volumes."""
        self._limits: dict[str, Counts] = {}
        self._volumes: dict[int, frozenset[DriverVolume]] = {}
        """Row -> the volumes that pods there use."""
        self._rows_with: dict[DriverVolume, set[int]] = {}

    def fits(self, volumes: PodVolumes, rows: Rows, nodes: "NodeTable") -> Mask:
        """Return a mask as long as `rows`, True where a pod with these volumes exceeds no limit."""
        self._catch_up(nodes)
        wanted = set(_driver_volumes(volumes.keys, nodes.storage))
        mask = np.ones(len(rows), dtype=np.bool_)
        for driver in {volume.driver for volume in wanted} & self._limits.keys():
            new = np.zeros(len(rows), dtype=np.int64)
            for volume in wanted:
                if volume.driver == driver:
                    new += ~np.isin(rows, list(self._rows_with.get(volume, ())))
            attached = self._attached.get(driver)
            there = attached[rows] if attached is not None else 0
            mask &= (new == 0) | (there + new <= self._limits[driver][rows])
        return mask

    def _catch_up(self, nodes: "NodeTable") -> None:
        storage = nodes.storage
        if self._width != nodes.width or storage.every_node:
            self._width = nodes.width
            for kept in (self._attached, self._limits, self._volumes, self._rows_with):
                kept.clear()
            stale = dict.fromkeys(nodes.rows.values())
        else:
            stale = {**storage.used.stale, **{nodes.rows[name]: None for name in storage.nodes if name in nodes.rows}}
        storage.used.stale, storage.nodes, storage.every_node = {}, {}, False
        for row in stale:
            self._read(row, nodes)

    def _read(self, row: int, nodes: "NodeTable") -> None:
        storage, name = nodes.storage, nodes.names[row]
        used = frozenset(_driver_volumes(storage.used.left_on(row), storage))
        before = self._volumes.pop(row, frozenset())
        for volume in before - used:
            self._rows_with[volume].discard(row)
            if not self._rows_with[volume]:
                del self._rows_with[volume]
        for volume in used - before:
            self._rows_with.setdefault(volume, set()).add(row)
        if used:
            self._volumes[row] = used
        csi_node = storage.csi_nodes.get(name)
        counts = Counter(volume.driver for volume in {*used, *_attachments(name, storage)})
        self._write(self._attached, row, counts, 0)
        self._write(self._limits, row, csi_node.limits if csi_node is not None else {}, NO_LIMIT)

    def _write(self, columns: dict[str, Counts], row: int, values: Mapping[str, int], other: int) -> None:
        for driver in values:
            if driver not in columns:
                columns[driver] = np.full(self._width, other, dtype=np.int64)
        for driver, column in tuple(columns.items()):
            column[row] = values.get(driver, other)
            if driver not in values and (column == other).all():
                del columns[driver]


def _driver_volumes(keys: Iterable[VolumeClaimKey], storage: "Storage") -> Iterator[DriverVolume]:
    """Yield the volumes of these claims that count for a driver."""
    for key in keys:
        found = storage.driver_volume(key)
        if found is not None:
            yield found


def _attachments(node: str, storage: "Storage") -> Iterator[DriverVolume]:
    """Yield the volumes of CSI drivers that are attached to a node."""
    for attachment in storage.attached.get(node, {}).values():
        volume = storage.volumes.get(attachment.volume)
        if volume is not None and volume.driver is not None:
            yield DriverVolume(attachment.driver, volume.driver.handle)
