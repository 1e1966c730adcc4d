"""One program of the control plane as a process that can be killed, stopped, paused and started again.

Laws:
- A part keeps its command line, so it comes back on the same port and the same data.
- Ready means that its own endpoint says so; a part that ends or stays silent is an error with its last log lines.
- Each part has a session of its own: a Ctrl-C at the tests is not a signal to it.
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
    """A part did not come up or did not stop; the text ends with its last log lines."""


class Part:
    """One program. `probe` answers whether it is ready, and may not raise for a part that is merely not there yet."""

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
        """The process number. Raises PartError when the part is not running."""
        if self._process is None:
            raise PartError(f"{self.name} is not running")
        return self._process.pid

    def running(self) -> bool:
        """Answer whether the process lives (a paused one does)."""
        return self._process is not None and self._process.poll() is None

    def end_status(self) -> int | None:
        """Answer the exit status of a process that ended by itself; None while it lives."""
        return self._process.poll() if self._process is not None else None

    def start(self) -> None:
        """Start and wait until ready."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start without waiting. Raises PartError when it runs already."""
        if self.running():
            raise PartError(f"{self.name} runs already")
        self._reap()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._warden.watch(self._process.pid)

    def wait_ready(self) -> None:
        """Poll until ready. Raises PartError when the process ends first or the time is over."""
        deadline = time.monotonic() + READY_WITHIN_SECONDS
        while not self._probe():
            if not self.running():
                raise PartError(f"{self.name} ended before it was ready; {self._last_lines()}")
            if time.monotonic() > deadline:
                raise PartError(f"{self.name} was not ready after {READY_WITHIN_SECONDS:.0f} s; {self._last_lines()}")
            time.sleep(POLL_EVERY_SECONDS)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone. Nothing happens to a part that does not run."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def stop(self) -> int:
        """SIGTERM, and wait for the end; answer the exit status. Raises PartError when it does not come (an API server
        with open watches takes a minute)."""
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
        """SIGSTOP: sockets stay open, nothing answers. Returns when all its threads stand still, not only asked to."""
        if not self._paused:
            os.kill(self.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # one that dies is left to be reaped
            self._paused = True

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)
        self._paused = False

    def heal(self) -> None:
        """Bring a paused or dead part back."""
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
