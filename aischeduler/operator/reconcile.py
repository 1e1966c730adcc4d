"""One pass over one BatchProcess: look at it and at its pods, write its status, then delete and make pods.

Invariants:
- A pass begins with fresh reads and trusts no event. A pass that ends anywhere is continued by the next one, of this
  process or of another.
- The progress is written before anything is done that depends on it.
- Two passes at once, of two operators, make no pod twice: names are taken once, statuses are written to the version
  that was read, and deletions name the uid.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from aischeduler.kube.http.errors import RefusedError
from aischeduler.kube.http.paths import collection_path, object_path
from aischeduler.model.gang import GANG_KEY
from aischeduler.operator.batch_process import RECORD_KEY, BatchProcess, Json, Settings, SpecError, read_batch_process
from aischeduler.operator.cluster import Cluster, batch_path
from aischeduler.operator.objects import MADE_BY, MADE_BY_KEY, PodMaker, SeenPod, seen_pod, service
from aischeduler.operator.plan import Plan, Wanted, plan
from aischeduler.operator.progress import progress_document, read_progress
from aischeduler.operator.status import (
    ACCEPTED,
    IS_ACCEPTED,
    Condition,
    condition_of,
    events_of,
    refusal_of,
    refused,
    status_of,
)

NAME_TAKEN_SECONDS: Final = 5.0
"""When a name that another object has is tried again: the object may be about to go."""
POD_REFUSED_SECONDS: Final = 60.0
"""When a pod that the API server refuses is tried again: a quota may have room by then."""
POD_REFUSALS: Final = (400, 403, 422)
"""Answers about the object itself: a wrong field, an exhausted quota, an admission that says no."""


class NameTakenError(Exception):
    """An object of another owner has a name that is needed; the text names it."""


class Reconciler:
    """Makes passes over BatchProcesses, which it knows by their paths; `now` gives unix seconds."""

    def __init__(self, cluster: Cluster, settings: Settings, now: Callable[[], float] = time.time) -> None:
        self._cluster = cluster
        self._settings = settings
        self._now = now

    async def look(self, path: str) -> float | None:
        """Make one pass; return in how many seconds the next is due, or None if an event will tell.

        Raises ApiError where the API server gave no usable answer.
        """
        document = await self._cluster.get(path)
        if document is None or "deletionTimestamp" in document["metadata"]:
            return None  # the garbage collector deletes what it owns
        try:
            return await self._carry_out(document)
        except RefusedError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
            return 0.0  # somebody wrote the BatchProcess between our read and our write

    async def _carry_out(self, document: Json) -> float | None:
        try:
            process = read_batch_process(document, self._settings)
        except SpecError as error:
            await self._write(document, refusal_of(document, refused("Invalid", str(error)), self._now()))
            return None
        made = plan(process, read_progress(document), await self._pods(process), self._now())
        standing = _standing(document, made)
        written = await self._write(document, status_of(document, process, made, standing, self._now()))
        if written is None:
            return None
        try:
            await self._act(process, made)
        except NameTakenError as error:
            why, again_seconds = refused("NameTaken", str(error)), NAME_TAKEN_SECONDS
        except RefusedError as error:
            if error.status not in POD_REFUSALS:
                raise
            why, again_seconds = refused("PodRefused", error.message), POD_REFUSED_SECONDS
        else:
            return 0.0 if made.creates else made.again_seconds  # the next pass records what was made
        await self._write(written, status_of(written, process, made, why, self._now()))
        return again_seconds

    async def _pods(self, process: BatchProcess) -> list[SeenPod]:
        path = collection_path("v1", "pods", process.namespace)
        documents = await self._cluster.items(path, {MADE_BY_KEY: MADE_BY, GANG_KEY: process.gang})
        return [pod for pod in (seen_pod(document, process.uid) for document in documents) if pod is not None]

    async def _act(self, process: BatchProcess, made: Plan) -> None:
        """Delete and make what the plan says; raises NameTakenError and ApiError."""
        await _all(
            self._cluster.delete(object_path("v1", "pods", pod.name, process.namespace), pod.uid)
            for pod in made.deletes
        )
        if not made.creates:
            return
        await self._create(process, "services", service(process))
        maker = PodMaker(process, self._settings)
        for batch in _doubling(made.creates):
            pods = (maker.pod(wanted.role, wanted.index, wanted.attempt) for wanted in batch)
            await _all(self._create(process, "pods", pod) for pod in pods)

    async def _create(self, process: BatchProcess, plural: str, document: Json) -> None:
        """Create an object unless it is there; raises NameTakenError if another owner has its name."""
        if await self._cluster.create(collection_path("v1", plural, process.namespace), document):
            return
        name = document["metadata"]["name"]
        found = await self._cluster.get(object_path("v1", plural, name, process.namespace))
        owners = [] if found is None else found["metadata"].get("ownerReferences") or []
        if found is not None and process.uid not in [owner.get("uid") for owner in owners]:
            raise NameTakenError(f"the {document['kind']} {name} exists and belongs to something else")

    async def _write(self, document: Json, status: Json) -> Json | None:
        """Write a status that differs from that of the document, and the Events of its change.

        Return the new document, or None if the BatchProcess is gone.
        """
        if status == document.get("status"):
            return document
        path, metadata = _path(document), document["metadata"]
        body = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status}
        written = await self._cluster.patch(f"{path}/status", body)
        if written is None:  # the definition has no subresource, or the object is gone
            written = await self._cluster.patch(path, body)
        if written is not None:
            written = await self._kept(written, status)
        if written is not None:
            events = collection_path("events.k8s.io/v1", "events", metadata["namespace"])
            for event in events_of(document, status, self._now()):
                await self._cluster.create(events, event)
        return written

    async def _kept(self, written: Json, status: Json) -> Json | None:
        """Write the progress into an annotation where the definition of another maker does not keep our status."""
        annotated = RECORD_KEY in (written["metadata"].get("annotations") or {})
        wanted = read_progress({"status": status})
        kept_by_status = not annotated and read_progress({"status": written.get("status")}) == wanted
        if kept_by_status or read_progress(written) == wanted:
            return written
        note = msgspec.json.encode(progress_document(wanted)).decode()
        return await self._cluster.patch(_path(written), {"metadata": {"annotations": {RECORD_KEY: note}}})


def _path(document: Json) -> str:
    metadata = document["metadata"]
    return batch_path(document["apiVersion"], metadata["namespace"], metadata["name"])


def _standing(document: Json, made: Plan) -> Condition:
    """Return whether the spec is in force: a refusal of pods stands until they are made."""
    known = condition_of(document, ACCEPTED)
    if made.creates and known.get("status") == "False" and known.get("reason") != "Invalid":
        return refused(known["reason"], known["message"])
    return IS_ACCEPTED


async def _all(requests: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Send requests side by side and wait for every answer; raises the first error."""
    for answer in await asyncio.gather(*requests, return_exceptions=True):
        if answer is not None:
            raise answer


def _doubling(wanted: Sequence[Wanted]) -> Iterator[Sequence[Wanted]]:
    """Yield batches of 1, 2, 4, ... pods, so that a refusal that all would get costs few requests."""
    size = 1
    while wanted:
        yield wanted[:size]
        wanted, size = wanted[size:], size * 2
