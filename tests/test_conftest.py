"""The rules of `conftest.py` fail tests that break them."""

import subprocess
import sys
from pathlib import Path

from tests import seeds

ROOT = Path(__file__).resolve().parent.parent
LEAKS = """
import asyncio

async def test_leaks():
    asyncio.get_running_loop().create_task(asyncio.sleep(100), name="forgotten")
    await asyncio.sleep(0)

async def test_waits_for_what_it_started():
    await asyncio.get_running_loop().create_task(asyncio.sleep(0))
"""
ERRORS = """
import asyncio
import io
import threading
import pytest
import structlog
from aischeduler.config.schema import Logging
from aischeduler.observability.logging import configure

held = structlog.get_logger().bind(job="j")

def test_logs_an_error():
    held.error("event not processed", exc_info=KeyError("x"))

def test_logs_an_error_in_a_thread():
    thread = threading.Thread(target=lambda: structlog.get_logger().exception("in a thread"))
    thread.start()
    thread.join()

def test_logs_an_error_as_the_daemon_does():
    configure(Logging(), io.BytesIO())
    structlog.get_logger().error("to a file")
    structlog.reset_defaults()

async def test_swallows_what_a_callback_raises():
    asyncio.get_running_loop().call_soon(lambda: 1 / 0)
    await asyncio.sleep(0.01)

@pytest.mark.expects_errors("job=j KeyError('x')")
def test_expects_what_it_logs():
    held.error("event not processed", exc_info=KeyError("x"))

@pytest.mark.expects_errors("another", "event not processed")
def test_expects_more_than_it_logs():
    held.error("event not processed")

def test_logs_a_warning():
    held.warning("careful")
"""
CHANCE = """
import hypothesis.core
from tests import seeds

def test_fails():
    raise ValueError("no")

def test_seed():
    assert hypothesis.core.global_force_seed == seeds.seed()
"""
SAID = {
    "error in the log: event not processed job=j KeyError('x')",
    "error in the log: in a thread",
    "error in the log: to a file",
    "expected error is not in the log: another",
}


def run(directory: Path, suite: str) -> str:
    """Return the output of pytest for this suite with the rules."""
    path = directory / "test_suite.py"
    path.write_text(suite)
    (directory / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-c"]
    return subprocess.run(
        [*command, str(directory / "pytest.ini"), str(path)], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout


def test_test_that_leaves_a_task_behind_fails(tmp_path: Path) -> None:
    said = run(tmp_path, LEAKS)
    assert "2 passed, 1 error" in said
    assert "tasks left behind: ['forgotten']" in said


def test_test_in_which_an_error_is_logged_fails_unless_it_expects_it(tmp_path: Path) -> None:
    said = run(tmp_path, ERRORS)
    assert "7 passed, 5 errors" in said
    told = {line.partition("AssertionError: ")[2] for line in said.splitlines()}
    assert told >= SAID
    assert any("logger=asyncio ZeroDivisionError" in line for line in told)


def test_failure_has_the_command_that_repeats_it_and_hypothesis_uses_the_seed(tmp_path: Path) -> None:
    said = run(tmp_path, CHANCE)
    assert "1 passed, 1 failed" in said or "1 failed, 1 passed" in said
    assert f"seed: AI_SCHEDULER_SEED={seeds.seed()}" in said
    assert f"AI_SCHEDULER_SEED={seeds.seed()} .venv/bin/python -m pytest 'test_suite.py::test_fails'" in said
