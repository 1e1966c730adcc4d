"""A credential program may ask the user of a command, as under kubectl; a daemon lets it ask nobody."""

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kube.kubeconfig_files import credential, program, runs, write

NOWHERE = {"server": "http://127.0.0.1:1"}


def asking(directory: Path, mode: str) -> str:
    """Write a kubeconfig whose program asks for a code and leaves it in `heard`."""
    heard = directory / "heard"
    script = f'printf "code: " >&2; read code; echo "$code $KUBERNETES_EXEC_INFO" > "{heard}"\n'
    command = program(directory / "login", f"{script}echo '{credential(token='t')}'")
    return write(directory / "config", NOWHERE, runs(command, interactiveMode=mode))


def start(*arguments: str, **streams: Any) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-m", "aischeduler", *arguments], stdout=subprocess.DEVNULL, **streams)


@pytest.mark.parametrize("mode", ["Always", "IfAvailable"])
def test_program_asks_the_user_of_a_command(tmp_path: Path, mode: str) -> None:
    ours, theirs = pty.openpty()
    with start("pools", "--kubeconfig", asking(tmp_path, mode), stdin=theirs, stderr=theirs) as command:
        os.close(theirs)
        shown = b""
        while b"code: " not in shown:
            shown += os.read(ours, 1024)
        os.write(ours, b"4711\n")
        shown = b""
        while b"cannot be reached" not in b" ".join(shown.split()):
            shown += os.read(ours, 1024)
        assert command.wait(60) == 1
    os.close(ours)
    assert (tmp_path / "heard").read_text().startswith("4711 ")
    assert '"interactive":true' in (tmp_path / "heard").read_text()


def test_program_asks_nobody_without_a_terminal(tmp_path: Path) -> None:
    path = asking(tmp_path, "IfAvailable")
    with start("pools", "--kubeconfig", path, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as command:
        assert command.stderr is not None
        assert b"code: " not in command.stderr.read()
    assert (tmp_path / "heard").read_text().startswith(" ")
    assert '"interactive":false' in (tmp_path / "heard").read_text()


def test_daemon_refuses_a_program_that_must_ask_even_with_a_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    path = asking(tmp_path, "Always")
    with start("run", "--kubeconfig", path, stdin=theirs, stderr=subprocess.PIPE) as command:
        os.close(theirs)
        assert command.stderr is not None
        said = b" ".join(command.stderr.read().split())
        assert command.wait(60) != 0
    os.close(ours)
    assert b"needs a terminal (exec.interactiveMode Always)" in said
    assert not (tmp_path / "heard").exists()
