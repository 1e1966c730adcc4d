"""The device reporter as a program: what it prints, what it writes once, and how it ends."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from aischeduler.cli.app import main
from aischeduler.kube.access.server import connect
from aischeduler.kube.http.client import Client
from aischeduler.sandbox.http_server import HttpSandbox
from tests.chart.rendering import CHART
from tests.device_reporter.hosts import add_rdma, write_checkpoint

DEFINITION = yaml.safe_load((CHART / "files" / "devices" / "device-crd.yaml").read_text())
DEVICES = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
PATIENCE_SECONDS = 60.0


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[tuple[Client, list[str]]]:
    """A cluster with one node, and the options for its reporter; the node has an RDMA adapter."""
    add_rdma(tmp_path, functions=2)
    write_checkpoint(tmp_path, [])
    path = tmp_path / "kubeconfig"
    async with HttpSandbox() as sandbox:
        path.write_text(sandbox.kubeconfig)
        server = await connect(str(path), None, lambda: 0.0)
        async with Client(server) as client:
            definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            await client.post(definitions, json.dumps(DEFINITION).encode())
            await client.post("/api/v1/nodes", json.dumps({"metadata": {"name": "gpu-0"}}).encode())
            yield client, ["device-reporter", "--host-root", str(tmp_path), "--kubeconfig", str(path)]


async def get(client: Client, path: str) -> Any:
    return json.loads(await client.get(path))


async def test_dry_run_prints_the_report_and_writes_nothing(
    cluster: tuple[Client, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    client, options = cluster
    assert await asyncio.to_thread(main, [*options, "--node-name", "gpu-0", "--dry-run"]) == 0
    device, node = yaml.safe_load_all(capsys.readouterr().out)
    assert [info["id"] for info in device["spec"]["devices"]] == ["0000:18:00.0"]
    assert node["status"]["capacity"] == {"kubernetes.io/rdma": "100", "koordinator.sh/rdma": "100"}
    assert (await get(client, DEVICES))["items"] == []


async def test_once_writes_one_report_for_the_node_of_the_environment(
    cluster: tuple[Client, list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client, options = cluster
    monkeypatch.setenv("NODE_NAME", "gpu-0")
    assert await asyncio.to_thread(main, [*options, "--once"]) == 0
    (device,) = (await get(client, DEVICES))["items"]
    (adapter,) = device["spec"]["devices"]
    assert [function["busID"] for function in adapter["vfGroups"][0]["vfs"]] == ["0000:18:00.1", "0000:18:00.2"]
    assert capsys.readouterr().out == ""


async def test_reporter_that_is_told_to_end_ends_with_success(cluster: tuple[Client, list[str]]) -> None:
    client, options = cluster
    command = [sys.executable, "-m", "aischeduler", *options]
    running = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, "NODE_NAME": "gpu-0"}, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (await get(client, DEVICES))["items"]:
            await asyncio.sleep(0.05)
        running.send_signal(signal.SIGTERM)
        _, log = await running.communicate()
    assert running.returncode == 0, log
    events = [json.loads(line)["event"] for line in log.splitlines()]
    assert (events[0], events[-1]) == ("device reporter started", "device reporter stopped")


def test_name_of_the_node_is_required(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)
    assert main(["device-reporter"]) == 2
    assert "Missing option '--node-name' (env var: 'NODE_NAME')" in capsys.readouterr().err


async def test_unknown_node_is_told_in_one_sentence(
    cluster: tuple[Client, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    _, options = cluster
    assert await asyncio.to_thread(main, [*options, "--node-name", "gpu-9", "--once"]) == 1
    assert 'ai-scheduler: 404 NotFound: nodes "gpu-9" not found' in capsys.readouterr().err
