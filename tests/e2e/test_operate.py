"""The page on installing, on a control plane without Pools: every command runs as it is written, from top to bottom.

A command without output in the page must succeed; its output is not compared. The pods of the release are processes
here, from the step at which the page waits for them until the step that uninstalls them.
"""

import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.controlplane.binaries import the_helm
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import CRD, QUEUE_CRD, ROOT, create_pods, install
from tests.e2e.conftest import LEASES
from tests.e2e.pods_of_release import pods_running
from tests.e2e.release import Release
from tests.e2e.terminal import Terminal
from tests.e2e.walkthrough import Step, comparable, read_steps
from tests.objects import pod_object

STEPS = read_steps((ROOT / "docs" / "install.md").read_text())
OPERATE = (ROOT / "docs" / "operate.md").read_text()
WAITS_FOR_PODS = "kubectl -n kube-system rollout status"
NEEDS_A_KUBELET = "kubectl -n kube-system logs"


@pytest.fixture
def bare(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Yield the control plane without the definition of Pools; install it again at the end."""
    control_plane.kubectl("delete", "crd", CRD, QUEUE_CRD, "--ignore-not-found", "--wait")
    yield control_plane
    control_plane.kubectl("delete", "crd", CRD, QUEUE_CRD, "--ignore-not-found", "--wait")
    control_plane.api("DELETE", f"{LEASES}/ai-scheduler")
    install(control_plane)


def problem(step: Step, ran: subprocess.CompletedProcess[str]) -> str:
    """Return how the result of a step differs from the page; empty if it does not."""
    if step.output:
        seen = comparable(ran.stdout)
        return "" if seen == comparable(step.output) else f"line {step.line}: $ {step.command}\n{ran.stdout}"
    return "" if ran.returncode == 0 else f"line {step.line}: $ {step.command}\n{ran.stdout}"


def test_every_command_of_the_page_does_what_it_says(bare: ControlPlane, tmp_path: Path) -> None:
    helm = the_helm()
    terminal, release = Terminal(bare, bare.kubeconfig, helm), Release(bare, helm, tmp_path)
    assert len(STEPS) >= 21
    with ExitStack() as pods:
        for step in STEPS:
            if step.command.startswith(WAITS_FOR_PODS):
                pods.enter_context(pods_running(bare, release))
            elif step.command.startswith("helm uninstall"):
                pods.close()
            assert problem(step, terminal.run(step.command)) == ""


def commands_of_an_incident() -> list[str]:
    """Return all commands for the investigation of an incident."""
    section = OPERATE.partition("\n## The first ten minutes of an incident\n")[2].partition("\n## ")[0]
    return [line.strip() for block in re.findall(r"```sh\n(.*?)```", section, re.DOTALL) for line in block.splitlines()]


def test_every_command_for_an_incident_succeeds_while_a_pod_waits(
    control_plane: ControlPlane, release: Release, namespace: str
) -> None:
    release.install()
    questions = [line for line in commands_of_an_incident() if line and not line.startswith(NEEDS_A_KUBELET)]
    assert len(questions) >= 6
    with pods_running(control_plane, release):
        create_pods(control_plane, namespace, [pod_object("waits", namespace=namespace)])
        terminal = Terminal(control_plane, control_plane.kubeconfig)
        for question in questions:
            asked = question.replace("NAMESPACE", namespace).replace("NAME", "waits")
            ran = terminal.run(asked)
            assert (ran.returncode, ran.stdout != "") == (0, True), f"{asked}\n{ran.stdout}"
