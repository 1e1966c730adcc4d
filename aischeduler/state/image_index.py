"""Which rows have which images, and how much of a pod's images each row has.

Invariants:
- An image has one size: that of the node that had it first, until no node has it.
- A change of images is no change of rows: nothing but scores of images reads them, so that no other version grows.
- A row costs four bytes per name of an image.

Source: the image states of kube-scheduler's cache.
"""

from array import array
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from aischeduler.model.images import ImageId, NodeImage
from aischeduler.state.label_index import Mask

SUMS_MAX: Final = 128
"""The most sums that are kept; when there are more, all are made again."""

Sizes = npt.NDArray[np.int64]


class _Image:
    """An image: its size, the rows that have it, and the version of the index when they changed last."""

    __slots__ = ("changed", "rows", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes, self.rows, self.changed = size_bytes, array("i"), 0


class ImageSums(Struct, frozen=True, eq=False):
    """How much of some images each row has, in bytes; an image that few nodes have counts less.

    `least` and `most` are those of all nodes.
    """

    by_row: Sizes
    least: int
    most: int


class _Kept(Struct):
    """Sums with the versions for which they were checked, and what they were made from."""

    version: int
    rows_version: int
    sources: tuple[object, ...]
    sums: ImageSums | None


class ImageIndex:
    """The images of all rows. `version` grows with every change."""

    def __init__(self) -> None:
        self.version = 0
        self._images: dict[ImageId, _Image] = {}
        self._sums: dict[tuple[ImageId, ...], _Kept] = {}
        self._last: tuple[tuple[NodeImage, ...], dict[ImageId, int]] = ((), {})
        """The last images of a row with their sizes by name: many nodes share one list."""

    def change(self, row: int, old: tuple[NodeImage, ...], new: tuple[NodeImage, ...]) -> None:
        """Replace the images of a row."""
        before, after = self._sizes(old), self._sizes(new)
        self.version += 1
        for name in before:
            if name not in after:
                self._drop(name, row)
        for name, size_bytes in after.items():
            if name not in before:
                self._put(name, row, size_bytes)
            elif before[name] != size_bytes and len(self._images[name].rows) == 1:
                self._images[name].size_bytes, self._images[name].changed = size_bytes, self.version

    def __contains__(self, name: ImageId) -> bool:
        return name in self._images

    def rows(self, name: ImageId) -> list[int]:
        """Return the rows that have an image, ascending."""
        image = self._images.get(name)
        return sorted(image.rows) if image is not None else []

    def sums(self, images: tuple[ImageId, ...], alive: Mask, rows_version: int) -> ImageSums | None:
        """Return how much of these images each row has; None where no node has one.

        `alive` are the rows with nodes, which change only with `rows_version`.
        """
        kept = self._sums.get(images)
        if kept is None or kept.version != self.version or kept.rows_version != rows_version:
            found = [self._images[name] for name in images if name in self._images]
            sources = (int(np.count_nonzero(alive)), len(alive), *((id(image), image.changed) for image in found))
            if kept is not None and kept.sources == sources:
                kept.version, kept.rows_version = self.version, rows_version
            else:
                if len(self._sums) >= SUMS_MAX:
                    self._sums.clear()
                sums = _sum(found, alive) if found else None
                kept = self._sums[images] = _Kept(self.version, rows_version, sources, sums)
        return kept.sums

    def _sizes(self, images: tuple[NodeImage, ...]) -> dict[ImageId, int]:
        """Return the size of each name; the first one counts."""
        if not images:
            return {}
        if images is not self._last[0]:
            found: dict[ImageId, int] = {}
            for image in images:
                for name in image.names:
                    found.setdefault(name, image.size_bytes)
            self._last = images, found
        return self._last[1]

    def _put(self, name: ImageId, row: int, size_bytes: int) -> None:
        image = self._images.get(name)
        if image is None:
            image = self._images[name] = _Image(size_bytes)
        image.rows.append(row)
        image.changed = self.version

    def _drop(self, name: ImageId, row: int) -> None:
        image = self._images[name]
        place = int(np.flatnonzero(np.frombuffer(image.rows, dtype=np.intc) == row)[0])
        image.rows[place] = image.rows[-1]
        image.rows.pop()
        image.changed = self.version
        if not image.rows:
            del self._images[name]


def _sum(images: list[_Image], alive: Mask) -> ImageSums:
    """Add up the images: each with its size times the share of nodes that have it, cut to whole bytes."""
    by_row: Sizes = np.zeros(len(alive), dtype=np.int64)
    nodes = max(int(np.count_nonzero(alive)), 1)
    for image in images:
        by_row[np.array(image.rows, dtype=np.intp)] += int(image.size_bytes * (len(image.rows) / nodes))
    of_nodes = by_row[alive]
    return ImageSums(by_row, int(of_nodes.min(initial=np.iinfo(np.int64).max)), int(of_nodes.max(initial=0)))
