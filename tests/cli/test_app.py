"""The commands as a user types them: what they print, what they say when typed wrong, how they end."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
import yaml

from aischeduler import __version__
from aischeduler.cli.app import kubectl_pool, main
from aischeduler.sandbox.http_server import HttpSandbox
from tests.cli.test_pools import place

AI_SCHEDULER = (sys.executable, "-m", "aischeduler")
COMMANDS = [
    ["pools"],
    ["queues"],
    ["devices"],
    ["plan", "--without", "n"],
    ["snapshot", "-o", "nowhere.jsonl"],
    ["operator"],
    pytest.param(["run", "--no-leader-elect"], marks=pytest.mark.expects_errors("cannot run")),
]


def assert_told(err: str, sentence: str, *, logged: bool) -> None:
    """Assert that standard error has the sentence once, and a line of log before it where `logged`."""
    *lines, last = err.splitlines()
    assert last == f"ai-scheduler: {sentence}"
    told = [{key: field for key, field in json.loads(line).items() if key != "timestamp"} for line in lines]
    line = {"level": "error", "event": "cannot run", "reason": sentence, "exit_status": 1}
    assert told == ([line] if logged else [])


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"ai-scheduler {__version__}\n"


def test_no_arguments_print_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    said = capsys.readouterr()
    assert all(command in said.out for command in ("run", "demo", "sandbox", "pools", "version"))
    assert said.err == ""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["pool"], "No such command 'pool'. Did you mean 'pools'?"),
        (["pools", "--kubeconfg", "x"], "No such option: --kubeconfg (Possible options: --kubeconfig)"),
        (["pools", "extra"], "Got unexpected extra argument(s) (extra)"),
        (["sandbox", "--port", "65536"], "Invalid value for '--port': Input should be less than or equal to 65535"),
        (["run", "--log-level"], "Option '--log-level' requires an argument."),
    ],
)
def test_command_that_is_typed_wrong_gets_one_sentence_and_status_2(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"ai-scheduler: {sentence}\n")


def test_wrong_choice_names_the_right_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--log-format", "xml"]) == 2
    said = capsys.readouterr().err
    assert "'--log-format': 'xml' is not one of 'json', 'console'" in said
    assert len(said.splitlines()) == 1


@pytest.mark.usefixtures("logging_as_it_was")
@pytest.mark.parametrize("command", COMMANDS)
def test_missing_kubeconfig_is_one_sentence_and_status_1(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--kubeconfig", str(tmp_path / "nope")]) == 1
    sentence = f"{tmp_path / 'nope'}: there is no such kubeconfig file"
    assert_told(capsys.readouterr().err, sentence, logged=command[0] == "run")


@pytest.mark.expects_errors("cannot run")
def test_typo_in_the_configuration_names_file_and_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ai.yaml"
    path.write_text("schedularName: x\n")
    assert main(["run", "--no-leader-elect", "--config", str(path)]) == 1
    sentence = f"{path}: 'schedularName' is not a field; did you mean schedulerName?"
    assert_told(capsys.readouterr().err, sentence, logged=True)


def test_server_that_is_not_there_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(HttpSandbox(port=1).kubeconfig.replace("server: ''", "server: http://127.0.0.1:1"))
    assert main(["pools", "--kubeconfig", str(path)]) == 1
    said = capsys.readouterr().err
    assert "127.0.0.1:1" in said
    assert len(said.splitlines()) == 1


@pytest.mark.usefixtures("logging_as_it_was")
@pytest.mark.parametrize("command", ["pools", "operator"])
@pytest.mark.parametrize("text", ["a: b: c", "- 1", "", "[", "\udcff"])
def test_file_that_is_no_kubeconfig_is_one_sentence(
    command: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_bytes(text.encode(errors="surrogateescape"))
    assert main([command, "--kubeconfig", str(path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"ai-scheduler: {path}: ")
    assert len(said.splitlines()) == 1


@pytest.mark.usefixtures("logging_as_it_was")
def test_health_address_of_the_operator_without_a_port_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["operator", "--health-address", "here"]) == 1
    said = "ai-scheduler: --health-address must be HOST:PORT, :PORT or none, not 'here'\n"
    assert capsys.readouterr().err == said


def test_unknown_context_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(HttpSandbox().kubeconfig)
    assert main(["pools", "--kubeconfig", str(path), "--context", "elsewhere"]) == 1
    said = capsys.readouterr().err
    assert str(path) in said
    assert "elsewhere" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("program", [main, kubectl_pool])
async def test_pools_prints_the_table_of_the_cluster(program: object, tmp_path: Path) -> None:
    async with place(tmp_path) as (_, path, _sandbox):
        name = "main" if program is main else "kubectl_pool"
        command = ["pools"] if program is main else []
        code = f"import sys; from aischeduler.cli.app import {name}; sys.exit({name}())"
        shown = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, *command, "--kubeconfig", str(path), stdout=asyncio.subprocess.PIPE
        )
        out, _ = await shown.communicate()
    assert shown.returncode == 0
    lines = out.decode().splitlines()
    assert lines[0].split() == ["Pools", "Resource", "Capacity", "Allocatable", "Used", "Shared", "Pending", "Total"]
    assert [line.split()[0] for line in lines if " cpu " in line] == ["cpu-pool", "default", "gpu-pool", "masters"]
    gpu = next(line for line in lines[14:] if " gpu " in line).split()
    assert gpu[-6:] == ["64", "64", "0", "0", "0", "64"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_sandbox_says_how_to_use_it_and_ends_quietly(number: signal.Signals, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    running = await asyncio.create_subprocess_exec(
        *AI_SCHEDULER, "sandbox", "--kubeconfig-out", str(path),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert running.stdout is not None
    said = await running.stdout.readline() + await running.stdout.readline()
    assert f"export KUBECONFIG={path}" in said.decode()
    url = yaml.safe_load(path.read_text())["clusters"][0]["cluster"]["server"]
    async with aiohttp.ClientSession() as http, http.get(f"{url}/api/v1/namespaces/default") as answer:
        assert answer.status == 200
    running.send_signal(number)
    out, err = await asyncio.wait_for(running.communicate(), timeout=120)
    assert (running.returncode, out, err) == (0, b"", b"")


def test_sandbox_never_overwrites_another_kubeconfig(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config"
    path.write_text("current-context: production\n")
    assert main(["sandbox", "--kubeconfig-out", str(path)]) == 1
    assert path.read_text() == "current-context: production\n"
    assert f"{path}: exists and is not a sandbox's kubeconfig" in capsys.readouterr().err


async def test_port_that_is_taken_is_one_sentence() -> None:
    async with HttpSandbox() as sandbox:
        port = sandbox.url.rpartition(":")[2]
        refused = await asyncio.create_subprocess_exec(
            *AI_SCHEDULER, "sandbox", "--port", port, stderr=asyncio.subprocess.PIPE
        )
        _, err = await refused.communicate()
    assert refused.returncode == 1
    assert err.decode().startswith(f"ai-scheduler: cannot listen on 127.0.0.1:{port}: ")
    assert len(err.splitlines()) == 1


def test_completion_is_offered_for_bash() -> None:
    shown = subprocess.run(
        [*AI_SCHEDULER, "--show-completion", "bash"],
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "complete" in shown.stdout
