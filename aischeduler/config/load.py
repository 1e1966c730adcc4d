"""Reads the configuration file, and writes a configuration as YAML.

Invariants:
- A file that cannot be used raises ConfigError, whose text is one sentence that names the file and the field.
- A user's text is quoted, escaped and cut in a message.
- The YAML of a configuration reads back as the same configuration.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from aischeduler.config.fields import fields
from aischeduler.config.profiles import ProfileError, check_profiles
from aischeduler.config.schema import Config
from aischeduler.config.spelling import QUOTE_LENGTH_MAX, nearest, quoted, shown
from aischeduler.config.struct_errors import listed, sentence

FILE_BYTES_MAX: Final = 256 * 1024
"""A configuration has a few hundred bytes; a larger file is another file."""

_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$\.?(.*)`)?", re.DOTALL)
_WRONG = re.compile(r".* - at `\$\.([A-Za-z.]+).*`", re.DOTALL)
_PLACE = re.compile(r" - at `\$\.?|`$")
_IN_ITEM = re.compile(r"(.*) - at `(?:key` in `)?\$\.([A-Za-z]+)(\[[0-9]+\])(.*)`", re.DOTALL)
_ITEM_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_ITEM_MISSING = re.compile(r"Object missing required field `(\w+)`")
_IN_PROFILE = re.compile(r" - at `(?:key` in `)?\$\.profiles\[")
_KEY_NO_STRING = re.compile(r"Expected `str` - at `key` in `\$\.?(.*)`", re.DOTALL)


class JsonLoader(yaml.SafeLoader):
    """YAML with the types of JSON: a string that looks like a date stays a string."""


JsonLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class ConfigError(Exception):
    """The configuration cannot be used; the text is the sentence to print."""


def load_config(path: Path | None) -> Config:
    """Read the file, or return all defaults where `path` is None; raises ConfigError."""
    if path is None:
        return Config()
    try:
        with path.open("rb") as file:
            text = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    return parse_config(str(path), text)


def parse_config(source: str, text: bytes) -> Config:
    """Read the text of a configuration; `source` names it in errors. Raises ConfigError."""
    if len(text) > FILE_BYTES_MAX:
        raise ConfigError(f"{source}: is larger than {FILE_BYTES_MAX // 1024} KiB and cannot be a configuration")
    document = _document(source, text)
    try:
        return read_config(document)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error


def read_config(document: Mapping[str, Any]) -> Config:
    """Read a configuration that was parsed from YAML; raises ConfigError with a sentence that names the field."""
    try:
        config = msgspec.convert(document, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(_sentence(error, document)) from error
    try:
        check_profiles(config.profiles)
    except ProfileError as error:
        raise ConfigError(str(error)) from error
    return config


def _document(source: str, text: bytes) -> dict[str, Any]:
    try:
        document = yaml.load(text, JsonLoader)  # noqa: S506 - it is a safe loader
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a scalar that looks like a number
        raise ConfigError(f"{source}: {yaml_problem(error)}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"{source}: must be a mapping such as 'bindInFlight: 32', not {shown(document)}")
    return document


def yaml_problem(error: yaml.YAMLError | ValueError | RecursionError) -> str:
    """Return what is wrong with a text that cannot be read as YAML, as the end of a sentence."""
    match error:
        case yaml.MarkedYAMLError():
            mark = error.problem_mark
            where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
            return f"is not YAML{where}: {str(error.problem)[:QUOTE_LENGTH_MAX]}"
        case yaml.YAMLError():
            return "is not YAML: it contains bytes that YAML does not allow"
        case RecursionError():
            return "cannot be read as YAML: it is nested too deeply"
        case _:
            return f"is not YAML: {error}"


def _sentence(error: msgspec.ValidationError, document: Mapping[str, Any]) -> str:
    """Turn a complaint of msgspec into a sentence: the field, what it must be, and what it is."""
    complaint = str(error)
    if _IN_PROFILE.search(complaint):
        return sentence(error, Config, document, "").replace(".profiles[", "profiles[", 1)
    if isinstance(error.__cause__, ValueError) and "[" not in complaint:  # of a `__post_init__`
        return f"{_PLACE.sub('', complaint[len(str(error.__cause__)) :])}.{error.__cause__}"
    item = _IN_ITEM.fullmatch(complaint)
    if item and (item[4] or complaint.startswith("Object")):
        place = item[2] + item[3] + item[4]
        return f"{_wrong_item(item[1], place, error)}; {item[2]} must be {_descriptions()[item[2]]}"
    if found := _UNKNOWN.fullmatch(complaint):
        return _unknown(found[1], found[2] or "")
    if found := _KEY_NO_STRING.fullmatch(complaint):
        return f"{found[1] or 'the file'} has a key that is not a string"
    if found := _WRONG.fullmatch(complaint):
        field = found[1]
        return f"{field} must be {_descriptions()[field]}, not {shown(_value(document, field))}"
    return complaint


def _wrong_item(complaint: str, place: str, error: msgspec.ValidationError) -> str:
    """Return what is wrong with a part of an item of a list of mappings."""
    if isinstance(error.__cause__, ValueError):  # of a `__post_init__`
        return f"{place}.{error.__cause__}"
    if found := _ITEM_UNKNOWN.fullmatch(complaint):
        return f"{quoted(f'{place}.{found[1]}')} is not a field"
    if found := _ITEM_MISSING.fullmatch(complaint):
        return f"{place}.{found[1]} is missing"
    return f"{place} is not valid"


def _unknown(name: str, parent: str) -> str:
    prefix = f"{parent}." if parent else ""
    siblings = [field.removeprefix(prefix) for field in _descriptions() if field.startswith(prefix)]
    known = [field for field in siblings if "." not in field]
    near = nearest(name, known)
    hint = f"did you mean {near}?" if near else _known(known)
    return f"{quoted(prefix + name)} is not a field; {hint}"


def _known(fields: list[str]) -> str:
    return f"the fields are {listed(fields)}" if len(fields) > 1 else f"the only field is {fields[0]}"


def _descriptions() -> dict[str, str]:
    """Return what every field must be, by its path in YAML (`logging.level`)."""
    return {field.path: field.description for field in fields()}


def _value(document: Mapping[str, Any], path: str) -> object:
    value: Any = document
    for name in path.split("."):
        value = value[name]
    return value


def as_yaml(config: Config) -> str:
    """Return every field with its value; a value that is not the default has the default in a comment."""
    return "".join(f"{line}\n" for line in _lines(msgspec.to_builtins(config), msgspec.to_builtins(Config()), ""))


def _lines(values: Mapping[str, object], defaults: Mapping[str, object], indent: str) -> list[str]:
    lines = []
    for name, value in values.items():
        default = defaults[name]
        if isinstance(value, dict) and isinstance(default, dict):
            lines += [f"{indent}{name}:", *_lines(value, default, indent + "  ")]
        else:
            note = f"  # default: {_scalar(default)}" if value != default else ""
            lines.append(f"{indent}{name}: {_scalar(value)}{note}")
    return lines


def _scalar(value: object) -> str:
    """Return a value on one line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=float("inf"))
    return text.removesuffix("\n").removesuffix("\n...")
