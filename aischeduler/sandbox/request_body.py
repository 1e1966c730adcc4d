"""From the bytes of a request to a checked JSON object."""

from typing import Any

import orjson

from aischeduler.sandbox.objects import JsonObject, without_nulls
from aischeduler.sandbox.request import JSON, Call
from aischeduler.sandbox.schema import errors, schema_of
from aischeduler.sandbox.status_errors import bad_request, failure, invalid, unsupported_media_type

BODY_BYTES_MAX = 3 * 1024 * 1024


def parse(call: Call, media: str = JSON) -> Any:
    """Return the JSON value of a body; text that is none is refused with 400, other formats with 415."""
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
    """Return the body as a value that is no resource: a Binding, an Eviction, the options of a deletion."""
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
    rest = {key: one for key, one in value.items() if key not in {"kind", "apiVersion", "metadata"}}
    return {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata, **rest}
