"""The resources that are served: their names, scopes, subresources and the fields that can be selected.

Law: everything that differs between kinds and is a plain fact stands in this table; what needs code is a strategy.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from aischeduler.sandbox.objects import JsonObject

Path = tuple[str, ...]


class Place(StrEnum):
    """The names of the collections that code asks for: plural and group; events lie in one for both their groups."""

    BUDGETS = "poddisruptionbudgets.policy"
    CLAIMS = "persistentvolumeclaims."
    CONFIG_MAPS = "configmaps."
    DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
    EVENTS = "events"
    JOBS = "jobs.batch"
    LEASES = "leases.coordination.k8s.io"
    NAMESPACES = "namespaces."
    NODES = "nodes."
    PODS = "pods."
    PRIORITY_CLASSES = "priorityclasses.scheduling.k8s.io"
    SERVICES = "services."
    VOLUMES = "persistentvolumes."


POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
EVENT_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
EVENT_FIELDS = (*(f"regarding.{one}" for one in EVENT_REFERENCE), "reason", "reportingController", "type")
CORE_EVENT_ALIASES = {
    **{f"involvedObject.{one}": f"regarding.{one}" for one in EVENT_REFERENCE},
    "reason": "reason",
    "reportingComponent": "reportingController",
    "source": "reportingController",
    "type": "type",
}


@dataclass(frozen=True, slots=True)
class CustomVersion:
    """What a CRD says of one version: schema, printer columns, the paths of its scale; and in which it is stored.

    `has_rules`: whether its schema has validation rules anywhere.
    """

    schema: JsonObject
    columns: tuple[JsonObject, ...]
    scale: JsonObject | None
    stored_version: str
    has_rules: bool


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource in one version. `collection` names where its objects lie; two resources may share one."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    selectable: Mapping[str, str] = field(default_factory=dict)
    singular: str = ""
    list_kind: str = ""
    custom: CustomVersion | None = None
    stored_as: str = ""

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def collection(self) -> str:
        """The name of the collection that holds its objects."""
        return self.stored_as or f"{self.plural}.{self.group}"

    @property
    def singular_name(self) -> str:
        """The singular that kubectl accepts."""
        return self.singular or self.kind.lower()

    @property
    def list_name(self) -> str:
        """The kind of its lists."""
        return self.list_kind or f"{self.kind}List"


def same(*names: str) -> dict[str, str]:
    """Return selectable fields that are stored under their own name."""
    return {name: name for name in names}


BUILT_IN: tuple[Resource, ...] = (
    Resource("", "v1", "ConfigMap", "configmaps", True, ("cm",)),
    Resource("", "v1", "Event", "events", True, ("ev",), selectable=CORE_EVENT_ALIASES, stored_as=Place.EVENTS),
    Resource("", "v1", "Namespace", "namespaces", False, ("ns",), (), ("finalize", "status"), same("status.phase")),
    Resource("", "v1", "Node", "nodes", False, ("no",), (), ("status",), same("spec.unschedulable")),
    Resource("", "v1", "PersistentVolume", "persistentvolumes", False, ("pv",), (), ("status",)),
    Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", True, ("pvc",), (), ("status",)),
    Resource("", "v1", "Pod", "pods", True, ("po",), ("all",), ("binding", "eviction", "status"), same(*POD_FIELDS)),
    Resource("", "v1", "Service", "services", True, ("svc",), ("all",), ("status",)),
    Resource("", "v1", "ServiceAccount", "serviceaccounts", True, ("sa",)),
    Resource(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        False,
        ("crd", "crds"),
        ("api-extensions",),
        ("status",),
    ),
    Resource("batch", "v1", "Job", "jobs", True, (), ("all",), ("status",), same("status.successful")),
    Resource("coordination.k8s.io", "v1", "Lease", "leases", True),
    Resource(
        "events.k8s.io", "v1", "Event", "events", True, ("ev",), selectable=same(*EVENT_FIELDS), stored_as=Place.EVENTS
    ),
    Resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", True, ("pdb",), (), ("status",)),
    Resource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", False, ("pc",)),
)

INDEXED_FIELD: Mapping[str, str] = {Place.PODS: "spec.nodeName"}

# Where a selectable field lies when its name is not its path, and what it is when absent.
FIELD_SOURCES: Mapping[str, tuple[Path, str]] = {
    "spec.hostNetwork": (("spec", "hostNetwork"), "false"),
    "spec.unschedulable": (("spec", "unschedulable"), "false"),
    "status.successful": (("status", "succeeded"), "0"),
}


def field_text(obj: JsonObject, path: Path) -> str:
    """Return a field as selectors see it: text, `true`/`false`, a number, or nothing."""
    value: object = obj
    for step in path:
        if not isinstance(value, dict):
            return ""
        value = value.get(step)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def fields_reader(names: Iterable[str]) -> Callable[[JsonObject], Mapping[str, str]]:
    """Return the function that takes the selectable fields out of an object."""
    sources = [(name, *FIELD_SOURCES.get(name, (tuple(name.split(".")), ""))) for name in sorted(set(names))]

    def read(obj: JsonObject) -> Mapping[str, str]:
        return {name: text for name, path, absent in sources if (text := field_text(obj, path) or absent)}

    return read


class Kinds:
    """Which resources are served now: the built-in ones and those of CRDs."""

    def __init__(self) -> None:
        self._by_path: dict[tuple[str, str, str], Resource] = {}
        for resource in BUILT_IN:
            self.add(resource)

    def add(self, resource: Resource) -> None:
        """Serve a resource."""
        self._by_path[resource.group, resource.version, resource.plural] = resource

    def all(self) -> list[Resource]:
        """Return every resource, built-in ones first."""
        return list(self._by_path.values())

    def stored_fields(self, collection: str) -> list[str]:
        """Return the fields that a collection's objects are selected by, under their stored names."""
        names = {name for one in self.all() if one.collection == collection for name in one.selectable.values()}
        return sorted(names)

    def drop(self, group: str, plural: str) -> None:
        """Serve a resource no longer, in any version."""
        for key in [key for key in self._by_path if key[0] == group and key[2] == plural]:
            del self._by_path[key]

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """Return the resource behind a path."""
        return self._by_path.get((group, version, plural))

    def groups(self) -> dict[str, list[str]]:
        """Return the versions of each group, both in order of first appearance, core first."""
        found: dict[str, list[str]] = {}
        for group, version, _ in self._by_path:
            versions = found.setdefault(group, [])
            if version not in versions:
                versions.append(version)
        return found

    def in_version(self, group: str, version: str) -> list[Resource]:
        """Return the resources of one group version by name."""
        found = [one for one in self._by_path.values() if (one.group, one.version) == (group, version)]
        return sorted(found, key=lambda one: one.plural)
