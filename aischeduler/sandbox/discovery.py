"""Discovery: the groups, versions and resources there are, in the aggregated form and in the old one."""

from aischeduler.sandbox.kinds import Kinds, Resource
from aischeduler.sandbox.objects import JsonObject

KUBERNETES_VERSION = "v1.36.3"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_SUBRESOURCE_KINDS = {
    "binding": ("", "v1", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
    "scale": ("autoscaling", "v1", "Scale"),
}
_SUBRESOURCE_VERBS = {
    "binding": ["create"],
    "eviction": ["create"],
    "finalize": ["update"],
    "scale": ["get", "patch", "update"],
    "status": ["get", "patch", "update"],
}


def version() -> JsonObject:
    """Return what /version says."""
    _, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    return {
        "major": "1",
        "minor": minor,
        "emulationMajor": "1",
        "emulationMinor": minor,
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": str(int(minor) - 1),
        "gitVersion": f"{KUBERNETES_VERSION}+sandbox",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "linux/amd64",
    }


def aggregated(kinds: Kinds, *, core: bool) -> JsonObject:
    """Return the aggregated document of /api (core) or /apis."""
    items = [
        {
            "metadata": {"name": group} if group else {},
            "versions": [
                {
                    "version": name,
                    "resources": [_aggregated_resource(one) for one in kinds.in_version(group, name)],
                    "freshness": "Current",
                }
                for name in versions
            ],
        }
        for group, versions in kinds.groups().items()
        if (group == "") is core
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _aggregated_resource(resource: Resource) -> JsonObject:
    entry: JsonObject = {
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular_name,
        "verbs": VERBS,
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if resource.subresources:
        entry["subresources"] = [
            {"subresource": name, "responseKind": _response_kind(resource, name), "verbs": _SUBRESOURCE_VERBS[name]}
            for name in resource.subresources
        ]
    return entry


def _response_kind(resource: Resource, subresource: str) -> JsonObject:
    group, version_name, kind = _SUBRESOURCE_KINDS.get(subresource, (resource.group, resource.version, resource.kind))
    return {"group": group, "version": version_name, "kind": kind}


def api_versions() -> JsonObject:
    """Return /api in the old form."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def group_list(kinds: Kinds) -> JsonObject:
    """Return /apis in the old form."""
    groups = [_group(name, versions) for name, versions in kinds.groups().items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(kinds: Kinds, name: str) -> JsonObject | None:
    """Return /apis/GROUP."""
    versions = kinds.groups().get(name)
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)} if versions else None


def _group(name: str, versions: list[str]) -> JsonObject:
    found = [{"groupVersion": f"{name}/{one}", "version": one} for one in versions]
    return {"name": name, "versions": found, "preferredVersion": found[0]}


def resource_list(kinds: Kinds, group_name: str, version_name: str) -> JsonObject | None:
    """Return /api/v1 or /apis/GROUP/VERSION."""
    resources = kinds.in_version(group_name, version_name)
    if not resources:
        return None
    entries: list[JsonObject] = []
    for one in resources:
        entry = {"name": one.plural, "singularName": one.singular_name, "namespaced": one.namespaced, "kind": one.kind}
        extra = {"shortNames": list(one.short_names), "categories": list(one.categories)}
        entries.append({**entry, "verbs": VERBS, **{key: value for key, value in extra.items() if value}})
        entries += [_old_subresource(one, name) for name in one.subresources]
    where = f"{group_name}/{version_name}" if group_name else version_name
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": where, "resources": entries}


def _old_subresource(resource: Resource, name: str) -> JsonObject:
    kind = _response_kind(resource, name)
    entry: JsonObject = {"name": f"{resource.plural}/{name}", "singularName": "", "namespaced": resource.namespaced}
    if kind["group"] != resource.group:
        entry |= {"group": kind["group"], "version": kind["version"]}
    return {**entry, "kind": kind["kind"], "verbs": _SUBRESOURCE_VERBS[name]}
