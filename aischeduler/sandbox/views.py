"""How objects are shown: whole objects, and metadata alone. Tables are in `tables.py`.

Law: a whole object costs no encoding; its stored bytes are sent as they are.
"""

from collections.abc import Iterable
from typing import Protocol

from aischeduler.sandbox.kinds import Place, Resource
from aischeduler.sandbox.objects import JsonObject, encode
from aischeduler.sandbox.protocol import JSON
from aischeduler.sandbox.store import Entry
from aischeduler.sandbox.versions import shown_bytes


class View(Protocol):
    """How objects are shown. `content_type` is what the answer is labelled with."""

    content_type: str

    def at(self, now: float) -> None:
        """Learn the time that ages are counted to."""
        ...

    def shown(self, entry: Entry) -> bytes:
        """Return one object."""
        ...

    def bookmark(self, revision: int, annotations: JsonObject) -> bytes:
        """Return the object inside a bookmark."""
        ...

    def listed(self, entries: Iterable[Entry], list_metadata: JsonObject) -> bytes:
        """Return a list."""
        ...


class WholeView:
    """Objects as they are stored."""

    content_type = JSON

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        # Items of a list of built-in objects carry no kind of their own.
        lead = encode({"kind": resource.kind, "apiVersion": resource.api_version})[:-1] + b","
        self._lead = b"" if resource.custom is not None else lead

    def at(self, now: float) -> None:
        """No age is shown."""

    def shown(self, entry: Entry) -> bytes:
        """Return one object."""
        return shown_bytes(self._resource, entry)

    def bookmark(self, revision: int, annotations: JsonObject) -> bytes:
        """Return an object with nothing but a revision, as typed servers show it."""
        obj: JsonObject = {"kind": self._resource.kind, "apiVersion": self._resource.api_version}
        obj["metadata"] = {"resourceVersion": str(revision)}
        if annotations:
            obj["metadata"]["annotations"] = annotations
        if self._resource.collection == Place.PODS:
            obj |= {"spec": {"containers": None}, "status": {}}
        return encode(obj)

    def listed(self, entries: Iterable[Entry], list_metadata: JsonObject) -> bytes:
        """Return a list."""
        raws = [shown_bytes(self._resource, entry) for entry in entries]
        lead, skip = self._lead, len(self._lead)
        if skip:
            raws = [b"{" + raw[skip:] if raw.startswith(lead) else raw for raw in raws]
        items = b",".join(raws)
        head = encode({"kind": self._resource.list_name, "apiVersion": self._resource.api_version})
        return b'%b,"metadata":%b,"items":[%b]}' % (head[:-1], encode(list_metadata), items)


class MetadataView:
    """`PartialObjectMetadata`: for clients that need no more than names, labels and owners."""

    content_type = JSON

    def at(self, now: float) -> None:
        """No age is shown."""

    def shown(self, entry: Entry) -> bytes:
        """Return one object's metadata."""
        return encode(self._partial(entry.decoded()["metadata"]))

    def bookmark(self, revision: int, annotations: JsonObject) -> bytes:
        """Return metadata with nothing but a revision."""
        metadata: JsonObject = {"resourceVersion": str(revision)}
        if annotations:
            metadata["annotations"] = annotations
        return encode(self._partial(metadata))

    def listed(self, entries: Iterable[Entry], list_metadata: JsonObject) -> bytes:
        """Return a list."""
        items = b",".join([self.shown(entry) for entry in entries])
        head = encode({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": list_metadata})
        return b'%b,"items":[%b]}' % (head[:-1], items)

    @staticmethod
    def _partial(metadata: JsonObject) -> JsonObject:
        return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
