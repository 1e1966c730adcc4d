"""What a command sets up for its process is undone for the next test."""

import pytest


@pytest.fixture(autouse=True)
def process_as_it_was(logging_as_it_was: None) -> None:
    """Commands configure the logs."""
