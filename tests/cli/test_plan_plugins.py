"""`ai-scheduler plan` with plugins of others: what acts on the world does not run, and a line says so."""

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_plan import Planned
from tests.distributions import install
from tests.objects import pod_object

CODE = """
told = []


class Outside:
    def __init__(self, args):
        self.name = type(self).__name__
    async def pre_bind(self, pod, node):
        told.append("pre_bind")
    def post_bind(self, pod, node):
        told.append("post_bind")


class Agent(Outside):
    async def bind(self, pod, node, request):
        told.append("bind")
        return True


class Keeper:
    name = "Keeper"
    def __init__(self, args): pass
    def reserve(self, pod, node):
        told.append(f"reserve {pod.name} on {node}")
    def release(self, pod, node): pass
"""


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Install the plugins as a distribution; return their module."""
    name = install(
        tmp_path, monkeypatch, "outside", CODE, {plugin: plugin for plugin in ("Outside", "Agent", "Keeper")}
    )
    yield import_module(name)
    sys.modules.pop(name, None)


@pytest.fixture
def planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Planned:
    return Planned(tmp_path, capsys)


def config(folder: Path, *names: str) -> str:
    path = folder / "ai.yaml"
    enabled = ", ".join(f"{{name: {name}}}" for name in names)
    path.write_text(f"profiles: [{{plugins: {{multiPoint: {{enabled: [{enabled}]}}}}}}]")
    return str(path)


def test_plugins_around_a_binding_do_not_run_in_a_plan_and_one_line_names_them(
    planned: Planned, plugins: Any, tmp_path: Path
) -> None:
    chosen = ("--config", config(tmp_path, "Outside", "Agent", "Keeper"))
    variants = ("--replicas", "1", "--replicas", "2")
    out, err = planned.run("-f", planned.file(pod_object("p", pool="b")), "-o", "json", *chosen, *variants)
    assert err == "plugins that a plan does not run: PreBind/Bind/PostBind of Agent, PreBind/PostBind of Outside\n"
    assert {unit["verdict"] for plan in json.loads(out)["variants"] for unit in plan["units"]} == {"starts"}
    assert set(plugins.told) == {"reserve p on b1"}, "what is kept in the plugin alone is kept in the plan too"


def test_plan_without_such_plugins_has_no_such_line(planned: Planned, plugins: Any, tmp_path: Path) -> None:
    _, err = planned.run("-f", planned.file(pod_object("p", pool="b")), "--config", config(tmp_path, "Keeper"))
    assert err == ""
