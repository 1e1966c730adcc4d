"""Rules of every test: no asyncio task outlives it, its log has no error, and random values come from the seed."""

import asyncio
import gc
import logging
import os
from collections.abc import AsyncIterator, Generator, Iterator

import pytest
import pytest_asyncio
import structlog
from hypothesis import HealthCheck, settings

from tests import seeds
from tests.log_errors import LogErrors, verdict

pytest_plugins = ["tests.controlplane.pytest_plugin"]

settings.register_profile("default", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("soak", settings.get_profile("default"), max_examples=2_000)
settings.load_profile("soak" if os.environ.get("AI_SCHEDULER_SOAK") == "1" else "default")
LOG_ERRORS = pytest.StashKey[LogErrors]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Record errors of the log from the start, and seed Hypothesis with the seed of this run."""
    if config.getoption("--hypothesis-seed", None) is None:
        config.option.hypothesis_seed = str(seeds.seed())
    config.addinivalue_line("markers", "expects_errors(*parts): the test provokes these errors in the log")
    config.stash[LOG_ERRORS] = LogErrors()


def pytest_collection_finish() -> None:
    """Keep the garbage collector off the modules and tests that stay to the end: visiting them costs a twentieth."""
    gc.collect()
    gc.freeze()


def pytest_report_header() -> str:
    """Return the line with the seed."""
    return f"seed: {seeds.VARIABLE}={seeds.seed()}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to each failure the command that repeats it."""
    report = yield
    if report.failed:
        report.sections.append(("Seed", seeds.repeat(item.nodeid)))
    return report


@pytest.fixture(autouse=True)
def no_error_is_logged(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test if an error is logged that it does not expect, or an expected error is not logged.

    Errors that fixtures of a wider scope log between two tests count for the next test.
    """
    marks = request.node.iter_markers("expects_errors")
    expected = [part for mark in marks for part in mark.args]
    yield
    wrong = verdict(request.config.stash[LOG_ERRORS].take(), expected)
    assert wrong == [], "\n".join(wrong)


@pytest.fixture(autouse=True)
def no_task_is_left_behind(request: pytest.FixtureRequest) -> None:
    """Check the remaining tasks at the end of every test that runs on an event loop."""
    if request.node.get_closest_marker("asyncio") is not None:
        request.getfixturevalue("task_census")


@pytest_asyncio.fixture
async def task_census() -> AsyncIterator[None]:
    """Fail a test that ends with a task still running, its own fixtures included."""
    yield
    left = sorted(task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task())
    assert left == [], f"tasks left behind: {left}"


@pytest.fixture
def logging_as_it_was() -> Iterator[None]:
    """Restore the logging configuration of the process after each test."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    structlog.reset_defaults()
    root.handlers[:], root.level = handlers, level
