"""CPU and memory of processes, from /proc, and the start of `ai-scheduler` processes."""

import compileall
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
QUIET_SHARE = 0.05
"""A process that uses less than this share of a core is idle."""
LOOK_EVERY_SECONDS = 1.0
EVENTS = {"perSecond": 1_000, "burst": 2_000}
"""Limits above the rate of a run, so that its cost includes every event; kube-scheduler has no limit either."""


def compile_ours() -> None:
    """Compile the package to bytecode, as pip does on installation."""
    compileall.compile_dir(ROOT / "aischeduler", quiet=1)


def cpu_of(pid: int) -> float:
    """Return the user and system CPU seconds of a process; the kernel counts in hundredths."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def resident_bytes(pid: int) -> int:
    """Return the resident set of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


def peak_bytes(pid: int) -> int:
    """Return the peak resident set of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(f"process {pid} has ended")


def wait_quiet(pid: int, seconds: float = 60.0) -> None:
    """Wait until a process is idle."""
    deadline = time.monotonic() + seconds
    before = cpu_of(pid)
    while time.monotonic() < deadline:
        time.sleep(LOOK_EVERY_SECONDS)
        now = cpu_of(pid)
        if now - before < QUIET_SHARE * LOOK_EVERY_SECONDS:
            return
        before = now


def with_all_events(directory: Path) -> tuple[str, ...]:
    """Return the options that let ai-scheduler write events without a limit."""
    config = directory / "all-events.yaml"
    config.write_text(json.dumps({"events": EVENTS}))
    return "--config", str(config)


@contextmanager
def program(*arguments: str, log: Path) -> Iterator[int]:
    """Run `ai-scheduler` with these arguments; yield its pid."""
    with log.open("ab") as file:
        process = subprocess.Popen([sys.executable, "-m", "aischeduler", *arguments], stdout=file, stderr=file)
        try:
            yield process.pid
        finally:
            process.terminate()
            process.wait()
