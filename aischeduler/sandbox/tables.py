"""The Table view: what `kubectl get` shows, made by the server.

Law: column heads go with a list and with the first event of a watch only, as in the real server.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from aischeduler.sandbox.columns import Column, columns_of
from aischeduler.sandbox.kinds import Resource
from aischeduler.sandbox.objects import JsonObject, encode
from aischeduler.sandbox.store import Entry
from aischeduler.sandbox.versions import from_stored

METADATA, WHOLE, NOTHING = "Metadata", "Object", "None"


@dataclass(slots=True)
class TableView:
    """Objects as rows. `include` says what of an object goes with its row."""

    resource: Resource
    now: float
    include: str = METADATA
    content_type: str = "application/json"
    _columns: tuple[Column, ...] = ()
    _heads_due: bool = field(default=True)

    def __post_init__(self) -> None:
        self._columns = columns_of(self.resource)

    def at(self, now: float) -> None:
        """Count ages to this time from now on."""
        self.now = now

    def shown(self, entry: Entry) -> bytes:
        """Return a table of one row; the heads are in the first one only."""
        return encode(self._table([self._row(entry.decoded())], {"resourceVersion": str(entry.revision)}))

    def bookmark(self, revision: int, annotations: JsonObject) -> bytes:
        """Return a table of one row that holds nothing but a revision."""
        metadata: JsonObject = {"resourceVersion": str(revision)}
        if annotations:
            metadata["annotations"] = annotations
        row = {"cells": [""] * len(self._columns), "object": self._partial(metadata)}
        return encode(self._table([row], {"resourceVersion": str(revision)}))

    def listed(self, entries: Iterable[Entry], list_metadata: JsonObject) -> bytes:
        """Return a table of all rows."""
        return encode(self._table([self._row(entry.decoded()) for entry in entries], list_metadata))

    def _table(self, rows: list[JsonObject], metadata: JsonObject) -> JsonObject:
        heads = [column.definition for column in self._columns] if self._heads_due else None
        self._heads_due = False
        table: JsonObject = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
        return {**table, "columnDefinitions": heads or [], "rows": rows}

    def _row(self, obj: JsonObject) -> JsonObject:
        row: JsonObject = {"cells": [column.cell(obj, self.now) for column in self._columns]}
        if self.include == WHOLE:
            row["object"] = from_stored(self.resource, obj)
        elif self.include == METADATA:
            row["object"] = self._partial(obj["metadata"])
        return row

    @staticmethod
    def _partial(metadata: JsonObject) -> JsonObject:
        return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
