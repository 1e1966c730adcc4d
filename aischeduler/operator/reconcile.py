"""One pass over one BatchProcess: look at it and at its pods, write its status, then delete and make pods.

Invariants:
- A pass begins with fresh reads and trusts no event. A pass that ends anywhere is continued by the next one, of this
  process or of another.
- The record is written before anything is done that depends on it.
- Two passes at once, of two operators, make no pod twice: names are taken once, statuses are written to the version
  that was read, and deletions name the uid.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from aischeduler.kube.http.paths import collection_path, object_path
from aischeduler.model.gang import GANG_KEY
from aischeduler.model.times import time_text
from aischeduler.operator.batch_process import BatchProcess, Json, RefusedError, Settings, read_batch_process
from aischeduler.operator.cluster import REFUSALS, Cluster, ClusterError, Key
from aischeduler.operator.naming import KIND, MADE_BY, MADE_BY_KEY, RECORD_KEY, dns_label
from aischeduler.operator.objects import PodMaker, SeenObject, seen_pod, service
from aischeduler.operator.plan import Plan, plan
from aischeduler.operator.record import read_record, record_document
from aischeduler.operator.status import (
    ACCEPTED,
    COMPLETED,
    FAILED,
    IS_ACCEPTED,
    Condition,
    condition_of,
    refusal_of,
    refused,
    status_of,
)

CONTROLLER: Final = "resource.aibee.cn/ai-scheduler-operator"
"""The `reportingController` of the operator's events."""
NAME_TAKEN_SECONDS: Final = 5.0
"""When a name that another object has is tried again: the object may be about to go."""
REFUSED_SECONDS: Final = 60.0
"""When a pod that the API server refuses is tried again: a quota may have room by then."""
CONFLICT: Final = 409
NOTE_LENGTH_MAX: Final = 1_000

EachOf = Callable[[Callable[[Any], None], Iterable[Any]], Iterable[None]]
"""Calls a function with each item, one after the other or several at once, as `map` does."""


class NameTakenError(Exception):
    """An object of another owner has a name that is needed; the text names it."""


class Tools(Struct, frozen=True):
    """What a pass works with. `now` gives unix seconds."""

    cluster: Cluster
    settings: Settings
    each: EachOf = map
    now: Callable[[], float] = time.time


def reconcile(key: Key, tools: Tools) -> float | None:
    """Make one pass; return in how many seconds the next is due, or None if an event will tell.

    Raises ClusterError where the API server gave no usable answer.
    """
    document = tools.cluster.get(key.path())
    if document is None or "deletionTimestamp" in document["metadata"]:
        return None  # the garbage collector deletes what it owns
    accepted = condition_of(document, ACCEPTED)
    try:
        process = read_batch_process(document, tools.settings)
    except RefusedError as error:
        _write(key, tools, document, refusal_of(document, refused("Invalid", str(error)), tools.now()))
        return None
    made = plan(process, read_record(document), _pods(process, tools), tools.now())
    standing = IS_ACCEPTED
    if accepted.get("status") == "False" and accepted.get("reason") != "Invalid" and made.creates:
        standing = refused(accepted["reason"], accepted["message"])  # until the pods are made
    document = _write(key, tools, document, status_of(document, process, made, standing, tools.now()))
    try:
        _act(process, made, tools)
    except NameTakenError as error:
        _write(key, tools, document, _refusal(document, process, made, refused("NameTaken", str(error)), tools))
        return NAME_TAKEN_SECONDS
    except ClusterError as error:
        if error.status not in REFUSALS:
            raise
        _write(key, tools, document, _refusal(document, process, made, refused("PodRefused", str(error)), tools))
        return REFUSED_SECONDS
    return 0.0 if made.creates else made.again_seconds  # what was made is recorded by the next pass


def _refusal(document: Json, process: BatchProcess, made: Plan, why: Condition, tools: Tools) -> Json:
    return status_of(document, process, made, why, tools.now())


def _pods(process: BatchProcess, tools: Tools) -> list[SeenObject]:
    path = collection_path("v1", "pods", process.namespace)
    documents = tools.cluster.items(path, {MADE_BY_KEY: MADE_BY, GANG_KEY: process.gang})
    return [pod for pod in (seen_pod(document, process.uid) for document in documents) if pod is not None]


def _act(process: BatchProcess, made: Plan, tools: Tools) -> None:
    """Delete and make what the plan says; raises NameTakenError and ClusterError."""

    def delete(pod: SeenObject) -> None:
        tools.cluster.delete(object_path("v1", "pods", pod.name, process.namespace), pod.uid)

    list(tools.each(delete, made.deletes))
    if not made.creates:
        return
    _create(process, tools, "services", service(process))
    maker = PodMaker(process, tools.settings)
    for batch in _doubling(made.creates):
        documents = [maker.pod(wanted.role, wanted.index, wanted.attempt) for wanted in batch]
        list(tools.each(lambda document: _create(process, tools, "pods", document), documents))


def _doubling(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield batches of 1, 2, 4, ... items, so that a refusal that all would get costs few requests."""
    size = 1
    while items:
        yield items[:size]
        items, size = items[size:], size * 2


def _create(process: BatchProcess, tools: Tools, plural: str, document: Json) -> None:
    """Create an object unless it is there; raises NameTakenError if another owner has its name."""
    if tools.cluster.create(collection_path("v1", plural, process.namespace), document):
        return
    name = document["metadata"]["name"]
    found = tools.cluster.get(object_path("v1", plural, name, process.namespace))
    owners = [] if found is None else found["metadata"].get("ownerReferences") or []
    if found is not None and process.uid not in [owner.get("uid") for owner in owners]:
        raise NameTakenError(f"the {document['kind']} {name} exists and belongs to something else")


def _write(key: Key, tools: Tools, document: Json, status: Json) -> Json:
    """Write a status that differs from that of the document, and the events of its change; return the new document."""
    if status == document.get("status"):
        return document
    version = {"resourceVersion": document["metadata"]["resourceVersion"]}
    body = {"metadata": version, "status": status}
    written = tools.cluster.patch(f"{key.path()}/status", body)
    if written is None:  # the definition has no subresource, or the object is gone
        written = tools.cluster.patch(key.path(), body)
    if written is None:
        raise ClusterError(CONFLICT, "the BatchProcess is gone")
    written = _kept(key, tools, written, status)
    for event in _events(document, status, tools.now()):
        tools.cluster.create(collection_path("events.k8s.io/v1", "events", key.namespace), event)
    return written


def _kept(key: Key, tools: Tools, written: Json, status: Json) -> Json:
    """Write the record into an annotation where the definition of another maker does not keep our status."""
    annotated = RECORD_KEY in (written["metadata"].get("annotations") or {})
    wanted = read_record({"status": status})
    if read_record(written) == wanted:
        return written
    if not annotated and read_record({"status": written.get("status")}) == wanted:
        return written
    note = json.dumps(record_document(wanted), separators=(",", ":"))
    again = tools.cluster.patch(key.path(), {"metadata": {"annotations": {RECORD_KEY: note}}})
    if again is None:
        raise ClusterError(CONFLICT, "the BatchProcess is gone")
    return again


def _events(document: Json, status: Json, now_seconds: float) -> Iterator[Json]:
    """Yield an event for a refusal, for the end, and for new restarts."""
    before, after = read_record(document), read_record({"status": status})
    for condition in status["conditions"]:
        known = condition_of(document, condition["type"])
        same = (known.get("status"), known.get("reason")) == (condition["status"], condition["reason"])
        refusal = condition["type"] == ACCEPTED and condition["status"] == "False" and not same
        end = condition["type"] in (COMPLETED, FAILED) and after.finished and not before.finished
        if refusal or end:
            yield _event(document, condition["reason"], condition["message"], now_seconds)
    more = after.restarts - before.restarts
    if more > 0:
        yield _event(document, "Restarted", f"{more} lost pods were made again, {after.restarts} in all", now_seconds)


def _event(document: Json, reason: str, note: str, now_seconds: float) -> Json:
    metadata = document["metadata"]
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": dns_label(f"{metadata['name'][:40]}.{reason.lower()}.{int(now_seconds * 1e6):x}"),
            "namespace": metadata["namespace"],
        },
        "eventTime": time_text(now_seconds, "microseconds"),
        "reportingController": CONTROLLER,
        "reportingInstance": "ai-scheduler-operator",
        "action": reason,
        "reason": reason,
        "note": note[:NOTE_LENGTH_MAX],
        "type": "Normal" if reason in ("Succeeded", "Restarted") else "Warning",
        "regarding": {
            "apiVersion": document["apiVersion"],
            "kind": KIND,
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
    }
