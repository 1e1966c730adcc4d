"""A recorded run, replayed in a fresh interpreter with another hash seed, gives the same actions."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import seeds
from tests.golden.record import record

RUNS = [30, pytest.param(100, marks=pytest.mark.soak)]
INTERPRETERS = 4
PROGRAM = """
import sys
from pathlib import Path
from aischeduler.engine.journal import replay
for name in sys.argv[1:]:
    difference = replay(Path(name).read_bytes().splitlines())
    print(name, difference)
"""


def journals(lines: list[bytes]) -> list[list[bytes]]:
    """Return the lines of each journal."""
    found: list[list[bytes]] = []
    for line in lines:
        if line.startswith(b"{"):
            found.append([])
        found[-1].append(line)
    return found


@pytest.mark.whole
@pytest.mark.timeout(600)
@pytest.mark.parametrize("runs", RUNS)
def test_recorded_runs_give_the_same_actions_in_fresh_interpreters(tmp_path: Path, runs: int) -> None:
    found = journals(record(runs, seeds.number("replayed days")))
    assert len(found) >= runs
    files = [tmp_path / f"{number}.jsonl" for number in range(len(found))]
    for file, lines in zip(files, found, strict=True):
        file.write_bytes(b"\n".join(lines) + b"\n")
    said: list[str] = []
    for number in range(INTERPRETERS):
        command = [sys.executable, "-c", PROGRAM, *map(str, files[number::INTERPRETERS])]
        environment = {**os.environ, "PYTHONHASHSEED": str(number + 1)}
        said += subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(said) == len(found)
    assert [line for line in said if not line.endswith(" None")] == []
