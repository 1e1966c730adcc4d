"""The parts of a test run: together they select each test exactly once, and a part that fails makes the run fail."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import __main__ as run

PASSES = "def test_passes():\n    pass\n"
FAILS = "def test_fails():\n    assert False\n"


def test_each_test_is_in_exactly_one_part() -> None:
    """The parts with the mark `real` name paths, or leave exactly these paths out; the others select by marks alone."""
    parts = list(run.PARTS.values())
    assert [part for part in parts if part[1] != "real and not soak"] == [
        ("-m", "whole and not real and not soak"),
        ("-m", "not whole and not real and not soak"),
    ]
    real = [part[2:] for part in parts if part[1] == "real and not soak"]
    (rest,) = [part for part in real if any(option.startswith("--ignore=") for option in part)]
    named = [path for part in real if part is not rest for path in part]
    assert sorted(rest) == sorted(f"--ignore={path}" for path in named)
    assert all((run.ROOT / path).exists() for path in named)
    assert len(set(named)) == len(named)


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
