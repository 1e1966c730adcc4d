"""The same seed gives the same random values."""

import os
import subprocess
import sys

from tests import seeds

SAYS = "from tests import seeds; print(seeds.seed(), seeds.number('a'), seeds.random('b').random())"


def said(seed: str) -> list[str]:
    environment = {**os.environ, seeds.VARIABLE: seed} if seed else os.environ
    command = [sys.executable, "-c", SAYS]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()


def test_seed_comes_from_the_environment() -> None:
    assert said("17")[0] == "17"


def test_child_processes_have_the_seed_of_the_run() -> None:
    seed = str(seeds.seed())
    assert said("") == said(seed)


def test_same_seed_gives_the_same_random_values_and_another_one_does_not() -> None:
    assert said("17") == said("17")
    first, second = said("17"), said("18")
    assert [one == other for one, other in zip(first, second, strict=True)] == [False, False, False]


def test_each_name_has_its_own_random_values() -> None:
    assert seeds.number("a") != seeds.number("b")
    assert seeds.random("a").random() == seeds.random("a").random()


def test_command_that_repeats_a_test_names_the_seed() -> None:
    assert seeds.repeat("tests/test_x.py::test_y") == (
        f"AI_SCHEDULER_SEED={seeds.seed()} .venv/bin/python -m pytest 'tests/test_x.py::test_y'"
    )
