"""`ai-scheduler operator` where it cannot run: one sentence, status 1."""

import subprocess
import sys
from pathlib import Path

import pytest

from aischeduler.cli.app import main

WITHOUT = """
import sys
sys.modules["kopf"] = sys.modules["kubernetes"] = None
from aischeduler.cli.app import main
sys.exit(main(["operator"]))
"""
"""A Python without the packages of the operator."""


def test_operator_without_its_packages_says_how_to_install_them() -> None:
    ran = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)
    sentence = "the packages of the operator are not installed: pip install '.[operator]' in its repository"
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", f"ai-scheduler: {sentence}\n")


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
