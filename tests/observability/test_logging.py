"""The content of log lines in both formats."""

import asyncio
import errno
import io
import json
import logging
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from aischeduler.config.schema import LogFormat, Logging, LogLevel
from aischeduler.observability.logging import TRACEBACK_LENGTH_MAX, configure, printable

pytestmark = pytest.mark.usefixtures("logging_as_it_was")


def written(log_format: LogFormat, level: LogLevel = LogLevel.INFO) -> io.BytesIO:
    out = io.BytesIO()
    configure(Logging(format=log_format, level=level), out)
    return out


def fail(reason: str) -> None:
    raise ValueError(reason)


def json_line(out: io.BytesIO) -> dict[str, Any]:
    (line,) = out.getvalue().splitlines()
    read: dict[str, Any] = json.loads(line)
    return read


def test_json_line_begins_with_time_level_and_event() -> None:
    out = written(LogFormat.JSON)
    structlog.get_logger().info("bound", pod="team/a", feasible_nodes=7)
    line = json_line(out)
    assert list(line) == ["timestamp", "level", "event", "pod", "feasible_nodes"]
    assert (line["level"], line["event"], line["pod"], line["feasible_nodes"]) == ("info", "bound", "team/a", 7)
    assert line["timestamp"].endswith("Z")


def test_console_line_is_plain_text_without_a_terminal() -> None:
    out = written(LogFormat.CONSOLE)
    structlog.get_logger().info("bound", pod="team/a")
    text = out.getvalue().decode()
    assert "[info" in text
    assert "pod=team/a" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("log_format", LogFormat)
def test_control_characters_and_escapes_never_reach_the_terminal(log_format: LogFormat) -> None:
    out = written(log_format)
    structlog.get_logger().info(
        "bound\r\nfake line", pod="a\x1b[31m\nb\x9b2J\u202ec\u2028d\udc80", nested=[{"key": "\x1b]0;title\x07"}]
    )
    text = out.getvalue().decode()
    assert text.endswith("\n")
    assert text[:-1].isprintable()


def test_escapes_are_readable_after_json_is_decoded() -> None:
    out = written(LogFormat.JSON)
    structlog.get_logger().info("bound", pod="a\x1b[31mb\n")
    assert json_line(out)["pod"] == r"a\x1b[31mb\n"


def test_long_values_are_cut_and_their_length_is_added() -> None:
    out = written(LogFormat.JSON)
    structlog.get_logger().info("bound", note="x" * 250_000)
    assert json_line(out)["note"] == "x" * Logging().value_length_max + "... (250000 characters)"


def test_values_without_a_json_type_are_written_as_text() -> None:
    out = written(LogFormat.JSON)
    structlog.get_logger().info("bound", big=2**80, names=frozenset(["a"]), none=None, nan=float("nan"))
    line = json_line(out)
    assert (line["big"], line["names"], line["none"], line["nan"]) == (str(2**80), "frozenset({'a'})", None, None)


@pytest.mark.parametrize(
    ("level", "lines"), [(LogLevel.DEBUG, 4), (LogLevel.INFO, 3), (LogLevel.WARNING, 2), (LogLevel.ERROR, 1)]
)
@pytest.mark.expects_errors("e")
def test_lines_below_the_level_are_not_written(level: LogLevel, lines: int) -> None:
    out = written(LogFormat.JSON, level)
    log = structlog.get_logger()
    log.debug("d")
    log.info("i")
    log.warning("w")
    log.error("e")
    assert len(out.getvalue().splitlines()) == lines


@pytest.mark.expects_errors("the loop failed")
@pytest.mark.parametrize("log_format", LogFormat)
def test_traceback_keeps_its_lines_but_not_their_control_characters(log_format: LogFormat) -> None:
    out = written(log_format)
    try:
        fail("bad \x1b[31m name")
    except ValueError:
        structlog.get_logger().exception("the loop failed", pool="cpu-pool")
    text = out.getvalue().decode()
    shown = json.loads(text)["exception"] if log_format is LogFormat.JSON else text.replace("\n  ", "\n")
    assert "\nValueError: bad \\x1b[31m name" in shown
    assert shown.replace("\n", "").isprintable()


@pytest.mark.expects_errors("failed")
@pytest.mark.parametrize("log_format", LogFormat)
def test_text_of_an_error_does_not_look_like_another_event(log_format: LogFormat) -> None:
    out = written(log_format)
    try:
        fail("no\n2026-01-02T03:04:05Z [info] bound")
    except ValueError:
        structlog.get_logger().exception("failed")
    assert [line for line in out.getvalue().decode().splitlines() if not line.startswith(" ")][1:] == []


@given(st.text(), st.text())
def test_event_with_any_text_is_one_printable_line(event: str, value: str) -> None:
    for log_format in LogFormat:
        out = written(log_format)
        structlog.get_logger().info(event, pod=value, reason=f"x {value}", nested={"names": [value]})
        text = out.getvalue().decode()
        assert text[-1] == "\n"
        assert text[:-1].isprintable()


@pytest.mark.expects_errors("failed")
def test_end_of_a_long_traceback_is_kept() -> None:
    out = written(LogFormat.JSON)
    structlog.get_logger().error("failed", exception="x" * TRACEBACK_LENGTH_MAX + "the reason")
    exception = json_line(out)["exception"]
    assert len(exception) == TRACEBACK_LENGTH_MAX
    assert exception.endswith("the reason")


@pytest.mark.expects_errors("Task was destroyed")
def test_lines_of_libraries_have_the_same_form() -> None:
    out = written(LogFormat.JSON)
    logging.getLogger("asyncio").info("small talk")
    logging.getLogger("asyncio").error("Task was destroyed: %s", "\x1b[2J")
    line = json_line(out)
    assert (line["level"], line["logger"], line["event"]) == ("error", "asyncio", r"Task was destroyed: \x1b[2J")


def test_usual_text_is_returned_unchanged() -> None:
    text = "0/3 nodes are available: 1 Insufficient cpu — 資源池"
    assert printable(text) is text


class Counting(io.BytesIO):
    flushed = 0

    def flush(self) -> None:
        self.flushed = len(self.getvalue().splitlines())


async def test_lines_of_one_turn_are_flushed_together_and_warnings_at_once() -> None:
    out = Counting()
    configure(Logging(), out)
    log = structlog.get_logger()
    log.info("bind")
    log.info("bind")
    assert out.flushed == 0
    await asyncio.sleep(0)
    assert out.flushed == 2
    log.info("bind")
    log.warning("bind refused")
    assert out.flushed == 4
    log.info("bind")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert out.flushed == 5


def test_lines_are_flushed_in_a_new_event_loop_although_the_last_one_ended_before_its_flush() -> None:
    out = Counting()
    configure(Logging(), out)
    log = structlog.get_logger().bind()

    def end_with_a_line(loop: asyncio.AbstractEventLoop) -> None:
        log.info("last words")
        loop.stop()

    first = asyncio.new_event_loop()
    first.call_soon(first.call_soon, end_with_a_line, first)
    first.run_forever()
    first.close()

    async def another() -> None:
        log.info("first words")
        await asyncio.sleep(0)

    asyncio.run(another())
    assert out.flushed == 2


class FullDisk(io.BytesIO):
    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_line_that_cannot_be_written_raises_nothing() -> None:
    out = FullDisk()
    configure(Logging(), out)
    structlog.get_logger().info("bound", pod="team/a")
    assert b"bound" in out.getvalue()


def test_existing_logger_follows_new_settings() -> None:
    out = written(LogFormat.JSON, LogLevel.WARNING)
    log = structlog.get_logger().bind(part="x")
    log.info("not yet")
    assert not log.is_enabled_for(logging.INFO)
    configure(Logging(format=LogFormat.CONSOLE, level=LogLevel.DEBUG, value_length_max=200), out)
    log.debug("now", note="y" * 201)
    configure(Logging(level=LogLevel.ERROR), out)
    log.warning("no more")
    (line,) = out.getvalue().decode().splitlines()
    assert "[debug" in line
    assert "y" * 200 + "... (201 characters)" in line
    assert "part=x" in line
