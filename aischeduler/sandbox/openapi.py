"""The OpenAPI v3 documents, as far as kubectl reads them: explain, server-side field validation, patch keys.

Law: built from the type table and the CRDs' schemas on demand; nothing here is written by hand. Built-in types have no
descriptions.
"""

import hashlib
from typing import Any

from aischeduler.sandbox.kinds import Kinds, Resource
from aischeduler.sandbox.objects import JsonObject, encode
from aischeduler.sandbox.patch import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from aischeduler.sandbox.types import ApiType, Kind, api_types, type_of_kind

_SCALARS: dict[str, JsonObject] = {
    "str": {"type": "string"},
    "bytes": {"type": "string", "format": "byte"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "double": {"type": "number", "format": "double"},
    "quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    "time": {"type": "string", "format": "date-time"},
    "microtime": {"type": "string", "format": "date-time"},
    "intstr": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
    "any": {"x-kubernetes-preserve-unknown-fields": True},
    "schema": {"x-kubernetes-preserve-unknown-fields": True},
}
_WRITE_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]


def index(kinds: Kinds) -> JsonObject:
    """Return /openapi/v3: where each group version's document lies, with its hash."""
    paths = {}
    for group, versions in kinds.groups().items():
        for version in versions:
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            digest = hashlib.sha512(encode(document(kinds, group, version))).hexdigest().upper()
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return {"paths": paths}


def document(kinds: Kinds, group: str, version: str) -> JsonObject | None:
    """Return the document of one group version."""
    resources = kinds.in_version(group, version)
    if not resources:
        return None
    schemas: JsonObject = {}
    paths: JsonObject = {}
    for resource in resources:
        name = _schema_name(resource)
        schemas[name] = _kind_schema(resource, schemas)
        paths.update(_paths(resource, name))
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _schema_name(resource: Resource) -> str:
    if resource.custom is None:
        return type_of_kind(resource.kind, resource.group)
    reverse = ".".join(reversed(resource.group.split(".")))
    return f"{reverse}.{resource.version}.{resource.kind}"


def _kind_schema(resource: Resource, schemas: JsonObject) -> JsonObject:
    if resource.custom is None:
        type_ = api_types()[type_of_kind(resource.kind, resource.group)]
        schema = _type_schema(type_, schemas)
    else:
        own: JsonObject = resource.custom.schema
        reference = _reference("ObjectMeta", schemas)
        schema = {**own, "properties": {**(own.get("properties") or {}), "metadata": reference}}
    schema["properties"] = {
        "apiVersion": {"type": "string", "description": "The group and version of this object's schema."},
        "kind": {"type": "string", "description": "What this object is."},
        **schema["properties"],
    }
    mark = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    return {**schema, "x-kubernetes-group-version-kind": [mark]}


def _paths(resource: Resource, name: str) -> JsonObject:
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    space = "/namespaces/{namespace}" if resource.namespaced else ""
    mark = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    reference = {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
    responses = {"200": {"description": "OK", "content": reference}}

    def operation(action: str) -> JsonObject:
        return {
            "parameters": _WRITE_PARAMETERS,
            "responses": responses,
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": mark,
        }

    formats = [JSON_PATCH, MERGE_PATCH, APPLY_PATCH, *([STRATEGIC_PATCH] if resource.custom is None else [])]
    body = {"requestBody": {"content": {one: {"schema": {"type": "object"}} for one in formats}}}
    one = {action: operation(action) for action in ("get", "put", "delete")} | {"patch": operation("patch") | body}
    return {
        f"{root}{space}/{resource.plural}": {"get": operation("list"), "post": operation("post")},
        f"{root}{space}/{resource.plural}/{{name}}": one,
    }


def _type_schema(type_: ApiType, schemas: JsonObject) -> JsonObject:
    schema: JsonObject = {
        "type": "object",
        "properties": {name: _field_schema(kind, schemas) for name, kind in type_.fields.items()},
    }
    if type_.required:
        schema["required"] = sorted(type_.required)
    if type_.atomic:
        schema["x-kubernetes-map-type"] = "atomic"
    return schema


def _reference(name: str, schemas: JsonObject) -> JsonObject:
    if name not in schemas:
        schemas[name] = {}
        schemas[name] = _type_schema(api_types()[name], schemas)
    return {"$ref": f"#/components/schemas/{name}"}


def _field_schema(kind: Kind, schemas: JsonObject) -> JsonObject:
    match kind.shape:
        case "scalar":
            return dict(_SCALARS[kind.name])
        case "struct":
            schema: JsonObject = {"allOf": [_reference(kind.name, schemas)], "default": {}}
        case "map":
            schema = {"type": "object", "additionalProperties": _field_schema(kind.inner, schemas)}
        case _:
            schema = {"type": "array", "items": _field_schema(kind.inner, schemas), **_list_marks(kind)}
    if kind.retains and kind.shape != "list":
        schema["x-kubernetes-patch-strategy"] = "retainKeys"
    return schema


def _list_marks(kind: Kind) -> JsonObject:
    marks: dict[str, Any] = {}
    if kind.keys:
        marks |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(kind.keys)}
    else:
        marks["x-kubernetes-list-type"] = "set" if kind.unique else "atomic"
    if kind.merges:
        marks["x-kubernetes-patch-strategy"] = "merge,retainKeys" if kind.retains else "merge"
        if kind.merge_key:
            marks["x-kubernetes-patch-merge-key"] = kind.merge_key
    return marks
