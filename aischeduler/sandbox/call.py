"""One request on its way through the server: what it is about, when, and under which options."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from aischeduler.sandbox.kinds import Kinds, Resource
from aischeduler.sandbox.objects import Ids
from aischeduler.sandbox.status import (
    Refusal,
    already_exists,
    conflict,
    forbidden,
    invalid,
    not_found,
    unsupported_value,
)
from aischeduler.sandbox.store import Collection, Entry, Store

OPTIONS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}


@dataclass(frozen=True, slots=True)
class Cluster:
    """The state of the server: objects, served kinds, identities, and what each applier last applied."""

    store: Store
    kinds: Kinds
    ids: Ids
    applied: dict[tuple[str, str], bytes] = field(default_factory=dict)

    def collection(self, resource: Resource) -> Collection:
        """Return where a resource's objects lie."""
        return self.store.collections[resource.collection]


@dataclass(frozen=True, slots=True)
class Call:
    """A request whose path is understood. `now` is unix seconds; `warnings` collects what the client is told."""

    cluster: Cluster
    resource: Resource
    now: float
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    accept: str = ""
    content_type: str = ""
    body: bytes = b""
    warnings: list[str] = field(default_factory=list)

    @property
    def collection(self) -> Collection:
        """Where the resource's objects lie."""
        return self.cluster.collection(self.resource)

    @property
    def dry_run(self) -> bool:
        """Whether nothing may be stored."""
        return self.query.get("dryRun") == "All"

    def refuse_bad_options(self, method: str) -> None:
        """Refuse options of a write that mean nothing; this comes before everything else."""
        value = self.query.get("dryRun", "")
        if method in OPTIONS and value not in {"", "All"}:
            cause = unsupported_value("dryRun", value, ("All",))
            raise invalid(OPTIONS[method], "meta.k8s.io", "", [cause])

    def existing(self) -> Entry:
        """Return the object that the path names; 404 when there is none."""
        entry = self.collection.get(self.namespace, self.name)
        if entry is None:
            raise self.not_found(self.name)
        return entry

    def not_found(self, name: str) -> Refusal:
        """404 for an object of this resource."""
        return not_found(self.resource.plural, self.resource.group, name)

    def already_exists(self, name: str, *, going: bool) -> Refusal:
        """409 for an object of this resource; `going`: the one that is there is being deleted."""
        return already_exists(self.resource.plural, self.resource.group, name, going=going)

    def conflict(self, name: str, why: str) -> Refusal:
        """409 for an object of this resource."""
        return conflict(self.resource.plural, self.resource.group, name, why)

    def forbidden(self, name: str, why: str) -> Refusal:
        """403 for an object of this resource."""
        return forbidden(self.resource.plural, self.resource.group, name, why)
