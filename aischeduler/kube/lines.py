"""Lines out of a stream of pieces, of any length up to a limit that only a broken server reaches."""

from typing import Final

from aischeduler.kube.errors import GarbledError

LINE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Ten times the largest object that an API server stores."""


class LineSplitter:
    """Cuts pieces into lines; what follows the last line end is kept for the next piece."""

    def __init__(self, limit_bytes: int = LINE_BYTES_MAX) -> None:
        self._limit = limit_bytes
        self._begun: list[bytes] = []
        self._begun_bytes = 0

    @property
    def unfinished(self) -> bool:
        """Whether a line has begun and not ended."""
        return bool(self._begun)

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the lines that end in this piece, without their ends and without empty ones."""
        lines = piece.split(b"\n")
        rest = lines.pop()
        if lines and self._begun:
            self._begun.append(lines[0])
            lines[0] = b"".join(self._begun)
            self._begun, self._begun_bytes = [], 0
        if rest:
            self._begun.append(rest)
            self._begun_bytes += len(rest)
            if self._begun_bytes > self._limit:
                raise GarbledError(f"a line is longer than {self._limit} bytes")
        return [line for line in lines if line]
