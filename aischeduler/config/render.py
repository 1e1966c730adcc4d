"""The configuration as YAML, with the default beside each value that differs from it.

Invariant: the text reads back as the same configuration.
"""

from collections.abc import Mapping

import msgspec
import yaml

from aischeduler.config.schema import Config


def as_yaml(config: Config) -> str:
    """Return every field with its value; a value that is not the default has the default in a comment."""
    return "".join(f"{line}\n" for line in _lines(msgspec.to_builtins(config), msgspec.to_builtins(Config()), ""))


def _lines(shown: Mapping[str, object], defaults: Mapping[str, object], indent: str) -> list[str]:
    lines = []
    for name, value in shown.items():
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
