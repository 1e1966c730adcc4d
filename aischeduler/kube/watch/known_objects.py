"""The known objects of one resource: names, uids and resource versions, without the objects themselves.

Invariants:
- Versions only grow: an event with an older version of an object is dropped, and so is an event about an unknown object
  that is older than the watch.
- The same name with another uid is another object: the old one is deleted, then the new one is created, and what is
  told of the old one is told before the new one is looked at. Which of two is newer, their versions say.
- After a full list exactly its objects are known; the others are deleted.
- An unchanged object of an `often_unchanged` resource emits no event: most updates of nodes are heartbeats. A workload
  that says the same as before emits none either.

Source: Kubernetes list and watch; resource versions of one resource are ordered (KEP-5504).
"""

import asyncio
from collections.abc import Container, Iterable, Iterator
from typing import Generic, TypeVar

from aischeduler.kube.decode.meta_types import Metadata
from aischeduler.kube.watch.watched_resources import ApiObject, ReflectorCounts, WatchedResource
from aischeduler.model.events import Event, Seen, gone
from aischeduler.model.workload import Workload

D = TypeVar("D", bound=ApiObject)


def version_number(version: str) -> int | None:
    """Return a resource version as a number; None if it is not a number and cannot be compared."""
    return int(version) if version.isascii() and version.isdigit() else None


class VersionWaiters:
    """Tasks that wait for a resource version."""

    def __init__(self) -> None:
        self._waiters: list[tuple[int, asyncio.Event]] = []

    async def wait(self, number: int) -> None:
        """Return once all events up to this version were received."""
        reached = asyncio.Event()
        self._waiters.append((number, reached))
        await reached.wait()

    def advance(self, version: str) -> None:
        """Wake the tasks that wait for this version or an older one."""
        if self._waiters:
            number = version_number(version) or 0
            for waiting_for, reached in self._waiters:
                if waiting_for <= number:
                    reached.set()
            self._waiters = [waiter for waiter in self._waiters if not waiter[1].is_set()]


class KnownObjects(Generic[D]):
    """The known objects by namespace and name.

    Every method returns the resulting events. The caller iterates them before its next call: some of it happens then.
    """

    def __init__(self, resource: WatchedResource[D], counts: ReflectorCounts) -> None:
        self._resource = resource
        self._counts = counts
        self._objects: dict[str, tuple[str, int | None]] = {}
        self._listed: dict[str, None] | None = None
        self._version_floor = -1
        self._deleted_by_list: dict[str, int] = {}
        """Objects deleted by a list beside the watch -> the list's version, until the watch reaches it."""
        self._last_events: dict[str, Event] = {}
        """The last event of each object of an `often_unchanged` resource."""
        self._workloads: dict[str, Workload] = {}
        """What the engine was told of each object as a workload."""

    def __len__(self) -> int:
        return len(self._objects)

    @property
    def newest_version(self) -> int:
        """The newest version of a known object. Unlike a bookmark's version, every other watch reaches it."""
        return max((version for _, version in self._objects.values() if version is not None), default=0)

    def upsert(self, document: D) -> Iterable[Event]:
        """Record an object at its version."""
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
                return self._replace(key, document)
        elif (
            version is not None
            and self._listed is None
            and version <= max(self._version_floor, self._deleted_by_list.get(key, -1))
        ):
            self._counts.old_events += 1
            return ()
        return self._record(key, document)

    def delete(self, metadata: Metadata) -> Iterable[Event]:
        """Record that an object was deleted or no longer matches the field selector."""
        key = object_key(metadata)
        known = self._objects.get(key)
        if known is None or (metadata.uid and metadata.uid != known[0] and not _is_newer(metadata, known[1])):
            return ()
        return self._forget(key)

    def keep(self, metadata: Metadata) -> Iterable[Event]:
        """Record that an object exists but cannot be decoded: the known version stays, if it is of the same object."""
        key = object_key(metadata)
        if self._listed is not None and metadata.name:
            self._listed[key] = None
        known = self._objects.get(key)
        if known is None or not metadata.uid or metadata.uid == known[0] or not _is_newer(metadata, known[1]):
            return ()
        self._counts.recreated += 1
        return self._forget(key)

    def advance(self, version: str) -> None:
        """Record that all events up to this version were received."""
        self._version_floor = max(self._version_floor, version_number(version) or -1)
        if self._deleted_by_list:
            self._deleted_by_list = {
                key: ended for key, ended in self._deleted_by_list.items() if ended > self._version_floor
            }

    def delete_missing(self, names: Container[str], version: str) -> Iterable[Event]:
        """Apply a full list beside the watch: delete the objects that it lacks, unless they are newer than the list."""
        listed = version_number(version)
        if listed is None:
            return ()
        gone = [
            key for key, (_, known) in self._objects.items() if key not in names and (known is None or known <= listed)
        ]
        if listed > self._version_floor:
            self._deleted_by_list.update(dict.fromkeys(gone, listed))
        return self._forget(*gone)

    def is_older(self, version: str) -> bool:
        """Say whether this version is older than the events received so far."""
        number = version_number(version)
        return number is not None and number < self._version_floor

    def reset_versions(self) -> None:
        """Forget all versions, as after a restore from a backup; names and uids stay."""
        self._version_floor = -1
        self._deleted_by_list = {}
        self._objects = {key: (uid, None) for key, (uid, _) in self._objects.items()}

    def begin_list(self) -> None:
        """Begin a full list: the objects recorded from now on are part of it."""
        self._listed = {}

    def end_list(self) -> Iterable[Event]:
        """End the full list: delete the objects that it lacks."""
        listed, self._listed = self._listed or {}, None
        missing = [key for key in self._objects if key not in listed]
        self._counts.found_gone += len(missing)
        return self._forget(*missing)

    def _replace(self, key: str, document: D) -> Iterator[Event]:
        """Delete the object of this name, then record the new one, which an error leaves unknown."""
        self._counts.recreated += 1
        yield from self._forget(key)
        yield from self._record(key, document)

    def _record(self, key: str, document: D) -> tuple[Event, ...]:
        resource, metadata = self._resource, document.metadata
        # An error in the next lines leaves the object as it was, so that a retry is not dropped as old.
        event = resource.seen_event(document)
        workload = resource.workload(document) if resource.workload is not None else None
        if resource.on_seen is not None:
            resource.on_seen(document)
        self._objects[key] = metadata.uid, version_number(metadata.resource_version)
        told = resource.others(document) if resource.others is not None else ()
        if workload is not None and self._workloads.get(key) != workload:
            self._workloads[key] = workload
            told = (Seen(workload), *told)
        if resource.often_unchanged:
            if self._last_events.get(key) == event:
                return told
            if event is not None:
                self._last_events[key] = event
            else:
                self._last_events.pop(key, None)
        return (*told, event) if event is not None else told

    def _forget(self, *keys: str) -> Iterator[Event]:
        """Forget objects, one after another."""
        for key in keys:
            self._last_events.pop(key, None)
            namespace, _, name = key.partition("/")
            uid, _ = self._objects.pop(key)
            if self._resource.on_gone is not None:
                self._resource.on_gone(namespace, name)
            event = self._resource.gone_event(namespace, name, uid)
            if event is not None:
                yield event
            workload = self._workloads.pop(key, None)
            if workload is not None:
                yield gone(Workload, *workload.key)


def _is_newer(metadata: Metadata, version: int | None) -> bool:
    """Say whether this object is known to be newer than this version."""
    number = version_number(metadata.resource_version)
    return number is not None and version is not None and number > version


def object_key(metadata: Metadata) -> str:
    """Return namespace and name of an object as a key."""
    return f"{metadata.namespace}/{metadata.name}"
