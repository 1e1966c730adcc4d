"""`ai-scheduler config print`: what is in force with a configuration file."""

from pathlib import Path

from aischeduler.config.load import load_config
from aischeduler.config.render import as_yaml
from aischeduler.config.schema import Config


def print_config(path: Path | None, *, defaults: bool) -> None:
    """Print every field as YAML; raises ConfigError."""
    print(as_yaml(Config() if defaults else load_config(path)), end="")
