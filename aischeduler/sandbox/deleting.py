"""Deletion: preconditions, grace, finalizers and what becomes of owned objects.

Laws: an object with finalizers stays until they are gone; a pod with a node stays until its kubelet lets it go; owned
objects are taken later, by the garbage collector.
"""

from dataclasses import dataclass

from aischeduler.sandbox.bodies import parse_typed
from aischeduler.sandbox.call import Call
from aischeduler.sandbox.objects import JsonObject, encode, timestamp
from aischeduler.sandbox.presentation import choose_view
from aischeduler.sandbox.protocol import Response
from aischeduler.sandbox.reading import selection_of
from aischeduler.sandbox.registry import strategy_of
from aischeduler.sandbox.status import Refusal, bad_request, conflict, success
from aischeduler.sandbox.store import Entry
from aischeduler.sandbox.strategies import Strategy, Write
from aischeduler.sandbox.writing import remove

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """The options of a deletion, from the body or the query."""

    grace_seconds: int | None = None
    uid: str = ""
    revision: str = ""
    propagation: str = ""


def delete_options(call: Call) -> DeleteOptions:
    """Return the options of a DELETE request; wrong ones are refused with 400."""
    return read_delete_options(parse_typed(call, "DeleteOptions") if call.body else {}, call)


def read_delete_options(body: JsonObject, call: Call) -> DeleteOptions:
    """Return options from a `DeleteOptions` object, with the query's where it names none."""
    grace = body.get("gracePeriodSeconds", call.query.get("gracePeriodSeconds"))
    preconditions = body.get("preconditions") or {}
    propagation = body.get("propagationPolicy") or call.query.get("propagationPolicy", "")
    if not propagation and body.get("orphanDependents"):
        propagation = "Orphan"
    if propagation not in {"", "Orphan", "Background", "Foreground"}:
        raise bad_request(f'propagationPolicy: Unsupported value: "{propagation}"')
    try:
        grace_seconds = None if grace is None else int(grace)
    except (TypeError, ValueError) as error:
        raise bad_request(f'strconv.ParseInt: parsing "{grace}": invalid syntax') from error
    return DeleteOptions(
        grace_seconds, preconditions.get("uid") or "", preconditions.get("resourceVersion") or "", propagation
    )


def delete(call: Call) -> Response:
    """Answer DELETE of one object."""
    entry = call.existing()
    last, gone = delete_entry(call, entry, delete_options(call))
    if gone and not strategy_of(call.resource).shows_deleted:
        details = {"name": entry.name, "group": call.resource.group, "kind": call.resource.plural, "uid": entry.uid}
        return Response(200, encode(success({key: value for key, value in details.items() if value})))
    view = choose_view(call)
    return Response(200, view.shown(last), view.content_type)


def delete_collection(call: Call) -> Response:
    """Answer DELETE of all objects that the query selects, one by one."""
    selection, options = selection_of(call), delete_options(call)
    entries = [entry for entry in call.collection.in_order(selection.namespace) if selection.matches(entry)]
    shown = [delete_entry(call, entry, options)[0] for entry in entries]
    view = choose_view(call)
    metadata = {"resourceVersion": str(call.cluster.store.revision)}
    return Response(200, view.listed(shown, metadata), view.content_type)


def delete_entry(call: Call, entry: Entry, options: DeleteOptions) -> tuple[Entry, bool]:
    """Delete an object as far as it can go now; returns its last state and whether it is gone."""
    _check(call, entry, options)
    strategy = strategy_of(call.resource)
    obj = entry.decoded()
    metadata = obj["metadata"]
    strategy.refuse_deletion(Write(call, obj))
    if call.dry_run:
        return entry, True
    grace = _grace_seconds(obj, options.grace_seconds, strategy)
    marks = {"Orphan": ORPHAN, "Foreground": FOREGROUND}
    before = list(metadata.get("finalizers") or ())
    finalizers = [one for one in before if one not in marks.values()] if options.propagation else before
    if options.propagation in marks:
        finalizers.append(marks[options.propagation])
    if finalizers:
        metadata["finalizers"] = finalizers
    stays = bool(finalizers) or bool(grace) or strategy.keeps(obj)
    if not stays and not strategy.marks_first:
        return remove(call, entry), True
    marked = _mark(obj, grace, call.now, strategy)
    if marked or finalizers != before:
        entry = call.collection.put(obj)
    return (entry, False) if stays else (remove(call, entry), True)


def _grace_seconds(obj: JsonObject, asked: int | None, strategy: Strategy) -> int:
    """Return how long an object stays: the kind's rule for a first deletion, then what was said or is asked anew."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp"):
        return strategy.grace_seconds(obj, asked)
    said: int = metadata.get("deletionGracePeriodSeconds", 0)
    return said if asked is None else asked


def _mark(obj: JsonObject, grace: int, now: float, strategy: Strategy) -> bool:
    """Set when the object is to go; a later deletion can only bring that forward. Says whether anything changed."""
    metadata = obj["metadata"]
    if metadata.get("deletionTimestamp") and grace >= metadata.get("deletionGracePeriodSeconds", 0):
        return False
    if not metadata.get("deletionTimestamp") and metadata.get("generation"):
        metadata["generation"] += 1
    metadata["deletionTimestamp"] = timestamp(now + grace)
    metadata["deletionGracePeriodSeconds"] = grace
    strategy.deletion_begins(obj)
    return True


def _check(call: Call, entry: Entry, options: DeleteOptions) -> None:
    if options.uid and options.uid != entry.uid:
        raise _mismatch(
            call,
            entry.name,
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({entry.uid}). "
            "The object might have been deleted and then recreated",
        )
    if options.revision and options.revision != str(entry.revision):
        raise _mismatch(
            call,
            entry.name,
            f"the ResourceVersion in the precondition ({options.revision}) does not match the ResourceVersion in "
            f"record ({entry.revision}). The object might have been modified",
        )


def _mismatch(call: Call, name: str, why: str) -> Refusal:
    # The server names the kind here where it names the resource elsewhere.
    return conflict(call.resource.kind, call.resource.group, name, why)
