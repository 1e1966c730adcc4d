"""One program of the control plane as a process that can be killed, stopped, paused and restarted.

Invariants:
- A part keeps its command line, so it restarts on the same port and data.
- A part is ready when its probe says so; if it ends or stays silent, the error contains its last log lines.
- Each part has its own session, so that Ctrl-C in the tests does not signal it.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.controlplane.warden import Warden

READY_WITHIN_SECONDS = 90.0
POLL_EVERY_SECONDS = 0.03
STOP_WITHIN_SECONDS = 90.0
LOG_LINES_SHOWN = 30


class PartError(Exception):
    """A part did not start or stop; the text ends with its last log lines."""


class Part:
    """One program. `probe` returns whether it is ready and must not raise while the part starts."""

    def __init__(self, name: str, command: list[str], log: Path, probe: Callable[[], bool], warden: Warden) -> None:
        self.name = name
        self.command = command
        self.log = log
        self._probe = probe
        self._warden = warden
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False

    @property
    def pid(self) -> int:
        """The pid. Raises PartError if the part does not run."""
        if self._process is None:
            raise PartError(f"{self.name} is not running")
        return self._process.pid

    def running(self) -> bool:
        """Return whether the process exists; a paused process does."""
        return self._process is not None and self._process.poll() is None

    def end_status(self) -> int | None:
        """Return the exit status of a process that ended by itself, or None."""
        return self._process.poll() if self._process is not None else None

    def start(self) -> None:
        """Start and wait until ready."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start without waiting. Raises PartError if the part runs already."""
        if self.running():
            raise PartError(f"{self.name} runs already")
        self._reap()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._warden.watch(self._process.pid)

    def wait_ready(self) -> None:
        """Poll until the part is ready. Raises PartError if it ends or on a timeout."""
        deadline = time.monotonic() + READY_WITHIN_SECONDS
        while not self._probe():
            if not self.running():
                raise PartError(f"{self.name} ended before it was ready; {self._last_lines()}")
            if time.monotonic() > deadline:
                raise PartError(f"{self.name} was not ready after {READY_WITHIN_SECONDS:.0f} s; {self._last_lines()}")
            time.sleep(POLL_EVERY_SECONDS)

    def kill(self) -> None:
        """Send SIGKILL and wait for the end. A part that does not run is left alone."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def stop(self) -> int:
        """Send SIGTERM, wait for the end and return the exit status. Raises PartError on a timeout.

        An API server with open watches needs up to a minute.
        """
        os.kill(self.pid, signal.SIGTERM)
        self.resume()
        process = self._process
        if process is None:
            raise PartError(f"{self.name} is not running")
        try:
            status = process.wait(STOP_WITHIN_SECONDS)
        except subprocess.TimeoutExpired:
            late = f"{self.name} did not stop within {STOP_WITHIN_SECONDS:.0f} s of SIGTERM; {self._last_lines()}"
            raise PartError(late) from None
        self._reap()
        return status

    def pause(self) -> None:
        """Send SIGSTOP and return when all threads have stopped; the sockets stay open."""
        if not self._paused:
            os.kill(self.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # a process that ends is reaped later
            self._paused = True

    def resume(self) -> None:
        """Send SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)
        self._paused = False

    def heal(self) -> None:
        """Resume a paused part or start a dead part."""
        if not self.running():
            self.start()
        elif self._paused:
            self.resume()
            self.wait_ready()

    def _reap(self) -> None:
        if self._process is not None:
            self._process.wait()
            self._warden.forget(self._process.pid)
            self._process = None
            self._paused = False

    def _last_lines(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        return f"the end of {self.log}:\n" + "\n".join(lines)
