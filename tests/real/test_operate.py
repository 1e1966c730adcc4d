"""The operating page, followed from top to bottom on a control plane without Pools: every command as it is written.

A command without output in the page has to succeed, whatever it prints. What needs running pods is not in these
blocks, for there is no kubelet here.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.binaries import the_helm
from tests.controlplane.plane import ControlPlane
from tests.real.cluster import ROOT, install
from tests.real.test_tutorial import CRD, PROGRAM
from tests.real.walkthrough import Step, comparable, read_steps

PAGE = ROOT / "docs" / "operate.md"
STEPS = read_steps(PAGE.read_text())
SECONDS_MAX = 60.0


@pytest.fixture
def bare(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane without the definition of Pools; afterwards it has it again."""
    control_plane.kubectl("delete", "crd", CRD, "--ignore-not-found", "--wait")
    yield control_plane
    control_plane.kubectl("delete", "crd", CRD, "--ignore-not-found", "--wait")
    install(control_plane)


def run(plane: ControlPlane, home: Path, command: str) -> subprocess.CompletedProcess[str]:
    programs = (plane.binaries.kubectl.parent, the_helm().parent, PROGRAM.parent)
    path = ":".join([*map(str, programs), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "KUBECONFIG": str(plane.kubeconfig), "HOME": str(home)}
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def problem(step: Step, ran: subprocess.CompletedProcess[str]) -> str:
    """Return how a step went other than the page says, or nothing."""
    if step.output:
        seen = comparable(ran.stdout)
        return "" if seen == comparable(step.output) else f"line {step.line}: $ {step.command}\n{ran.stdout}"
    return "" if ran.returncode == 0 else f"line {step.line}: $ {step.command}\n{ran.stdout}"


def test_every_command_of_the_page_does_what_it_says(bare: ControlPlane, tmp_path: Path) -> None:
    assert len(STEPS) >= 18
    for step in STEPS:
        assert problem(step, run(bare, tmp_path, step.command)) == ""
