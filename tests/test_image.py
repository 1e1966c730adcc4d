"""The checks of the Dockerfile that need no container engine. The workflow image.yaml lints and builds it."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from aischeduler import __version__

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()
BUILD, RUNTIME = DOCKERFILE.split("\nFROM ")[1:]
UV = str(Path(sys.executable).with_name("uv"))
INSTALLED_BYTES_MAX = 128_000_000
"""Without bytecode; the image adds about 30 MB of it."""
LOCKED = ("--require-hashes", "--only-binary", ":all:")
IMPORT_ALL = """
import importlib, pkgutil, aischeduler
for module in pkgutil.walk_packages(aischeduler.__path__, "aischeduler."):
    if module.name != "aischeduler.__main__":
        importlib.import_module(module.name)
from aischeduler.kube.crds import crd
assert crd("pools")["kind"] == crd("batchprocesses")["kind"] == "CustomResourceDefinition"
"""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    finished = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def copied() -> list[str]:
    """Return the names that the build stage copies from the repository."""
    return [name for line in re.findall(r"^COPY (.+)$", BUILD, re.MULTILINE) for name in line.split()[:-1]]


def workflow() -> Any:
    return yaml.safe_load((ROOT / ".github" / "workflows" / "image.yaml").read_text())["jobs"]["build"]["steps"][-1]


def new_environment(path: Path, lock: str) -> Path:
    """Create an environment of the locked distributions; return its bin directory."""
    run(UV, "venv", "--quiet", "--python", sys.executable, path)
    run(UV, "pip", "install", "--quiet", "--python", path, *LOCKED, "-r", ROOT / lock)
    return path / "bin"


@pytest.mark.whole
def test_package_built_from_what_the_image_copies_starts_beside_the_locked_dependencies(tmp_path: Path) -> None:
    context = tmp_path / "context"
    context.mkdir()
    for name in copied():
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, context / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, context / name)
    build = new_environment(tmp_path / "build", "requirements-build.lock")
    run(build / "python", "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "wheels", cwd=context)
    (wheel,) = (tmp_path / "wheels").glob("*.whl")
    installed = new_environment(tmp_path / "installed", "requirements.lock")
    run(UV, "pip", "install", "--quiet", "--python", installed.parent, "--no-deps", "--no-index", wheel)
    entry_point = json.loads(re.findall(r"^ENTRYPOINT (.+)$", RUNTIME, re.MULTILINE)[0])
    assert entry_point[0] == "/usr/bin/python3"
    said = run(installed / "python", *entry_point[1:], "version", cwd=tmp_path)
    assert said == run(installed / "ai-scheduler", "version", cwd=tmp_path) == f"ai-scheduler {__version__}\n"
    assert "Usage: kubectl pool" in run(installed / "kubectl-pool", "--help", cwd=tmp_path)
    run(installed / "python", "-c", IMPORT_ALL, cwd=tmp_path)
    files = [path for path in installed.parent.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert sum(path.stat().st_size for path in files) < INSTALLED_BYTES_MAX


@pytest.mark.whole
@pytest.mark.parametrize("platform", workflow()["with"]["platforms"].split(","))
def test_every_locked_wheel_exists_for_the_platform(tmp_path: Path, platform: str) -> None:
    machine = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}[platform]
    assert f"{platform.removeprefix('linux/')}) machine={machine} ;;" in BUILD
    (python,) = re.findall(r"^ARG PYTHON_VERSION=(.+)$", BUILD, re.MULTILINE)
    target = ("--python-platform", f"{machine}-manylinux_2_28", "--python-version", python, "--target", tmp_path)
    run(UV, "pip", "install", "--quiet", "--dry-run", *target, *LOCKED, "-r", ROOT / "requirements.lock")


def test_base_images_have_the_python_of_the_wheels() -> None:
    (python,) = re.findall(r"^ARG PYTHON_VERSION=(.+)$", BUILD, re.MULTILINE)
    debian = {"3.11": "debian12", "3.13": "debian13"}[python]
    assert f"\nARG BUILD_IMAGE=docker.io/library/python:{python}-" in DOCKERFILE
    assert f"\nARG RUNTIME_IMAGE=gcr.io/distroless/python3-{debian}:" in DOCKERFILE


def test_pip_installs_only_locked_wheels_and_the_package() -> None:
    commands = [" ".join(words.split()) for words in re.findall(r"pip ((?:install|wheel)(?:[^\n]|\\\n)+)", BUILD)]
    fetching = [command for command in commands if not {"--no-index", "--no-deps"} <= set(command.split())]
    assert (len(commands), len(fetching)) == (4, 2)
    assert all("--require-hashes --only-binary :all: " in command for command in fetching)


def test_image_runs_as_a_numeric_user_other_than_root() -> None:
    assert re.findall(r"^USER (.+)$", RUNTIME, re.MULTILINE) == ["65532:65532"]


def test_image_copies_only_the_package_and_the_files_that_build_it() -> None:
    admitted = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert admitted[0] == "*"
    assert sorted(admitted[1:]) == sorted(["**/__pycache__", *(f"!{name}" for name in copied())])
    assert {"aischeduler", "requirements.lock", "requirements-build.lock", "pyproject.toml"} < set(copied())
    assert set(copied()) - {"aischeduler"} <= {path.name for path in ROOT.iterdir() if path.is_file()}
    assert re.findall(r"^(?:COPY|ADD) .+$", RUNTIME, re.MULTILINE) == [
        "COPY --from=build /opt/ai-scheduler /opt/ai-scheduler"
    ]


def test_labels_and_build_arguments_agree_with_the_project() -> None:
    given = {line.partition("=")[0] for line in workflow()["with"]["build-args"].splitlines()}
    assert given <= set(re.findall(r"^ARG (\w+)=", DOCKERFILE, re.MULTILINE))
    assert f"ARG VERSION={__version__}\n" in RUNTIME
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f'image.licenses="{project["license"]}"' in RUNTIME
