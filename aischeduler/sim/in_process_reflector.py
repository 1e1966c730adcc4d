"""One resource of an API server in process, as events: list, then watch, and list anew when the history is gone.

Law: the bytes are read by the same decoders and kept by the same store as in production; only the socket is missing.
"""

from typing import Generic, TypeVar

import msgspec
from msgspec import Raw

from aischeduler.kube.api_types import Envelope, Metadata, Named, Page
from aischeduler.kube.known_objects import KnownObjects
from aischeduler.kube.watched_resources import Counts, Document, Resource
from aischeduler.model.events import Event
from aischeduler.sandbox.api_server import ApiServer
from aischeduler.sandbox.request import Request
from aischeduler.sandbox.watches import WatchStream

D = TypeVar("D", bound=Document)


class Feed(Generic[D]):
    """Lists and watches one resource; `read` returns what has happened since."""

    def __init__(self, server: ApiServer, resource: Resource[D]) -> None:
        self.counts = Counts()
        self._server = server
        self._resource = resource
        self._store = KnownObjects(resource, self.counts)
        self._version = ""
        self._stream: WatchStream | None = None

    def read(self, now: float) -> list[Event]:
        """Return the events since the last call; the first call returns all there is."""
        events: list[Event] = []
        while self._stream is None or self._stream.closed:
            if not self._version:
                events += self._list(now)
            self._stream = self._watch(now)
            events += self._follow(self._stream, now)
        return events + self._follow(self._stream, now)

    def close(self) -> None:
        """End the watch."""
        if self._stream is not None:
            self._stream.close()

    def told(self, body: bytes) -> tuple[Event, ...]:
        """Return what follows from an object that was read by itself."""
        return self._store.seen(self._resource.document.decode(body))

    def missing(self, metadata: Metadata) -> tuple[Event, ...]:
        """Return what follows from an object that was looked for and not found."""
        return self._store.gone(metadata)

    def _list(self, now: float) -> list[Event]:
        self.counts.lists += 1
        answer = self._server.handle(Request("GET", self._resource.path, self._query()), now)
        assert not isinstance(answer, WatchStream)
        page = msgspec.json.decode(answer.body, type=Page[Raw])
        self._store.begin_list()
        events: list[Event] = []
        for item in page.items or ():
            events += self._item(item)
        events += self._store.end_list()
        self._reach(page.metadata.resource_version)
        return events

    def _item(self, item: Raw) -> tuple[Event, ...]:
        try:
            return self._store.seen(self._resource.document.decode(item))
        except msgspec.ValidationError:
            self.counts.unreadable_objects += 1
            self._store.unreadable(msgspec.json.decode(item, type=Named).metadata)
            return ()

    def _watch(self, now: float) -> WatchStream:
        self.counts.watches += 1
        query = self._query() | {"watch": "true", "resourceVersion": self._version}
        answer = self._server.handle(Request("GET", self._resource.path, query), now)
        assert isinstance(answer, WatchStream)
        return answer

    def _query(self) -> dict[str, str]:
        return {"fieldSelector": self._resource.selector} if self._resource.selector else {}

    def _follow(self, stream: WatchStream, now: float) -> list[Event]:
        events: list[Event] = []
        for line in stream.read(now):
            events += self._line(line)
        return events

    def _line(self, line: bytes) -> tuple[Event, ...]:
        self.counts.events += 1
        try:
            told = self._resource.line.decode(line)
        except msgspec.ValidationError:
            return self._odd_line(line)
        metadata = told.object.metadata
        match told.type:
            case "ADDED" | "MODIFIED":
                events = self._store.seen(told.object)
            case "DELETED":
                events = self._store.gone(metadata)
            case _:
                return self._odd_line(line)
        self._reach(metadata.resource_version)
        return events

    def _odd_line(self, line: bytes) -> tuple[Event, ...]:
        """Take in an error, which in process means that history is gone, or an object that cannot be read."""
        if msgspec.json.decode(line, type=Envelope).type == "ERROR":
            self._version = ""
        else:
            self.counts.unreadable_objects += 1
        return ()

    def _reach(self, version: str) -> None:
        self._version = version
        self._store.reached(version)
