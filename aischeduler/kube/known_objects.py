"""What we have been told exists of one resource: names, uids and versions, never the objects.

Laws:
- What is told only moves forward: an older word about an object is dropped, and so is a word about an unknown one
  that is older than the whole stream.
- A name with another uid is another object: the first is gone, the second is new.
- After a full list the store holds exactly its objects; what the list lacks is gone.
- What says nothing new of an object of a `heard_often` resource is not told: most news of nodes say that they live.

Source: Kubernetes list and watch; resource versions of one resource are ordered (KEP-5504).
"""

import asyncio
from collections.abc import Container
from typing import Generic, TypeVar

from aischeduler.kube.meta_types import Metadata
from aischeduler.kube.watched_resources import ApiObject, ReflectorCounts, WatchedResource
from aischeduler.model.events import Event

D = TypeVar("D", bound=ApiObject)


def version_number(version: str) -> int | None:
    """Return a resource version as a number, or None where it is none and versions cannot be compared."""
    return int(version) if version.isascii() and version.isdigit() else None


class VersionWaiters:
    """Versions that somebody waits for."""

    def __init__(self) -> None:
        self._waiters: list[tuple[int, asyncio.Event]] = []

    async def wait(self, number: int) -> None:
        """Return once everything up to this version was heard."""
        heard = asyncio.Event()
        self._waiters.append((number, heard))
        await heard.wait()

    def advance(self, version: str) -> None:
        """Let those go on who waited for this version."""
        if self._waiters:
            number = version_number(version) or 0
            for awaited, heard in self._waiters:
                if awaited <= number:
                    heard.set()
            self._waiters = [one for one in self._waiters if not one[1].is_set()]


class KnownObjects(Generic[D]):
    """The objects of one resource by namespace and name; every method returns the events that follow."""

    def __init__(self, resource: WatchedResource[D], counts: ReflectorCounts) -> None:
        self._resource = resource
        self._counts = counts
        self._objects: dict[str, tuple[str, int | None]] = {}
        self._listed: dict[str, None] | None = None
        self._version_floor = -1
        self._deleted_by_list: dict[str, int] = {}
        """Objects that a list beside the stream did not name -> its version; the stream has not come that far."""
        self._last_events: dict[str, Event] = {}
        """What was told last of each object of a resource that is heard often."""

    def __len__(self) -> int:
        return len(self._objects)

    @property
    def newest_version(self) -> int:
        """The newest version of an object that we know; unlike that of a bookmark every other watch will meet it."""
        return max((version for _, version in self._objects.values() if version is not None), default=0)

    def upsert(self, document: D) -> tuple[Event, ...]:
        """Take in an object as it is at its version."""
        metadata = document.metadata
        key, version = object_key(metadata), version_number(metadata.resource_version)
        if self._listed is not None:
            self._listed[key] = None
        known = self._objects.get(key)
        if known is not None:
            uid, known_version = known
            if version is not None and known_version is not None and version <= known_version:
                self._counts.old_events += version < known_version
                return ()
            if uid != metadata.uid:
                seen = self._resource.seen_event(document)
                self._counts.recreated += 1
                self._remember(key, metadata.uid, version, seen)
                return self._resource.gone_event(metadata.namespace, metadata.name, uid), seen
        elif (
            version is not None
            and self._listed is None
            and version <= max(self._version_floor, self._deleted_by_list.get(key, -1))
        ):
            self._counts.old_events += 1
            return ()
        seen = self._resource.seen_event(document)  # what raises here is not known, and so is not taken for old later
        return (seen,) if self._remember(key, metadata.uid, version, seen) else ()

    def delete(self, metadata: Metadata) -> tuple[Event, ...]:
        """Take in that an object no longer exists or no longer counts; its last known state names it."""
        known = self._objects.get(object_key(metadata))
        if known is None:
            return ()
        if metadata.uid and known[0] != metadata.uid:
            return (self._resource.gone_event(metadata.namespace, metadata.name, metadata.uid),)
        return (self._forget(object_key(metadata)),)

    def keep(self, metadata: Metadata) -> None:
        """Take in that an object is there and could not be read: what we know of it stays."""
        if self._listed is not None and metadata.name:
            self._listed[object_key(metadata)] = None

    def advance(self, version: str) -> None:
        """Take in that all words up to this version have been told."""
        self._version_floor = max(self._version_floor, version_number(version) or -1)
        if self._deleted_by_list:
            self._deleted_by_list = {
                key: ended for key, ended in self._deleted_by_list.items() if ended > self._version_floor
            }

    def delete_missing(self, names: Container[str], version: str) -> list[Event]:
        """Take in a full list beside the stream: what it does not name, and is not newer than it, is gone."""
        listed = version_number(version)
        if listed is None:
            return []
        gone = [
            key for key, (_, known) in self._objects.items() if key not in names and (known is None or known <= listed)
        ]
        if listed > self._version_floor:
            self._deleted_by_list.update(dict.fromkeys(gone, listed))
        return [self._forget(key) for key in gone]

    def is_older(self, version: str) -> bool:
        """Say whether this version lies before what has been told."""
        number = version_number(version)
        return number is not None and number < self._version_floor

    def reset_versions(self) -> None:
        """Let versions begin anew, as after a restored backup; names and uids still hold."""
        self._version_floor = -1
        self._deleted_by_list = {}
        self._objects = {key: (uid, None) for key, (uid, _) in self._objects.items()}

    def begin_list(self) -> None:
        """Count what is seen from here on as part of a full list."""
        self._listed = {}

    def end_list(self) -> list[Event]:
        """Take in that the list is complete: what it did not name is gone."""
        listed, self._listed = self._listed or {}, None
        missing = [key for key in self._objects if key not in listed]
        self._counts.found_gone += len(missing)
        return [self._forget(key) for key in missing]

    def _remember(self, key: str, uid: str, version: int | None, seen: Event) -> bool:
        """Note what is told of an object; say whether that is news."""
        self._objects[key] = (uid, version)
        if not self._resource.often_unchanged:
            return True
        news = self._last_events.get(key) != seen
        self._last_events[key] = seen
        return news

    def _forget(self, key: str) -> Event:
        self._last_events.pop(key, None)
        namespace, _, name = key.partition("/")
        return self._resource.gone_event(namespace, name, self._objects.pop(key)[0])


def object_key(metadata: Metadata) -> str:
    """Return the name of an object, with its namespace."""
    return f"{metadata.namespace}/{metadata.name}"
