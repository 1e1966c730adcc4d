"""The quick start: every command runs in order, and every output is as it is written."""

import difflib
import time
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest

from tests.api_contract.over_http import HttpTransport
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import CRD, ROOT, install
from tests.e2e.daemon import Daemon
from tests.e2e.terminal import PROGRAM, Terminal
from tests.e2e.walkthrough import Step, comparable, read_steps
from tests.scenarios.kubelets import Kubelets

NODES = ROOT / "examples" / "tutorial" / "nodes.yaml"
STEPS = read_steps((ROOT / "docs" / "quick-start.md").read_text())
START = "ai-scheduler run --no-leader-elect"
PATIENCE_SECONDS = 40.0
LOOK_AGAIN_SECONDS = 0.2


class User:
    """A user who repeats read-only commands until the terminal shows the written output."""

    def __init__(self, plane: ControlPlane, kubeconfig: Path) -> None:
        self._terminal = Terminal(plane, kubeconfig)

    def runs(self, command: str) -> str:
        """Run a command and return its output."""
        return self._terminal.run(command).stdout

    def sees(self, step: Step) -> None:
        """Run a step; repeat a read-only command until it prints the written output."""
        expected, deadline = comparable(step.output), time.monotonic() + PATIENCE_SECONDS
        seen = self.runs(step.command)
        while comparable(seen) != expected and step.looks and time.monotonic() < deadline:
            time.sleep(LOOK_AGAIN_SECONDS)
            seen = self.runs(step.command)
        differences = difflib.unified_diff(expected, comparable(seen), "the page", "here", lineterm="")
        assert comparable(seen) == expected, "\n".join([f"line {step.line}: {step.command}", *differences, seen])


@pytest.fixture
def kubelets(control_plane: ControlPlane, clean_cluster: None) -> Iterator[Kubelets]:
    """Yield kubelets in a cluster with nodes, without Pools and without events."""
    for arguments in (
        ("delete", "crd", CRD, "--ignore-not-found"),
        ("delete", "events", "--all"),
        ("create", "-f", str(NODES)),
    ):
        finished = control_plane.kubectl(*arguments)
        assert finished.returncode == 0, finished.stderr
    kubelets = Kubelets(
        HttpTransport(control_plane.url, lambda: None, control_plane.tls).watch,
        HttpTransport(control_plane.url, lambda: None, control_plane.tls),
    )
    yield kubelets
    kubelets.check()
    kubelets.close()
    install(control_plane)  # other tests need the definition


@pytest.fixture
def scheduler(control_plane: ControlPlane, kubelets: Kubelets) -> Iterator[Daemon]:
    """Yield the scheduler, not yet started; the tutorial defines Pools first."""
    with Daemon(control_plane) as daemon:
        yield daemon


def test_every_command_of_the_quick_start_prints_what_is_written_below_it(
    control_plane: ControlPlane, kubelets: Kubelets, scheduler: Daemon
) -> None:
    user = User(control_plane, control_plane.kubeconfig)
    with_leaving_pods = {step.section for step in STEPS if "Terminating" in step.output}
    for step in STEPS:
        if step.section in with_leaving_pods:
            kubelets.ending.clear()  # pods stay terminating, so that the output does not depend on time
        else:
            kubelets.ending.set()
        if step.command == START:
            scheduler.start()
        else:
            user.sees(step)


@pytest.fixture
def sandbox(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Path]:
    """Yield the kubeconfig of `ai-scheduler sandbox`; of the control plane only kubectl is used."""
    kubeconfig = tmp_path / "sandbox.kubeconfig"
    command = [str(PROGRAM), "sandbox", "--kubeconfig-out", str(kubeconfig)]
    part = control_plane.program("sandbox", command, kubeconfig.exists)
    part.start()
    yield kubeconfig
    part.kill()


def test_tutorial_has_the_same_outputs_with_the_sandbox(control_plane: ControlPlane, sandbox: Path) -> None:
    user = User(control_plane, sandbox)
    user.runs(f"kubectl apply -f {NODES}")
    with Daemon(control_plane, sandbox, name="ai-scheduler-on-sandbox") as scheduler:
        for step in takewhile(lambda step: "Terminating" not in step.output, STEPS):
            if step.command == START:
                scheduler.start()
            else:
                user.sees(step)


def test_tutorial_goes_from_the_installation_to_the_reclaim_and_starts_the_scheduler_once() -> None:
    commands = [step.command for step in STEPS]
    assert commands.count(START) == 1
    assert [step for step in STEPS if not step.output and step.command != START] == []
    assert [step.section for step in STEPS if "Terminating" in step.output] == ["## Take it back"]


def test_output_that_differs_in_a_number_a_name_or_a_word_is_a_difference() -> None:
    written = "NAME NODES CPU\ngpu 2 16/32\npod/more-7kff7 waits 5s (x2 over 1m5s)\n"
    assert comparable(written) == comparable(written.replace("7kff7", "vz4kw").replace("1m5s", "2h"))
    for here, other in (("16/32", "15/32"), ("gpu", "cpu"), ("waits", "runs"), ("more", "less")):
        assert comparable(written) != comparable(written.replace(here, other))
