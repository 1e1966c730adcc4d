"""When free room was last announced: by row, and by pool where a changed spec, or many rows, may help its pods.

Invariant: an announcement comes before each wake-up for room. So a pod that only the five-minute flush brought back,
and that gets room without an announcement since, missed an event.
"""

from collections.abc import Iterable


class Announcements:
    """Numbered announcements. `count` grows with each; the last of each row and pool is kept."""

    def __init__(self) -> None:
        self.count = 0
        self._rows: dict[int, int] = {}
        self._pools: dict[str, int] = {}

    def of_rows(self, rows: Iterable[int]) -> None:
        """Announce the room of rows."""
        self.count += 1
        self._rows.update(dict.fromkeys(rows, self.count))

    def of_pool(self, pool: str) -> None:
        """Announce that pods of this pool, or borrowers from it, are tried."""
        self.count += 1
        self._pools[pool] = self.count

    def forget(self, pool: str) -> None:
        """Drop a pool that is gone."""
        self._pools.pop(pool, None)

    def since(self, count: int, rows: Iterable[int], pools: Iterable[str]) -> bool:
        """Return whether one of the rows, or of the pools, was announced after this count."""
        of_rows = any(self._rows.get(row, 0) > count for row in rows)
        return of_rows or any(self._pools.get(pool, 0) > count for pool in pools)
