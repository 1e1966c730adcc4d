"""An error in the log fails the test that causes it: it is a bug, or the last line of a process that gives up.

Invariants:
- Every logger counts, however a test or a command configures the logs, and in every thread of this process.
- A test that provokes an error is marked: `@pytest.mark.expects_errors("event not processed")`. A part of the line is
  enough, as in `"job failed job=reporter"`; each part must occur, and no other error may occur.
- The log of a daemon in a process of its own is checked by the code that starts it (`tests/e2e/daemon.py`).
"""

import logging
import sys
from collections.abc import Iterable
from threading import Lock
from typing import Any

from structlog import BoundLoggerBase

ERRORS = ("error", "exception", "critical", "fatal")
LIBRARIES = ("asyncio", "aiohttp")
"""Loggers of the standard library that log swallowed exceptions."""


class LogErrors(logging.Handler):
    """Records the errors that are logged after its construction."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._lines: list[str] = []
        self._adding = Lock()
        for name in LIBRARIES:
            logging.getLogger(name).addHandler(self)
        self._follow_structlog()

    def take(self) -> list[str]:
        """Return the errors since the last call."""
        with self._adding:
            lines, self._lines = self._lines, []
        return lines

    def emit(self, record: logging.LogRecord) -> None:
        """Record an error of a library."""
        error = record.exc_info[1] if record.exc_info else None
        self._add(line_of(record.getMessage(), {"logger": record.name, "exc_info": error}))

    def _follow_structlog(self) -> None:
        """Record the errors of all loggers of structlog; existing loggers follow no new setting."""
        passed_on = BoundLoggerBase._proxy_to_logger

        def noted(bound: BoundLoggerBase, method: str, event: str | None = None, /, **values: Any) -> Any:
            if method in ERRORS and values.get("logger") not in LIBRARIES:
                self._add(line_of(event or "", {**bound._context, **values}))
            return passed_on(bound, method, event, **values)

        BoundLoggerBase._proxy_to_logger = noted  # type: ignore[assignment,method-assign]

    def _add(self, line: str) -> None:
        with self._adding:
            self._lines.append(line)


def line_of(event: str, values: dict[str, Any]) -> str:
    """Return one line: the event, its values by name, and the error in short."""
    error = sys.exception() if values.get("exc_info") is True else values.get("exc_info")
    told = [f"{key}={value}" for key, value in sorted(values.items()) if key != "exc_info"]
    return " ".join(" ".join([event, *told, *([repr(error)] if error else [])]).split())


def verdict(lines: Iterable[str], expected: Iterable[str]) -> list[str]:
    """Return the errors that the test does not expect, and the expected errors that did not occur."""
    found, parts = list(lines), list(expected)
    return [
        *(f"error in the log: {line}" for line in found if not any(part in line for part in parts)),
        *(f"expected error is not in the log: {part}" for part in parts if not any(part in line for line in found)),
    ]
