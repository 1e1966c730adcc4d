"""Sentences for values that do not fit a struct, with the path of the field and the spelling that was meant."""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.inspect import (
    BoolType,
    CollectionType,
    DictType,
    Field,
    FloatType,
    IntType,
    LiteralType,
    Metadata,
    StrType,
    StructType,
    Type,
    UnionType,
    VarTupleType,
)

from aischeduler.config.spelling import nearest, quoted, shown

_COMPLAINT: Final = re.compile(r"(.*?)(?: - at `(key` in `)?\$(.*)`)?", re.DOTALL)
_STEP: Final = re.compile(r"\.([A-Za-z]\w*)|\[([0-9]+)\]|\[\.\.\.\]")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(\w+)`")
_WORDS: Final[dict[type[Type], str]] = {
    BoolType: "true or false",
    IntType: "a whole number",
    FloatType: "a number",
    StrType: "a text",
    DictType: "a mapping",
    StructType: "a mapping",
    VarTupleType: "a list",
}


def sentence(error: msgspec.ValidationError, kind: type[Struct], value: object, path: str) -> str:
    """Return what is wrong with a `value` that was to be a `kind`; `path` is that of the value in the file."""
    if isinstance(error.__cause__, ValueError):  # of a `__post_init__`
        place = str(error)[len(str(error.__cause__)) :].removeprefix(" - at `$").removesuffix("`")
        return f"{path}{place}.{error.__cause__}"
    parts = _COMPLAINT.fullmatch(str(error))
    assert parts is not None, "the expression matches every text"
    complaint, place = parts[1], parts[3] or ""
    where, at = path + place, _type_at(msgspec.inspect.type_info(kind), place)
    if parts[2]:
        return f"{where} has a key that is not a string"
    if found := _UNKNOWN.fullmatch(complaint):
        return unknown_field(where, found[1], [field.encode_name for field in _fields(at)])
    if found := _MISSING.fullmatch(complaint):
        return f"{where}.{found[1]} is missing"
    wrong, form = _value_at(value, place), _form(at)
    if isinstance(_plain(at), LiteralType) and isinstance(wrong, str):
        near = nearest(wrong, [str(one) for one in _choices(at)])
        return f"{where}: {quoted(wrong)} is not {form}" + (f"; did you mean {near}?" if near else "")
    return f"{where} must be {form}, not {shown(wrong)}"


def unknown_field(where: str, name: str, known: list[str]) -> str:
    """Return the sentence for a field that is not there, beside those that are."""
    near = nearest(name, known)
    hint = f"did you mean {near}?" if near else f"the fields are {listed(known)}" if known else "there are none"
    return f"{quoted(f'{where}.{name}')} is not a field; {hint}"


def listed(names: list[str]) -> str:
    """Return names in a row."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else ""


def _fields(kind: Type) -> tuple[Field, ...]:
    plain = _plain(kind)
    return plain.fields if isinstance(plain, StructType) else ()


def _choices(kind: Type) -> tuple[Any, ...]:
    plain = _plain(kind)
    return plain.values if isinstance(plain, LiteralType) else ()


def _form(kind: Type) -> str:
    """Return what a value must be, in words."""
    if isinstance(kind, Metadata) and kind.extra_json_schema and "description" in kind.extra_json_schema:
        return str(kind.extra_json_schema["description"])
    if isinstance(kind, UnionType):
        return next(_form(one) for one in _alternatives(kind))
    plain = _plain(kind)
    if isinstance(plain, LiteralType):
        *others, last = (str(one) for one in plain.values)
        return f"{', '.join(others)} or {last}" if others else last
    return _WORDS.get(type(plain), "valid")


def _plain(kind: Type) -> Type:
    """Return the type without its description, and without None."""
    while True:
        if isinstance(kind, Metadata):
            kind = kind.type
        elif isinstance(kind, UnionType):
            kind = next(_alternatives(kind))
        else:
            return kind


def _alternatives(kind: UnionType) -> Iterator[Type]:
    return (one for one in kind.types if not isinstance(one, msgspec.inspect.NoneType))


def _type_at(kind: Type, place: str) -> Type:
    for step in _STEP.finditer(place):
        plain = _plain(kind)
        if step[1] is not None:
            kind = next((one.type for one in _fields(plain) if one.encode_name == step[1]), plain)
        elif isinstance(plain, CollectionType):
            kind = plain.item_type
        elif isinstance(plain, DictType):
            kind = plain.value_type
    return kind


def _value_at(value: Any, place: str) -> object:
    for step in _STEP.finditer(place):
        if step[1] is not None:
            value = value[step[1]]
        elif step[2] is not None:
            value = value[int(step[2])]
        else:
            return "a value"
    return value
