"""The changes since a version, such as the rows that changed, so that readers read only those again.

Invariant: for a version before the oldest kept change, or of another log, the result is None, and a reader reads
everything.
"""

from typing import Generic, TypeVar

Change = TypeVar("Change")


class ChangeLog(Generic[Change]):
    """The changes in their order. `version` grows with each; at most `limit` are kept."""

    def __init__(self, limit: int, version: int = 0) -> None:
        self.version = version
        self.limit = limit
        self._changes: list[Change] = []
        self._start = version

    def note(self, change: Change) -> None:
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

    def since(self, version: int) -> list[Change] | None:
        """Return the changes after this version, in their order; None where they are no longer kept."""
        return self._changes[version - self._start :] if self._start <= version <= self.version else None


def rows_since(log: ChangeLog[int], version: int) -> list[int] | None:
    """Return the rows that changed after this version, ascending; None where the changes are no longer kept."""
    rows = log.since(version)
    return None if rows is None else sorted(set(rows))
