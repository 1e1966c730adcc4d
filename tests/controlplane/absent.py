"""Skips a test whose program is missing.

Invariant: the skip has a reason, and with `CI=true` it is a failure.
"""

import os
from typing import NoReturn

import pytest


def in_ci() -> bool:
    """Return whether a skipped test fails the run: the environment has `CI=true`."""
    return os.environ.get("CI", "").lower() == "true"


def leave_out(reason: str) -> NoReturn:
    """Skip the calling test with this reason; with `CI=true` fail it."""
    if in_ci():
        pytest.fail(f"left out with CI=true: {reason}", pytrace=False)
    pytest.skip(reason)
