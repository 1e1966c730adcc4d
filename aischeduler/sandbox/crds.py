"""CustomResourceDefinitions: creating one serves its resources, deleting it takes them along.

Law: a definition is accepted and established in the write that brings it; a real server takes a moment for that.
Source: `k8s.io/apiextensions-apiserver`.
"""

from aischeduler.sandbox import rules
from aischeduler.sandbox.bodies import tell_unknown
from aischeduler.sandbox.call import Call, Cluster
from aischeduler.sandbox.correlation import ABSENT
from aischeduler.sandbox.jsonpath import find_path
from aischeduler.sandbox.kinds import BUILT_IN, CustomVersion, Resource, fields_reader
from aischeduler.sandbox.objects import JsonObject, set_condition
from aischeduler.sandbox.status import Cause, forbidden_field, invalid_value, required, unsupported_value
from aischeduler.sandbox.store import Entry
from aischeduler.sandbox.strategies import Strategy, Write, restore
from aischeduler.sandbox.structural import drop_nulls, errors, fill_defaults, prune, schema_errors

AGE_COLUMN: JsonObject = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def _versions(definition: JsonObject) -> list[JsonObject]:
    versions: list[JsonObject] = definition["spec"].get("versions") or []
    return versions


def resources_of(definition: JsonObject) -> list[Resource]:
    """Return the resources that a definition serves, one for each served version."""
    spec = definition["spec"]
    names = spec["names"]
    stored = next(one["name"] for one in _versions(definition) if one.get("storage"))
    return [
        Resource(
            spec["group"],
            version["name"],
            names["kind"],
            names["plural"],
            spec["scope"] == "Namespaced",
            tuple(names.get("shortNames") or ()),
            tuple(names.get("categories") or ()),
            tuple(sorted(version.get("subresources") or {})),
            {path: path for one in version.get("selectableFields") or () if (path := one["jsonPath"].lstrip("."))},
            names.get("singular") or names["kind"].lower(),
            names.get("listKind") or f"{names['kind']}List",
            CustomVersion(
                version["schema"]["openAPIV3Schema"],
                tuple(version.get("additionalPrinterColumns") or (AGE_COLUMN,)),
                (version.get("subresources") or {}).get("scale"),
                stored,
                rules.has_rules(version["schema"]["openAPIV3Schema"]),
            ),
        )
        for version in _versions(definition)
        if version.get("served")
    ]


def _create(write: Write) -> None:
    names = write.obj.get("spec", {}).get("names")
    if isinstance(names, dict) and "kind" in names:
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", f"{names['kind']}List")
    write.obj.get("spec", {}).setdefault("conversion", {"strategy": "None"})
    _accept(write)


def _accept(write: Write) -> None:
    status = dict(write.obj.get("status") or {})
    write.obj["status"] = status
    spec = write.obj.get("spec", {})
    status["acceptedNames"] = spec.get("names", {})
    for kind, reason, message in (
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ):
        set_condition(status, {"type": kind, "status": "True", "reason": reason, "message": message}, write.call.now)
    stored = [one.get("name", "") for one in _versions(write.obj) if one.get("storage")] if spec else []
    status["storedVersions"] = list(dict.fromkeys([*(status.get("storedVersions") or ()), *stored]))


def _validate(write: Write) -> list[Cause]:
    spec = write.obj.get("spec") or {}
    names, group = spec.get("names") or {}, spec.get("group", "")
    causes = [required(f"spec.{key}") for key in ("group", "scope", "versions") if not spec.get(key)]
    causes += [required(f"spec.names.{key}") for key in ("plural", "kind") if not names.get(key)]
    if causes:
        return causes
    name = write.obj["metadata"]["name"]
    if "." not in group:
        causes.append(invalid_value("spec.group", group, "should be a domain with at least one dot"))
    if group in {one.group for one in BUILT_IN}:
        causes.append(forbidden_field("spec.group", "is served by the server itself"))
    if name != _collection_of(spec):
        detail = 'must be spec.names.plural+"."+spec.group'
        causes.append(invalid_value("metadata.name", name, detail))
    if spec["scope"] not in {"Cluster", "Namespaced"}:
        causes.append(unsupported_value("spec.scope", spec["scope"], ("Cluster", "Namespaced")))
    if sum(1 for one in _versions(write.obj) if one.get("storage")) != 1:
        detail = "must have exactly one version marked as storage version"
        causes.append(invalid_value("spec.versions", [one.get("name") for one in _versions(write.obj)], detail))
    if write.old is not None:
        causes += _identity_errors(spec, write.old["spec"])
    for index, version in enumerate(_versions(write.obj)):
        causes += _version_errors(version, f"spec.versions[{index}]")
        causes += _schema_errors(version, f"spec.versions[{index}]", only=len(_versions(write.obj)) == 1)
    return causes


def _identity_errors(spec: JsonObject, old: JsonObject) -> list[Cause]:
    """Say which names an update may not change, since stored objects depend on them."""
    causes = []
    for path in ("group", "scope", "names.plural", "names.kind"):
        value = find_path(spec, f".{path}")
        if value != find_path(old, f".{path}"):
            causes.append(invalid_value(f"spec.{path}", value, "field is immutable"))
    return causes


def _version_errors(version: JsonObject, path: str) -> list[Cause]:
    causes = [required(f"{path}.name")] if not version.get("name") else []
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        lead = f"{path}.additionalPrinterColumns[{index}]"
        causes += [required(f"{lead}.{key}") for key in ("name", "type", "jsonPath") if not column.get(key)]
    for index, one in enumerate(version.get("selectableFields") or ()):
        if not one.get("jsonPath"):
            causes.append(required(f"{path}.selectableFields[{index}].jsonPath"))
    scale = (version.get("subresources") or {}).get("scale")
    if scale is not None:
        lead = f"{path}.subresources.scale"
        wanted = ("specReplicasPath", "statusReplicasPath")
        causes += [required(f"{lead}.{key}") for key in wanted if not scale.get(key)]
    return causes


def _schema_errors(version: JsonObject, path: str, *, only: bool) -> list[Cause]:
    """Say what is wrong with the schema of a version; the server calls that of an only version by an older name."""
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if not schema:
        return [required(f"{path}.schema.openAPIV3Schema", "schemas are required")]
    where = "spec.validation.openAPIV3Schema" if only else f"{path}.schema.openAPIV3Schema"
    return schema_errors(schema, where) or rules.definition_errors(schema, where)


def _stored(entry: Entry, call: Call) -> None:
    definition = entry.decoded()
    spec = definition["spec"]
    call.cluster.kinds.drop(spec["group"], spec["names"]["plural"])
    for resource in resources_of(definition):
        call.cluster.kinds.add(resource)
    name = _collection_of(spec)
    if name not in call.cluster.store.collections:
        fields = call.cluster.kinds.stored_fields(name)
        call.cluster.store.add_collection(name, fields_reader(fields))


def _collection_of(spec: JsonObject) -> str:
    return f"{spec['names']['plural']}.{spec['group']}"


def _removed(entry: Entry, cluster: Cluster) -> None:
    spec = entry.decoded()["spec"]
    collection = cluster.store.collections.pop(_collection_of(spec))
    for one in list(collection.in_order()):
        collection.remove(one)
    collection.end_watches()
    cluster.kinds.drop(spec["group"], spec["names"]["plural"])


CRDS = Strategy(
    counts_generations=True,
    resets_status=True,
    unconditional_update=False,
    create=_create,
    update=_accept,
    validate=_validate,
    stored=_stored,
    removed=_removed,
)


def _schema(write: Write) -> JsonObject:
    custom = write.call.resource.custom
    return custom.schema if custom is not None else {}


def _body(obj: JsonObject) -> JsonObject:
    return {key: value for key, value in obj.items() if key not in {"apiVersion", "kind", "metadata"}}


def _conform(write: Write) -> None:
    """Prune, default: the body becomes what the schema knows."""
    schema, body = _schema(write), _body(write.obj)
    tell_unknown(write.call, prune(body, schema))
    drop_nulls(body, schema)
    fill_defaults(body, schema)
    for key in _body(write.obj):
        restore(write.obj, body, key)
    write.obj.update(body)


def _create_custom(write: Write) -> None:
    if "status" in write.call.resource.subresources:
        write.obj.pop("status", None)
    _conform(write)
    write.obj["metadata"]["generation"] = 1


def _update_custom(write: Write) -> None:
    _conform(write)
    if "status" in write.call.resource.subresources and write.old is not None:
        restore(write.obj, write.old, "status")


def _update_custom_status(write: Write) -> None:
    _conform(write)
    if write.old is not None:
        revision = write.obj["metadata"].get("resourceVersion")
        write.obj["metadata"] = {**write.old["metadata"], "resourceVersion": revision}


def _validate_custom(write: Write) -> list[Cause]:
    schema = _schema(write)
    causes = errors(_body(write.obj), schema, old=ABSENT if write.old is None else _body(write.old))
    causes += _scale_errors(write)
    custom = write.call.resource.custom
    if custom is None or not custom.has_rules:
        return causes
    if any(cause.reason in rules.BLOCKING for cause in causes):
        return [*causes, rules.NOT_CHECKED]
    return causes + rules.violations(
        _seen_by_rules(write.obj), schema, old=ABSENT if write.old is None else _seen_by_rules(write.old)
    )


def _seen_by_rules(obj: JsonObject) -> JsonObject:
    """Return the object with no more of its metadata than rules may read."""
    metadata = {key: obj["metadata"][key] for key in ("name", "generateName") if key in obj["metadata"]}
    return {**obj, "metadata": metadata}


def _scale_errors(write: Write) -> list[Cause]:
    custom = write.call.resource.custom
    if custom is None or custom.scale is None:
        return []
    path = custom.scale["specReplicasPath"]
    replicas = find_path(write.obj, path)
    if isinstance(replicas, int) and replicas < 0:
        return [invalid_value(path, replicas, "should be a non-negative integer")]
    return []


CUSTOM = Strategy(
    counts_generations=True,
    unconditional_update=False,
    create=_create_custom,
    update=_update_custom,
    update_status=_update_custom_status,
    validate=_validate_custom,
)
