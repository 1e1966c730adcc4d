"""From the bytes of a request to an object of the right kind."""

from typing import Any

import orjson
import yaml

from aischeduler.sandbox.call import Call
from aischeduler.sandbox.decoding import DecodeError, Decoder, go_name
from aischeduler.sandbox.kinds import Resource
from aischeduler.sandbox.objects import JsonObject, encode
from aischeduler.sandbox.protobuf import MEDIA_TYPE, decode
from aischeduler.sandbox.status import Refusal, bad_request, failure, invalid, invalid_value, unsupported_media_type
from aischeduler.sandbox.types import type_of_kind

SPOKEN = ("application/json", "application/yaml", MEDIA_TYPE)
BODY_BYTES_MAX = 3 * 1024 * 1024


def parse(body: bytes, content_type: str) -> Any:
    """Return the JSON value of a body; text that is none is refused with 400, other formats with 415."""
    if len(body) > BODY_BYTES_MAX:
        raise failure(413, "RequestEntityTooLarge", f"Request entity too large: limit is {BODY_BYTES_MAX}")
    media = content_type.partition(";")[0].strip() or SPOKEN[0]
    if media == MEDIA_TYPE:
        try:
            return decode(body)
        except ValueError as error:
            raise bad_request(f"error decoding protobuf: {error}") from error
    if "yaml" in media:
        return _parse_yaml(body)
    if not media.endswith("json"):
        raise unsupported_media_type(media, SPOKEN)
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from error


def cannot_be_handled(resource: Resource, why: str, kind: str = "") -> Refusal:
    """400 for a body that is not of the kind that the path is about."""
    given = kind or resource.kind
    return bad_request(f'{given} in version "{resource.version}" cannot be handled as a {resource.kind}: {why}')


class JsonLoader(yaml.SafeLoader):
    """YAML as JSON has it: a text that looks like a date stays a text."""


JsonLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _parse_yaml(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    try:
        return yaml.load(body, JsonLoader)  # noqa: S506 (a safe loader)
    except yaml.YAMLError as error:
        raise bad_request(f"error decoding YAML: {' '.join(str(error).split())}") from error


def parse_typed(call: Call, type_name: str) -> JsonObject:
    """Return the body as a value of a type that is no resource: a Binding, an Eviction, the options of a deletion."""
    value = parse(call.body, call.content_type)
    if not isinstance(value, dict):
        raise bad_request(f"couldn't get version/kind; json parse error: json: cannot unmarshal {go_name(value)}")
    try:
        return Decoder().object(value, type_name)
    except DecodeError as error:
        raise bad_request(f'{type_name} in version "v1" cannot be handled as a {type_name}: {error}') from error


def parse_object(call: Call, body: bytes) -> JsonObject:
    """Return the body as an object with metadata, of the kind and version of the path."""
    lead = f"the object provided is unrecognized (must be of type {call.resource.kind}): "
    try:
        value = parse(body, call.content_type)
    except Refusal as refusal:
        raise bad_request(lead + str(refusal)) if refusal.code == 400 else refusal from refusal
    if not isinstance(value, dict):
        raise bad_request(f"{lead}couldn't get version/kind; json parse error: json: cannot unmarshal {go_name(value)}")
    return as_object(call, value)


def as_object(call: Call, value: Any) -> JsonObject:
    """Return a JSON value as an object with metadata, of the kind and version of the path."""
    resource = call.resource
    if not isinstance(value, dict):
        raise bad_request(f"couldn't get version/kind; json parse error: json: cannot unmarshal {go_name(value)}")
    given = (value.get("apiVersion") or resource.api_version, value.get("kind") or resource.kind)
    if given[0] != resource.api_version:
        lead = f'{given[1]} in version "{given[0]}" cannot be handled as a {resource.kind}'
        raise bad_request(f'{lead}: no kind "{given[1]}" is registered for version "{given[0]}"')
    if given[1] != resource.kind:
        inner = resource.group.partition(".")[0] or "core"
        why = f"converting ({resource.version}.{given[1]}) to ({inner}.{resource.kind}): unknown conversion"
        raise cannot_be_handled(resource, why, given[1])
    metadata = value.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        where = f"Go struct field {resource.kind}.metadata of type v1.ObjectMeta"
        raise cannot_be_handled(resource, f"json: cannot unmarshal {go_name(metadata)} into {where}")
    rest = {key: one for key, one in value.items() if key not in {"kind", "apiVersion", "metadata"}}
    return {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata or {}, **rest}


def decode_object(call: Call, value: JsonObject) -> JsonObject:
    """Return an object that fits its kind's types; unknown fields are refused, told or dropped as the client asks."""
    try:
        return _decode(call, value, Decoder())
    except DecodeError as error:
        raise cannot_be_handled(call.resource, str(error)) from error


def check_types(call: Call, value: JsonObject) -> None:
    """Refuse an object that does not fit its kind's types, whatever else it has."""
    try:
        _typed(call, value, Decoder())
    except DecodeError as error:
        raise cannot_be_handled(call.resource, str(error)) from error


def decode_patched(call: Call, value: JsonObject) -> JsonObject:
    """Return what a patch has made of an object; where that fits its kind no longer, the patch is refused."""
    try:
        return _decode(call, value, Decoder())
    except DecodeError as error:
        raise invalid("", "", "", [invalid_value("patch", encode(value).decode(), str(error))]) from error


def _decode(call: Call, value: JsonObject, decoder: Decoder) -> JsonObject:
    decoded = _typed(call, value, decoder)
    tell_unknown(call, decoder.unknown)
    return decoded


def _typed(call: Call, value: JsonObject, decoder: Decoder) -> JsonObject:
    resource = call.resource
    if resource.custom is not None:
        return {**value, "metadata": decoder.metadata(value["metadata"])}
    return decoder.object(value, type_of_kind(resource.kind, resource.group))


def tell_unknown(call: Call, paths: list[str]) -> None:
    """Refuse unknown fields (`fieldValidation=Strict`) or warn of them."""
    mode = call.query.get("fieldValidation") or "Warn"
    if mode not in {"Strict", "Warn", "Ignore"}:
        raise bad_request(f'fieldValidation: Unsupported value: "{mode}"')
    sentences = [f'unknown field "{path}"' for path in paths]
    if not sentences or mode == "Ignore":
        return
    if mode == "Strict":
        why = f"strict decoding error: {', '.join(sentences)}"
        raise cannot_be_handled(call.resource, why)
    call.warnings.extend(sentences)
