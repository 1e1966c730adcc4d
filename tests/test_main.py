"""The parts of a test run: together they select each test exactly once, and a part that fails makes the run fail."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import __main__ as run

PASSES = "def test_passes():\n    pass\n"
FAILS = "def test_fails():\n    assert False\n"


def test_each_test_is_in_exactly_one_part() -> None:
    """A part selects by its mark and by paths; the paths of two parts with the same mark have no test in common."""
    half, scenarios, real, core, days, worlds, programs, rest = run.PARTS.values()
    assert half == (*run.REAL, *run.HALF)
    assert scenarios == (*run.REAL, *run.SCENARIOS)
    assert real == (*run.REAL, *run.OTHERS_ON_REAL, *(f"--ignore={path}" for path in run.HALF))
    assert core == (*run.PLAIN, *run.CORE)
    assert days == (*run.PLAIN, *run.DAYS)
    assert worlds == (*run.PLAIN, *run.WORLDS)
    assert programs == (*run.PLAIN, *run.SHELLS)
    named = (*run.CORE, *run.DAYS, *run.WORLDS, *run.SHELLS)
    assert rest == (*run.PLAIN, *(f"--ignore={path}" for path in named))
    assert {run.REAL, run.PLAIN} == {("-m", "real and not soak"), ("-m", "not real and not soak")}
    real_paths, plain_paths = (*run.SCENARIOS, *run.OTHERS_ON_REAL), named
    assert [path for path in (*real_paths, *plain_paths, *run.HALF) if not (run.ROOT / path).exists()] == []
    for alike in (real_paths, plain_paths):
        paths = [run.ROOT / path for path in alike]
        assert [(one, other) for one in paths for other in paths if one != other and one.is_relative_to(other)] == []


def test_tests_on_the_real_api_server_are_where_a_part_looks_for_them() -> None:
    here = [run.ROOT / path for path in (*run.SCENARIOS, *run.OTHERS_ON_REAL)]
    others = [path for path in (run.ROOT / "tests").rglob("*.py") if not any(path.is_relative_to(one) for one in here)]
    signs = re.compile(r"\bcontrol_plane\b|\bmark\.real\b")
    assert [path for path in others if path != Path(__file__) and signs.search(path.read_text())] == []


def test_programs_of_a_part_may_keep_their_bytecode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(run.NO_BYTECODE, "1")
    source = "import sys\n\n\ndef test_it():\n    assert not sys.dont_write_bytecode\n"
    (tmp_path / "test_it.py").write_text(source)
    options = ("-q", str(tmp_path), "-p", "no:cacheprovider", f"--rootdir={tmp_path}", "-c", "/dev/null")
    part = run.start(options, tmp_path / "output")
    assert part.process.wait() == 0, part.output.read_text()


@pytest.mark.whole
@pytest.mark.parametrize(("sources", "status"), [((PASSES, PASSES), 0), ((PASSES, FAILS), 1), ((PASSES, ""), 0)])
def test_run_passes_only_if_every_part_does(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    sources: Sequence[str],
    status: int,
) -> None:
    parts: dict[str, tuple[str, ...]] = {}
    for number, source in enumerate(sources):
        path = tmp_path / f"test_part_{number}.py"
        path.write_text(source)
        parts[f"part {number}"] = (str(path), "-p", "no:cacheprovider", f"--rootdir={tmp_path}", "-c", "/dev/null")
    monkeypatch.setattr(run, "PARTS", parts)
    assert run.main(["-q"]) == status
    shown = capsys.readouterr().out
    assert ("failed: part 1" in shown) is bool(status)
    assert shown.count("\n===== part ") == len(sources)
