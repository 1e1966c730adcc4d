"""CPU and memory of other processes, as the kernel counts them."""

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
"""A process that uses less of a core than this has nothing to do."""
LOOK_EVERY_SECONDS = 1.0
EVENTS = {"perSecond": 1_000, "burst": 2_000}
"""More than arise, so that what a run costs has every event in it; kube-scheduler's client is not limited either."""


def compile_ours() -> None:
    """Let our program be compiled before it is started, as what pip installs is; PYTHONDONTWRITEBYTECODE may be set."""
    compileall.compile_dir(ROOT / "aischeduler", quiet=1)


def cpu_of(pid: int) -> float:
    """Return the seconds of CPU, user and system, that a process has used; the kernel counts in hundredths."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def resident_bytes(pid: int) -> int:
    """Return how much memory of a process is in RAM."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


def peak_bytes(pid: int) -> int:
    """Return the most memory that a process has had in RAM at once."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(f"process {pid} has no memory any more")


def wait_quiet(pid: int, seconds: float = 60.0) -> None:
    """Wait until a process has nothing to do."""
    deadline = time.monotonic() + seconds
    before = cpu_of(pid)
    while time.monotonic() < deadline:
        time.sleep(LOOK_EVERY_SECONDS)
        now = cpu_of(pid)
        if now - before < QUIET_SHARE * LOOK_EVERY_SECONDS:
            return
        before = now


def with_all_events(directory: Path) -> tuple[str, ...]:
    """Return the options by which a scheduler of ours writes events as fast as they arise."""
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
