"""Deletion: preconditions, grace periods, finalizers and the propagation to owned objects.

Invariants: an object with finalizers stays until they are gone; a pod with a node stays until its kubelet deletes it
without grace; the garbage collector deletes owned objects later.
"""

from typing import Any

from aischeduler.sandbox.api_resources import CollectionName
from aischeduler.sandbox.objects import JsonObject, encode, timestamp
from aischeduler.sandbox.request import Call, Response, parse_typed
from aischeduler.sandbox.status_errors import object_failure, success
from aischeduler.sandbox.store import Entry
from aischeduler.sandbox.writing import answer, remove

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
PERMANENT_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})
_MARKS = {"Orphan": ORPHAN, "Foreground": FOREGROUND}


def delete(call: Call) -> Response:
    """Answer DELETE of one object."""
    entry, resource = call.existing(), call.resource
    options = parse_typed(call, "DeleteOptions") if call.asked.body else {}
    last, gone = delete_entry(call, entry, options)
    if gone and resource.collection != CollectionName.PODS:
        details = {"name": entry.name, "group": resource.group, "kind": resource.plural, "uid": entry.uid}
        return Response(200, encode(success({key: value for key, value in details.items() if value})))
    return answer(call, last)


def delete_entry(call: Call, entry: Entry, options: JsonObject) -> tuple[Entry, bool]:
    """Delete an object as far as it can go now; returns its last state and whether it is gone."""
    check_preconditions(call, entry, options)
    obj = entry.decoded()
    metadata: JsonObject = obj["metadata"]
    is_pod = call.resource.collection == CollectionName.PODS
    is_namespace = call.resource.collection == CollectionName.NAMESPACES
    if is_namespace and entry.name in PERMANENT_NAMESPACES:
        raise call.forbidden(entry.name, "this namespace may not be deleted")
    grace = _grace_seconds(obj, options.get("gracePeriodSeconds"), is_pod=is_pod)
    before: list[Any] = list(metadata.get("finalizers") or ())
    propagation = options.get("propagationPolicy")
    finalizers = [finalizer for finalizer in before if finalizer not in _MARKS.values()] if propagation else before
    if propagation in _MARKS:
        finalizers = [*finalizers, _MARKS[propagation]]
    if finalizers:
        metadata["finalizers"] = finalizers
    stays = bool(finalizers) or bool(grace) or (is_namespace and bool(obj["spec"].get("finalizers")))
    if not stays and not is_pod:
        return remove(call, entry), True
    # A pod that is deleted at once is shown as terminating first, as a real server does.
    if _mark(obj, grace, call.now) or finalizers != before:
        if is_namespace:
            obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        entry = call.collection.put(obj)
    return (entry, False) if stays else (remove(call, entry), True)


def _grace_seconds(obj: JsonObject, asked: int | None, *, is_pod: bool) -> int:
    """Return the grace period of an object; it is 0 for a pod without a node and for a pod that has ended."""
    metadata = obj["metadata"]
    if metadata.get("deletionTimestamp"):
        said: int = metadata.get("deletionGracePeriodSeconds", 0)
        return said if asked is None else asked
    if not is_pod or not obj["spec"].get("nodeName") or obj["status"].get("phase") in {"Failed", "Succeeded"}:
        return 0
    seconds: int = obj["spec"].get("terminationGracePeriodSeconds", 0) if asked is None else asked
    return 1 if seconds < 0 else seconds


def _mark(obj: JsonObject, grace: int, now: float) -> bool:
    """Set the time of the deletion; a later request can only make it earlier. Return whether the object changed."""
    metadata = obj["metadata"]
    if metadata.get("deletionTimestamp") and grace >= metadata.get("deletionGracePeriodSeconds", 0):
        return False
    if not metadata.get("deletionTimestamp") and metadata.get("generation"):
        metadata["generation"] += 1
    metadata |= {"deletionTimestamp": timestamp(now + grace), "deletionGracePeriodSeconds": grace}
    return True


def check_preconditions(call: Call, entry: Entry, options: JsonObject) -> None:
    """Refuse the deletion if the object has another UID or revision than the preconditions."""
    wanted = options.get("preconditions") or {}
    for field, what, found in (("uid", "UID", entry.uid), ("resourceVersion", "ResourceVersion", str(entry.revision))):
        asked = wanted.get(field)
        if asked and asked != found:
            why = f"the {what} in the precondition ({asked}) does not match the {what} in record ({found})"
            # Here the server names the kind, elsewhere the resource.
            subject = (call.resource.kind, call.resource.group, entry.name)
            raise object_failure(409, subject, f"Operation cannot be fulfilled on {{}}: {why}")
