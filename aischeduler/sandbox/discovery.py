"""The paths about the server itself: groups, versions and resources, the release, health, and minimal OpenAPI.

The OpenAPI documents say which patches validate fields, which kubectl reads before it applies an object. They have the
schemas of custom resources, which `kubectl explain` shows; built-in kinds have no schema.
"""

from aischeduler.sandbox.api_resources import Resource, ResourceRegistry
from aischeduler.sandbox.objects import JsonObject, encode
from aischeduler.sandbox.request import Response

KUBERNETES_VERSION = "v1.36.3"
VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_FIELD_VALIDATION = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
_SUBRESOURCES: dict[str, JsonObject] = {
    "binding": {"kind": "Binding", "verbs": ["create"]},
    "eviction": {"group": "policy", "version": "v1", "kind": "Eviction", "verbs": ["create"]},
    "finalize": {"verbs": ["update"]},
    "status": {"verbs": ["get", "patch", "update"]},
}


def server_document(resources: ResourceRegistry, path: str) -> Response | None:
    """Return the answer to a path about the server itself, None for any other."""
    match path.strip("/").split("/"):
        case ["healthz" | "livez" | "readyz", *_]:
            return Response(200, b"ok", "text/plain; charset=utf-8")
        case ["version"]:
            minor = KUBERNETES_VERSION.split(".")[1]
            found: JsonObject | None = {"major": "1", "minor": minor, "gitVersion": f"{KUBERNETES_VERSION}+sandbox"}
        case ["api"]:
            found = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            names = dict.fromkeys(resource.group for resource in resources.all() if resource.group)
            found = {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(resources, name) for name in names]}
        case ["apis", name] if any(resource.group == name for resource in resources.all()):
            found = {"kind": "APIGroup", "apiVersion": "v1", **_group(resources, name)}
        case ["api", version]:
            found = _resource_list(resources.in_version("", version))
        case ["apis", group, version]:
            found = _resource_list(resources.in_version(group, version))
        case ["openapi", "v3"]:
            paths = dict.fromkeys(resource.path for resource in resources.all())
            found = {"paths": {path[1:]: {"serverRelativeURL": f"/openapi/v3{path}"} for path in paths}}
        case ["openapi", "v3", "api", version]:
            found = _open_api(resources.in_version("", version))
        case ["openapi", "v3", "apis", group, version]:
            found = _open_api(resources.in_version(group, version))
        case _:
            found = None
    return Response(200, encode(found)) if found is not None else None


def _group(resources: ResourceRegistry, name: str) -> JsonObject:
    names = dict.fromkeys(resource.version for resource in resources.all() if resource.group == name)
    versions = [{"groupVersion": f"{name}/{version}", "version": version} for version in names]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _resource_list(resources: list[Resource]) -> JsonObject | None:
    entries: list[JsonObject] = []
    for resource in resources:
        entry = {
            "name": resource.plural,
            "singularName": resource.kind.lower(),
            "namespaced": resource.namespaced,
            "kind": resource.kind,
        }
        entries.append(
            {**entry, "verbs": VERBS, **({"shortNames": resource.short_names} if resource.short_names else {})}
        )
        for name in resource.subresources:
            shared = {"name": f"{resource.plural}/{name}", "singularName": "", "namespaced": resource.namespaced}
            entries.append({**shared, "kind": resource.kind, **_SUBRESOURCES[name]})
    lead = {"kind": "APIResourceList", "apiVersion": "v1"}
    return {**lead, "groupVersion": resources[0].api_version, "resources": entries} if resources else None


def _open_api(resources: list[Resource]) -> JsonObject | None:
    paths: JsonObject = {}
    schemas: JsonObject = {}
    for resource in resources:
        kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        marked = {"parameters": [_FIELD_VALIDATION], "x-kubernetes-group-version-kind": kind, "responses": {}}
        space = "/namespaces/{namespace}" if resource.namespaced else ""
        paths[f"{resource.path}{space}/{resource.plural}/{{name}}"] = {"patch": marked}
        if resource.schema is not None:
            schemas[f"{resource.group}.{resource.kind}"] = {
                **resource.schema,
                "x-kubernetes-group-version-kind": [kind],
            }
    info = {"title": "Kubernetes", "version": "unversioned"}
    document = {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}
    return document if resources else None
