"""The reflector of the virtual cluster: lists and watches one resource of the API server in process.

Invariant: decoders and known objects are those of production; only the socket is missing.
"""

from typing import Generic, TypeVar

import msgspec
from msgspec import Raw

from aischeduler.kube.decode.meta_types import Metadata, Page, PartialObjectMetadata, RawWatchEvent
from aischeduler.kube.watch.known_objects import KnownObjects
from aischeduler.kube.watch.watched_resources import ApiObject, ReflectorCounts, WatchedResource
from aischeduler.model.events import Event
from aischeduler.sandbox.api_server import ApiServer
from aischeduler.sandbox.request import Request
from aischeduler.sandbox.watches import WatchStream

D = TypeVar("D", bound=ApiObject)


class InProcessReflector(Generic[D]):
    """Lists and watches one resource, and lists again when the watch cannot go on."""

    def __init__(self, server: ApiServer, resource: WatchedResource[D]) -> None:
        self.counts = ReflectorCounts()
        self._server = server
        self._resource = resource
        self._known_objects = KnownObjects(resource, self.counts)
        self._version = ""
        self._stream: WatchStream | None = None
        self._told_absent = False
        """Whether it said that the resource is not served, which it says once."""

    def read(self, now: float) -> list[Event]:
        """Return the events since the last call; the first call returns all objects."""
        events: list[Event] = []
        absent, self._told_absent = self._told_absent, not self.served()
        if self._told_absent:
            if absent:
                return []
            self._version, self._stream = "", None
            self._known_objects.begin_list()
            return [*self._resource.listed(served=False), *self._known_objects.end_list()]
        while self._stream is None or self._stream.closed:
            if not self._version:
                events += self._list(now)
            self._stream = self._watch(now)
            events += self._read_stream(self._stream, now)
        return events + self._read_stream(self._stream, now)

    @property
    def kind(self) -> str:
        """The kind of the resource."""
        return self._resource.kind

    def served(self) -> bool:
        """Say whether the server serves the resource, as discovery would."""
        *_, group, version, plural = self._resource.path.split("/")
        return self._server.cluster.resources.find("" if group == "api" else group, version, plural) is not None

    def close(self) -> None:
        """End the watch."""
        if self._stream is not None:
            self._stream.close()

    def seen(self, body: bytes) -> tuple[Event, ...]:
        """Return the events of an object that a GET request returned."""
        return tuple(self._known_objects.upsert(self._resource.object_decoder.decode(body)))

    def gone(self, metadata: Metadata) -> tuple[Event, ...]:
        """Return the events of an object that a GET request did not find."""
        return tuple(self._known_objects.delete(metadata))

    def _list(self, now: float) -> list[Event]:
        self.counts.lists += 1
        response = self._server.handle(Request("GET", self._resource.path, self._query()), now)
        assert not isinstance(response, WatchStream)
        page = msgspec.json.decode(response.body, type=Page[Raw])
        self._known_objects.begin_list()
        events: list[Event] = []
        for item in page.items or ():
            events += self._read_item(item)
        events += (*self._resource.listed(served=True), *self._known_objects.end_list())
        self._set_version(page.metadata.resource_version)
        return events

    def _read_item(self, item: Raw) -> tuple[Event, ...]:
        try:
            return tuple(self._known_objects.upsert(self._resource.object_decoder.decode(item)))
        except msgspec.ValidationError:
            self.counts.unreadable_objects += 1
            return tuple(self._known_objects.keep(msgspec.json.decode(item, type=PartialObjectMetadata).metadata))

    def _watch(self, now: float) -> WatchStream:
        self.counts.watches += 1
        query = self._query() | {"watch": "true", "resourceVersion": self._version}
        response = self._server.handle(Request("GET", self._resource.path, query), now)
        assert isinstance(response, WatchStream)
        return response

    def _query(self) -> dict[str, str]:
        return {"fieldSelector": self._resource.field_selector} if self._resource.field_selector else {}

    def _read_stream(self, stream: WatchStream, now: float) -> list[Event]:
        events: list[Event] = []
        for line in stream.read(now):
            events += self._read_line(line)
        return events

    def _read_line(self, line: bytes) -> tuple[Event, ...]:
        self.counts.events += 1
        try:
            watch_event = self._resource.watch_event_decoder.decode(line)
        except msgspec.ValidationError:
            return self._read_other_line(line)
        metadata = watch_event.object.metadata
        match watch_event.type:
            case "ADDED" | "MODIFIED":
                events = tuple(self._known_objects.upsert(watch_event.object))
            case "DELETED":
                events = tuple(self._known_objects.delete(metadata))
            case _:
                return self._read_other_line(line)
        self._set_version(metadata.resource_version)
        return events

    def _read_other_line(self, line: bytes) -> tuple[Event, ...]:
        """Read an error, which here always means 410 Gone, or an object that cannot be decoded."""
        if msgspec.json.decode(line, type=RawWatchEvent).type == "ERROR":
            self._version = ""
        else:
            self.counts.unreadable_objects += 1
        return ()

    def _set_version(self, version: str) -> None:
        self._version = version
        self._known_objects.advance(version)
