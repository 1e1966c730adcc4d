"""The seed of a test run: a test that draws random values draws the same ones under the same seed.

`AI_SCHEDULER_SEED` sets the seed. Without it the seed is the day in UTC, so that every day tests new values.
"""

import os
import time
from functools import cache
from random import Random  # noqa: TID251 - the generator is made from the seed

VARIABLE = "AI_SCHEDULER_SEED"


@cache
def seed() -> int:
    """Return the seed of this run. It does not change at midnight, and child processes inherit it."""
    return int(os.environ.setdefault(VARIABLE, time.strftime("%Y%m%d", time.gmtime())))


def random(name: str) -> Random:
    """Return a random number generator for one test or case: a different one for each name."""
    return Random(f"{seed()} {name}")


def number(name: str) -> int:
    """Return a seed for one test or case: a different one for each name."""
    return random(name).getrandbits(32)


def repeat(test: str) -> str:
    """Return the command that runs a test again as in this run."""
    return f"{VARIABLE}={seed()} .venv/bin/python -m pytest '{test}'"
