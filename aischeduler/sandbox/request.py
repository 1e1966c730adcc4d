"""Requests and answers as values that know nothing of sockets, and a request whose path is understood."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from aischeduler.sandbox.api_resources import Resource, ResourceRegistry
from aischeduler.sandbox.objects import Ids
from aischeduler.sandbox.status_errors import Cause, Refusal, invalid, object_failure
from aischeduler.sandbox.store import Collection, Entry, Store

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request, taken apart. `query` has one value for each parameter; `path` is decoded."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    accept: str = JSON
    content_type: str = JSON
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Response:
    """One whole answer. `retry_after_seconds` becomes the header of its name."""

    status: int
    body: bytes
    content_type: str = JSON
    retry_after_seconds: int = 0


def request(method: str, url: str, body: bytes = b"", content_type: str = JSON) -> Request:
    """Return a request for a path with its query, as callers in process write it."""
    path, _, query = url.partition("?")
    return Request(method, path, dict(parse_qsl(query, keep_blank_values=True)), JSON, content_type, body)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The state of the server: objects, served resources, identities."""

    store: Store
    resources: ResourceRegistry
    ids: Ids


@dataclass(frozen=True, slots=True)
class Call:
    """A request whose path is understood. `now` is unix seconds."""

    cluster: Cluster
    resource: Resource
    now: float
    asked: Request
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def query(self) -> Mapping[str, str]:
        """The parameters of the URL."""
        return self.asked.query

    @property
    def collection(self) -> Collection:
        """Where the resource's objects lie."""
        return self.cluster.store.collections[self.resource.collection]

    def existing(self) -> Entry:
        """Return the object that the path names; 404 when there is none."""
        entry = self.collection.get(self.namespace, self.name)
        if entry is None:
            raise self.failure(404, self.name, "{} not found")
        return entry

    def failure(self, code: int, name: str, sentence: str, reason: str = "") -> Refusal:
        """Return a refusal about an object of this resource, which stands for `{}` in the sentence."""
        return object_failure(code, (self.resource.plural, self.resource.group, name), sentence, reason)

    def conflict(self, name: str, why: str) -> Refusal:
        """409 for an object of this resource."""
        return self.failure(409, name, f"Operation cannot be fulfilled on {{}}: {why}")

    def forbidden(self, name: str, why: str) -> Refusal:
        """403 for an object of this resource, as admission answers."""
        return self.failure(403, name, f"{{}} is forbidden: {why}")

    def refuse_invalid(self, name: str, causes: Sequence[Cause]) -> None:
        """Raise 422 for an object of this resource where there are causes."""
        if causes:
            group = "" if self.resource.kind == "Event" else self.resource.group
            raise invalid(self.resource.kind, group, name, causes)
