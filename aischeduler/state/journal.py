"""The rows that changed since a version, so that readers read only those again.

Invariant: for a version before the oldest kept change the result is None, and a reader reads all rows.
"""


class Journal:
    """The changes of rows in their order. `version` grows with each; at most `limit` are kept."""

    def __init__(self, limit: int) -> None:
        self.version = 0
        self.limit = limit
        self._rows: list[int] = []
        self._start = 0

    def note(self, row: int) -> None:
        """Note that a row changed."""
        self.version += 1
        self._rows.append(row)
        if len(self._rows) > self.limit:
            cut = len(self._rows) // 2
            del self._rows[:cut]
            self._start += cut

    def since(self, version: int) -> list[int] | None:
        """Return the rows that changed after this version, ascending; None where the changes are no longer kept."""
        start = version - self._start
        if start < 0:
            return None
        return sorted(set(self._rows[start:]))
