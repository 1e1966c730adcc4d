"""What holds for every test: no asyncio task outlives it, and chance is a seed."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
import structlog
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.controlplane.pytest_plugin"]

settings.register_profile("default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("soak", settings.get_profile("default"), derandomize=False, max_examples=2_000)
settings.load_profile("default")


@pytest.fixture(autouse=True)
def no_task_is_left_behind(request: pytest.FixtureRequest) -> None:
    """Have the tasks counted at the end of every test that runs on an event loop."""
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
    """Undo for the next test what a test set up for the logs of its process."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    structlog.reset_defaults()
    root.handlers[:], root.level = handlers, level
