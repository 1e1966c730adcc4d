"""Finds and builds the programs of the real control plane.

Invariant: only `tools/controlplane/build.py` knows the search order, the cache and the flags; this module runs it.
"""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.controlplane.absent import leave_out

Found = TypeVar("Found")

BUILD_SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "controlplane" / "build.py"


@dataclass(frozen=True, slots=True)
class Binaries:
    """The paths of the five programs that the tests need."""

    etcd: Path
    kube_apiserver: Path
    kube_controller_manager: Path
    kube_scheduler: Path
    kubectl: Path


class BinariesUnavailableError(Exception):
    """The programs are missing and cannot be built; the text says why."""


def find_binaries() -> Binaries | None:
    """Return the programs if all five exist, else None. Raises BinariesUnavailableError."""
    paths = _listed()
    try:
        return Binaries(
            etcd=paths["etcd"],
            kube_apiserver=paths["kube-apiserver"],
            kube_controller_manager=paths["kube-controller-manager"],
            kube_scheduler=paths["kube-scheduler"],
            kubectl=paths["kubectl"],
        )
    except KeyError:
        return None


def find_helm() -> Path | None:
    """Return the path of helm, or None."""
    return _listed().get("helm")


def find_promtool() -> Path | None:
    """Return the path of promtool, or None."""
    return _listed().get("promtool")


def go_problem() -> str | None:
    """Return why Go cannot build the programs, or None."""
    return _ask("--go-problem").strip() or None


def build_binaries() -> Binaries:
    """Build the missing programs with progress on stderr; this takes minutes if the caches are cold."""
    return _built(find_binaries)


def the_helm() -> Path:
    """Return helm and build it if it is missing; if it cannot be built, skip the test."""
    return _the("helm", find_helm)


def the_promtool() -> Path:
    """Return promtool and build it if it is missing; if it cannot be built, skip the test."""
    return _the("promtool", find_promtool)


def _the(name: str, find: Callable[[], Path | None]) -> Path:
    found = find()
    if found is None:
        problem = go_problem()
        if problem is not None:
            leave_out(f"no built {name}, and {problem}")
        found = _built(find, "--only", name)
    return found


def _built(find: Callable[[], Found | None], *options: str) -> Found:
    built = subprocess.run([sys.executable, str(BUILD_SCRIPT), *options], stdout=subprocess.DEVNULL, check=False)
    found = find()
    if built.returncode != 0 or found is None:
        raise BinariesUnavailableError(f"{BUILD_SCRIPT.name} ended with status {built.returncode}")
    return found


def _listed() -> dict[str, Path]:
    return {name: Path(path) for name, path in (line.split("\t") for line in _ask("--list").splitlines() if line)}


def _ask(question: str) -> str:
    command = [sys.executable, str(BUILD_SCRIPT), question]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        raise BinariesUnavailableError(asked.stderr.strip())
    return asked.stdout
