"""`ai-scheduler run`: the process as an operator starts and stops it."""

import asyncio
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from aischeduler.cli.app import main
from aischeduler.cli.demo import read_progress
from aischeduler.cli.demo_cluster import cluster, create, jobs
from aischeduler.cli.run import RunOptions, effective_config
from aischeduler.config.schema import Http, LogFormat, Logging, LogLevel
from aischeduler.kube.access.server import connect
from aischeduler.kube.http.client import Client
from aischeduler.sandbox.http_server import HttpSandbox
from tests.cli.test_app import assert_told
from tests.kube.scripted_server import Script, reply, serving, status

RUN = (sys.executable, "-m", "aischeduler", "run")


async def test_run_binds_a_job_logs_every_decision_and_ends_cleanly_on_sigterm(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    async with HttpSandbox() as sandbox:
        path.write_text(sandbox.kubeconfig)
        async with Client(await connect(str(path), None, lambda: 0.0)) as client:
            await create(client, *cluster(), jobs()[0])
            running = await asyncio.create_subprocess_exec(
                *RUN, "--kubeconfig", str(path), "--no-leader-elect", "--http-address=none",
                stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            async with asyncio.timeout(120):
                while len((await read_progress(client, jobs()[:1]))[0].bound) < 10:
                    await asyncio.sleep(0.1)
            running.send_signal(signal.SIGTERM)
            _, err = await asyncio.wait_for(running.communicate(), timeout=120)
    assert running.returncode == 0
    lines = [json.loads(line) for line in err.splitlines()]
    told = {line["pod"] for line in lines if line.get("pool") == "cpu-pool" and line.get("node", "").startswith("cpu-")}
    assert len(told) == 10
    assert [line for line in lines if line["level"] == "error"] == []


class Running:
    """A scheduler as a process of its own, and the lines that it has logged so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []

    def errors(self) -> set[str]:
        """Return the events of level `error` so far."""
        return {line["event"] for line in self.lines if line["level"] == "error"}

    async def line(self, event: str) -> dict[str, Any]:
        """Return the next line of this event."""
        assert self.process.stderr is not None
        async with asyncio.timeout(120):
            while line := await self.process.stderr.readline():
                self.lines.append(json.loads(line))
                if self.lines[-1]["event"] == event:
                    return self.lines[-1]
        raise AssertionError(f"no {event!r} among {self.lines}")


@asynccontextmanager
async def running(directory: Path, url: str, *options: str, error: str = "") -> AsyncIterator[Running]:
    """A scheduler that runs meanwhile, and logs no other error than this one, and this one."""
    path = directory / "kubeconfig"
    path.write_text(HttpSandbox(port=1).kubeconfig.replace("server: ''", f"server: {url}"))
    process = await asyncio.create_subprocess_exec(
        *RUN, "--kubeconfig", str(path), "--no-leader-elect", "--http-address=none", *options,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    scheduler = Running(process)
    try:
        yield scheduler
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        _, rest = await asyncio.wait_for(process.communicate(), timeout=120)
    scheduler.lines += [json.loads(line) for line in rest.splitlines() if line.startswith(b"{")]
    assert scheduler.errors() == ({error} if error else set())


async def test_sighup_takes_a_changed_file_over_and_the_command_line_still_wins(tmp_path: Path) -> None:
    path = tmp_path / "ai.yaml"
    path.write_text("bindInFlight: 7\n")
    async with (
        HttpSandbox() as sandbox,
        running(tmp_path, sandbox.url, "--config", str(path), error="configuration not applied") as scheduler,
    ):
        await scheduler.line("synced")
        path.write_text('logging: {level: warning}\nhttp: {address: ":1"}\nschedulerName: night\n')
        scheduler.process.send_signal(signal.SIGHUP)
        assert (await scheduler.line("restart needed"))["fields"] == "schedulerName"
        path.write_text("bindInFlight: 0\n")
        scheduler.process.send_signal(signal.SIGHUP)
        refused = await scheduler.line("configuration not applied")
    assert refused["reason"] == f"{path}: bindInFlight must be a whole number from 1 to 256, not 0"
    assert scheduler.process.returncode == 0


async def test_api_server_that_is_too_old_ends_the_run_with_one_sentence(tmp_path: Path) -> None:
    script = Script()
    script.always["get", "/version"] = lambda _: reply(200, {"major": "1", "minor": "30"})
    async with serving(script) as server, running(tmp_path, server.url, error="cannot run") as scheduler:
        told = await scheduler.line("cannot run")
        _, rest = await asyncio.wait_for(scheduler.process.communicate(), timeout=120)
    sentence = f"{server.url} is Kubernetes 1.30; the scheduler needs 1.31 or newer"
    assert (told["level"], told["reason"], told["exit_status"]) == ("error", sentence, 1)
    assert rest.decode() == f"ai-scheduler: {sentence}\n"
    assert scheduler.process.returncode == 1


async def test_api_server_that_is_away_is_named_and_waited_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with running(tmp_path, f"http://127.0.0.1:{port}") as scheduler:
        told = await scheduler.line("API server not reached")
    assert told["server"] == f"http://127.0.0.1:{port}"
    assert f"no connection to http://127.0.0.1:{port}" in told["reason"]
    assert scheduler.process.returncode == 0


async def test_missing_right_is_named_by_verb_and_resource_and_the_run_goes_on(tmp_path: Path) -> None:
    script = Script()
    script.always["get", "/version"] = lambda _: reply(200, {"major": "1", "minor": "36"})
    message = 'pods is forbidden: User "x" cannot list resource "pods" in API group "" at the cluster scope'
    script.always["get", "/apis"] = lambda _: reply(200, {"kind": "APIGroupList", "groups": []})
    script.always["get", "/api/v1/pods"] = lambda _: status(403, "Forbidden", message)
    async with serving(script) as server, running(tmp_path, server.url) as scheduler:
        while (told := await scheduler.line("permission missing"))["kind"] != "Pod":
            pass
    assert message in told["reason"]
    assert scheduler.process.returncode == 0


async def test_run_without_the_flag_is_elected_and_gives_the_lease_back_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    async with HttpSandbox() as sandbox:
        path.write_text(sandbox.kubeconfig)
        running = await asyncio.create_subprocess_exec(
            *RUN,
            "--kubeconfig",
            str(path),
            "--log-format=console",
            "--http-address=none",
            stderr=asyncio.subprocess.PIPE,
        )
        assert running.stderr is not None
        lines: list[bytes] = []
        async with asyncio.timeout(120):
            while not lines or b"leading" not in lines[-1]:
                lines.append(await running.stderr.readline())
        running.send_signal(signal.SIGINT)
        _, rest = await asyncio.wait_for(running.communicate(), timeout=120)
    assert b"kube-system/ai-scheduler" in lines[-1]
    assert b"lease released" in rest
    assert running.returncode == 0


def test_command_line_wins_over_the_file_and_the_file_over_the_default(tmp_path: Path) -> None:
    path = tmp_path / "ai.yaml"
    path.write_text("bindInFlight: 7\nlogging: {format: console, level: debug}\n")
    config = effective_config(
        RunOptions(
            kubeconfig=None, context=None, config=path, log_format=None, log_level=LogLevel.ERROR, http_address="none"
        )
    )
    assert config.bind_in_flight == 7
    assert config.logging == Logging(format=LogFormat.CONSOLE, level=LogLevel.ERROR)
    assert config.http == Http(address="none")


def test_http_address_of_the_file_holds_where_the_command_line_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ai.yaml"
    path.write_text('http: {address: "127.0.0.1:9"}\n')
    config = effective_config(
        RunOptions(kubeconfig=None, context=None, config=path, log_format=None, log_level=None, http_address=None)
    )
    assert config.http == Http(address="127.0.0.1:9")


@pytest.mark.expects_errors("ended by a bug")
def test_exception_of_ours_ends_the_run_with_status_4_and_one_line_of_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("aischeduler.cli.run.listen", failing)
    path = tmp_path / "kubeconfig"
    path.write_text(HttpSandbox(port=1).kubeconfig.replace("server: ''", "server: http://127.0.0.1:1"))
    with pytest.raises(SystemExit) as ended:
        main(["run", "--kubeconfig", str(path)])
    (line,) = map(json.loads, capsys.readouterr().err.splitlines())
    assert (ended.value.code, line["event"], line["exit_status"]) == (4, "ended by a bug", 4)
    assert line["exception"].rstrip().endswith("ZeroDivisionError: a bug")


@pytest.mark.expects_errors("cannot run")
@pytest.mark.parametrize("address", ["8080", "host", ":65536", "http://x:1", ""])
def test_wrong_http_address_is_one_sentence(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--http-address", address]) == 1
    sentence = f"--http-address must be host:port such as :8080 or 127.0.0.1:8080, or none, not {address!r}"
    assert_told(capsys.readouterr().err, sentence, logged=True)


@pytest.mark.expects_errors("cannot run")
def test_http_port_that_is_taken_stops_the_start_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(HttpSandbox(port=1).kubeconfig.replace("server: ''", "server: http://127.0.0.1:1"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main(["run", "--kubeconfig", str(path), "--http-address", address]) == 1
    sentence = f"http.address: cannot listen on {address}: Address already in use"
    assert_told(capsys.readouterr().err, sentence, logged=True)


async def test_running_daemon_serves_metrics_and_health_and_says_on_which_port(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    async with HttpSandbox() as sandbox:
        path.write_text(sandbox.kubeconfig)
        async with Client(await connect(str(path), None, lambda: 0.0)) as client:
            await create(client, *cluster(), jobs()[0])
        running = await asyncio.create_subprocess_exec(
            *RUN, "--kubeconfig", str(path), "--no-leader-elect", "--http-address=127.0.0.1:0",
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert running.stderr is not None
        first = json.loads(await running.stderr.readline())
        url = f"http://127.0.0.1:{first['port']}"
        bound = 'ai_scheduler_scheduling_attempts_total{pool="cpu-pool",result="bound"} 10.0'
        async with aiohttp.ClientSession(url) as http, asyncio.timeout(120):
            while bound not in (text := await page(http, "/metrics")):
                await asyncio.sleep(0.1)
            assert await page(http, "/readyz") == "ok\n"
            assert await page(http, "/livez") == "ok\n"
        running.send_signal(signal.SIGTERM)
        await asyncio.wait_for(running.communicate(), timeout=120)
    assert running.returncode == 0
    assert first["event"] == "serving metrics and health"
    assert 'ai_scheduler_pool_resource{kind="used",pool="cpu-pool",resource="pods"} 10.0' in text
    assert 'ai_scheduler_watched_objects{kind="Node"} 20.0' in text


async def page(http: aiohttp.ClientSession, path: str) -> str:
    async with http.get(path) as answer:
        return await answer.text()
