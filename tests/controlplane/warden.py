"""A process that kills the programs of the tests when the tests end, even by SIGKILL.

Invariants:
- It reads lines `+PID` and `-PID`; at the end of its input it kills the remaining process groups and exits.
- It uses only the standard library.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress


class Warden:
    """The side of the tests: starts the process and sends the lines."""

    def __init__(self) -> None:
        command = [sys.executable, "-I", __file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, text=True)

    def watch(self, pid: int) -> None:
        """Have the process group `pid` killed when this process ends."""
        self._tell(f"+{pid}")

    def forget(self, pid: int) -> None:
        """Stop watching the process group `pid`, which has ended; its number can be reused."""
        self._tell(f"-{pid}")

    def close(self) -> None:
        """End the process, which kills the watched process groups."""
        self._process.communicate()

    def _tell(self, line: str) -> None:
        pipe = self._process.stdin
        if pipe is None:
            raise RuntimeError("the warden has no input")
        pipe.write(line + "\n")
        pipe.flush()


def keep_watch(lines: Iterable[str]) -> None:
    """The side of the process: read the lines, then kill the remaining process groups."""
    watched: dict[int, None] = {}
    for line in lines:
        pid = int(line[1:])
        if line[0] == "+":
            watched[pid] = None
        else:
            watched.pop(pid, None)
    for pid in watched:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    keep_watch(sys.stdin)
