"""create, update and patch of whole objects and of their status.

Laws: an update that changes nothing writes nothing; a stale `resourceVersion` is a conflict; an object that is being
deleted goes when its last finalizer does.
"""

import dataclasses

from aischeduler.sandbox.applying import remember
from aischeduler.sandbox.bodies import decode_object, decode_patched, parse_object
from aischeduler.sandbox.call import Call
from aischeduler.sandbox.kinds import Place
from aischeduler.sandbox.objects import GENERATE_NAME_MAX, JsonObject, encode, timestamp
from aischeduler.sandbox.patch import APPLY_PATCH, patched
from aischeduler.sandbox.presentation import choose_view
from aischeduler.sandbox.protocol import Response
from aischeduler.sandbox.registry import strategy_of
from aischeduler.sandbox.status import (
    Cause,
    Refusal,
    bad_request,
    failure,
    forbidden_field,
    invalid,
    invalid_value,
    not_found,
    required,
)
from aischeduler.sandbox.store import Entry, is_going
from aischeduler.sandbox.strategies import Write, prepare_create, prepare_status_update, prepare_update
from aischeduler.sandbox.validation import metadata_errors
from aischeduler.sandbox.versions import to_stored

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
SYSTEM_METADATA = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
    "managedFields",
)


def answer(call: Call, entry: Entry, code: int = 200) -> Response:
    """Return one object as the client wants to see it."""
    view = choose_view(call)
    return Response(code, view.shown(entry), view.content_type, warnings=tuple(call.warnings))


def create(call: Call) -> Response:
    """Answer POST to a collection."""
    obj = to_stored(call.resource, decode_object(call, parse_object(call, call.body)))
    return answer(call, create_object(call, obj), 201)


def create_object(call: Call, obj: JsonObject) -> Entry:
    """Store a decoded new object and return it."""
    metadata: JsonObject = obj["metadata"]
    if metadata.get("resourceVersion"):
        raise failure(500, "", "resourceVersion should not be set on objects to be created")
    _settle_namespace(call, metadata)
    _settle_name(call, metadata)
    for key in SYSTEM_METADATA:
        metadata.pop(key, None)
    metadata |= {"uid": call.cluster.ids.uid(), "creationTimestamp": timestamp(call.now)}
    strategy = strategy_of(call.resource)
    write = Write(call, obj)
    prepare_create(strategy, write)
    _refuse(call, metadata["name"], [*metadata_errors(call.resource, metadata), *strategy.validate(write)])
    there = call.collection.get(metadata.get("namespace", ""), metadata["name"])
    if there is not None:
        raise call.already_exists(metadata["name"], going=is_going(there))
    entry = commit(call, obj)
    if not call.dry_run:
        strategy.stored(entry, call)
    return entry


def _settle_namespace(call: Call, metadata: JsonObject) -> None:
    if not call.resource.namespaced:
        if metadata.pop("namespace", ""):
            raise bad_request("namespace should not be set on cluster-scoped objects")
        return
    given = metadata.get("namespace") or call.namespace
    if given != call.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    metadata["namespace"] = given
    space = call.cluster.store.collections[Place.NAMESPACES].get("", given)
    if space is None:
        raise not_found("namespaces", "", given)
    if is_going(space):
        why = f"unable to create new content in namespace {given} because it is being terminated"
        raise call.forbidden(metadata.get("name", ""), why)


def _settle_name(call: Call, metadata: JsonObject) -> None:
    if metadata.get("name"):
        return
    prefix: str = metadata.get("generateName") or ""
    if not prefix:
        _refuse(call, "", [required("metadata.name", "name or generateName is required")])
    metadata["name"] = prefix[:GENERATE_NAME_MAX] + call.cluster.ids.suffix()


def _refuse(call: Call, name: str, causes: list[Cause]) -> None:
    if causes:
        group = "" if call.resource.kind == "Event" else call.resource.group
        raise invalid(call.resource.kind, group, name, causes)


def commit(call: Call, obj: JsonObject) -> Entry:
    """Store an object, or show what would be stored in a dry run."""
    if not call.dry_run:
        return call.collection.put(obj)
    metadata = obj["metadata"]
    revision = int(metadata.get("resourceVersion") or 0)
    namespace, name = metadata.get("namespace", ""), metadata["name"]
    return Entry(f"{namespace}/{name}", namespace, name, metadata["uid"], revision, encode(obj), {}, {}, ())


def replace(call: Call) -> Response:
    """Answer PUT of an object or of its status."""
    obj = to_stored(call.resource, decode_object(call, parse_object(call, call.body)))
    _check_name(call, obj)
    entry = call.collection.get(call.namespace, call.name)
    if entry is None and not call.subresource and strategy_of(call.resource).create_on_update:
        return answer(call, create_object(call, obj), 201)
    return answer(call, update_object(call, call.existing(), obj))


def _check_name(call: Call, obj: JsonObject) -> None:
    name = obj["metadata"].get("name", "")
    if name != call.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({call.name})")


def patch(call: Call) -> Response:
    """Answer PATCH of an object or of its status; server-side apply creates what is not there."""
    entry = call.collection.get(call.namespace, call.name)
    is_apply = call.content_type.startswith(APPLY_PATCH)
    if entry is None and not (is_apply and not call.subresource):
        raise call.not_found(call.name)
    obj = to_stored(call.resource, decode_patched(call, patched(call, entry)))
    _check_name(call, obj)
    if entry is not None and obj["metadata"].get("uid") not in {None, entry.uid}:
        cause = invalid_value("metadata.uid", obj["metadata"]["uid"], "field is immutable")
        _refuse(call, call.name, [cause])
    stored = create_object(call, obj) if entry is None else update_object(call, entry, obj)
    if is_apply and not call.dry_run:
        remember(call, stored, call.body)
    return answer(call, stored, 201 if entry is None else 200)


def finalize(call: Call) -> Response:
    """Answer PUT of a namespace's finalizers; one that is being deleted goes with the last of them."""
    entry = call.existing()
    obj, old = parse_object(call, call.body), entry.decoded()
    kept = {**old, "metadata": dict(old["metadata"]), "spec": obj.get("spec") or {}}
    if old["metadata"].get("deletionTimestamp") and not kept["spec"].get("finalizers"):
        return answer(call, remove(call, entry))
    return answer(call, commit_update(call, entry, old, kept))


def update_object(call: Call, entry: Entry, obj: JsonObject) -> Entry:
    """Store a changed object under the kind's rules and return it."""
    old = entry.decoded()
    metadata = obj["metadata"]
    _check_preconditions(call, entry, metadata)
    for key in ("namespace", *SYSTEM_METADATA):
        if key in old["metadata"]:
            metadata[key] = old["metadata"][key]
        else:
            metadata.pop(key, None)
    strategy = strategy_of(call.resource)
    write = Write(call, obj, old)
    if call.subresource:
        prepare_status_update(strategy, write)
    else:
        prepare_update(strategy, write)
    causes = [*metadata_errors(call.resource, metadata), *_finalizer_errors(metadata, old["metadata"])]
    _refuse(call, call.name, [*causes, *strategy.validate(write)])
    return commit_update(call, entry, old, obj)


def _finalizer_errors(metadata: JsonObject, before: JsonObject) -> list[Cause]:
    new = [one for one in metadata.get("finalizers") or () if one not in (before.get("finalizers") or ())]
    if not new or not before.get("deletionTimestamp"):
        return []
    detail = f"no new finalizers can be added if the object is being deleted, found new finalizers {new}"
    return [forbidden_field("metadata.finalizers", detail)]


def remove(call: Call, entry: Entry) -> Entry:
    """Take an object away; returns its last state."""
    last = call.collection.remove(entry)
    strategy_of(call.resource).removed(last, call.cluster)
    return last


def commit_update(call: Call, entry: Entry, old: JsonObject, obj: JsonObject) -> Entry:
    """Store what an update has made of an object, or nothing, or take the object away with its last finalizer."""
    metadata = obj["metadata"]
    metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
    if obj == old:
        return entry
    if metadata.get("deletionTimestamp") and not metadata.get("finalizers") and old["metadata"].get("finalizers"):
        grace_over = not metadata.get("deletionGracePeriodSeconds")
        if grace_over and not call.dry_run:
            return dataclasses.replace(remove(call, entry), raw=encode(obj))
    stored = commit(call, obj)
    if not call.dry_run:
        strategy_of(call.resource).stored(stored, call)
    return stored


def _check_preconditions(call: Call, entry: Entry, metadata: JsonObject) -> None:
    uid, revision = metadata.get("uid"), metadata.get("resourceVersion")
    if uid and uid != entry.uid:
        raise precondition_failed(call, "UID", uid, entry.uid)
    if revision and str(revision) != str(entry.revision):
        raise call.conflict(entry.name, MODIFIED)
    if not revision and not strategy_of(call.resource).unconditional_update:
        cause = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
        raise invalid(call.resource.plural, call.resource.group, call.name, [cause])


def precondition_failed(call: Call, what: str, asked: str, found: str) -> Refusal:
    """409 for a UID or resourceVersion that a writer insisted on."""
    key = f"/{call.resource.plural}/{call.namespace}/{call.name}".replace("//", "/")
    return call.conflict(
        call.name,
        f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: {what} in precondition: {asked}, {what} in object meta: {found}",
    )
