"""The sandbox's table of API types against the Kubernetes modules that it is written from."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.controlplane.absent import leave_out
from tests.controlplane.binaries import go_problem

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools" / "kubernetes_types.py"
TABLE = ROOT / "aischeduler" / "sandbox" / "types.txt"

GO_THAT_FAILS = """#!/bin/sh
echo "go: reading" >&2
echo "go: module not found" >&2
exit 1
"""


def script(env: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, str(SCRIPT)], env=env, capture_output=True, check=False)


@pytest.fixture
def modules() -> None:
    """The control plane may be given without Go, and then nothing says where the modules lie."""
    problem = go_problem()
    if problem is not None:
        leave_out(f"the table of types cannot be written anew: {problem}")


@pytest.mark.whole
def test_committed_table_is_what_the_kubernetes_modules_say(modules: None) -> None:
    finished = script(dict(os.environ))
    assert finished.returncode == 0, finished.stderr.decode()
    assert finished.stdout.decode() == TABLE.read_text(encoding="utf-8"), "run `make types`"


def test_without_go_the_error_says_so() -> None:
    finished = script({"PATH": "/nowhere"})
    assert (finished.returncode, finished.stdout) == (1, b"")
    said = "kubernetes_types: there is no `go` in PATH, and it alone knows where the Kubernetes modules lie.\n"
    assert finished.stderr.decode() == said


def test_modules_that_go_cannot_find_are_an_error_with_its_reason(tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.write_text(GO_THAT_FAILS)
    go.chmod(0o755)
    finished = script({"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert (finished.returncode, finished.stdout) == (1, b"")
    said = "kubernetes_types: `go list -m` cannot find the Kubernetes modules: go: module not found\n"
    assert finished.stderr.decode() == said
