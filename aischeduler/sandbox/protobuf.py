"""Kubernetes' protobuf as kubectl sends it in requests, turned into JSON objects.

Laws: only requests are read; answers are JSON, which every client accepts. Types and field numbers are in `types.txt`.
Source: `runtime.Unknown` in `k8s.io/apimachinery` (the envelope), proto2 wire format.
"""

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from aischeduler.sandbox.objects import JsonObject
from aischeduler.sandbox.types import ApiType, Kind, api_types, type_of_kind

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ProtobufError(ValueError):
    """Bytes that are no message, or a message of a type that is not known."""


def decode(body: bytes) -> JsonObject:
    """Return the object inside an envelope, with its kind and apiVersion."""
    if not body.startswith(MAGIC):
        raise ProtobufError("the body does not begin with the mark of Kubernetes' protobuf")
    envelope = dict(_fields(body[len(MAGIC) :]))
    head = {number: value.decode() for number, value in _fields(envelope.get(1, b""))}
    api_version, kind = head.get(1, ""), head.get(2, "")
    name = type_of_kind(kind, api_version.rpartition("/")[0])
    type_ = api_types().get(name)
    if type_ is None:
        raise ProtobufError(f"no type {kind} in {api_version}")
    return {"kind": kind, "apiVersion": api_version, **_message(envelope.get(2, b""), type_)}


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Give number and value of each field: an int for varints, bytes for all else."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        size = {_FIXED64: 8, _FIXED32: 4}.get(wire)
        if wire == _BYTES:
            size, position = _varint(data, position)
        if size is None or position + size > len(data):
            raise ProtobufError("the message is cut short or of another format")
        yield number, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value, shift = 0, 0
    while position < len(data) and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ProtobufError("a number is cut short")


def _message(data: bytes, type_: ApiType) -> JsonObject:
    result: JsonObject = {}
    for number, value in _fields(data):
        if number in type_.inlined:
            result.update(_message(value, api_types()[type_.inlined[number]]))
            continue
        name = type_.numbers.get(number)
        if name is None:
            continue
        kind = type_.fields[name]
        match kind.shape:
            case "list":
                result.setdefault(name, []).append(_value(value, kind.inner))
            case "map":
                entry = dict(_fields(value))
                result.setdefault(name, {})[entry.get(1, b"").decode()] = _value(entry.get(2, b""), kind.inner)
            case _:
                decoded = _value(value, kind)
                if decoded is not None:
                    result[name] = decoded
    return result


def _value(value: Any, kind: Kind) -> Any:
    if kind.shape == "struct":
        return _message(value, api_types()[kind.name])
    match kind.name:
        case "str":
            return value.decode()
        case "bytes":
            return base64.b64encode(value).decode()
        case "bool":
            return bool(value)
        case "int32" | "int64":
            return value - (1 << 64) if value >= 1 << 63 else value
        case "quantity":
            return dict(_fields(value)).get(1, b"0").decode()
        case "time" | "microtime":
            return _time(dict(_fields(value)))
        case "intstr":
            parts = dict(_fields(value))
            return parts.get(3, b"").decode() if parts.get(1, 0) else parts.get(2, 0)
        case _:
            return None


def _time(parts: dict[int, int]) -> str | None:
    if not parts:
        return None
    moment = _EPOCH + timedelta(seconds=parts.get(1, 0), microseconds=parts.get(2, 0) // 1000)
    text = moment.strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{moment.microsecond:06d}Z" if moment.microsecond else f"{text}Z"
