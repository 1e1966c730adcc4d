"""Runs all tests as parts that run at the same time: `python -m tests [options of pytest]`.

Each part is one run of pytest. The tests on the real API server wait often, so these parts fill two cores. Each part
starts a control plane of its own, where it needs one. A part's output appears when the part ends; a line on standard
error shows how far the others are. The exit status is 0 only if every part passed.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from tests import seeds

ROOT: Final = Path(__file__).resolve().parent.parent
SCENARIOS: Final[tuple[str, ...]] = ("tests/scenarios", "tests/api_contract")
"""The suites whose scenarios run on several API servers, the real one among them."""
HALF: Final = tuple(
    f"tests/e2e/test_{name}.py"
    for name in ("bad_input", "churn", "crowd", "handover", "job", "lending_crowd", "operator", "release")
)
"""Modules that need about half of the time of all tests on the real API server but the scenarios."""
OTHERS_ON_REAL: Final[tuple[str, ...]] = (
    "tests/chart",
    "tests/controlplane",
    "tests/kube/test_pool_crd.py",
    "tests/kube/test_queue_crd.py",
    "tests/e2e",
)
"""Where all other tests on the real API server are. A part names paths because collecting all tests takes long."""
CORE: Final = tuple(
    f"tests/{name}" for name in ("analysis", "engine", "framework", "model", "plugins", "policies", "state")
)
"""The tests of the core, but the random days."""
DAYS: Final = ("tests/properties", "tests/virtual")
WORLDS: Final = (*SCENARIOS, "tests/operator", "tests/sandbox")
"""The scenarios without a real server, and the tests of the sandbox."""
SHELLS: Final = ("tests/cli", "tests/daemon", "tests/device_reporter", "tests/kube")
"""The tests of the programs and of the Kubernetes client: they wait more than they compute."""


def without(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the options of pytest that leave these paths out."""
    return tuple(f"--ignore={path}" for path in paths)


REAL: Final = ("-m", "real and not soak")
PLAIN: Final = ("-m", "not real and not soak")
PARTS: Final = {
    "half of the rest on the real API server": (*REAL, *HALF),
    "scenarios on the real API server": (*REAL, *SCENARIOS),
    "everything else on the real API server": (*REAL, *OTHERS_ON_REAL, *without(HALF)),
    "the core": (*PLAIN, *CORE),
    "random days": (*PLAIN, *DAYS),
    "the virtual cluster and the sandbox": (*PLAIN, *WORLDS),
    "the programs": (*PLAIN, *SHELLS),
    "everything else": (*PLAIN, *without((*CORE, *DAYS, *WORLDS, *SHELLS))),
}
"""The options of pytest that select the tests of each part. Together the parts select each test exactly once."""
PROGRESS_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.5
LAZY_COLLECTOR: Final = {"GOGC": "400", "GOMEMLIMIT": "1500MiB"}
"""The API servers are short of processors, not of memory; with less garbage collection they need a sixth less CPU."""
NO_BYTECODE: Final = "PYTHONDONTWRITEBYTECODE"
"""Not set for the parts: they and the hundreds of programs that they start would compile the same modules each time."""
PASSED: Final = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
"""A part without tests passes: the real tests are left out where no control plane can be built, and pytest says so."""


@dataclass(frozen=True, slots=True)
class Running:
    """A part that runs, and the file that its output goes to."""

    process: subprocess.Popen[bytes]
    output: Path
    began: float

    def progress(self) -> str:
        """Return the last percentage that pytest printed."""
        found = re.findall(r"\[ *(\d+%)\]", self.output.read_text(errors="replace"))
        return found[-1] if found else "0%"


def start(options: Sequence[str], output: Path) -> Running:
    """Start pytest with these options."""
    command = (sys.executable, "-m", "pytest", *options)
    inherited = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}
    environment = {**LAZY_COLLECTOR, **inherited}
    with output.open("wb") as file:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT)
    return Running(process, output, time.monotonic())


def finished(name: str, part: Running) -> bool:
    """Print the output of a part that has ended; return whether it passed."""
    passed = part.process.returncode in PASSED
    print(f"\n===== {name}: {'passed' if passed else 'FAILED'} after {time.monotonic() - part.began:.0f} s =====")
    print(part.output.read_text(errors="replace"), flush=True)
    return passed


def wait(running: dict[str, Running]) -> list[str]:
    """Wait for all parts; return the names of those that failed."""
    failed: list[str] = []
    shown = time.monotonic()
    while running:
        time.sleep(POLL_SECONDS)
        ended = [name for name, part in running.items() if part.process.poll() is not None]
        failed += [name for name in ended if not finished(name, running.pop(name))]
        if running and time.monotonic() - shown >= PROGRESS_SECONDS:
            shown = time.monotonic()
            line = ", ".join(f"{name} {part.progress()}" for name, part in running.items())
            print(line, file=sys.stderr, flush=True)
    return failed


def main(options: Sequence[str]) -> int:
    """Run all parts with these further options of pytest."""
    seeds.seed()  # the parts inherit it, also where midnight lies between their starts
    with TemporaryDirectory() as directory:
        running = {
            name: start((*selected, *options), Path(directory) / f"part-{number}")
            for number, (name, selected) in enumerate(PARTS.items())
        }
        try:
            failed = wait(running)
        finally:
            for part in running.values():
                part.process.terminate()
                part.process.wait()
    print(f"failed: {', '.join(failed)}" if failed else "all parts passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
