"""Requests and answers as values without sockets; a request to a resource, and its body."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

import orjson
from msgspec import Struct, field

from aischeduler.sandbox.api_resources import Resource, ResourceRegistry
from aischeduler.sandbox.objects import Ids, JsonObject, without_nulls
from aischeduler.sandbox.schema import errors, schema_of
from aischeduler.sandbox.status_errors import (
    Cause,
    Refusal,
    bad_request,
    failure,
    invalid,
    object_failure,
    unsupported_media_type,
)
from aischeduler.sandbox.store import Collection, Entry, Store

JSON = "application/json"
BODY_BYTES_MAX = 3 * 1024 * 1024


class Request(Struct, frozen=True):
    """One parsed HTTP request. `query` has one value for each parameter; `path` is decoded."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    accept: str = JSON
    content_type: str = JSON
    body: bytes = b""


class Response(Struct, frozen=True):
    """One complete answer. `retry_after_seconds` becomes the header Retry-After."""

    status: int
    body: bytes
    content_type: str = JSON
    retry_after_seconds: int = 0


def request(method: str, url: str, body: bytes = b"", content_type: str = JSON) -> Request:
    """Return a request for a path with its query, for callers in this process."""
    path, _, query = url.partition("?")
    return Request(method, path, dict(parse_qsl(query, keep_blank_values=True)), JSON, content_type, body)


class Cluster(Struct, frozen=True):
    """The state of the server: objects, served resources, identities."""

    store: Store
    resources: ResourceRegistry
    ids: Ids


class Call(Struct, frozen=True):
    """A request to a resource. `now` is unix seconds."""

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
        """The collection of the resource's objects."""
        return self.cluster.store.collections[self.resource.collection]

    def existing(self) -> Entry:
        """Return the object that the path names; 404 when there is none."""
        entry = self.collection.get(self.namespace, self.name)
        if entry is None:
            raise self.failure(404, self.name, "{} not found")
        return entry

    def failure(self, code: int, name: str, sentence: str, reason: str = "") -> Refusal:
        """Return a refusal about an object of this resource; `{}` in the sentence is replaced by the object."""
        return object_failure(code, (self.resource.plural, self.resource.group, name), sentence, reason)

    def conflict(self, name: str, why: str) -> Refusal:
        """Return a refusal with 409 for an object of this resource."""
        return self.failure(409, name, f"Operation cannot be fulfilled on {{}}: {why}")

    def forbidden(self, name: str, why: str) -> Refusal:
        """Return a refusal with 403 for an object of this resource, as admission answers."""
        return self.failure(403, name, f"{{}} is forbidden: {why}")

    def refuse_invalid(self, name: str, causes: Sequence[Cause]) -> None:
        """Raise a refusal with 422 for an object of this resource if there are causes."""
        if causes:
            group = "" if self.resource.kind == "Event" else self.resource.group
            raise invalid(self.resource.kind, group, name, causes)


def parse(call: Call, media: str = JSON) -> Any:
    """Return the JSON value of a body; a body that is not JSON is refused with 400, another format with 415."""
    body = call.asked.body
    if len(body) > BODY_BYTES_MAX:
        raise failure(413, f"Request entity too large: limit is {BODY_BYTES_MAX}")
    if (call.asked.content_type.partition(";")[0].strip() or JSON) != media:
        raise unsupported_media_type(call.asked.content_type, (media,))
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"the body is not JSON: {error}") from error
    return without_nulls(value) if media == JSON and b"null" in body else value


def parse_typed(call: Call, kind: str) -> JsonObject:
    """Return a body that is not an object of a resource: a Binding, an Eviction, the options of a deletion."""
    value = parse(call)
    causes = errors(value, schema_of(kind))
    if causes:
        raise invalid(kind, "", call.name, causes)
    checked: JsonObject = value
    return checked


def as_object(call: Call, value: Any) -> JsonObject:
    """Return a JSON value as an object with metadata, of the kind and version of the path."""
    resource = call.resource
    if not isinstance(value, dict):
        raise bad_request(f"the body is not a JSON object of kind {resource.kind}")
    given = (value.get("kind") or resource.kind, value.get("apiVersion") or resource.api_version)
    if given != (resource.kind, resource.api_version):
        raise bad_request(f"the body is {given[0]} in {given[1]}, not {resource.kind} in {resource.api_version}")
    metadata = value.get("metadata") or {}
    causes = errors(metadata, schema_of("Metadata"), "metadata")
    if causes:
        raise bad_request(f"{resource.kind}: {causes[0].field} {causes[0].message}")
    rest = {key: field for key, field in value.items() if key not in {"kind", "apiVersion", "metadata"}}
    return {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata, **rest}
