"""Objects, their revisions and their history, as etcd and the watch cache of a real server.

Invariants: the bytes of an object are encoded once for each revision; one counter gives every revision; history is
bounded, and a watch from a revision that fell out of it gets 410.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter

from cachetools import LRUCache
from msgspec import Struct, field
from msgspec.structs import replace
from sortedcontainers import SortedDict

from aischeduler.sandbox.objects import JsonObject, copy_object, encode

HISTORY_EVENTS = 100_000
PAGE_SECONDS = 300.0
PAGE_RESTS_KEPT = 32
FIRST_REVISION = 1

Fields = Mapping[str, str]
FieldsOf = Callable[[JsonObject], Fields]


class Entry(Struct, frozen=True):
    """One revision of one object, encoded, with its labels, its selectable fields and its index value."""

    key: str
    namespace: str
    name: str
    uid: str
    revision: int
    raw: bytes
    labels: Mapping[str, str]
    fields: Fields
    owner_uids: tuple[str, ...]

    def decoded(self) -> JsonObject:
        """Return a copy that may be changed."""
        return copy_object(self.raw)


def is_going(entry: Entry) -> bool:
    """Say whether an object is being deleted; bytes that do not mention it are not decoded."""
    return b'"deletionTimestamp"' in entry.raw and bool(entry.decoded()["metadata"].get("deletionTimestamp"))


class StoreEvent(Struct, frozen=True):
    """One write: ADDED, MODIFIED or DELETED; a deletion shows the last state at the deletion's revision."""

    kind: str
    entry: Entry
    previous: Entry | None

    @property
    def revision(self) -> int:
        """The revision of the write."""
        return self.entry.revision

    def before(self) -> Entry:
        """Return the state before the write at the write's revision, as a watch that loses the object shows it."""
        return _at_revision(self.previous or self.entry, self.revision)


def _at_revision(entry: Entry, revision: int) -> Entry:
    obj = entry.decoded()
    obj["metadata"]["resourceVersion"] = str(revision)
    return replace(entry, revision=revision, raw=encode(obj))


class PageRest(Struct, frozen=True):
    """The rest of a list in pages: entries in order, all at one revision."""

    revision: int
    entries: list[Entry]
    expires_at: float


class Collection:
    """The objects of one resource."""

    def __init__(self, store: "Store", fields_of: FieldsOf, index_field: str | None) -> None:
        self._store = store
        self._fields_of = fields_of
        self._index_field = index_field
        self._entries: SortedDict[str, Entry] = SortedDict()
        self._index: dict[str, dict[str, None]] = {}
        self.history: list[StoreEvent] = []
        self.history_start = 0
        self.floor_revision = store.revision
        self.watchers: dict[int, tuple[Callable[[], None], Callable[[], None]]] = {}
        """The watches by identity: a function that wakes the watch after a write, and one that ends it."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, namespace: str, name: str) -> Entry | None:
        """Return the latest revision of an object."""
        return self._entries.get(f"{namespace}/{name}")

    def in_order(self, namespace: str | None = None) -> Iterator[Entry]:
        """Yield the objects of one namespace, or of all, in the order of namespace and name."""
        if namespace is None:
            return iter(self._entries.values())
        keys = self._entries.irange(f"{namespace}/", f"{namespace}0", inclusive=(True, False))
        return (self._entries[key] for key in keys)

    def with_field(self, value: str) -> list[Entry]:
        """Return the objects whose indexed field has this value, in order."""
        return [self._entries[key] for key in sorted(self._index.get(value, ()))]

    def put(self, obj: JsonObject) -> Entry:
        """Store an object at the next revision; sets its `resourceVersion`."""
        metadata = obj["metadata"]
        revision = self._store.next_revision()
        metadata["resourceVersion"] = str(revision)
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        key = f"{namespace}/{name}"
        previous = self._entries.get(key)
        owners = tuple(owner["uid"] for owner in metadata.get("ownerReferences") or ())
        fields, labels = self._fields_of(obj), metadata.get("labels") or {}
        entry = Entry(key, namespace, name, metadata["uid"], revision, encode(obj), labels, fields, owners)
        self._entries[key] = entry
        self._reindex(previous, entry)
        self._record(StoreEvent("MODIFIED" if previous else "ADDED", entry, previous))
        return entry

    def remove(self, entry: Entry) -> Entry:
        """Remove an object; return its last state at the revision of the removal."""
        previous = self._entries.pop(entry.key)
        last = _at_revision(entry, self._store.next_revision())
        self._reindex(previous, None)
        self._record(StoreEvent("DELETED", last, previous))
        return last

    def _reindex(self, previous: Entry | None, entry: Entry | None) -> None:
        self._store.reindex_owners(self, previous, entry)
        if self._index_field is None:
            return
        old = previous.fields.get(self._index_field) if previous else None
        new = entry.fields.get(self._index_field) if entry else None
        if old == new:
            return
        if old and previous:
            self._index[old].pop(previous.key)
            if not self._index[old]:
                del self._index[old]
        if new and entry:
            self._index.setdefault(new, {})[entry.key] = None

    def _record(self, event: StoreEvent) -> None:
        self.history.append(event)
        limit = self._store.history_events
        if len(self.history) > limit + limit // 4:
            count = len(self.history) - limit
            self.floor_revision = self.history[count - 1].revision
            self.history_start += count
            del self.history[:count]
        for wake, _ in list(self.watchers.values()):
            wake()
        if self._store.on_write is not None:
            self._store.on_write()

    def end_watches(self) -> None:
        """Close every watch."""
        for _, close in list(self.watchers.values()):
            close()

    def forget_history(self) -> None:
        """Forget all events, as the watch cache of a restarted server does; the revision stays."""
        self.history_start += len(self.history)
        self.history.clear()
        self.floor_revision = self._store.revision

    @property
    def history_end(self) -> int:
        """The position in history behind the last event."""
        return self.history_start + len(self.history)

    def position_after(self, revision: int) -> int:
        """Return the position in history of the first event after a revision."""
        return self.history_start + bisect_right(self.history, revision, key=attrgetter("revision"))


class Store(Struct):
    """All collections and the one revision counter. `on_write` is called after every write."""

    history_events: int = HISTORY_EVENTS
    revision: int = FIRST_REVISION
    collections: dict[str, Collection] = field(default_factory=dict)
    on_write: Callable[[], None] | None = None
    _dependents: dict[str, dict[tuple[int, str], tuple[Collection, str]]] = field(default_factory=dict)
    page_rests: LRUCache[str, PageRest] = field(default_factory=lambda: LRUCache(PAGE_RESTS_KEPT))

    def next_revision(self) -> int:
        """Return the next revision."""
        self.revision += 1
        return self.revision

    def reindex_owners(self, collection: Collection, previous: Entry | None, entry: Entry | None) -> None:
        """Update the index from an owner's UID to the objects that it owns."""
        old = previous.owner_uids if previous else ()
        new = entry.owner_uids if entry else ()
        if old == new:
            return
        for uid in dict.fromkeys(old):
            if previous:
                self._dependents[uid].pop((id(collection), previous.key))
                if not self._dependents[uid]:
                    del self._dependents[uid]
        for uid in new:
            if entry:
                self._dependents.setdefault(uid, {})[(id(collection), entry.key)] = (collection, entry.key)

    def dependents(self, uid: str) -> list[tuple[Collection, Entry]]:
        """Return the objects with this UID among their owners, in the order of their creation."""
        found = []
        for collection, key in self._dependents.get(uid, {}).values():
            namespace, _, name = key.partition("/")
            entry = collection.get(namespace, name)
            if entry is not None:
                found.append((collection, entry))
        return found
