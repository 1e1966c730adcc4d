"""The resources that the sandbox serves: their names, scopes, subresources, selectable fields and printer columns."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from importlib.resources import files

import yaml
from msgspec import Struct, field

from aischeduler.sandbox.objects import JsonObject

AGE_COLUMN: JsonObject = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


class CollectionName(StrEnum):
    """The names of the collections that code asks for: plural and group; both event groups share one collection."""

    BUDGETS = "poddisruptionbudgets.policy"
    CLAIMS = "persistentvolumeclaims."
    DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
    EVENTS = "events"
    JOBS = "jobs.batch"
    LEASES = "leases.coordination.k8s.io"
    NAMESPACES = "namespaces."
    NODES = "nodes."
    PODS = "pods."
    PRIORITY_CLASSES = "priorityclasses.scheduling.k8s.io"
    VOLUMES = "persistentvolumes."


INDEXED_FIELD: Mapping[str, str] = {CollectionName.PODS: "spec.nodeName"}
_WHEN_ABSENT = {"spec.unschedulable": "false"}


class Resource(Struct, frozen=True):
    """One resource in one version; `columns` are written as in a CRD, and a custom resource has a `schema`.

    `selectable` maps the field that a selector names to the field as it is stored.
    """

    version: str
    kind: str
    plural: str
    group: str = ""
    namespaced: bool = True
    short_names: Sequence[str] = ()
    subresources: Sequence[str] = ()
    selectable: Mapping[str, str] = field(default_factory=dict)
    columns: Sequence[JsonObject] = (AGE_COLUMN,)
    schema: JsonObject | None = None

    @property
    def is_custom(self) -> bool:
        """Whether a CRD defines the resource."""
        return self.schema is not None

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def path(self) -> str:
        """Where the group version is served: `/api/v1` or `/apis/GROUP/VERSION`."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def collection(self) -> str:
        """The name of the collection that holds its objects."""
        return CollectionName.EVENTS if self.kind == "Event" and not self.is_custom else f"{self.plural}.{self.group}"


@cache
def built_in() -> tuple[Resource, ...]:
    """Return the resources of `api_resources.yaml`."""
    text = files(__package__).joinpath("api_resources.yaml").read_text(encoding="utf-8")
    return tuple(Resource(**fields) for fields in yaml.safe_load(text))


def _field_text(obj: JsonObject, path: tuple[str, ...]) -> str:
    """Return a field as selectors see it: text, `true`/`false`, a number, or nothing."""
    value: object = obj
    for step in path:
        if not isinstance(value, dict):
            return ""
        value = value.get(step)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def fields_reader(names: Iterable[str]) -> Callable[[JsonObject], Mapping[str, str]]:
    """Return the function that takes the selectable fields out of an object."""
    sources = [(name, tuple(name.split(".")), _WHEN_ABSENT.get(name, "")) for name in sorted(set(names))]

    def read(obj: JsonObject) -> Mapping[str, str]:
        return {name: text for name, path, absent in sources if (text := _field_text(obj, path) or absent)}

    return read


class ResourceRegistry:
    """The resources that are served now: the built-in ones and those of CRDs."""

    def __init__(self) -> None:
        self._by_path = {(resource.group, resource.version, resource.plural): resource for resource in built_in()}

    def drop(self, group: str, plural: str) -> None:
        """Stop serving a resource in all versions."""
        for key in [key for key in self._by_path if key[0] == group and key[2] == plural]:
            del self._by_path[key]

    def serve(self, resource: Resource) -> None:
        """Serve a resource, in this version alone."""
        self.drop(resource.group, resource.plural)
        self._by_path[resource.group, resource.version, resource.plural] = resource

    def all(self) -> list[Resource]:
        """Return every resource, built-in ones first."""
        return list(self._by_path.values())

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """Return the resource behind a path."""
        return self._by_path.get((group, version, plural))

    def in_version(self, group: str, version: str) -> list[Resource]:
        """Return the resources of one group version by name."""
        found = [resource for resource in self.all() if (resource.group, resource.version) == (group, version)]
        return sorted(found, key=lambda resource: resource.plural)
