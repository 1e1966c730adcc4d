"""`ai-scheduler run`: the process as an operator starts and stops it."""

import asyncio
import json
import signal
import sys
from pathlib import Path

from aischeduler.cli.demo_cluster import GOALS, cluster, create, jobs
from aischeduler.cli.demo_standing import standings
from aischeduler.cli.run import Options, settings
from aischeduler.config.schema import LogFormat, Logging, LogLevel
from aischeduler.kube.auth import connect
from aischeduler.kube.client import Client
from aischeduler.sandbox.http import HttpSandbox

RUN = (sys.executable, "-m", "aischeduler", "run")


async def test_run_binds_a_job_logs_every_decision_and_ends_cleanly_on_sigterm(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    async with HttpSandbox() as sandbox:
        path.write_text(sandbox.kubeconfig)
        async with Client(await connect(str(path), None, lambda: 0.0)) as client:
            await create(client, *cluster(), jobs()[0])
            running = await asyncio.create_subprocess_exec(
                *RUN, "--kubeconfig", str(path), "--no-leader-elect", stderr=asyncio.subprocess.PIPE
            )
            async with asyncio.timeout(20):
                while len((await standings(client, GOALS[:1]))[0].bound) < 10:
                    await asyncio.sleep(0.1)
            running.send_signal(signal.SIGTERM)
            _, err = await asyncio.wait_for(running.communicate(), timeout=20)
    assert running.returncode == 0
    lines = [json.loads(line) for line in err.splitlines()]
    told = {line["pod"] for line in lines if line.get("pool") == "cpu-pool" and line.get("node", "").startswith("cpu-")}
    assert len(told) == 10


async def test_run_without_the_flag_says_that_there_is_no_election_yet(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    async with HttpSandbox() as sandbox:
        path.write_text(sandbox.kubeconfig)
        running = await asyncio.create_subprocess_exec(
            *RUN, "--kubeconfig", str(path), "--log-format", "console", stderr=asyncio.subprocess.PIPE
        )
        assert running.stderr is not None
        lines: list[bytes] = []
        async with asyncio.timeout(20):
            while not lines or b"synced" not in lines[-1]:
                lines.append(await running.stderr.readline())
        running.send_signal(signal.SIGINT)
        await asyncio.wait_for(running.communicate(), timeout=20)
    assert b"there is no leader election yet" in lines[0]
    assert running.returncode == 0


def test_command_line_wins_over_the_file_and_the_file_over_the_default(tmp_path: Path) -> None:
    path = tmp_path / "ai.yaml"
    path.write_text("bindInFlight: 7\nlogging: {format: console, level: debug}\n")
    config = settings(Options(None, None, path, log_format=None, log_level=LogLevel.ERROR))
    assert config.bind_in_flight == 7
    assert config.logging == Logging(format=LogFormat.CONSOLE, level=LogLevel.ERROR)
