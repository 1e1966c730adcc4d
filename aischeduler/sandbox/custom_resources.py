"""CustomResourceDefinitions: a created definition serves its resource, a deleted one removes resource and objects.

Invariants:
- A definition is accepted and established in the write that creates it; a real server needs a moment for that.
- A resource is served in its storage version only.
- CEL rules are stored with the definition and not evaluated: the scheduler validates Pools itself.
"""

from aischeduler.sandbox.api_resources import AGE_COLUMN, Resource, built_in, fields_reader
from aischeduler.sandbox.objects import JsonObject, set_condition
from aischeduler.sandbox.request import Cluster
from aischeduler.sandbox.schema import errors, fill_defaults, prune
from aischeduler.sandbox.status_errors import Cause, bad_request
from aischeduler.sandbox.store import Collection, Entry
from aischeduler.sandbox.strategies import Strategy, Write, immutable, restore

_CONDITIONS = (
    {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found"},
    {"type": "Established", "status": "True", "reason": "InitialNamesAccepted", "message": "the names are accepted"},
)


def _resource_of(definition: JsonObject) -> Resource:
    spec, names = definition["spec"], definition["spec"]["names"]
    version = next(version for version in spec["versions"] if version.get("storage"))
    return Resource(
        version["name"],
        names["kind"],
        names["plural"],
        spec["group"],
        spec["scope"] == "Namespaced",
        names.get("shortNames") or (),
        ("status",) if "status" in (version.get("subresources") or {}) else (),
        columns=version.get("additionalPrinterColumns") or (AGE_COLUMN,),
        schema=version["schema"]["openAPIV3Schema"],
    )


def _accept(write: Write) -> None:
    spec, status = write.obj["spec"], dict(write.obj.get("status") or {})
    for condition in _CONDITIONS:
        set_condition(status, condition, write.call.now)
    stored = [version["name"] for version in spec["versions"] if version.get("storage")]
    write.obj["status"] = status | {"acceptedNames": spec["names"], "storedVersions": stored}


def _validate_definition(write: Write) -> list[Cause]:
    spec, old = write.obj["spec"], (write.old or write.obj)["spec"]
    causes = immutable(spec, old, ("group", "scope", "names"), "spec.")
    if "." not in spec["group"] or spec["group"] in {resource.group for resource in built_in()}:
        causes.append(Cause("spec.group", "must be a domain that the server does not serve itself"))
    if write.obj["metadata"]["name"] != f"{spec['names']['plural']}.{spec['group']}":
        causes.append(Cause("metadata.name", 'must be spec.names.plural+"."+spec.group'))
    if sum(1 for version in spec["versions"] if version.get("storage")) != 1:
        causes.append(Cause("spec.versions", "must have exactly one version marked as storage version"))
    return causes


def _serve(entry: Entry, cluster: Cluster) -> None:
    resource = _resource_of(entry.decoded())
    cluster.resources.serve(resource)
    cluster.store.collections.setdefault(resource.collection, Collection(cluster.store, fields_reader(()), None))


def _withdraw(entry: Entry, cluster: Cluster) -> None:
    resource = _resource_of(entry.decoded())
    collection = cluster.store.collections.pop(resource.collection)
    for stored in list(collection.in_order()):
        collection.remove(stored)
    collection.end_watches()
    cluster.resources.drop(resource.group, resource.plural)


DEFINITIONS = Strategy(
    counts_generations=True,
    unconditional_update=False,
    create=_accept,
    update=_accept,
    validate=_validate_definition,
    stored=_serve,
    removed=_withdraw,
)


def _schema(write: Write) -> JsonObject:
    return write.call.resource.schema or {}


def _body(obj: JsonObject) -> JsonObject:
    return {key: value for key, value in obj.items() if key not in {"apiVersion", "kind", "metadata"}}


def _conform(write: Write) -> None:
    """Prune and default the object; refuse unknown fields if the client asks for that, as kubectl does."""
    body = _body(write.obj)
    unknown = ", ".join(f'unknown field "{path}"' for path in prune(body, _schema(write)))
    if unknown and write.call.query.get("fieldValidation") == "Strict":
        raise bad_request(f"{write.call.resource.kind}: strict decoding error: {unknown}")
    fill_defaults(body, _schema(write))
    for key in _body(write.obj):
        restore(write.obj, body, key)
    write.obj.update(body)


def _validate_custom(write: Write) -> list[Cause]:
    """Return the invalid fields; a part that is stored invalid and does not change is accepted."""
    body, old = _body(write.obj), write.old or {}
    return [
        cause
        for key in body
        if key not in old or body[key] != old[key]
        for cause in errors({key: body[key]}, {"properties": _schema(write).get("properties")})
    ]


CUSTOM = Strategy(
    counts_generations=True, unconditional_update=False, create=_conform, update=_conform, validate=_validate_custom
)
