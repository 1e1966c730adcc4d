"""A watch: a position in a collection's history, which moves forward.

Invariants: a watch holds no events and ends when history has run past it; a change that moves an object into or out of
the selection is shown as ADDED or DELETED; a bookmark comes only after everything before it.
"""

from collections.abc import Callable

from aischeduler.sandbox.objects import JsonObject, encode
from aischeduler.sandbox.selection import Selection
from aischeduler.sandbox.store import Collection, Entry, Store, StoreEvent
from aischeduler.sandbox.views import View

BOOKMARK_SECONDS = 60.0
BOOKMARK_BEFORE_END_SECONDS = 2.0


class WatchStream:
    """One running watch. `on_ready` is called after each write that may concern it, and when it is closed."""

    def __init__(self, store: Store, collection: Collection, selection: Selection, view: View) -> None:
        self._store = store
        self._collection = collection
        self._selection = selection
        self._view = view
        self._pending: list[bytes] = []
        self._position = 0
        self._bookmark_at = float("inf")
        self._ends_at = float("inf")
        self.closed = False
        self.on_ready: Callable[[], None] | None = None

    def start(self, position: int, initial: tuple[Entry, ...], now: float, ends_at: float, *, bookmarks: bool) -> None:
        """Begin: initial objects first, then the history from a position."""
        self._position, self._ends_at = position, ends_at
        self._pending = [self._line("ADDED", entry) for entry in initial]
        if bookmarks:
            self._bookmark_at = self._bookmark_after(now)
        self._collection.watchers[id(self)] = (self.wake, self.close)

    def fail(self, status: JsonObject) -> None:
        """Start the watch and end it with an ERROR event."""
        self._pending = [_event_line("ERROR", encode(status))]
        self._ends_at = float("-inf")

    @property
    def next_time(self) -> float:
        """When to read again without a write: the time of the next bookmark or of the end."""
        return min(self._bookmark_at, self._ends_at)

    def read(self, now: float) -> list[bytes]:
        """Return all event lines since the last read; closes the watch when its time is over."""
        if self.closed:
            return []
        self._view.at(now)
        lines, self._pending = self._pending, []
        if self._ends_at == float("-inf"):
            self.close()
            return lines
        if self._position < self._collection.history_start:
            self.close()
            return lines
        history = self._collection.history
        for index in range(self._position - self._collection.history_start, len(history)):
            line = self._seen(history[index])
            if line is not None:
                lines.append(line)
        self._position = self._collection.history_end
        if now >= self._bookmark_at:
            lines.append(_event_line("BOOKMARK", self._view.bookmark(self._store.revision)))
            self._bookmark_at = self._bookmark_after(now)
        if now >= self._ends_at:
            self.close()
        return lines

    def _bookmark_after(self, now: float) -> float:
        early = self._ends_at - BOOKMARK_BEFORE_END_SECONDS
        return min(now + BOOKMARK_SECONDS, early) if now < early else float("inf")

    def _seen(self, event: StoreEvent) -> bytes | None:
        is_match = event.kind != "DELETED" and self._selection.matches(event.entry)
        was_match = event.previous is not None and self._selection.matches(event.previous)
        if is_match:
            return self._line("MODIFIED" if was_match else "ADDED", event.entry)
        if event.previous is None or not was_match:
            return None
        return self._line("DELETED", event.entry if event.kind == "DELETED" else event.before())

    def _line(self, kind: str, entry: Entry) -> bytes:
        return _event_line(kind, self._view.shown(entry))

    def wake(self) -> None:
        """Call `on_ready`."""
        if self.on_ready is not None:
            self.on_ready()

    def close(self) -> None:
        """End the watch; events that were not read are lost."""
        if self.closed:
            return
        self.closed = True
        self._collection.watchers.pop(id(self), None)
        self.wake()


def _event_line(kind: str, obj: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), obj)
