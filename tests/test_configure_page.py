"""docs/configure.md: its table of plugins says what the code accepts, and its examples are configurations."""

import re
from pathlib import Path

import pytest

from aischeduler.config.load import parse_config
from aischeduler.config.plugins import POINTS, TABLE, KnownPlugin
from aischeduler.daemon.configured_profile import profile_of
from aischeduler.engine.plugin_registry import BUILT_IN, ENGINE

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "configure.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def here(plugin: KnownPlugin) -> str:
    if plugin.name in ENGINE:
        return ENGINE[plugin.name]
    return "yes" if plugin.name in BUILT_IN else "no: enabling it is refused"


def arguments(plugin: KnownPlugin) -> str:
    if plugin.args is None:
        return "none"
    return ", ".join(f"`{key}`" for key in plugin.args.__struct_encode_fields__)


def row(plugin: KnownPlugin) -> str:
    points = ", ".join(f"`{point}`" for point in POINTS if point in plugin.points)
    weight = str(plugin.weight) if plugin.weight else ""
    name = f"`{plugin.name}`" + (" (own)" if plugin.own else "")
    return f"| {name} | {points} | {weight} | {arguments(plugin)} | {here(plugin)} |"


def test_table_says_of_every_plugin_what_is_accepted() -> None:
    rows = [line for line in PAGE.splitlines() if re.match(r"\| `[A-Z]", line)]
    assert rows == [row(plugin) for plugin in TABLE], "\n" + "\n".join(row(plugin) for plugin in TABLE)


@pytest.mark.parametrize("text", EXAMPLES)
def test_example_is_a_valid_configuration(text: str) -> None:
    assert profile_of(parse_config("f", text.encode())).profiles


def test_page_has_examples() -> None:
    assert len(EXAMPLES) == 2
