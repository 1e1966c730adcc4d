"""A terminal in the root of the repository, for the commands of a document."""

import os
import subprocess
import sys
from pathlib import Path

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import ROOT

PROGRAM = Path(sys.executable).with_name("ai-scheduler")
SECONDS_MAX = 60.0
"""How long one command may take."""


class Terminal:
    """Runs commands with `kubectl`, `ai-scheduler` and `more` programs in the path, for one cluster."""

    def __init__(self, plane: ControlPlane, kubeconfig: Path, *more: Path) -> None:
        programs = (plane.binaries.kubectl, PROGRAM, *more)
        path = ":".join([*(str(program.parent) for program in programs), os.environ["PATH"]])
        self._env = {**os.environ, "PATH": path, "KUBECONFIG": str(kubeconfig), "HOME": str(plane.directory)}

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command of bash, which fails if any part of a pipe fails; errors are in its output."""
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=ROOT,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
