"""Every field of the configuration by its path in the file, and whether a running scheduler reloads it.

Invariant: the schema is the only source of fields.
"""

from collections.abc import Iterator
from functools import cache

import msgspec
from msgspec import Struct
from msgspec.inspect import Metadata, StructType, Type

from aischeduler.config.schema import RELOADED, Config


class Field(Struct, frozen=True):
    """One field: its path in YAML (`logging.level`), the attributes that lead to its value, and what it must be.

    A `section` is a mapping of other fields.
    """

    path: str
    attributes: tuple[str, ...]
    description: str
    reloaded: bool
    section: bool

    def value(self, config: Config) -> object:
        """Return the value in a configuration."""
        value: object = config
        for name in self.attributes:
            value = getattr(value, name)
        return value


@cache
def fields() -> tuple[Field, ...]:
    """Return all fields in the order of the schema, each section before its fields."""
    return tuple(_fields(msgspec.inspect.type_info(Config), "", ()))


def values() -> tuple[Field, ...]:
    """Return the fields that are no sections."""
    return tuple(field for field in fields() if not field.section)


def differing(before: Config, after: Config) -> tuple[Field, ...]:
    """Return the fields whose values differ between two configurations."""
    return tuple(field for field in values() if field.value(before) != field.value(after))


def _fields(kind: Type, lead: str, names: tuple[str, ...]) -> Iterator[Field]:
    if not isinstance(kind, StructType):
        return
    for one in kind.fields:
        assert isinstance(one.type, Metadata), f"{one.name} has no description"
        path, inner = lead + one.encode_name, (*names, one.name)
        description = str((one.type.extra_json_schema or {})["description"])
        section = isinstance(one.type.type, StructType)
        yield Field(path, inner, description, one.type.extra == RELOADED, section)
        yield from _fields(one.type.type, path + ".", inner)


def taken_over(running: Config, read: Config) -> Config:
    """Return the running configuration with the reloaded fields of the new configuration."""
    merged = msgspec.to_builtins(running)
    for field in values():
        if field.reloaded:
            *sections, name = field.path.split(".")
            target = merged
            for section in sections:
                target = target[section]
            target[name] = field.value(read)
    return msgspec.convert(merged, Config)
