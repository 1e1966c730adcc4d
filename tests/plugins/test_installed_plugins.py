"""The program `ai-scheduler run` with plugins that pip installed: they decide where pods run, and faults are told."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from aischeduler.kube.access.server import connect
from aischeduler.kube.http.client import Client
from aischeduler.sandbox.http_server import HttpSandbox
from tests.controlplane.ports import free_ports
from tests.plugins.test_example_plugins import EXAMPLES, PIP, ROOT, run

TROUBLE = '''
"""A plugin that does what the label `trouble` of a pod says, and binds pods with the label `agent` itself."""

import asyncio
import json
import time
from urllib.request import Request, urlopen


class Trouble:
    name = "Trouble"
    reads = ("trouble",)

    def __init__(self, args):
        self.server = args["server"]
        self.fallen = set()

    def _fall(self, what):
        if what not in self.fallen:
            self.fallen.add(what)
            raise ValueError(f"{what} falls over")

    def filter_node(self, pod, node):
        if pod.mark("trouble") == "once":
            self._fall("once")
        if pod.mark("trouble") == "always":
            raise ValueError("always falls over")
        if pod.mark("trouble") == "slow":
            time.sleep(0.06)
        return None

    def holds(self, pod):
        if pod.labels.get("trouble") == "gate":
            self._fall("gate")
        return ""

    async def bind(self, pod, node, request):
        agent = pod.labels.get("agent")
        if agent is None:
            return False
        if agent == "falls":
            self._fall("falls")
        if agent == "lost":
            await asyncio.to_thread(self._post, request)
            raise ValueError("the answer is lost")
        await asyncio.to_thread(self._post, request)
        return True

    def _post(self, request):
        body = json.loads(request.body)
        body["metadata"]["annotations"]["example.com/agent"] = "yes"
        headers = {"Content-Type": "application/json"}
        with urlopen(Request(self.server + request.path, json.dumps(body).encode(), headers)):
            pass

    def post_bind(self, pod, node):
        if pod.labels.get("trouble") == "told":
            raise ValueError("told falls over")
'''
PROJECT = """
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "trouble"
version = "1.0"

[project.entry-points."aischeduler.plugins"]
Trouble = "trouble:Trouble"
"""
CONFIG = """
profiles:
  - plugins:
      multiPoint: {{enabled: [{{name: NodeMaintenance}}, {{name: LicenseServer}}, {{name: Trouble}}]}}
    pluginConfig:
      - {{name: LicenseServer, args: {{licenses: {{solver: 1}}}}}}
      - {{name: Trouble, args: {{server: "{server}"}}}}
"""
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
HANGS_SECONDS = 60


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the examples and a plugin with faults into a folder of their own, without the network."""
    source, target = tmp_path_factory.mktemp("trouble"), tmp_path_factory.mktemp("installed")
    (source / "trouble.py").write_text(TROUBLE)
    (source / "pyproject.toml").write_text(PROJECT)
    run(*PIP, "--target", str(target), *(str(one) for one in EXAMPLES), str(source), path=source)
    return target


@dataclass
class World:
    """A sandbox, a client, and the scheduler as a process of its own with the lines that it has logged."""

    client: Client
    address: str
    lines: list[dict[str, Any]] = field(default_factory=list)

    async def pod(self, name: str, gpu: int = 0, **labels: str) -> None:
        requests = {"cpu": "100m"} | ({"nvidia.com/gpu": str(gpu)} if gpu else {})
        container = {"name": "c", "image": "x", "resources": {"requests": requests, "limits": requests}}
        spec = {"schedulerName": "ai-scheduler", "containers": [container]}
        pod = {"metadata": {"name": name, "labels": labels}, "spec": spec}
        await self.client.post(PODS, json.dumps(pod).encode())

    async def listed(self, path: str) -> list[Any]:
        items: list[Any] = json.loads(await self.client.get(path))["items"]
        return items

    async def bound(self, name: str) -> Any:
        """Return a pod once it has a node."""

        async def found() -> Any:
            pods = {pod["metadata"]["name"]: pod for pod in await self.listed(PODS)}
            return pods[name] if pods[name]["spec"].get("nodeName") else None

        return await self.until(found)

    async def note(self, name: str, reason: str) -> str:
        """Return the text of the pod's first event of this reason."""

        async def found() -> str:
            events = [one for one in await self.listed(EVENTS) if one["reason"] == reason]
            return next((str(one["note"]) for one in events if one["regarding"]["name"] == name), "")

        return str(await self.until(found))

    async def line(self, event: str, **fields: str) -> dict[str, Any]:
        """Return the first line of this event with these fields."""

        async def found() -> dict[str, Any] | None:
            lines = [line for line in self.lines if line["event"] == event]
            return next((line for line in lines if all(line.get(key) == fields[key] for key in fields)), None)

        return dict(await self.until(found))

    async def until(self, condition: Callable[[], Awaitable[Any]]) -> Any:
        async with asyncio.timeout(HANGS_SECONDS):
            while not (result := await condition()):
                await asyncio.sleep(0.05)
        return result

    async def metric(self, name: str, plugin: str) -> float:
        """Return a metric of a plugin; 0 where it has none."""
        with await asyncio.to_thread(urlopen, f"http://{self.address}/metrics") as page:
            text = page.read().decode()
        start = f'{name}{{plugin="{plugin}"}} '
        return next((float(one.removeprefix(start)) for one in text.splitlines() if one.startswith(start)), 0.0)


def node(name: str, labels: dict[str, str] | None = None, gpu: int = 0) -> dict[str, Any]:
    amounts = {"cpu": "8", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": str(gpu)}
    metadata = {"name": name, "labels": labels or {}}
    return {"metadata": metadata, "status": {"capacity": amounts, "allocatable": amounts}}


@asynccontextmanager
async def running(installed: Path, folder: Path, *nodes: dict[str, Any]) -> AsyncIterator[World]:
    """Run the scheduler with the installed plugins at a sandbox that has these nodes."""
    kubeconfig, config, address = folder / "kubeconfig", folder / "ai.yaml", f"127.0.0.1:{free_ports(1)[0]}"
    async with HttpSandbox() as sandbox:
        kubeconfig.write_text(sandbox.kubeconfig)
        config.write_text(CONFIG.format(server=sandbox.url))
        async with Client(await connect(str(kubeconfig), None, lambda: 0.0)) as client:
            world = World(client, address)
            for one in nodes:
                await client.post("/api/v1/nodes", json.dumps(one).encode())
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "aischeduler", "run", "--kubeconfig", str(kubeconfig), "--config", str(config)),
                *("--no-leader-elect", f"--http-address={address}"),
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": f"{installed}{os.pathsep}{ROOT}"},
            )
            reading = asyncio.create_task(read_lines(process, world.lines))
            try:
                await world.line("synced")
                yield world
            finally:
                if process.returncode is None:
                    process.send_signal(signal.SIGTERM)
                await asyncio.wait_for(process.wait(), timeout=20)
                await reading


async def read_lines(process: asyncio.subprocess.Process, lines: list[dict[str, Any]]) -> None:
    assert process.stderr is not None
    while line := await process.stderr.readline():
        lines.append(json.loads(line) if line.startswith(b"{") else {"event": line.decode(), "level": "error"})


@pytest.mark.whole
async def test_pods_land_where_the_installed_examples_say(installed: Path, tmp_path: Path) -> None:
    leaving = node("a-leaving", {"example.com/maintenance": "soon"}, gpu=8)
    site = node("c-site", {"example.com/licenses": "solver"})
    async with running(installed, tmp_path, leaving, node("b-staying", gpu=8), site) as world:
        await world.pod("training", gpu=1)
        await world.pod("solves", license="solver")
        await world.pod("waits", license="solver")
        assert (await world.bound("training"))["spec"]["nodeName"] == "b-staying"
        assert (await world.bound("solves"))["spec"]["nodeName"] == "c-site"
        await world.pod("cad", license="cad")
        assert "3 node(s) were in a site without the license cad" in await world.note("cad", "FailedScheduling")
        pods = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in await world.listed(PODS)}
        assert pods["waits"] is None, "there is one license"
        assert [line for line in world.lines if line["level"] == "error"] == []


@pytest.mark.whole
async def test_exception_costs_one_attempt_and_is_named_and_faults_that_last_are_told(
    installed: Path, tmp_path: Path
) -> None:
    async with running(installed, tmp_path, node("n1"), node("n2")) as world:
        await world.pod("once", trouble="once")
        note = await world.note("once", "FailedScheduling")
        assert note.startswith("internal error: the plugin Trouble failed when the scheduler tried to schedule this")
        assert (await world.bound("once"))["spec"]["nodeName"] in ("n1", "n2")
        line = await world.line("internal error", plugin="Trouble", pod="once")
        assert "ValueError: once falls over" in line["exception"]
        assert await world.metric("ai_scheduler_plugin_errors_total", "Trouble") == 1.0, "it cost one attempt"

        await world.pod("gate", trouble="gate")
        await world.bound("gate")
        assert (await world.line("internal error", plugin="Trouble", pod="gate"))["step"] == "event"

        await world.pod("slow", trouble="slow")
        await world.bound("slow")
        slow = await world.line("plugin slow", plugin="Trouble")
        assert slow["seconds"] >= 0.06
        assert await world.metric("ai_scheduler_plugin_seconds_total", "Trouble") >= 0.12

        before = await world.metric("ai_scheduler_plugin_errors_total", "Trouble")
        for number in range(5):
            await world.pod(f"always-{number}", trouble="always")
        keeps = await world.line("plugin keeps failing", plugin="Trouble")
        assert (keeps["method"], keeps["reason"]) == ("filter_node", "ValueError('always falls over')")
        assert await world.metric("ai_scheduler_plugin_errors_total", "Trouble") > before
        await world.pod("other")
        await world.bound("other")


@pytest.mark.whole
async def test_plugin_binds_pods_itself_and_the_scheduler_binds_the_others(installed: Path, tmp_path: Path) -> None:
    async with running(installed, tmp_path, node("n1")) as world:
        for agent in ("works", "falls", "lost"):
            await world.pod(agent, agent=agent)
        await world.pod("plain")
        await world.pod("told", trouble="told")
        pods = {name: await world.bound(name) for name in ("works", "falls", "lost", "plain", "told")}
        marked = {name: "example.com/agent" in pod["metadata"]["annotations"] for name, pod in pods.items()}
        assert marked == {"works": True, "falls": True, "lost": True, "plain": False, "told": False}
        decided = {"scheduling.resource.aibee.cn/pool", "scheduling.resource.aibee.cn/decision"}
        assert all(decided <= pod["metadata"]["annotations"].keys() for pod in pods.values())
        why = "binding to node n1 failed: the plugin Trouble did not bind it: ValueError('falls falls over')"
        assert await world.note("falls", "FailedScheduling") == why
        await world.note("lost", "Scheduled")
        refused = [line for line in world.lines if line["event"] == "bind refused"]
        assert [line["pod"] for line in refused] == ["falls"], "the pod whose answer was lost is bound all the same"
        told = await world.line("job failed", job="plugin Trouble")
        assert "ValueError" in told["exception"]
        assert await world.metric("ai_scheduler_plugin_errors_total", "Trouble") == 3.0
