"""How objects are shown: as they are stored, or as the rows of a Table that `kubectl get` prints.

Invariants:
- A whole object costs no encoding: its stored bytes are sent.
- Events are stored as events.k8s.io/v1; the core group shows them under its own field names.
- The heads of a Table go with a list and with the first event of a watch.

Source of the event names: `pkg/apis/events/v1/conversion.go`.
"""

from collections.abc import Iterable

from aischeduler.sandbox.api_resources import Resource
from aischeduler.sandbox.objects import JsonObject, encode
from aischeduler.sandbox.printer_columns import table_cells, table_heads
from aischeduler.sandbox.request import JSON, Call
from aischeduler.sandbox.store import Entry

_STORED_EVENT_FIELDS = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_CORE_EVENT_FIELDS = {stored: shown for shown, stored in _STORED_EVENT_FIELDS.items()}


def _is_core_event(resource: Resource) -> bool:
    return resource.kind == "Event" and not resource.group


def to_stored(resource: Resource, obj: JsonObject) -> JsonObject:
    """Return an object as it is stored."""
    if not _is_core_event(resource):
        return obj
    renamed = {_STORED_EVENT_FIELDS.get(key, key): value for key, value in obj.items()}
    return {**renamed, "apiVersion": "events.k8s.io/v1"}


def from_stored(resource: Resource, obj: JsonObject) -> JsonObject:
    """Return a stored object as this resource shows it."""
    if not _is_core_event(resource):
        return obj
    renamed = {_CORE_EVENT_FIELDS.get(key, key): value for key, value in obj.items()}
    return {"reportingComponent": "", "reportingInstance": "", **renamed, "apiVersion": "v1"}


class View:
    """Objects as they are stored."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        # Items of a list of built-in objects carry no kind of their own.
        lead = encode({"kind": resource.kind, "apiVersion": resource.api_version})[:-1] + b","
        self._lead = b"" if resource.is_custom else lead

    def at(self, now: float) -> None:
        """Count ages to this time from now on; whole objects show none."""

    def shown(self, entry: Entry) -> bytes:
        """Return one object."""
        if _is_core_event(self._resource):
            return encode(from_stored(self._resource, entry.decoded()))
        return entry.raw

    def bookmark(self, revision: int) -> bytes:
        """Return the object of a bookmark: nothing but a revision."""
        kind = {"kind": self._resource.kind, "apiVersion": self._resource.api_version}
        return encode({**kind, "metadata": {"resourceVersion": str(revision)}})

    def listed(self, entries: Iterable[Entry], list_metadata: JsonObject) -> bytes:
        """Return a list."""
        raws = [self.shown(entry) for entry in entries]
        lead, skip = self._lead, len(self._lead)
        if skip:
            raws = [b"{" + raw[skip:] if raw.startswith(lead) else raw for raw in raws]
        head = encode({"kind": f"{self._resource.kind}List", "apiVersion": self._resource.api_version})
        return b'%b,"metadata":%b,"items":[%b]}' % (head[:-1], encode(list_metadata), b",".join(raws))


class TableView(View):
    """Objects as rows of a Table; `whole_objects` says whether a row carries the whole object or its metadata."""

    def __init__(self, resource: Resource, now: float, *, whole_objects: bool) -> None:
        super().__init__(resource)
        self._now = now
        self._whole_objects = whole_objects
        self._heads = table_heads(resource)

    def at(self, now: float) -> None:
        """Count ages to this time from now on."""
        self._now = now

    def shown(self, entry: Entry) -> bytes:
        """Return a table of one row."""
        return encode(self._table([self._row(entry)], {"resourceVersion": str(entry.revision)}))

    def bookmark(self, revision: int) -> bytes:
        """Return a table of one row that holds nothing but a revision."""
        metadata = {"resourceVersion": str(revision)}
        row = {"cells": [], "object": _metadata_object(metadata)}
        return encode(self._table([row], metadata))

    def listed(self, entries: Iterable[Entry], list_metadata: JsonObject) -> bytes:
        """Return a table of all rows."""
        return encode(self._table([self._row(entry) for entry in entries], list_metadata))

    def _table(self, rows: list[JsonObject], metadata: JsonObject) -> JsonObject:
        heads, self._heads = self._heads, []
        table: JsonObject = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
        return {**table, "columnDefinitions": heads, "rows": rows}

    def _row(self, entry: Entry) -> JsonObject:
        obj = entry.decoded()
        cells = table_cells(self._resource, obj, self._now)
        shown = from_stored(self._resource, obj) if self._whole_objects else _metadata_object(obj["metadata"])
        return {"cells": cells, "object": shown}


def _metadata_object(metadata: JsonObject) -> JsonObject:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}


def choose_view(call: Call) -> View:
    """Return the first view of the `Accept` header that is served here; whole objects when none is."""
    for media in call.asked.accept.split(","):
        name, *parameters = [one.strip() for one in media.split(";")]
        if name == JSON and "as=Table" in parameters and "v=v1" in parameters:
            whole_objects = call.query.get("includeObject") == "Object"
            return TableView(call.resource, call.now, whole_objects=whole_objects)
        if name == JSON and not any(one.startswith("as=") for one in parameters):
            break
    return View(call.resource)
