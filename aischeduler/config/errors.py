"""The errors of the configuration: sentences that name the field, and the spelling that was meant."""

import re
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
    NoneType,
    StrType,
    StructType,
    Type,
    UnionType,
    VarTupleType,
)

from aischeduler.model.decode_errors import complaint
from aischeduler.model.user_text import nearest, quoted, shown

_STEP: Final = re.compile(r"\.([A-Za-z]\w*)|\[([0-9]+)\]|\[\.\.\.\]")
_WORDS: Final[dict[type[Type], str]] = {
    BoolType: "true or false",
    IntType: "a whole number",
    FloatType: "a number",
    StrType: "a text",
    DictType: "a mapping",
    StructType: "a mapping",
    VarTupleType: "a list",
}


class ConfigError(Exception):
    """The configuration cannot be used; the text is the sentence to print."""


class ProfileError(ValueError):
    """A profile that cannot be used; the message names the path."""


class PluginError(ValueError):
    """A plugin that cannot be used; the message says why."""


def sentence(error: msgspec.ValidationError, kind: type[Struct], value: object, path: str = "") -> str:
    """Return what is wrong with a `value` that was to be a `kind`; `path` is that of the value in the file."""
    found = complaint(error)
    where = f"{path}{found.place}" if path else found.place.removeprefix(".")
    lead, at = f"{where}." if where else "", _type_at(msgspec.inspect.type_info(kind), found.place)
    if found.rule:
        return f"{lead}{found.rule}"
    if found.wrong_key:
        return f"{where or 'the file'} has a key that is not a string"
    if found.unknown is not None:
        return f"{quoted(lead + found.unknown)} is not a field; {_hint(found.unknown, at)}"
    if found.missing:
        return f"{lead}{found.missing} is missing"
    if "[...]" in found.place:  # of a mapping: the error does not say under which key
        return f"{where} must be {_form(at)}"
    wrong = _value_at(value, found.place)
    if isinstance(at, LiteralType) and isinstance(wrong, str):
        near = nearest(wrong, map(str, at.values))
        return f"{where}: {quoted(wrong)} is not {_form(at)}" + (f"; did you mean {near}?" if near else "")
    return f"{where} must be {_form(at)}, not {shown(wrong)}"


def _hint(unknown: str, at: Type) -> str:
    """Return which field was meant, or which there are."""
    known = [field.encode_name for field in _fields(at)]
    if near := nearest(unknown, known):
        return f"did you mean {near}?"
    *others, last = known
    return f"the fields are {', '.join(others)} and {last}" if others else f"the only field is {last}"


def _fields(kind: Type) -> tuple[Field, ...]:
    plain = _plain(kind)
    return plain.fields if isinstance(plain, StructType) else ()


def _form(kind: Type) -> str:
    """Return what a value must be, in words."""
    if isinstance(kind, Metadata) and kind.extra_json_schema and "description" in kind.extra_json_schema:
        return str(kind.extra_json_schema["description"])
    if isinstance(kind, UnionType):
        return _form(_alternative(kind))
    plain = _plain(kind)
    if isinstance(plain, LiteralType):
        *others, last = map(str, plain.values)
        return f"{', '.join(others)} or {last}" if others else last
    return _WORDS.get(type(plain), "valid")


def _plain(kind: Type) -> Type:
    """Return the type without its description, and without None."""
    while isinstance(kind, Metadata | UnionType):
        kind = kind.type if isinstance(kind, Metadata) else _alternative(kind)
    return kind


def _alternative(kind: UnionType) -> Type:
    """Return the type of an optional value where it is there."""
    return next(alternative for alternative in kind.types if not isinstance(alternative, NoneType))


def _type_at(kind: Type, place: str) -> Type:
    for step in _STEP.finditer(place):
        plain = _plain(kind)
        if step[1] is not None:
            kind = next((field.type for field in _fields(plain) if field.encode_name == step[1]), plain)
        elif isinstance(plain, CollectionType):
            kind = plain.item_type
        elif isinstance(plain, DictType):
            kind = plain.value_type
    return kind


def _value_at(value: Any, place: str) -> object:
    for step in _STEP.finditer(place):
        value = value[step[1] if step[1] is not None else int(step[2])]
    return value
