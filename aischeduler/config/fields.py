"""Every field of the configuration by its path in the file, and whether a running scheduler takes its change over.

Law: nothing is listed here; what there is comes from the schema.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import msgspec
from msgspec.inspect import Metadata, StructType, Type

from aischeduler.config.schema import RELOADED, Config


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its path in YAML (`logging.level`), the names that lead to its value, and what it must be.

    A `part` is a mapping of other fields.
    """

    path: str
    names: tuple[str, ...]
    description: str
    reloaded: bool
    part: bool

    def value(self, config: Config) -> object:
        """Return what a configuration says here."""
        value: object = config
        for name in self.names:
            value = getattr(value, name)
        return value


@cache
def fields() -> tuple[Field, ...]:
    """Return all fields in the order of the schema, each part before what is in it."""
    return tuple(_fields(msgspec.inspect.type_info(Config), "", ()))


def values() -> tuple[Field, ...]:
    """Return the fields that hold a value of their own."""
    return tuple(field for field in fields() if not field.part)


def differing(before: Config, after: Config) -> tuple[Field, ...]:
    """Return the fields in which two configurations differ."""
    return tuple(field for field in values() if field.value(before) != field.value(after))


def _fields(kind: Type, lead: str, names: tuple[str, ...]) -> Iterator[Field]:
    if not isinstance(kind, StructType):
        return
    for one in kind.fields:
        assert isinstance(one.type, Metadata), f"{one.name} does not describe itself"
        path, inner = lead + one.encode_name, (*names, one.name)
        description = str((one.type.extra_json_schema or {})["description"])
        part = isinstance(one.type.type, StructType)
        yield Field(path, inner, description, one.type.extra == RELOADED, part)
        yield from _fields(one.type.type, path + ".", inner)


def taken_over(running: Config, read: Config) -> Config:
    """Return the configuration that runs, with what a running scheduler takes over from the one that was read."""
    merged = msgspec.to_builtins(running)
    for field in values():
        if field.reloaded:
            *parts, name = field.path.split(".")
            target = merged
            for part in parts:
                target = target[part]
            target[name] = field.value(read)
    return msgspec.convert(merged, Config)
