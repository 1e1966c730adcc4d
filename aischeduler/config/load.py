"""Reads the configuration file, and writes a configuration as YAML.

Invariants:
- A file that cannot be used raises ConfigError, whose text is one sentence that names the file and the field.
- A user's text is quoted, escaped and cut in a message.
- The YAML of a configuration reads back as the same configuration.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from aischeduler.config.errors import ConfigError, ProfileError, sentence
from aischeduler.config.profiles import check_profiles
from aischeduler.config.schema import Config
from aischeduler.config.tenants import tenants_of
from aischeduler.model.user_text import QUOTE_LENGTH_MAX, shown

FILE_BYTES_MAX: Final = 256 * 1024
"""A configuration has a few hundred bytes; a larger file is another file."""


class JsonLoader(yaml.SafeLoader):
    """YAML with the types of JSON: a string that looks like a date stays a string."""


JsonLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


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
        raise ConfigError(sentence(error, Config, document)) from error
    try:
        check_profiles(config.profiles)
    except ProfileError as error:
        raise ConfigError(str(error)) from error
    tenants_of(config)
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


def as_yaml(config: Config) -> str:
    """Return every field with its value; a value that is not the default has the default in a comment."""
    return "".join(f"{line}\n" for line in _lines(msgspec.to_builtins(config), msgspec.to_builtins(Config()), ""))


def _lines(values: Mapping[str, object], defaults: Mapping[str, object], indent: str) -> list[str]:
    lines = []
    for name, value in values.items():
        default = defaults[name]
        if isinstance(value, dict) and isinstance(default, dict) and default:
            lines += [f"{indent}{name}:", *_lines(value, default, indent + "  ")]
        else:
            note = f"  # default: {_scalar(default)}" if value != default else ""
            lines.append(f"{indent}{name}: {_scalar(value)}{note}")
    return lines


def _scalar(value: object) -> str:
    """Return a value on one line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=float("inf"))
    return text.removesuffix("\n").removesuffix("\n...")
