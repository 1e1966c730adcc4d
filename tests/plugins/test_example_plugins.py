"""The example distributions: pip installs them from their own pyproject.toml, and their tests pass with that."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples" / "plugins").iterdir())
PIP = ("pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--no-index")


def run(*command: str, path: Path) -> str:
    """Run a module of Python with this folder, and the repository, on the path; return what it prints."""
    environment = {**os.environ, "PYTHONPATH": f"{path}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    finished = subprocess.run(
        [sys.executable, "-m", *command], cwd=path, env=environment, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install all examples into a folder of their own, without the network."""
    sources, target = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("installed")
    run(*PIP, "--target", str(target), *(str(one) for one in EXAMPLES), path=sources)
    return target


@pytest.mark.whole
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_tests_of_an_installed_example_pass(installed: Path, example: Path) -> None:
    said = run("pytest", "-q", "-p", "no:cacheprovider", str(example / "tests"), path=installed)
    assert " passed" in said


@pytest.mark.whole
def test_command_line_finds_the_installed_plugins_and_checks_their_names(installed: Path) -> None:
    config = installed / "config.yaml"
    config.write_text("profiles: [{plugins: {filter: {enabled: [{name: NodeMaintenance}, {name: LicenseServer}]}}}]")
    said = run("aischeduler", "config", "print", "--config", str(config), path=installed)
    assert "NodeMaintenance" in said
    config.write_text("profiles: [{plugins: {filter: {enabled: [{name: NodeMaintenence}]}}}]")
    with pytest.raises(AssertionError, match="there is no plugin 'NodeMaintenence'; did you mean NodeMaintenance"):
        run("aischeduler", "config", "print", "--config", str(config), path=installed)


def test_every_example_names_its_plugin_as_an_entry_point() -> None:
    assert len(EXAMPLES) == 2
    for example in EXAMPLES:
        project = tomllib.loads((example / "pyproject.toml").read_text())["project"]
        ((name, where),) = project["entry-points"]["aischeduler.plugins"].items()
        module, _, attribute = where.partition(":")
        assert f"class {attribute}:" in (example / f"{module}.py").read_text()
        assert f'name = "{name}"' in (example / f"{module}.py").read_text()
