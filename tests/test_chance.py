"""What is done by chance is done again under the same seed."""

import os
import subprocess
import sys

from tests import chance

SAYS = "from tests import chance; print(chance.seed(), chance.number('a'), chance.random('b').random())"


def said(seed: str) -> list[str]:
    environment = {**os.environ, chance.VARIABLE: seed} if seed else os.environ
    command = [sys.executable, "-c", SAYS]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()


def test_seed_comes_from_the_environment() -> None:
    assert said("17")[0] == "17"


def test_child_processes_have_the_seed_of_the_run() -> None:
    seed = str(chance.seed())
    assert said("") == said(seed)


def test_same_seed_gives_the_same_chance_and_another_one_does_not() -> None:
    assert said("17") == said("17")
    first, second = said("17"), said("18")
    assert [one == other for one, other in zip(first, second, strict=True)] == [False, False, False]


def test_each_name_has_its_own_chance() -> None:
    assert chance.number("a") != chance.number("b")
    assert chance.random("a").random() == chance.random("a").random()


def test_command_that_repeats_a_test_names_the_seed() -> None:
    assert chance.repeat("tests/test_x.py::test_y") == (
        f"AI_SCHEDULER_SEED={chance.seed()} .venv/bin/python -m pytest 'tests/test_x.py::test_y'"
    )
