"""`ai-scheduler replay` says whether an engine still decides as a journal shows."""

from pathlib import Path

import pytest

from aischeduler.cli.app import main
from aischeduler.cli.run import open_journal
from aischeduler.config.errors import ConfigError
from aischeduler.engine.journal import JournaledScheduler
from aischeduler.engine.profile import default_profile
from aischeduler.model.events import Seen
from aischeduler.model.names import CLUSTER
from tests.build import a_node, a_pod


@pytest.fixture
def lines() -> list[bytes]:
    """Return the journal of an engine that binds a pod."""
    found: list[bytes] = []
    scheduler = JournaledScheduler(default_profile(), "run", found.append)
    scheduler.observe(Seen(a_node("n")), 0.0)
    scheduler.observe(Seen(a_pod("p")), 0.0)
    for pool in ("default", CLUSTER, "default"):
        scheduler.decide(pool, 0.0, 1)
    return found


def written(directory: Path, lines: list[bytes]) -> str:
    path = directory / "journal.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return str(path)


def test_journal_without_a_difference(tmp_path: Path, lines: list[bytes], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", written(tmp_path, lines)]) == 0
    assert capsys.readouterr().out == f"{len(lines) - 1} calls: no difference.\n"


def test_first_difference_is_shown_with_both_actions(
    tmp_path: Path, lines: list[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    first = next(i for i, line in enumerate(lines) if b'["Bind"' in line)
    lines[first] = lines[first].replace(b'["Bind","', b'["Bind","x', 1)
    assert main(["replay", written(tmp_path, lines)]) == 1
    where, recorded, replayed = capsys.readouterr().out.splitlines()
    assert where.startswith(f"Line {first + 1}: the call at ")
    assert recorded.startswith('  recorded: ["Bind","x')
    assert replayed.strip() == recorded.strip().replace("recorded", "replayed").replace('"Bind","x', '"Bind","')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: it is not the first line of a journal"),
        ('{"journal":9}\n', "line 1: the journal has the format 9, and this version reads format 1"),
        ("kind: Pod\n", "line 1: it is not the first line of a journal"),
    ],
)
def test_file_that_is_no_journal_is_one_sentence(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    assert main(["replay", str(path)]) == 2
    assert capsys.readouterr().err.startswith(f"ai-scheduler: {path}: {message}")


def test_file_that_is_cut_off_is_named_by_line(
    tmp_path: Path, lines: list[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", written(tmp_path, [*lines[:5], lines[5][:20]])]) == 2
    assert "line 6: it is cut off" in capsys.readouterr().err


def test_missing_file_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err == f"ai-scheduler: {tmp_path / 'none'}: No such file or directory\n"


def test_journal_directory_that_cannot_be_made_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"--journal: .*file: File exists"):
        open_journal(tmp_path / "file")
