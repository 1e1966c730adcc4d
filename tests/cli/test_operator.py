"""`ai-scheduler operator` where it cannot run: one sentence, status 1."""

from pathlib import Path

import pytest

from aischeduler.cli.app import main


@pytest.mark.usefixtures("logging_as_it_was")
def test_missing_kubeconfig_is_one_sentence_and_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["operator", "--kubeconfig", str(tmp_path / "nope")]) == 1
    assert capsys.readouterr().err == f"ai-scheduler: {tmp_path / 'nope'}: there is no such kubeconfig file\n"


@pytest.mark.usefixtures("logging_as_it_was")
@pytest.mark.parametrize("text", ["a: b: c", "- 1", "", "["])
def test_file_that_is_no_kubeconfig_is_one_sentence(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    assert main(["operator", "--kubeconfig", str(path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"ai-scheduler: {path}: ")
    assert len(said.splitlines()) == 1


@pytest.mark.usefixtures("logging_as_it_was")
def test_address_without_a_port_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["operator", "--health-address", "here"]) == 1
    said = "ai-scheduler: --health-address must be HOST:PORT, :PORT or none, not 'here'\n"
    assert capsys.readouterr().err == said
