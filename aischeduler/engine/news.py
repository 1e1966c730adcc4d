"""When room was last spoken of: by row, and by pool where rules, or many rows, may help its pods.

Law: whoever wakes pods for room notes it here first. So a pod that only time brought back, and that gets room of which
nothing was said since, missed an event.
"""


class News:
    """What was said, numbered. `count` grows with each piece; only the last one of each row and pool is kept."""

    def __init__(self) -> None:
        self.count = 0
        self._rows: dict[int, int] = {}
        self._pools: dict[str, int] = {}

    def of_row(self, row: int) -> None:
        """Note that the room of a row is being offered."""
        self.count += 1
        self._rows[row] = self.count

    def of_pool(self, pool: str) -> None:
        """Note that pods of this pool, or who would borrow from it, are being tried."""
        self.count += 1
        self._pools[pool] = self.count

    def forget(self, pool: str) -> None:
        """Keep nothing of a pool that is gone."""
        self._pools.pop(pool, None)

    def since(self, count: int, row: int, pools: tuple[str, ...]) -> bool:
        """Say whether the row, or one of the pools, was spoken of after so many pieces of news."""
        return self._rows.get(row, 0) > count or any(self._pools.get(pool, 0) > count for pool in pools)
