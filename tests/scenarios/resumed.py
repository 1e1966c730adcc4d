"""A watch that goes on where it was when the API server ends it, which a busy one does to the watchers it cannot serve.

Invariant: no event is missed: an API server that no longer has the next event says so, and this raises AssertionError.
"""

from collections.abc import Callable

from tests.api_contract.world import Json, Stream


class Resumed:
    """The events of one kind of object behind a resource version; with an empty one, first every object there is."""

    def __init__(self, watch: Callable[[str], Stream], path: str, version: str = "") -> None:
        self._watch = watch
        self._path = path
        self._version = version
        self._stream = self._open()

    def next(self, seconds: float) -> Json | None:
        """Return the next event; None if none comes within this time."""
        event = self._stream.next(seconds)
        if event is not None:
            assert event["type"] != "ERROR", event
            self._version = event["object"]["metadata"]["resourceVersion"]
        elif self._stream.ended:
            self._stream.close()
            self._stream = self._open()
        return event

    @property
    def ended(self) -> bool:
        """Return False: it goes on."""
        return False

    def close(self) -> None:
        self._stream.close()

    def _open(self) -> Stream:
        since = f"&resourceVersion={self._version}" if self._version else ""
        return self._watch(f"{self._path}?watch=true{since}")
