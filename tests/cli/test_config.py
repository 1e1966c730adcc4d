"""`ai-scheduler config print`: what is in force."""

from pathlib import Path

import pytest

from aischeduler.cli.app import main
from aischeduler.config.load import parse_config
from aischeduler.config.schema import Config


def test_print_shows_the_file_over_the_defaults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ai.yaml"
    path.write_text("bindInFlight: 16\n")
    assert main(["config", "print", "--config", str(path)]) == 0
    said = capsys.readouterr().out
    assert "bindInFlight: 16  # default: 128\n" in said
    assert parse_config("printed", said.encode()) == Config(bind_in_flight=16)


def test_print_of_the_defaults_looks_at_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "print", "--defaults", "--config", str(tmp_path / "nope")]) == 0
    said = capsys.readouterr().out
    assert parse_config("printed", said.encode()) == Config()
    assert "#" not in said


def test_print_of_a_wrong_file_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ai.yaml"
    path.write_text("bindInFlight: 0\n")
    assert main(["config", "print", "--config", str(path)]) == 1
    sentence = f"{path}: bindInFlight must be a whole number from 1 to 256, not 0"
    assert capsys.readouterr() == ("", f"ai-scheduler: {sentence}\n")
