"""Logs: one event a line, as JSON or for a console.

Invariants:
- An event is one line: every character that is not printable is written as an escape, in values of any depth. Only a
  traceback has more lines; for a console they are indented, so that no text in it looks like another event.
- Values are short: long strings are cut, and a value that is not a string, number or boolean is written as its `repr`.
- A line that cannot be written (a full disk, a closed pipe) is lost; the program continues.
- Warnings and errors are flushed at once; other lines before the event loop runs anything else.
- Lines of libraries (asyncio, aiohttp) are written in the same form, from WARNING on.
- New settings apply to existing loggers too.
"""

import asyncio
import logging
from collections.abc import MutableMapping
from contextlib import suppress
from textwrap import indent
from typing import Any, BinaryIO, ClassVar, Final

import orjson
import structlog
from structlog.typing import Processor

from aischeduler.config.schema import LogFormat, Logging

TRACEBACK_LENGTH_MAX: Final = 20_000
"""Longest traceback; the last frames are kept."""

TRACEBACK_INDENT: Final = "  "

Line = MutableMapping[str, Any]

_INTEGER_BITS_MAX: Final = 63
_TRACEBACK: Final = "exception"
_processors: Final[list[Processor]] = []
"""The processors of all loggers: every logger holds this list, so that new settings apply to it."""


_LEVELS: Final = {name.lower(): level for name, level in logging.getLevelNamesMapping().items()}


class _Logger(structlog.make_filtering_bound_logger(logging.NOTSET)):  # type: ignore[misc]
    """The class of all loggers: it drops the lines below `level`, which may change at any time."""

    level: ClassVar[int] = logging.NOTSET

    def is_enabled_for(self, level: int) -> bool:
        """Return whether lines of this level are written."""
        return level >= self.level

    def _proxy_to_logger(self, method_name: str, event: str | None = None, *args: object, **fields: object) -> Any:
        if _LEVELS[method_name] >= self.level:
            super()._proxy_to_logger(method_name, event, *args, **fields)


def configure(settings: Logging, out: BinaryIO) -> None:
    """Send the lines of structlog and of the standard library's loggers to `out`; may be called again."""
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    _Logger.level = level
    _processors[:] = (
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _cleaner(settings.value_length_max),
        _json if settings.format is LogFormat.JSON else _Console(colors=out.isatty()),
    )
    structlog.configure(
        processors=_processors,
        wrapper_class=_Logger,
        logger_factory=lambda *_: _Lines(out),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[_Libraries(max(level, logging.WARNING))], force=True)


def _cleaner(length_max: int) -> Processor:
    """Return a processor that makes every value of a line short, printable and of a JSON type."""

    def clean(_logger: object, _method: str, line: Line) -> Line:
        for key, value in line.items():
            if type(value) is str and len(value) <= length_max and value.isprintable():
                continue  # nearly every value of nearly every line
            if key == _TRACEBACK and isinstance(value, str):
                line[key] = "\n".join(printable(text) for text in value[-TRACEBACK_LENGTH_MAX:].split("\n"))
            else:
                line[key] = _clean(value, length_max)
        return line

    return clean


def printable(text: str) -> str:
    """Return the text with control, format and surrogate characters as escapes."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _clean(value: object, length_max: int) -> str | int | float | bool | None:
    if isinstance(value, str) and len(value) <= length_max:
        return printable(value)
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int) and value.bit_length() <= _INTEGER_BITS_MAX:
        return value
    text = value if isinstance(value, str) else repr(value)
    if len(text) > length_max:
        text = f"{text[:length_max]}... ({len(text)} characters)"
    return printable(text)


def _json(_logger: object, _method: str, line: Line) -> bytes:
    first = {"timestamp": line.pop("timestamp"), "level": line.pop("level"), "event": line.pop("event")}
    return orjson.dumps({**first, **line})


class _Lines:
    """Writes lines (a logger, in the words of structlog); it never fails."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._flushing: asyncio.AbstractEventLoop | None = None
        """The event loop in which a flush is due; None if none is."""

    def info(self, line: bytes) -> None:
        """Write one line, or lose it; in an event loop, lines that follow each other directly are flushed together."""
        self._write(line)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # there is no event loop
            self._flush()
            return
        if self._flushing is not loop:
            self._flushing = loop
            loop.call_soon(self._flush)

    def warning(self, line: bytes) -> None:
        """Write one line now, or lose it."""
        self._write(line)
        self._flush()

    def _write(self, line: bytes) -> None:
        with suppress(OSError):
            self._out.write(line + b"\n")

    def _flush(self) -> None:
        self._flushing = None
        with suppress(OSError):
            self._out.flush()

    debug = msg = info
    warn = error = exception = critical = fatal = warning


class _Console:
    """Renders a line for people, with colours on a terminal."""

    def __init__(self, *, colors: bool) -> None:
        self._render = structlog.dev.ConsoleRenderer(
            colors=colors, exception_formatter=structlog.dev.plain_traceback, sort_keys=False
        )

    def __call__(self, logger: object, method: str, line: Line) -> bytes:
        if _TRACEBACK in line:
            line[_TRACEBACK] = indent(str(line[_TRACEBACK]), TRACEBACK_INDENT)
        return self._render(logger, method, line).encode()


class _Libraries(logging.Handler):
    """Passes records of the standard library's loggers to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record as a line with the name of its logger."""
        structlog.get_logger().log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info)
