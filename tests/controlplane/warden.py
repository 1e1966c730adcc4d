"""A process that outlives the tests only to end what they started.

Laws:
- It reads `+PID` and `-PID` lines; when its input ends, for whatever reason the tests ended (SIGKILL included), it
  kills the process groups still listed and ends itself.
- It runs alone, with the standard library only.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress


class Warden:
    """The parent's side: tell the warden what to watch."""

    def __init__(self) -> None:
        command = [sys.executable, "-I", __file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, text=True)

    def watch(self, pid: int) -> None:
        """Have the process group `pid` killed when this process is gone."""
        self._tell(f"+{pid}")

    def forget(self, pid: int) -> None:
        """The process group `pid` has ended; its number may soon be another's."""
        self._tell(f"-{pid}")

    def close(self) -> None:
        """End the warden, which kills what it still watches."""
        self._process.communicate()

    def _tell(self, line: str) -> None:
        pipe = self._process.stdin
        if pipe is None:
            raise RuntimeError("the warden has no input")
        pipe.write(line + "\n")
        pipe.flush()


def keep_watch(lines: Iterable[str]) -> None:
    """The warden's side: follow the lines, then kill what is left."""
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
