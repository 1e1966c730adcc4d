"""What a pass does for every kind of owner: read it anew, write its status with Events, make and delete objects.

Invariants:
- A pass begins with fresh reads and trusts no event. A pass that ends anywhere is continued by the next one, of this
  process or of another.
- The status is written before anything is done that depends on it.
- An Event tells a change. Where a definition keeps no conditions, a process remembers those that it wrote.
- Two passes at once, of two operators, make no object twice: names are taken once, statuses are written to the version
  that was read, and deletions name the uid.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, TypeVar

from msgspec import Struct

from aischeduler.kube.http.errors import RefusedError
from aischeduler.kube.http.paths import collection_path, object_path
from aischeduler.operator.cluster import Cluster, path_of
from aischeduler.operator.conditions import Condition, event, refused
from aischeduler.operator.objects import SeenPod
from aischeduler.operator.owner import RECORD_KEY, Json, Owner, Settings
from aischeduler.operator.progress import read_record, record_text

NAME_TAKEN_SECONDS: Final = 5.0
"""When a name that another object has is tried again: the object may be about to go."""
POD_REFUSED_SECONDS: Final = 60.0
"""When a pod that the API server refuses is tried again: a quota may have room by then."""
POD_REFUSALS: Final = (400, 403, 422)
"""Answers about the object itself: a wrong field, an exhausted quota, an admission that says no."""

W = TypeVar("W")


class NameTakenError(Exception):
    """An object of another owner has a name that is needed; the text names it."""


class OwnerPass(ABC):
    """Makes passes over owners of one kind, which it knows by their paths; `now` gives unix seconds.

    `record` is what of the status must not be forgotten.
    """

    record: type[Struct]

    def __init__(self, cluster: Cluster, settings: Settings, now: Callable[[], float] = time.time) -> None:
        self._cluster = cluster
        self._settings = settings
        self._now = now
        self._conditions: dict[str, list[Any]] = {}
        """Owner -> the conditions that were written last, of those whose definition keeps none."""

    async def look(self, path: str) -> float | None:
        """Make one pass; return in how many seconds the next is due, or None if an event will tell.

        Raises ApiError where the API server gave no usable answer.
        """
        document = await self._cluster.get(path)
        if document is None or "deletionTimestamp" in document["metadata"]:
            self._conditions.pop(path, None)
            return None  # the garbage collector deletes what it owns
        try:
            return await self._carry_out(self._with_conditions(document))
        except RefusedError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
            return 0.0  # somebody wrote the owner between our read and our write

    @abstractmethod
    async def _carry_out(self, document: Json) -> float | None:
        """Make a pass over what was read."""

    @abstractmethod
    def _notes(self, document: Json, status: Json) -> Iterable[tuple[str, str]]:
        """Yield reason and note of the Events of a new status."""

    async def _tried(self, act: Coroutine[Any, Any, None]) -> tuple[Condition, float] | None:
        """Act; return why an object cannot be made, and in how many seconds to try again. Raises ApiError."""
        try:
            await act
        except NameTakenError as error:
            return refused("NameTaken", str(error)), NAME_TAKEN_SECONDS
        except RefusedError as error:
            if error.status not in POD_REFUSALS:
                raise
            return refused("PodRefused", error.message), POD_REFUSED_SECONDS
        return None

    async def _listed(self, plural: str, owner: Owner, selector: Mapping[str, str]) -> list[Json]:
        return await self._cluster.items(collection_path("v1", plural, owner.namespace), selector)

    async def _delete(self, owner: Owner, pods: Iterable[SeenPod]) -> None:
        await all_of(
            self._cluster.delete(object_path("v1", "pods", pod.name, owner.namespace), pod.uid) for pod in pods
        )

    async def _create(self, owner: Owner, plural: str, document: Json) -> None:
        """Create an object unless it is there; raises NameTakenError if another owner has its name."""
        version = document["apiVersion"]
        if await self._cluster.create(collection_path(version, plural, owner.namespace), document):
            return
        name = document["metadata"]["name"]
        found = await self._cluster.get(object_path(version, plural, name, owner.namespace))
        if found is not None and not owns(owner, found):
            raise taken(document["kind"], name)

    async def _write(self, document: Json, status: Json, more: Iterable[tuple[str, str]] = ()) -> Json | None:
        """Write a status that differs from that of the document, and the Events of its change.

        A field that is None is removed. `more` are reasons and notes of further Events. Return the new document, or
        None if the owner is gone.
        """
        if {name: value for name, value in status.items() if value is not None} == document.get("status"):
            return document
        path, metadata = path_of(document), document["metadata"]
        body = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status}
        written = await self._cluster.patch(f"{path}/status", body)
        if written is None:  # the definition has no subresource, or the object is gone
            written = await self._cluster.patch(path, body)
        if written is not None:
            written = await self._kept(written, status)
        if written is not None:
            events = collection_path("events.k8s.io/v1", "events", metadata["namespace"])
            for reason, note in (*self._notes(document, status), *more):
                await self._cluster.create(events, event(document, reason, note, self._now()))
            if not _has_conditions(written):
                self._conditions[path] = status["conditions"]
            written = self._with_conditions(written)
        return written

    def _with_conditions(self, document: Json) -> Json:
        """Return an owner with the conditions that were written last."""
        known = self._conditions.get(path_of(document))
        if known is None or _has_conditions(document):
            return document
        return {**document, "status": {**(document.get("status") or {}), "conditions": known}}

    async def _kept(self, written: Json, status: Json) -> Json | None:
        """Write the record into an annotation where the definition of another maker does not keep our status."""
        annotated = RECORD_KEY in (written["metadata"].get("annotations") or {})
        wanted = read_record({"status": status}, self.record)
        kept_by_status = not annotated and read_record({"status": written.get("status")}, self.record) == wanted
        if kept_by_status or read_record(written, self.record) == wanted:
            return written
        note = record_text(wanted)
        return await self._cluster.patch(path_of(written), {"metadata": {"annotations": {RECORD_KEY: note}}})


def _has_conditions(document: Json) -> bool:
    return "conditions" in (document.get("status") or {})


def owns(owner: Owner, found: Json) -> bool:
    """Return whether an object names this owner."""
    return owner.uid in [one.get("uid") for one in found["metadata"].get("ownerReferences") or []]


def taken(kind: str, name: str) -> NameTakenError:
    """Return the error for a name that another object has."""
    return NameTakenError(f"the {kind} {name} exists and belongs to something else")


async def all_of(requests: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Send requests side by side and wait for every answer; raises the first error."""
    for answer in await asyncio.gather(*requests, return_exceptions=True):
        if answer is not None:
            raise answer


def doubling(wanted: Sequence[W]) -> Iterator[Sequence[W]]:
    """Yield batches of 1, 2, 4, ... pods, so that a refusal that all would get costs few requests."""
    size = 1
    while wanted:
        yield wanted[:size]
        wanted, size = wanted[size:], size * 2
