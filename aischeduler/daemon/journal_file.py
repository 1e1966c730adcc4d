"""The journal of a running scheduler as a file in a directory, which `ai-scheduler replay` reads.

Invariants:
- A file begins with the engine, because only all calls since then give the same actions. It ends with the process, or
  at its largest size or age, whichever comes first.
- Old files are removed when a new one begins: their age and the sum of their sizes are bounded.
- Writing never delays a decision, and a disk that is full or slow ends the journal, never the scheduler.
"""

import asyncio
import os
import re
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Final

from msgspec import Struct
from structlog.typing import FilteringBoundLogger

WRITE_SECONDS: Final = 0.5
WAITING_BYTES_MAX: Final = 32 * 1024 * 1024
"""The most bytes that wait to be written; where the disk is slower than that, the journal ends."""
_NAME: Final = re.compile(r"journal-\d{8}T\d{6}Z-\d+\.jsonl")


class JournalLimits(Struct, frozen=True):
    """The bounds of a file, and of all files of the directory."""

    file_bytes: int = 256 * 1024 * 1024
    file_seconds: float = 24 * 3600.0
    all_bytes: int = 1024 * 1024 * 1024
    all_seconds: float = 7 * 24 * 3600.0


class JournalFile:
    """One journal, from `write` into a new file of the directory; `run` writes what waits until the journal ends.

    Raises OSError where the file cannot be created.
    """

    def __init__(
        self,
        directory: Path,
        log: FilteringBoundLogger,
        clock: Callable[[], float],
        at: datetime,
        limits: JournalLimits | None = None,
    ) -> None:
        self._log, self._clock = log, clock
        self._limits = limits or JournalLimits()
        self._lines: list[bytes] = []
        self._pieces: deque[bytes] = deque()
        self._waiting = self._written = 0
        self._since = clock()
        self._ended = ""
        self._writing = Lock()  # the thread of a write may outlast a task that is cancelled
        directory.mkdir(parents=True, exist_ok=True)
        self._remove_old(directory, at)
        self.path = directory / f"journal-{at.astimezone(UTC):%Y%m%dT%H%M%SZ}-{os.getpid()}.jsonl"
        self._file: BinaryIO | None = self.path.open("xb", buffering=0)

    def write(self, line: bytes) -> None:
        """Keep a line until it is written; after the end of the journal, drop it."""
        if self._ended:
            return
        self._lines.append(line)
        self._waiting += len(line) + 1
        if self._waiting > WAITING_BYTES_MAX:
            self._end("the disk is slower than the scheduler")
        elif self._written + self._waiting > self._limits.file_bytes:
            self._end("the file has its largest size")

    async def run(self) -> None:
        """Write lines until the journal ends."""
        while self._file is not None:
            await asyncio.sleep(WRITE_SECONDS)
            if not self._ended and self._clock() - self._since > self._limits.file_seconds:
                self._end("the file has its largest age")
            self._take()
            await asyncio.to_thread(self._put)
            if self._ended:
                self.close()

    def close(self) -> None:
        """Write the lines that wait, and close the file."""
        self._take()
        self._put()
        with self._writing:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _take(self) -> None:
        """Put the lines that wait into one piece; only the thread of the engine may call it."""
        if self._lines:
            self._pieces.append(b"\n".join(self._lines) + b"\n")
        self._lines = []
        self._written, self._waiting = self._written + self._waiting, 0

    def _put(self) -> None:
        """Write all pieces: whichever thread comes first, none is left behind and their order stays."""
        with self._writing:
            while self._pieces and self._file is not None:
                left = memoryview(self._pieces.popleft())
                try:
                    while left:  # a disk that is nearly full, or a signal, makes a write short
                        left = left[self._file.write(left) :]
                except OSError as error:
                    self._end(f"the file cannot be written: {error}")

    def _end(self, reason: str) -> None:
        if not self._ended:
            self._ended = reason
            self._log.warning("journal ended", reason=reason, written_bytes=self._written)

    def _remove_old(self, directory: Path, at: datetime) -> None:
        """Remove files that are too old, and the oldest of those whose sizes add up to too much."""
        found = sorted((path for path in directory.iterdir() if _NAME.fullmatch(path.name)), reverse=True)
        left = self._limits.all_bytes
        for path in found:
            status = path.stat()
            left -= status.st_size
            if left < 0 or at.timestamp() - status.st_mtime > self._limits.all_seconds:
                path.unlink(missing_ok=True)
