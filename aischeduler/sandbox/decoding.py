"""From JSON to a typed object, as Go's decoder does it: wrong types are refused, unknown fields are noted and dropped.

Laws: null means absent; quantities and the like are put in their canonical form; the message of a refusal names the
field. Source: `k8s.io/apimachinery` serializer/json, strict decoding.
"""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from aischeduler.model.quantity import QuantityError, canonical, parse_milli
from aischeduler.sandbox.objects import JsonObject
from aischeduler.sandbox.types import ApiType, Kind, api_types

_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "n", "u", "m", "k", "M", "G", "T", "P", "E")
QUANTITY_SYNTAX = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
# What the server takes for nothing although it has no digits: signs, a point, a suffix.
READ_AS_ZERO = frozenset(sign + suffix for sign in ("", "+", "-") for suffix in _SUFFIXES) | {"."}
CACHED_QUANTITIES = 4096
INT_LIMITS = {"int32": 2**31, "int64": 2**63}
_GO_SCALARS = {
    "str": "string",
    "bytes": "[]uint8",
    "double": "float64",
    "time": "v1.Time",
    "microtime": "v1.MicroTime",
    "intstr": "intstr.IntOrString",
    "schema": "v1.JSONSchemaPropsOrBool",
}
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?P<rest>(?P<fraction>\.\d+)?([Zz]|[+-]\d\d:\d\d))\Z")


class DecodeError(Exception):
    """A value that the field cannot hold; the text is the decoder's."""


@dataclass(slots=True)
class Decoder:
    """One decoding. `unknown` collects the paths of fields that the types do not have."""

    unknown: list[str] = field(default_factory=list)
    types: dict[str, ApiType] = field(default_factory=api_types)

    def object(self, obj: JsonObject, type_name: str) -> JsonObject:
        """Return an object with `kind` and `apiVersion`, decoded as a type."""
        lead: JsonObject = {key: obj[key] for key in ("kind", "apiVersion") if key in obj}
        rest = {key: value for key, value in obj.items() if key not in lead}
        return {**lead, **self._struct(rest, self.types[type_name], "")}

    def metadata(self, metadata: JsonObject) -> JsonObject:
        """Return the metadata of any object, decoded."""
        return self._struct(metadata, self.types["ObjectMeta"], "metadata")

    def _struct(self, value: Any, type_: ApiType, path: str) -> JsonObject:
        result: JsonObject = {}
        fields = type_.fields
        lead = f"{path}." if path else ""
        for key, one in value.items():
            kind = fields.get(key)
            if kind is None:
                self.unknown.append(lead + key)
            elif one is not None:
                decoded = self._value(one, kind, lead + key, type_.name)
                if decoded or kind.shape == "struct" or not _zero_is_absent(type_, key, kind):
                    result[key] = decoded
        for key in type_.null_times:
            result.setdefault(key, None)
        return result

    def _value(self, value: Any, kind: Kind, path: str, owner: str) -> Any:
        match kind.shape:
            case "scalar" if kind.name == "schema" and isinstance(value, dict):
                return self._struct(value, self.types["JSONSchemaProps"], path)
            case "scalar":
                return _scalar(value, kind.name, path, owner)
            case "struct":
                if not isinstance(value, dict):
                    raise _mismatch(value, kind, path, owner)
                return self._struct(value, self.types[kind.name], path)
            case "list":
                if not isinstance(value, list):
                    raise _mismatch(value, kind, path, owner)
                inner = kind.inner
                return [self._value(one, inner, f"{path}[{index}]", owner) for index, one in enumerate(value)]
            case _:
                if not isinstance(value, dict):
                    raise _mismatch(value, kind, path, owner)
                inner = kind.inner
                if inner.name == "quantity":
                    return {key: resource_amount(one) for key, one in value.items()}
                deeper = inner.shape != "scalar"
                return {
                    key: _zero(inner)
                    if one is None
                    else self._value(one, inner, f"{path}.{key}" if deeper else path, owner)
                    for key, one in value.items()
                }


def _zero(kind: Kind) -> Any:
    """Return what a null in a map stands for."""
    return {"struct": {}, "map": {}, "list": []}.get(kind.shape, "")


def _zero_is_absent(type_: ApiType, key: str, kind: Kind) -> bool:
    return key in type_.zero_absent or (kind.shape != "scalar" and key not in type_.required)


def _scalar(value: Any, name: str, path: str, owner: str) -> Any:
    match name:
        case "str" | "bytes":
            good = isinstance(value, str)
        case "bool" | "schema":
            good = isinstance(value, bool)
        case "int32" | "int64":
            return _integer(value, name, path, owner)
        case "double":
            good = isinstance(value, int | float) and not isinstance(value, bool)
        case "quantity":
            return quantity(value)
        case "time" | "microtime":
            good = isinstance(value, str)
            if good:
                _check_time(value, name)
        case "intstr":
            good = isinstance(value, int | str) and not isinstance(value, bool)
        case _:
            good = True
    if not good:
        raise _mismatch(value, Kind("scalar", name), path, owner)
    return value


def _check_time(text: str, name: str) -> None:
    match = _TIME.match(text)
    if match is None:
        raise DecodeError(f'parsing time "{text}" as "2006-01-02T15:04:05Z07:00": cannot parse "{text}"')
    if name == "microtime" and len(match["fraction"] or "") != len(".000000"):
        rest = text[match.start("rest") :]
        layout = "2006-01-02T15:04:05.000000Z07:00"
        raise DecodeError(f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as ".000000"')


def _integer(value: Any, name: str, path: str, owner: str) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _mismatch(value, Kind("scalar", name), path, owner)
    if not -INT_LIMITS[name] <= value < INT_LIMITS[name]:
        where = f"Go struct field {owner}.{_plain(path)} of type {name}"
        raise DecodeError(f"json: cannot unmarshal number {value} into {where}")
    return value


def quantity(value: Any) -> str:
    """Return a quantity in canonical form; anything else is refused in the server's words."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise DecodeError(QUANTITY_SYNTAX)
    return _quantity_text(str(value).strip(" "))


@lru_cache(maxsize=CACHED_QUANTITIES)
def _quantity_text(text: str) -> str:
    if text and text in READ_AS_ZERO:
        return "0"
    try:
        return canonical(text)
    except QuantityError as error:
        raise DecodeError(QUANTITY_SYNTAX) from error


def resource_amount(value: Any) -> str:
    """Return a quantity of a resource list, which holds thousandths and nothing finer."""
    text = "0" if value is None else quantity(value)
    return canonical(f"{parse_milli(text)}m") if text.endswith(("n", "u")) else text


def _mismatch(value: Any, kind: Kind, path: str, owner: str) -> DecodeError:
    where = f"Go struct field {owner}.{_plain(path)} of type {_go_type(kind)}"
    return DecodeError(f"json: cannot unmarshal {go_name(value)} into {where}")


def _plain(path: str) -> str:
    return re.sub(r"\[\d+\]", "", path)


def _go_type(kind: Kind) -> str:
    match kind.shape:
        case "list":
            return f"[]{_go_type(kind.inner)}"
        case "map":
            return f"map[string]{_go_type(kind.inner)}"
        case "struct":
            return f"v1.{kind.name}"
        case _:
            return _GO_SCALARS.get(kind.name, kind.name)


def go_name(value: Any) -> str:
    """Return what a JSON value is called in the messages of Go's decoder."""
    match value:
        case bool():
            return "bool"
        case str():
            return "string"
        case int() | float():
            return "number"
        case list():
            return "array"
        case _:
            return "object"
