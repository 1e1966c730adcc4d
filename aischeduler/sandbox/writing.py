"""create, update and patch of whole objects and of their status.

Invariants: an update that changes nothing writes nothing; a stale `resourceVersion` is a conflict; an object that is
being deleted goes with its last finalizer.
"""

from msgspec import structs

from aischeduler.sandbox.api_resources import CollectionName, Resource
from aischeduler.sandbox.custom_resources import CUSTOM, DEFINITIONS
from aischeduler.sandbox.objects import GENERATE_NAME_MAX, JsonObject, encode, name_error, timestamp
from aischeduler.sandbox.patch import patch_format, patched
from aischeduler.sandbox.request import Call, Response, as_object, parse
from aischeduler.sandbox.schema import errors, schema_of
from aischeduler.sandbox.status_errors import Cause, bad_request, object_failure
from aischeduler.sandbox.store import Entry, is_going
from aischeduler.sandbox.strategies import STRATEGIES, Strategy, Write, restore
from aischeduler.sandbox.views import choose_view, to_stored

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
ANNOTATIONS_LENGTH_MAX = 256 * 1024
DELETION_METADATA = ("deletionTimestamp", "deletionGracePeriodSeconds")
SERVER_METADATA = ("uid", "creationTimestamp", "generation", "managedFields", *DELETION_METADATA)


_PLAIN = Strategy()
_STRATEGIES = {**STRATEGIES, CollectionName.DEFINITIONS: DEFINITIONS}


def _strategy_of(resource: Resource) -> Strategy:
    return CUSTOM if resource.is_custom else _STRATEGIES.get(resource.collection, _PLAIN)


def answer(call: Call, entry: Entry, code: int = 200) -> Response:
    """Return one object in the view that the client accepts."""
    return Response(code, choose_view(call).shown(entry))


def create(call: Call) -> Response:
    """Answer POST to a collection."""
    return answer(call, _create(call, to_stored(call.resource, as_object(call, parse(call)))), 201)


def _create(call: Call, obj: JsonObject) -> Entry:
    metadata: JsonObject = obj["metadata"]
    if metadata.get("resourceVersion"):
        raise bad_request("resourceVersion should not be set on objects to be created")
    _settle_namespace(call, metadata)
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = metadata["generateName"][:GENERATE_NAME_MAX] + call.cluster.ids.suffix()
    for key in SERVER_METADATA:
        metadata.pop(key, None)
    metadata |= {"uid": call.cluster.ids.uid(), "creationTimestamp": timestamp(call.now)}
    strategy = _strategy_of(call.resource)
    if "status" in call.resource.subresources and not strategy.keeps_first_status:
        obj.pop("status", None)
    if strategy.counts_generations:
        metadata["generation"] = 1
    name = metadata.get("name", "")
    call.refuse_invalid(name, _metadata_errors(call, metadata))
    _check_schema(call, obj)
    write = Write(call, obj)
    strategy.create(write)
    call.refuse_invalid(name, strategy.validate(write))
    existing = call.collection.get(metadata.get("namespace", ""), name)
    if existing is not None:
        lead = "object is being deleted: " if is_going(existing) else ""
        raise call.failure(409, name, f"{lead}{{}} already exists", "AlreadyExists")
    return _commit(call, obj)


def _settle_namespace(call: Call, metadata: JsonObject) -> None:
    if not call.resource.namespaced:
        if metadata.pop("namespace", ""):
            raise bad_request("namespace should not be set on cluster-scoped objects")
        return
    if (metadata.get("namespace") or call.namespace) != call.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    metadata["namespace"] = call.namespace
    space = call.cluster.store.collections[CollectionName.NAMESPACES].get("", call.namespace)
    if space is None:
        raise object_failure(404, ("namespaces", "", call.namespace), "{} not found")
    if is_going(space):
        why = f"unable to create new content in namespace {call.namespace} because it is being terminated"
        raise call.forbidden(metadata.get("name", ""), why)


def _metadata_errors(call: Call, metadata: JsonObject) -> list[Cause]:
    name, size = metadata.get("name", ""), sum(map(len, (metadata.get("annotations") or {}).values()))
    wrong = name_error(name, dots=call.resource.kind != "Namespace")
    causes = [Cause("metadata.name", f'"{name}" {wrong}')] if wrong else []
    too_long = f"may not be more than {ANNOTATIONS_LENGTH_MAX} characters"
    return [*causes, *([Cause("metadata.annotations", too_long)] if size > ANNOTATIONS_LENGTH_MAX else [])]


def _check_schema(call: Call, obj: JsonObject) -> None:
    if not call.resource.is_custom:
        call.refuse_invalid(obj["metadata"]["name"], errors(obj, schema_of(call.resource.kind)))


def _commit(call: Call, obj: JsonObject) -> Entry:
    entry = call.collection.put(obj)
    _strategy_of(call.resource).stored(entry, call.cluster)
    return entry


def replace(call: Call) -> Response:
    """Answer PUT of an object or of its status."""
    obj = to_stored(call.resource, as_object(call, parse(call)))
    refuse_other_name(call, obj["metadata"])
    return answer(call, _update(call, call.existing(), obj))


def refuse_other_name(call: Call, metadata: JsonObject) -> None:
    """Refuse a body that names another object than the path."""
    name = metadata.get("name", call.name)
    if name != call.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({call.name})")


def patch(call: Call) -> Response:
    """Answer PATCH of an object or of its status."""
    media, entry = patch_format(call), call.existing()
    obj = to_stored(call.resource, patched(call, entry, media))
    refuse_other_name(call, obj["metadata"])
    if obj["metadata"].get("uid", entry.uid) != entry.uid:  # clients match on these words
        call.refuse_invalid(call.name, [Cause("metadata.uid", "Invalid value: field is immutable")])
    return answer(call, _update(call, entry, obj))


def _update(call: Call, entry: Entry, obj: JsonObject) -> Entry:
    """Store a changed object under the rules of its kind and return it."""
    old, strategy = entry.decoded(), _strategy_of(call.resource)
    before: JsonObject = old["metadata"]
    _check_preconditions(call, entry, obj["metadata"])
    if call.subresource:
        part = "status" if call.subresource == "status" else "spec"
        given = {part: obj[part]} if part in obj else {}
        obj = {**{key: field for key, field in old.items() if key != part}, "metadata": dict(before), **given}
    elif "status" in call.resource.subresources:
        restore(obj, old, "status")
    metadata: JsonObject = obj["metadata"]
    for key in ("name", "namespace", "resourceVersion", *SERVER_METADATA):
        restore(metadata, before, key)
    finalizers = before.get("finalizers") or ()
    if before.get("deletionTimestamp") and not {*(metadata.get("finalizers") or ())} <= {*finalizers}:
        call.refuse_invalid(call.name, [Cause("metadata.finalizers", "can only be removed from a deleted object")])
    if metadata != before:
        call.refuse_invalid(call.name, _metadata_errors(call, metadata))
    _check_schema(call, obj)
    write = Write(call, obj, old)
    strategy.update(write)
    call.refuse_invalid(call.name, strategy.validate(write))
    if strategy.counts_generations and _desired_state(obj) != _desired_state(old):
        metadata["generation"] = before.get("generation", 1) + 1
    if obj == old:
        return entry
    is_last = bool(finalizers) and not metadata.get("finalizers") and not before.get("deletionGracePeriodSeconds")
    if call.subresource == "finalize":
        is_last = not (obj.get("spec") or {}).get("finalizers")
    if before.get("deletionTimestamp") and is_last:
        return structs.replace(remove(call, entry), raw=encode(obj))
    return _commit(call, obj)


def _desired_state(obj: JsonObject) -> JsonObject:
    return {key: value for key, value in obj.items() if key not in {"metadata", "status"}}


def remove(call: Call, entry: Entry) -> Entry:
    """Remove an object; return its last state."""
    last = call.collection.remove(entry)
    _strategy_of(call.resource).removed(last, call.cluster)
    return last


def _check_preconditions(call: Call, entry: Entry, metadata: JsonObject) -> None:
    uid, revision = metadata.get("uid"), metadata.get("resourceVersion")
    if uid and uid != entry.uid:
        raise call.conflict(entry.name, uid_mismatch(uid, entry.uid))
    if revision and revision != str(entry.revision):
        raise call.conflict(entry.name, MODIFIED)
    if not revision and not _strategy_of(call.resource).unconditional_update:
        call.refuse_invalid(entry.name, [Cause("metadata.resourceVersion", "must be specified for an update")])


def uid_mismatch(asked: str, found: str) -> str:
    """Return the message for a write to an earlier object of the name; clients match on these words."""
    return f"Precondition failed: UID in precondition: {asked}, UID in object meta: {found}"
